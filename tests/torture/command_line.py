"""Nonsense on the command line: every option of every command, with values that it is not made for.

It is to end with exit code 0, with 1 and a line that begins with the command, or with argparse's 2; in time, within its
memory, without a traceback, and with nothing left running.
"""

import dataclasses
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lion import recipes
from tests.torture import Campaign
from tests.torture.children import Children
from tests.torture.small_runs import commands, make, write_data

SECONDS = 60.0
NUMBERS = ["0", "-1", "1", "2", "3", "7", "-0.0", "0.5", "1.5", "1e3", "1e-300", "5e-324", "1e300", "-1e300", "1e999"]
NUMBERS += ["nan", "-nan", "inf", "-inf", "99999999999999999999", "-9223372036854775809", "18446744073709551616"]
NUMBERS += ["9" * 5000, "0x10", "1_0", "٣", "½", "1,2", "2,3", "0,0", "1,2,3", "nan,nan", "0.9", "0.9,1"]
WORDS = [
    "",
    " ",
    "none",
    "None",
    "true",
    "no",
    "x",
    "lion_s",
    "softmax",
    "mean",
    "token",
    "snake",
    "snake,rows",
    "learned",
]
WORDS += [
    "☃",
    "ünï",
    "a\nb",
    "\x1b[31m",
    "\udcff",
    "'",
    '"',
    "[",
    "{}",
    "%s",
    "{x}",
    "*",
    "x" * 5000,
    "-",
    "a,b",
    ",",
    ";",
]
PATHS = ["missing", "/dev/null", "/proc/nothing", ".", "..", "texts", "genes.csv", "runs/images", "runs/images/model"]
PATHS += ["hf://", "hf://x", "bytes", "~nobody/x", "x/" * 600, "texts/*.txt", "[", "**", "texts/1.txt/x"]
FORMS = ["auto", "full", "rnn", "scan", "scam", "", "None"]
PLACES = ["missing/x.json", "/dev/null/x", "/proc/x", "", ".", "texts", "x" * 300]  # to write to, within the folder

# Of each command what is asked of it as it should be, and its options with the values to take. "{kind}" is a run.
COMMANDS: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    "eval": (["eval", "{images}"], {"--form": FORMS, "--batch": NUMBERS, "--test": PATHS + WORDS}),
    "eval text": (["eval", "{text}"], {"--form": FORMS, "--batch": NUMBERS, "--test": PATHS + WORDS}),
    "eval long_range": (["eval", "{long_range}"], {"--form": FORMS, "--test": ["test", "validation", *WORDS]}),
    "eval dna": (["eval", "{dna_classes}"], {"--batch": NUMBERS, "--test": PATHS + WORDS}),
    "predict": (["predict", "{images}", "texts"], {"--best": NUMBERS, "--form": FORMS, "": PATHS + WORDS}),
    "predict text": (["predict", "{text}", "a film"], {"--best": NUMBERS, "--form": FORMS, "": WORDS}),
    "predict mlm": (["predict", "{mlm}", "a [MASK]"], {"--best": NUMBERS, "--form": FORMS, "": WORDS}),
    "predict dna": (["predict", "{dna}", "AC[MASK]"], {"--best": NUMBERS, "--form": FORMS, "": WORDS}),
    "predict dna_classes": (["predict", "{dna_classes}", "ACGT"], {"--best": NUMBERS, "": WORDS}),
    "generate": (
        ["generate", "{causal}", "--tokens", "3"],
        {
            "--prompt": WORDS,
            "--tokens": [x for x in NUMBERS if x != "1e3"],
            "--mode": ["recurrence", "cache", "attention", *WORDS],
            "--temperature": NUMBERS,
            "--top-k": NUMBERS,
            "--beams": NUMBERS,
            "--seed": NUMBERS,
            "": WORDS,
        },
    ),
    "bench op": (
        [
            "bench",
            "op",
            "--shapes",
            "1,1,16,4",
            "--forms",
            "scan",
            "--rounds",
            "1",
            "--no-softmax",
            "--no-memory",
            "--json",
            "out.json",
        ],
        {
            "--shapes": [*NUMBERS, *WORDS, "1,1,1,1", "1,1,0,1", "9,9,9,99999999999999999999", "1,1,-3,4", "1,2,3,4,5"],
            "--forms": FORMS,
            "--backend": ["auto", "cpu", "torch", *WORDS],
            "--dtype": ["float64", "bfloat16", "float16", *WORDS],
            "--decay": ["none", "fixed", "diagonal", *WORDS],
            "--threads": NUMBERS,
            "--rounds": NUMBERS,
            "--device": ["cuda", "meta", "cpu:7", "cpu:x", *WORDS],
            "--json": PLACES,
        },
    ),
    "bench layer": (
        [
            "bench",
            "layer",
            "--batch",
            "1",
            "--tokens",
            "8",
            "--dim",
            "16",
            "--heads",
            "2",
            "--rounds",
            "1",
            "--json",
            "out.json",
        ],
        {f"--{name}": NUMBERS for name in ("batch", "tokens", "dim", "heads", "rounds")} | {"--json": PLACES},
    ),
    "bench kernel": (["bench", "kernel", "--rounds", "0"], {"--json": PLACES}),
    "bench vision": (
        [
            "bench",
            "vision",
            "--sizes",
            "tiny",
            "--pixels",
            "16",
            "--models",
            "lion_s",
            "--rounds",
            "1",
            "--no-training",
            "--json",
            "out.json",
        ],
        {
            "--sizes": ["tiny", *WORDS],
            "--pixels": NUMBERS,
            "--models": ["hydra", *WORDS],
            "--forms": FORMS,
            "--batch": NUMBERS,
            "--rounds": NUMBERS,
            "--json": PLACES,
        },
    ),
    "bench text": (
        [
            "bench",
            "text",
            "--sizes",
            "small",
            "--lengths",
            "8",
            "--models",
            "lion_s",
            "--rounds",
            "1",
            "--no-training",
            "--json",
            "out.json",
        ],
        {"--sizes": WORDS, "--lengths": NUMBERS, "--models": WORDS, "--rounds": NUMBERS, "--json": PLACES},
    ),
    "bench long": (
        [
            "bench",
            "long",
            "--lengths",
            "16",
            "--models",
            "lion_s",
            "--rounds",
            "1",
            "--no-training",
            "--no-mamba",
            "--json",
            "out.json",
        ],
        {"--lengths": NUMBERS, "--models": WORDS, "--rounds": NUMBERS, "--json": PLACES},
    ),
    "bench generate": (
        [
            "bench",
            "generate",
            "--sizes",
            "tiny",
            "--mixers",
            "lion_s",
            "--positions",
            "4",
            "--no-softmax",
            "--rounds",
            "1",
            "--json",
            "out.json",
        ],
        {
            "--sizes": ["tiny", *WORDS],
            "--mixers": WORDS,
            "--positions": NUMBERS,
            "--modes": ["recurrence", "cache", "attention", *WORDS],
            "--rounds": NUMBERS,
            "--json": PLACES,
        },
    ),
    "bench lengths": (
        ["bench", "lengths", "{mlm}", "--times", "1", "--tokens", "64", "--json", "out.json"],
        {"--times": NUMBERS, "--tokens": NUMBERS, "--json": PLACES, "": PATHS},
    ),
    "bench dna": (
        ["bench", "dna", "{dna}", "--orders", "1", "--json", "out.json"],
        {"--orders": NUMBERS, "--json": PLACES, "": PATHS},
    ),
    "data listops": (
        [
            "data",
            "listops",
            "--out",
            "lists",
            "--counts",
            "4",
            "4",
            "4",
            "--min-length",
            "5",
            "--max-length",
            "20",
            "--max-depth",
            "3",
            "--processes",
            "1",
        ],
        {
            "--seed": NUMBERS,
            "--min-length": NUMBERS,
            "--max-length": NUMBERS,
            "--max-depth": NUMBERS,
            "--max-args": NUMBERS,
            "--processes": NUMBERS,
            "--data": PATHS,
            "--out": PLACES,
        },
    ),
    "data pathfinder": (
        [
            "data",
            "pathfinder",
            "--out",
            "paths",
            "--counts",
            "1",
            "1",
            "1",
            "--contour-length",
            "6",
            "--processes",
            "1",
        ],
        {
            "--seed": NUMBERS,
            "--size": ["32", "16", *NUMBERS],
            "--contour-length": NUMBERS,
            "--processes": NUMBERS,
            "--data": PATHS,
            "--out": PLACES,
        },
    ),
    "data text": (["data", "text", "--out", "arrays"], {"--seed": NUMBERS, "--data": PATHS, "--out": PLACES}),
    "data image": (["data", "image", "--out", "arrays"], {"--data": PATHS, "--out": PLACES}),
    "data retrieval": (["data", "retrieval", "--data", "texts", "--out", "arrays"], {"--data": PATHS, "--out": PLACES}),
    "list": (["list"], {"": ["models", "variants", *WORDS], "--draw": PLACES}),
    "doctor": (["doctor"], {"--x": WORDS[:4]}),
    "demo": (["demo", "--max-length", "3"], {"--max-length": [x for x in NUMBERS if x != "1e3"], "--out": PLACES}),
    "distill": (
        ["distill", "text", "--steps", "1", "--epochs", "0"],
        {"--teacher": PATHS + WORDS, "--data": PATHS, "--mixer": WORDS, "--length": NUMBERS, "--out": PLACES},
    ),
    "resume": (["train", "--resume", "--out", "missing"], {"--out": PLACES + PATHS, "": WORDS}),
}
TRAINED = ("images", "mlm", "causal", "text", "long_range", "dna", "dna_classes")
# Numbers that an option takes, and that would keep it busy for long.
LONG = {"--tokens": {"1e3"}, "--rounds": {"7"}, "--max-length": {"7"}}
KEPT = {"recompute", "workers"}  # of a run, fields that are tried rarely: they start processes


def fields(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a run as the command line calls it, and its value."""
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from fields(value, "" if name == "task" else f"{name}.")
        else:
            yield name, value


def nasty_values(value: Any, name: str) -> list[str]:
    if name in ("data", "test", "tokenizer", "start", "teacher", "distill.teacher"):
        return PATHS + WORDS
    return NUMBERS + WORDS[:6] if isinstance(value, int | float | tuple) else WORDS + NUMBERS[:4]


def training(kind: str, home: Path, generator: random.Random) -> list[str]:
    given = commands(home)[kind]
    known = list(fields(recipes.recipe(given[0])))
    argv = ["train", *given, "--steps", "1", "--out", "new"]
    for name, value in generator.sample(known, generator.choice((1, 1, 2, 3))):
        argv += [f"--{name}", generator.choice(nasty_values(value, name))]
    if generator.random() < 0.1:
        argv += ["--out", generator.choice(PLACES)]
    return argv


def other(home: Path, generator: random.Random) -> list[str]:
    usual, options = COMMANDS[generator.choice(list(COMMANDS))]
    argv = [part.format_map({kind: str(home / "runs" / kind) for kind in TRAINED}) for part in usual]
    for name in generator.sample(list(options), min(len(options), generator.choice((1, 1, 2, 3)))):
        value = generator.choice([x for x in options[name] if x not in LONG.get(name, ())])
        argv += [name, value] if name else [value]
    if generator.random() < 0.05:
        argv.insert(generator.randrange(len(argv) + 1), generator.choice(WORDS))
    return argv


def run(count: int, seed: int) -> list[Campaign]:
    found = [Campaign("command line, training"), Campaign("command line, other commands")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with Children(home) as children:
            write_data(home)
            make(home, children, TRAINED)
            for n in range(count):
                generator = random.Random(f"{seed} {n}")
                first = n % 2 == 0
                argv = training(generator.choice(TRAINED), home, generator) if first else other(home, generator)
                with found[not first].attempt(f"attempt {n}, lion {argv}"):
                    children.run("tests.torture.command_line:fresh", argv, seconds=SECONDS).check()
    return found


def fresh(argv: list[str]) -> int:
    """A call of `lion` in a folder of its own, which is removed again; the data is beside it."""
    import os

    from lion.cli import main

    home = Path.cwd()
    with tempfile.TemporaryDirectory(dir=home) as folder:
        for name in ("texts", "genes.csv", "genome.fa", "runs"):
            (Path(folder) / name).symlink_to(home / name)
        os.chdir(folder)
        try:
            return main(argv)
        finally:
            os.chdir(home)

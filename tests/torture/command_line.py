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
from lion.models.baselines import BASELINES
from lion.nn.decay import DECAYS
from lion.nn.feature_maps import FEATURE_MAPS
from lion.nn.orders import ORDERS
from lion.nn.variants import VARIANTS
from lion.ops.checks import DIRECTIONS, NORMS
from tests.torture import Campaign
from tests.torture.children import Children
from tests.torture.small_runs import commands, make

SECONDS = 60.0


def words(text: str) -> list[str]:
    return text.split()


# Numbers as an option expects them, as they are sensible or not; and what is none, or not one.
WHOLE = words("0 -1 1 2 3 5 7 8 17 64 999 4096 65536 65537 1048577 99999999999999999999 -9223372036854775809")
REAL = words("0 -0.0 -1 1 2 0.1 0.5 0.9 0.999 1.5 3 1e-5 1e-30 1e-300 5e-324 1e30 1e300 -1e300 1e999 nan inf -inf")
STRANGE = ["", " ", *words("1,2 2,3 0,0 1,2,3 nan,nan 0x10 1_0 ٣ ½ None true x -"), "9" * 5000]
SMALL = words("0 -1 1 2 3 5 99999999999999999999 -9223372036854775809")  # where more would only take long
NUMBERS = [*WHOLE, *REAL, *STRANGE]
FEW = [*SMALL, *STRANGE, "nan", "inf", "1e300", "1.5"]
WORDS = ["", " ", *words("none None true no x a,b , ; - [ {} %s {x} * ☃ ünï ' [MASK] ACGT"), "x" * 5000]
WORDS += ["a\nb", "\x1b[31m", "\udcff", '"', "the film"]
PATHS = words(
    "missing /dev/null /proc/nothing . .. texts genes.csv genome.fa texts/reviews.csv texts/1.txt/x texts/*.txt"
)
PATHS += words(
    "runs/images runs/images/model runs/text runs/mlm runs/causal/model runs/dna_classes hf:// hf://x bytes [ **"
)
PATHS += ["~nobody/x", "x/" * 600]
FORMS = ["auto", "full", "rnn", "chunk", "scan", "scam", "", "None"]
BACKENDS = ["auto", "cpu", "torch", "moon", "", "None"]
PLACES = ["missing/x.json", "/dev/null/x", "/proc/x", "", ".", "texts", "x" * 300]  # to write to, within the folder
NAMES = [*VARIANTS, *BASELINES, *FEATURE_MAPS, *DECAYS, *NORMS, *ORDERS, *DIRECTIONS]
NAMES += words("alternating snake,rows learned mean token pair sequence soft hard linear constant bfloat16 reflect")
NAMES += words("digits folder cifar10 imdb splice cola line paragraph file")
MODELS = ["lion_s", "softmax", "hydra", "vim", "mamba", *WORDS]

# Of each command what is asked of it as it should be, and its options with the values to take. "{kind}" is a run.
COMMANDS: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    "eval": (
        ["eval", "{images}"],
        {"--form": FORMS, "--backend": BACKENDS, "--batch": NUMBERS, "--test": PATHS + WORDS},
    ),
    "eval text": (["eval", "{text}"], {"--form": FORMS, "--batch": NUMBERS, "--test": PATHS + WORDS}),
    "eval long_range": (["eval", "{long_range}"], {"--form": FORMS, "--test": ["test", "validation", *WORDS]}),
    "eval dna": (["eval", "{dna_classes}"], {"--batch": NUMBERS, "--test": PATHS + WORDS}),
    "predict": (["predict", "{images}", "texts"], {"--best": NUMBERS, "--form": FORMS, "": PATHS + WORDS}),
    "predict text": (["predict", "{text}", "a film"], {"--best": NUMBERS, "--form": FORMS, "": PATHS + WORDS}),
    "predict files": (
        ["predict", "{text}", "--file", "texts/reviews.csv", "--format", "csv"],
        {
            "--file": PATHS + WORDS,
            "--column": WORDS,
            "--format": ["table", "json", "jsonl", *WORDS],
            "--out": PLACES,
            "--best": NUMBERS,
            "--batch": NUMBERS,
            "--backend": BACKENDS,
        },
    ),
    "predict mlm": (["predict", "{mlm}", "a [MASK]"], {"--best": NUMBERS, "--form": FORMS, "": WORDS}),
    "predict dna": (["predict", "{dna}", "AC[MASK]"], {"--best": NUMBERS, "--form": FORMS, "": WORDS}),
    "predict dna_classes": (["predict", "{dna_classes}", "ACGT"], {"--best": NUMBERS, "": WORDS}),
    "generate": (
        ["generate", "{causal}", "--tokens", "3"],
        {
            "--prompt": WORDS,
            "--tokens": FEW,
            "--mode": ["recurrence", "cache", "attention", *WORDS],
            "--temperature": NUMBERS,
            "--top-k": NUMBERS,
            "--beams": FEW,
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
            "--threads": FEW,
            "--rounds": FEW,
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
        {f"--{name}": NUMBERS for name in ("batch", "tokens", "dim", "heads")} | {"--rounds": FEW, "--json": PLACES},
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
            "--models": MODELS,
            "--forms": FORMS,
            "--batch": NUMBERS,
            "--rounds": FEW,
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
        {"--sizes": WORDS, "--lengths": NUMBERS, "--models": MODELS, "--rounds": FEW, "--json": PLACES},
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
        {"--lengths": NUMBERS, "--models": MODELS, "--rounds": FEW, "--json": PLACES},
    ),
    "bench generate": (
        [
            "bench",
            "generate",
            "--sizes",
            "tiny",
            "--variants",
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
            "--variants": MODELS,
            "--positions": NUMBERS,
            "--modes": ["recurrence", "cache", "attention", *WORDS],
            "--rounds": FEW,
            "--json": PLACES,
        },
    ),
    "bench lengths": (
        ["bench", "lengths", "{mlm}", "--times", "1", "--tokens", "64", "--json", "out.json"],
        {"--times": FEW, "--tokens": NUMBERS, "--json": PLACES, "": PATHS},
    ),
    "bench decays": (
        ["bench", "decays", "{mlm}", "--examples", "2", "--json", "out.json"],
        {"--examples": FEW, "--json": PLACES, "": PATHS},
    ),
    "bench dna": (
        ["bench", "dna", "{dna}", "--orders", "1", "--json", "out.json"],
        {"--orders": FEW, "--json": PLACES, "": PATHS},
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
            "--processes": FEW,
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
            "--contour-length": FEW,
            "--processes": FEW,
            "--data": PATHS,
            "--out": PLACES,
        },
    ),
    "data text": (["data", "text", "--out", "arrays"], {"--seed": NUMBERS, "--data": PATHS, "--out": PLACES}),
    "data image": (["data", "image", "--out", "arrays"], {"--data": PATHS, "--out": PLACES}),
    "data retrieval": (["data", "retrieval", "--data", "texts", "--out", "arrays"], {"--data": PATHS, "--out": PLACES}),
    "list": (["list"], {"": ["models", "variants", *WORDS], "--draw": PLACES}),
    "doctor": (["doctor"], {"--x": WORDS[:4]}),
    "demo": (["demo", "--max-length", "3"], {"--max-length": ["0", "-1", "3", "255", *STRANGE], "--out": PLACES}),
    "distill": (
        ["distill", "text", "--steps", "1", "--epochs", "0"],
        {"--teacher": PATHS + WORDS, "--data": PATHS, "--variant": NAMES, "--length": NUMBERS, "--out": PLACES},
    ),
    "resume": (["train", "--resume", "--out", "missing"], {"--out": PLACES + PATHS, "": WORDS}),
}
TRAINED = ("images", "mlm", "causal", "text", "text_distill", "long_range", "dna", "dna_classes")
SLOW = ("steps", "epochs", "model.depth", "counts", "workers", "accumulate")


def fields(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a run as the command line calls it, and its value."""
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from fields(value, "" if name == "task" else f"{name}.")
        else:
            yield name, value


def nasty_values(value: Any, name: str, generator: random.Random) -> list[str]:
    """Mostly of the kind that is asked for."""
    if generator.random() < 0.15:
        return STRANGE + WORDS
    if name in ("data", "test", "tokenizer", "start", "teacher", "distill.teacher"):
        return PATHS
    if isinstance(value, bool):
        return ["true", "false"]
    if name in SLOW:
        return SMALL
    if isinstance(value, int):
        return WHOLE
    if isinstance(value, float) or name == "optim.betas":
        return REAL
    return NAMES


def training(kind: str, home: Path, generator: random.Random) -> list[str]:
    given = commands(home)[kind]
    known = list(fields(recipes.recipe(given[0])))
    argv = ["train", *given, "--steps", "1", "--out", "new"]
    for name, value in generator.sample(known, generator.choice((1, 1, 2, 3))):
        argv += [f"--{name}", generator.choice(nasty_values(value, name, generator))]
    if generator.random() < 0.1:
        argv += ["--out", generator.choice(PLACES)]
    return argv


def other(home: Path, generator: random.Random) -> list[str]:
    usual, options = COMMANDS[generator.choice(list(COMMANDS))]
    argv = [part.format_map({kind: str(home / "runs" / kind) for kind in TRAINED}) for part in usual]
    for name in generator.sample(list(options), min(len(options), generator.choice((1, 1, 2, 3)))):
        value = generator.choice(options[name])
        argv += [name, value] if name else [value]
    if generator.random() < 0.05:
        argv.insert(generator.randrange(len(argv) + 1), generator.choice(WORDS))
    return argv


def run(numbers: range, seed: int) -> list[Campaign]:
    found = [Campaign("command line, training"), Campaign("command line, other commands")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        children = Children(home)
        make(home, children, ["images"])
        for number in numbers:
            generator = random.Random(f"{seed} {number}")
            first = number % 2 == 0
            argv = training(generator.choice(TRAINED), home, generator) if first else other(home, generator)
            make(home, children, [kind for kind in TRAINED if f"runs/{kind}" in " ".join(argv)])
            with found[not first].attempt(f"number {number}: lion {argv}"):
                children.run("tests.torture.command_line:fresh", argv, seconds=SECONDS).check()
    return found


def fresh(argv: list[str]) -> int:
    """A call of `lion` in a folder of its own, which is removed again; the data is beside it."""
    import os

    from lion.cli import main

    home = Path.cwd()
    with tempfile.TemporaryDirectory(dir=home) as folder:
        for name in ("texts", "teacher", "genes.csv", "genome.fa", "runs"):
            (Path(folder) / name).symlink_to(home / name)
        os.chdir(folder)
        try:
            return main(argv)
        finally:
            os.chdir(home)

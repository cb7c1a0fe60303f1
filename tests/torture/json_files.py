"""Files of a run that somebody has edited: values of other types, huge, negative and none, keys lost, added and
exchanged, bytes damaged. The run is then resumed, evaluated or asked: that works, or ends with a line that says what is
wrong.
"""

import contextlib
import copy
import io
import json
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture import Campaign, Lost
from tests.torture.children import Children
from tests.torture.small_runs import make


class Kind(NamedTuple):
    run: str  # of small_runs
    file: str
    calls: list[str]  # of `lion`, one of them each time; "{run}" is the run's folder
    lines: bool = False  # every line is JSON


RESUME = "train --resume --out {run}"
KINDS = {
    "run.json": [
        Kind("images", "run.json", [RESUME, "eval {run}", "predict {run} {image}"]),
        Kind("text", "run.json", [RESUME, "eval {run}", "predict {run} film"]),
        Kind("causal", "run.json", [RESUME, "eval {run}", "generate {run} --tokens 2"]),
        Kind("dna_classes", "run.json", [RESUME, "eval {run}", "predict {run} ACGT"]),
        Kind("long_range", "run.json", [RESUME, "eval {run}"]),
    ],
    "config.json, vision": [Kind("images", "model/config.json", ["eval {run}", "predict {run} {image}"])],
    "config.json, text": [
        Kind("text", "model/config.json", ["eval {run}", "predict {run} film"]),
        Kind("mlm", "model/config.json", ["eval {run}", "predict {run} [MASK]"]),
    ],
    "config.json, causal": [Kind("causal", "model/config.json", ["eval {run}", "generate {run} --tokens 2"])],
    "generation_config.json": [Kind("causal", "model/generation_config.json", ["generate {run} --tokens 2"])],
    "tokenizer.json and its config": [
        Kind("text", "model/tokenizer.json", ["eval {run}", "predict {run} film"]),
        Kind("text", "model/tokenizer_config.json", ["eval {run}", "predict {run} film"]),
    ],
    "state.json": [Kind("images", "checkpoints/step-00000002/state.json", [RESUME])],
    "environment.json and result.json": [
        Kind("images", "environment.json", [RESUME]),
        Kind("images", "result.json", [RESUME, "eval {run}"]),
    ],
    "metrics.jsonl": [Kind("images", "metrics.jsonl", [RESUME], lines=True)],
}
NUMBERS: list[Any] = [0, -1, 1, 2, 3, 7, -0.0, 0.5, 1.5, 1e-300, 1e300, float("inf"), float("nan"), 10**20, -(10**20)]
NUMBERS += [2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400]
OTHERS: list[Any] = [
    None,
    True,
    False,
    "",
    "x",
    "none",
    "☃",
    "\udcff",
    "a\nb",
    "x" * 5000,
    [],
    {},
    [None],
    [[1, 2]],
    {"x": 1},
]
OTHERS += ["1", "nan", "../..", "/dev/null", "softmax", "lion_d", "mean", "learned", "float16", "images", "text"]


def places(x: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where there is a value, within objects and lists."""
    yield path
    inner = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


def at(x: Any, path: tuple) -> Any:
    for key in path:
        x = x[key]
    return x


def put(x: Any, path: tuple, value: Any) -> Any:
    if not path:
        return value
    at(x, path[:-1])[path[-1]] = value
    return x


def _value(x: Any, path: tuple, generator: random.Random) -> Any:
    return put(x, path, copy.deepcopy(generator.choice(NUMBERS if generator.random() < 0.5 else OTHERS)))


def _removed(x: Any, path: tuple, generator: random.Random) -> Any:
    if path:
        del at(x, path[:-1])[path[-1]]
    return x


def _added(x: Any, path: tuple, generator: random.Random) -> Any:
    found = at(x, path)
    if isinstance(found, dict):
        found[generator.choice(["x", "", "kind", "model", "lr", "☃", "__class__", "self"])] = generator.choice(OTHERS)
    elif isinstance(found, list):
        found.append(generator.choice(OTHERS))
    return x


def _exchanged(x: Any, path: tuple, generator: random.Random) -> Any:
    """A value from elsewhere in the file."""
    return put(x, path, copy.deepcopy(at(x, generator.choice(list(places(x))))))


def _wrapped(x: Any, path: tuple, generator: random.Random) -> Any:
    return put(x, path, generator.choice(([at(x, path)], {"x": at(x, path)}, str(at(x, path)))))


def _deep(x: Any, path: tuple, generator: random.Random) -> Any:
    found: Any = 1
    for _ in range(generator.choice((3, 100, 600))):
        found = [found] if generator.random() < 0.5 else {"x": found}
    return put(x, path, found)


CHANGES: list[Callable[[Any, tuple, random.Random], Any]] = [_value] * 6 + [
    _removed,
    _added,
    _exchanged,
    _wrapped,
    _deep,
]


def _damaged(content: bytes, generator: random.Random) -> bytes:
    where = generator.randrange(len(content))
    return generator.choice(
        [
            content[:where],
            content[:where] + b"\xff\xfe" + content[where:],
            content[:where] + bytes([generator.randrange(256)]) + content[where + 1 :],
            content[:where] + b"1e999" + content[where:],
            content[:where] + b"[" * 100_000 + content[where:],
            b"\xef\xbb\xbf" + content,
            content.decode().encode("utf-16"),
            b"9" * 5000,
            content + content,
            b"",
            b"null",
            b"[]",
            b'"x"',
            b"\0" * 100,
        ]
    )


def mutate(path: Path, generator: random.Random, *, lines: bool = False) -> str:
    """Change a file, and say how."""
    content = path.read_bytes()
    if generator.random() < 0.02:
        path.unlink()
        if generator.random() < 0.5:
            path.mkdir()
        return "a folder in its place, or nothing"
    if generator.random() < 0.15:
        path.write_bytes(_damaged(content, generator))
        return "damaged bytes"
    parsed = [json.loads(line) for line in content.splitlines()] if lines else json.loads(content)
    said = []
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        where = generator.choice(list(places(parsed)))
        change = generator.choice(CHANGES)
        parsed = change(parsed, where, generator)
        said.append(f"{change.__name__} at {'.'.join(map(str, where))[:80]}")
        if change is _deep:  # too deep to be looked through once more
            break
    if lines and isinstance(parsed, list):
        path.write_text("".join(json.dumps(row) + "\n" for row in parsed))
    else:
        path.write_text(json.dumps(parsed))
    return ", ".join(said)


def attempts(given: list[Any]) -> Callable[[int], None]:
    home, name, seed = given
    return lambda number: attempt(Path(home), name, random.Random(f"{seed} {name} {number}"))


def attempt(home: Path, name: str, generator: random.Random) -> None:
    from lion.cli import main

    kind = generator.choice(KINDS[name])
    with tempfile.TemporaryDirectory(dir=home) as folder:
        run = Path(folder) / "run"
        shutil.copytree(home / "runs" / kind.run, run, ignore=shutil.ignore_patterns("tensorboard", "curves.png"))
        said, call = mutate(run / kind.file, generator, lines=kind.lines), generator.choice(kind.calls)
        stdout, stderr = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                code = main([part.format(run=run, image=home / "image.png") for part in call.split()])
        except BaseException as problem:
            last = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            raise Lost(f"{said}; {call}: {type(problem).__name__}: {str(problem)[:200]} ({place})") from None
        lines = stderr.getvalue().strip().splitlines()
        if code != 0 and not (code == 1 and lines and lines[-1].startswith("lion ")):
            raise Lost(f"{said}; {call}: it ended with {code}: {lines}")


def run(numbers: range, seed: int) -> list[Campaign]:
    """Of each kind of file."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        children = Children(home)
        make(home, children, dict.fromkeys(kind.run for kinds in KINDS.values() for kind in kinds))
        Image.new("L", (8, 8), 7).save(home / "image.png")
        return [
            Campaign(f"JSON, {name}").all(children.attempts(f"{__name__}:attempts", [folder, name, seed], numbers))
            for name in KINDS
        ]

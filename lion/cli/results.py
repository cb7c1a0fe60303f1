"""Results of `lion predict` as text: a table, CSV or JSON. All are written while results come in."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lion.terminal import brief, columns
from lion.train.predictions import Result

WIDEST = 48  # characters of a text in a table
MOST = 1000  # classes of an input in CSV


class Shape(NamedTuple):
    """What all results of a run have in common."""

    numbers: bool  # not classes
    paths: bool  # inputs are paths
    texts: bool  # inputs have texts beside their names
    best: int  # classes of an input
    batch: int  # inputs at once


def _table(results: Iterator[Result], shape: Shape) -> Iterator[str]:
    """The first batch decides the widths of the columns."""
    header = ("input", "value") if shape.numbers else ("input", "class", "probability")
    first = [row for x in itertools.islice(results, shape.batch) for row in _rows(x, shape)]
    line = columns(header, [cells for cells, _ in first])
    yield f"{line(header)}\n{line(None)}\n"
    for cells, error in itertools.chain(first, (row for x in results for row in _rows(x, shape))):
        yield f"{line(cells)}  {error}".rstrip() + "\n"


def _rows(result: Result, shape: Shape) -> Iterator[tuple[tuple[str, ...], str]]:
    """Cells, and an error to put beside them."""
    name, given, text = result.input
    if text:
        name = f"{name}: {brief(text, WIDEST)}"
    elif given == name and not shape.paths:
        name = brief(name, WIDEST)
    name = _printable(name)
    if result.error is not None:
        yield (name, "-") if shape.numbers else (name, "-", "-"), f"error: {brief(_printable(str(result.error)))}"
    elif result.value is not None:
        yield (name, f"{result.value:.6g}"), ""
    for number, guess in enumerate(result.guesses):
        yield (name if number == 0 else "", _printable(guess.label), f"{guess.probability:.1%}"), ""


def _csv(results: Iterator[Result], shape: Shape) -> Iterator[str]:
    best = min(shape.best, MOST)
    numbered = ["", *(f"_{n}" for n in range(2, best + 1))]
    found = ["value"] if shape.numbers else [f"{name}{n}" for n in numbered for name in ("class", "probability")]
    buffer = io.StringIO()
    writer = csv.DictWriter(
        buffer, ["input", *(["text"] if shape.texts else []), *found, "error"], lineterminator="\n", restval=""
    )
    writer.writeheader()
    for result in itertools.chain([None], results):
        if result is not None:
            row = _plain(result, shape._replace(best=1))
            for n, guess in zip(numbered, result.guesses, strict=False):
                row |= {f"class{n}": guess.label, f"probability{n}": _number(guess.probability)}
            writer.writerow({name: _encodable(x) if isinstance(x, str) else x for name, x in row.items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _json(results: Iterator[Result], shape: Shape) -> Iterator[str]:
    start = "[\n"
    for result in results:
        yield f"{start}  {json.dumps(_plain(result, shape))}"
        start = ",\n"
    yield "[]\n" if start == "[\n" else "\n]\n"


def _json_lines(results: Iterator[Result], shape: Shape) -> Iterator[str]:
    for result in results:
        yield f"{json.dumps(_plain(result, shape))}\n"


def _plain(result: Result, shape: Shape) -> dict[str, Any]:
    plain: dict[str, Any] = {"input": result.input.name}
    if shape.texts:
        plain["text"] = result.input.text
    if result.error is not None:
        return plain | {"error": " ".join(str(result.error).split())}
    if result.value is not None:
        return plain | {"value": _number(result.value)}
    best = [{"class": x.label, "probability": _number(x.probability)} for x in result.guesses]
    return plain | best[0] | ({"best": best} if shape.best > 1 else {})


def _number(x: float) -> float:
    return float(f"{x:.6g}")


def _printable(text: str) -> str:
    return "".join(x if x.isprintable() else " " for x in text)


def _encodable(text: str) -> str:
    """Bytes of a name or of the command line that are not UTF-8 become question marks."""
    return text.encode(errors="replace").decode()


FORMATS: dict[str, Callable[[Iterator[Result], Shape], Iterator[str]]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "jsonl": _json_lines,
}

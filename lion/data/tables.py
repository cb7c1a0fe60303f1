"""Text files and tables, read piece by piece: UTF-8 text, CSV, TSV, JSON lines, Parquet and Arrow."""

import codecs
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lion.data.sources.archives import reading
from lion.optional import need
from lion.terminal import brief, listed

BLOCK = 1 << 20  # bytes read at a time
UNREADABLE = "get it again, or allow to read it"


class Row(NamedTuple):
    number: int  # of the row's first line in the file; of the row itself in formats without lines; from 1
    fields: dict[str, Any]


def ending(path: Path) -> str:
    """The ending of a file's name, without .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def place(path: Path, number: int) -> str:
    return f"{path}, {'row' if ending(path) in ('.parquet', '.arrow', '.npz') else 'line'} {number}"


def check_file(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; expected {wanted}.")


def text_blocks(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file, block by block; all line ends become \\n."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    line, block = 1, b"."
    open_file: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with reading(str(path), UNREADABLE):
        file = open_file(path, "rb")
    with file:
        while block:
            with reading(str(path), UNREADABLE):
                block = file.read(BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as problem:
                bad = problem.object[problem.start]
                line += problem.object[: problem.start].count(b"\n")
                raise ValueError(
                    f"{place(path, line)} has the byte {bad:#04x}, which is not UTF-8; expected UTF-8 text: "
                    "iconv -f latin1 -t utf-8, if it is text at all."
                ) from None
            if "\0" in text:
                line += text[: text.index("\0")].count("\n")
                raise ValueError(f"{place(path, line)} has a zero byte; expected text: is this a binary file?")
            line += text.count("\n")
            yield text


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file, with their ends. A line may be as long as the file: its parts are joined once."""
    parts: list[str] = []  # of the line that is not complete yet
    for text in text_blocks(path):
        first, *others = text.split("\n")
        parts.append(first)
        if others:
            yield "".join([*parts, "\n"])
            parts = [others.pop()]
            yield from (f"{line}\n" for line in others)
    if rest := "".join(parts):
        yield rest


def delimited(path: Path, delimiter: str, *, quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """The number of each row's first line, and its fields."""
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # the default, 131,072, is too little for texts
    rows = csv.reader(
        text_lines(path), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=True
    )
    while True:
        first = rows.line_num + 1
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error as problem:
            raise ValueError(
                f"{place(path, first)} cannot be read ({problem}); expected fields in double quotes, and double "
                'quotes inside of them doubled, "".'
            ) from None
        if fields:  # not an empty line
            yield first, fields


def _read_delimited(path: Path, delimiter: str) -> Iterator[Row]:
    rows = delimited(path, delimiter, quotes=True)
    _, names = next(rows, (0, []))
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{place(path, 1)} has two columns {listed([twice])}; expected different names.")
    for number, fields in rows:
        if len(fields) != len(names):
            raise ValueError(
                f"{place(path, number)} has {len(fields)} fields; expected {len(names)}, as in line 1 "
                f"({listed(names)}): put double quotes around a field that holds {delimiter!r} or a line end."
            )
        yield Row(number, dict(zip(names, fields, strict=True)))


def _read_json_lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise ValueError(
                f"{place(path, number)} is no JSON ({brief(problem)}); expected an object on every line, as "
                '{"text": "...", "label": 1}.'
            ) from None
        if not isinstance(fields, dict):
            raise ValueError(f"{place(path, number)} is a {type(fields).__name__}; expected an object, {{...}}.")
        yield Row(number, fields)


def _read_parquet(path: Path) -> Iterator[Row]:
    parquet = need("pyarrow.parquet", "pyarrow", "tables")
    with reading(str(path)):
        file = parquet.ParquetFile(path)
    with file:
        yield from _rows(path, file.iter_batches(batch_size=256))


def _read_arrow(path: Path) -> Iterator[Row]:
    """An Arrow stream, as Hugging Face's `datasets` writes them, or Arrow's file format."""
    arrow = need("pyarrow", "pyarrow", "tables")
    with reading(str(path)):
        source = arrow.memory_map(str(path))
    with source:
        with reading(str(path)):
            if source.read(6) == b"ARROW1":
                opened = arrow.ipc.open_file(source)
                batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
            else:
                source.seek(0)
                batches = iter(arrow.ipc.open_stream(source))
        yield from _rows(path, batches)


def _rows(path: Path, batches: Iterator[Any]) -> Iterator[Row]:
    number = 0
    while True:
        with reading(str(path)):
            batch = next(batches, None)
            if batch is None:
                return
            # In a damaged file, offsets that point outside would crash the process.
            batch.validate(full=True)
            rows = batch.to_pylist()
        for fields in rows:
            number += 1
            yield Row(number, fields)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": lambda path: _read_delimited(path, ","),
    ".tsv": lambda path: _read_delimited(path, "\t"),
    ".jsonl": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}


def records(path: Path) -> Iterator[Row]:
    """The rows of a table, one at a time."""
    if ending(path) not in READERS:
        raise ValueError(f"{path} ends in {ending(path)!r}; expected one of {', '.join(READERS)}.")
    check_file(path, "a file")
    return READERS[ending(path)](path)


def check_text(at: str, column: str, text: object) -> None:
    """That a field is text. JSON can have halves of characters, which are not."""
    if not isinstance(text, str):
        raise ValueError(f"{at} has a {type(text).__name__} in {column!r}; expected text.")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(f"{at} has half a character in {column!r} ({problem}); expected text: repair it.") from None

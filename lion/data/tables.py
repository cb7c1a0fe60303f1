"""Text files and tables, read piece by piece: text in UTF-8 or UTF-16, CSV, JSON, Parquet and Arrow."""

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lion.data.findings import Findings
from lion.data.sources.archives import reading
from lion.optional import need
from lion.terminal import brief, listed

BLOCK = 1 << 20  # bytes read at a time
UNREADABLE = "get it again, or allow to read it"
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLE = 50  # rows by which the delimiter and the header are found out
MISSING = ("", "?", "nan", "na", "n/a", "null", "none")  # what stands for nothing among numbers, in small letters
DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)")  # a number, where semicolons stand between fields
LONGEST_NAME = 60  # characters of a column's name: what is longer is data
Line = tuple[int, list[str]]  # the number of a row's first line in the file, and its fields


class Row(NamedTuple):
    number: int  # of the row's first line in the file; of the row itself in formats without lines; from 1
    fields: dict[str, Any]


def ending(path: Path) -> str:
    """The ending of a file's name, without .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def place(path: Path, number: int) -> str:
    return f"{path}, {'row' if ending(path) in ('.parquet', '.arrow', '.json', '.npz') else 'line'} {number}"


def check_file(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; expected {wanted}.")


def _opened(path: Path) -> Any:
    open_file: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with reading(str(path), UNREADABLE):
        return open_file(path, "rb")


def encoding(start: bytes) -> str:
    """The encoding of a file that begins so: UTF-16 by its mark, or by zeros in every other byte; or else UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [start[i:4096:2].count(0) / max(1, len(start[i:4096:2])) for i in (0, 1)]
    if max(zeros) > 0.4 and min(zeros) < 0.1:
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return "utf-8-sig"


def text_blocks(path: Path, errors: str = "strict") -> Iterator[str]:
    """The text of a file in UTF-8 or UTF-16, block by block; all line ends become \\n. `errors` is as for `open`."""
    line, decoder, block = 1, None, b"."
    with _opened(path) as file:
        while block:
            with reading(str(path), UNREADABLE):
                block = file.read(BLOCK)
            if decoder is None:
                coding = encoding(block)
                decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(coding)(errors), translate=True)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as problem:
                bad, name = problem.object[problem.start], coding[:6].rstrip("-").upper()
                line += problem.object[: problem.start].count(b"\n")
                raise ValueError(
                    f"{place(path, line)} has the byte {bad:#04x}, which is not {name}; expected {name} text: "
                    "iconv -f latin1 -t utf-8, if it is text at all."
                ) from None
            if "\0" in text:
                text = text[: text.index("\0")]
                line += text.count("\n")
                yield text  # the lines before it are good
                raise ValueError(f"{place(path, line)} has a zero byte; expected text: is this a binary file?")
            line += text.count("\n")
            yield text


def text_lines(path: Path, errors: str = "strict") -> Iterator[str]:
    """The lines of a file, with their ends. A line may be as long as the file: its parts are joined once."""
    parts: list[str] = []  # of the line that is not complete yet
    for text in text_blocks(path, errors):
        first, *others = text.split("\n")
        parts.append(first)
        if others:
            yield "".join([*parts, "\n"])
            parts = [others.pop()]
            yield from (f"{line}\n" for line in others)
    if rest := "".join(parts):
        yield rest


def delimited(path: Path, delimiter: str, *, quotes: bool, findings: Findings | None = None) -> Iterator[Line]:
    """The number of each row's first line, and its fields; between semicolons, 1,5 is 1.5. Without `findings`, the
    first bad row raises."""
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # the default, 131,072, is too little for texts
    lines = text_lines(path, findings.errors if findings else "strict")
    rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=True)
    seen = False
    while True:
        first = rows.line_num + 1
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error as problem:
            more = f", up to line {rows.line_num}" if rows.line_num > first else ""
            words = (
                f"{place(path, first)} cannot be read ({problem}{more}); expected fields in double quotes, and double "
                'quotes inside of them doubled, "".'
            )
            # Not to be left out: a quote that is never closed has swallowed all rows behind it, and the first row may
            # be the header.
            if findings is None or not seen or "end of data" in str(problem):
                raise ValueError(words) from None
            findings.bad(first, "with wrong quotes", words, count=rows.line_num - first + 1)
            continue
        if fields:  # not an empty line
            seen = True
            yield first, [_with_point(x) for x in fields] if delimiter == ";" else fields


def _with_point(field: str) -> str:
    found = DECIMAL_COMMA.fullmatch(field.strip())
    return field if found is None else ".".join(found.groups())


def delimiter_of(path: Path, usual: str, errors: str = "strict") -> str:
    """The delimiter by which most rows have as many fields as the first; in doubt the usual one."""

    def alike(delimiter: str) -> float:
        rows = delimited(path, delimiter, quotes=True, findings=Findings(path, errors=errors))
        counts: list[int] = []
        with contextlib.suppress(ValueError):  # said later, with the delimiter that was found
            counts.extend(len(fields) for _, fields in itertools.islice(rows, SAMPLE))
        return counts.count(counts[0]) / len(counts) if counts and counts[0] > 1 else 0

    return max(sorted(DELIMITERS, key=lambda x: x != usual), key=alike)  # of several, max takes the first


def _is_header(first: list[str], others: list[list[str]], known: Collection[str]) -> bool:
    """Whether the first row has the names of columns: one that is known, or nothing that looks like data."""
    if any(name.strip().lower() in known for name in first):
        return True
    if any(len(name) > LONGEST_NAME or _is_number(name) for name in first):
        return False
    return not any(name and name == x for row in others for name, x in zip(first, row, strict=False))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def numbered(count: int) -> list[str]:
    """The names of columns that have none."""
    return [f"column {i}" for i in range(1, count + 1)]


def _read_delimited(path: Path, known: Collection[str], findings: Findings) -> Iterator[Row]:
    usual = "," if ending(path) == ".csv" else "\t"
    delimiter = delimiter_of(path, usual, findings.errors)
    sample, rows = _ahead(delimited(path, delimiter, quotes=True, findings=findings))
    if not sample:
        next(rows, None)  # raises the error, if that is why
        return
    (_, first), *others = sample
    if _is_header(first, [fields for _, fields in others], known):
        names, wanted, sample = [name.strip() for name in first], "as in line 1", others
    else:
        [(count, _)] = Counter(len(fields) for _, fields in sample).most_common(1)
        names, wanted = numbered(count), "as in most lines"
    findings.notes["format"] = format_note(path, delimiter, header=sample is others)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{place(path, 1)} has two columns {listed([twice])}; expected different names.")
    for number, fields in itertools.chain(sample, rows):
        if len(fields) != len(names):
            findings.bad(
                number,
                "with too many or too few fields",
                f"{place(path, number)} has {len(fields)} fields; expected {len(names)}, {wanted} "
                f"({listed(names)}): put double quotes around a field that holds {delimiter!r} or a line end.",
            )
            continue
        yield Row(number, dict(zip(names, fields, strict=True)))


def _ahead(rows: Iterator[Line]) -> tuple[list[Line], Iterator[Line]]:
    """The first rows, and the others. If reading ends among the first with an error, the others are that."""
    sample: list[Line] = []
    try:
        sample.extend(itertools.islice(rows, SAMPLE))
    except ValueError as problem:
        return sample, _raising(problem)
    return sample, rows


def _raising(problem: ValueError) -> Iterator[Line]:
    raise problem
    yield


def format_note(path: Path, delimiter: str, *, header: bool) -> str:
    with _opened(path) as file:
        coding = ", UTF-16" if "16" in encoding(file.read(4096)) else ""
    return f"{DELIMITERS[delimiter]} between fields, {'a header' if header else 'no header'}{coding}"


def _read_json_lines(path: Path, known: Collection[str], findings: Findings) -> Iterator[Row]:
    for number, line in enumerate(text_lines(path, findings.errors), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as problem:
            words = "expected an object on every line, as " + '{"text": "...", "label": 1}.'
            findings.bad(number, "that are no JSON", f"{place(path, number)} is no JSON ({brief(problem)}); {words}")
            continue
        if row := _object(path, number, fields, findings):
            yield row


def _read_json(path: Path, known: Collection[str], findings: Findings) -> Iterator[Row]:
    """An array of objects, an object of columns, or an object on every line."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    try:
        start = json.loads(first)
    except (ValueError, RecursionError):
        start = None
    single = isinstance(start, dict) and not _are_columns(start)
    if single or not first.lstrip().startswith(("[", "{")):
        yield from _read_json_lines(path, known, findings)
        return
    try:
        content = json.loads("".join(text_blocks(path)))
    except (ValueError, RecursionError) as problem:
        raise ValueError(
            f"{path} is no JSON ({brief(problem)}); expected an array of objects, an object of columns, or an object "
            "on every line."
        ) from None
    if isinstance(content, dict):
        if not _are_columns(content):
            raise ValueError(
                f"{path} is an object with {listed(content)}; expected an array of objects, or an object of columns, "
                "all of the same length."
            )
        columns = [x.values() if isinstance(x, dict) else x for x in content.values()]
        content = [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]
        findings.notes["format"] = "an object of columns"
    else:
        findings.notes["format"] = "an array of objects"
    for number, fields in enumerate(content, 1):
        if row := _object(path, number, fields, findings):
            yield row


def _are_columns(content: dict[str, Any]) -> bool:
    """{"text": [...], "label": [...]}, or as pandas has it, {"text": {"0": ...}, "label": {"0": ...}}"""
    lengths = {len(x) if isinstance(x, list | dict) else -1 for x in content.values()}
    return len(lengths) == 1 and lengths != {-1}


def _object(path: Path, number: int, fields: Any, findings: Findings) -> Row | None:
    if isinstance(fields, dict):
        return Row(number, fields)
    words = f"{place(path, number)} is a {type(fields).__name__}; expected an object, {{...}}."
    findings.bad(number, "that are no objects", words)
    return None


def _read_parquet(path: Path, known: Collection[str], findings: Findings) -> Iterator[Row]:
    parquet = need("pyarrow.parquet", "pyarrow", "tables")
    with reading(str(path)):
        file = parquet.ParquetFile(path)
    with file:
        yield from _rows(path, file.iter_batches(batch_size=256))


def _read_arrow(path: Path, known: Collection[str], findings: Findings) -> Iterator[Row]:
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


READERS: dict[str, Callable[[Path, Collection[str], Findings], Iterator[Row]]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".txt": _read_delimited,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}


def records(path: Path, *, known: Collection[str] = (), findings: Findings | None = None) -> Iterator[Row]:
    """The rows of a table, one at a time.

    Args:
        known: names that columns may have, in small letters: a first row with one of them is a header.
        findings: gets what is wrong with rows, and notes; by default the first bad row raises.
    """
    if ending(path) not in READERS:
        raise ValueError(f"{path} ends in {ending(path)!r}; expected one of {', '.join(READERS)}.")
    check_file(path, "a file")
    return READERS[ending(path)](path, known, findings or Findings(path, at_once=True))


def check_text(at: str, column: str, text: object) -> None:
    """That a field is text. JSON can have halves of characters, which are not."""
    if not isinstance(text, str):
        raise ValueError(f"{at} has a {type(text).__name__} in {column!r}; expected text.")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        code = ord(text[problem.start])
        got = f"the byte {code - 0xDC00:#04x}" if 0xDC80 <= code <= 0xDCFF else "half a character"  # `surrogateescape`
        raise ValueError(f"{at} has {got} in {column!r} ({problem}); expected text: repair it.") from None

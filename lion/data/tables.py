"""Texts with labels from the files people have: CSV, TSV, JSON lines, Parquet, Arrow; and movie reviews."""

import codecs
import csv
import functools
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data import REVIEWS, lion_data_folder, reading, stratified
from lion.ops.checks import one_of
from lion.optional import need

Text = str | tuple[str, str]  # a pair, for tasks that compare two
SPLITS = ("train", "test")
BLOCK = 1 << 20  # bytes read at a time
SHOWN = 20  # names in a message
UNREADABLE = "get it again, or allow to read it"
TEXTS = ("text", "review", "sentence", "content", "comment", "document", "body", "message", "tweet", "title")
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
LABELS = ("label", "labels", "sentiment", "class", "category", "target", "score", "rating", "stars", "gold_label")


class Labelled(NamedTuple):
    texts: list[Text]
    labels: np.ndarray  # int64, by class; or float32, where there are no classes
    classes: list[str] | None  # names, by label; None for numbers to be predicted
    rows: Sequence[int] = ()  # of a file, where each stands: `Row.number`


class Row(NamedTuple):
    number: int  # of its first line, or of the row where there are no lines; from 1
    fields: dict[str, Any]


# Reading.


def ending(path: Path) -> str:
    """That of what is compressed, if it is."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def place(path: Path, number: int) -> str:
    return f"{path}, {'row' if ending(path) in ('.parquet', '.arrow') else 'line'} {number}"


def text_blocks(path: Path) -> Iterator[str]:
    """A file of UTF-8, block by block; all line ends are \\n."""
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
    """With their ends. A line may be as long as the file: its parts are joined once."""
    parts: list[str] = []  # of the line that has no end yet
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
    """The number of the first line of each row, and what is between its delimiters."""
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # a text may well have more than the usual 131,072
    rows = csv.reader(
        text_lines(path),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        strict=True,
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
    """As Hugging Face's `datasets` keep them: a stream; or Arrow's file format."""
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
            # Offsets that point outside of a damaged file would end the process.
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
    if not path.is_file():
        raise FileNotFoundError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; expected a file.")
    return READERS[ending(path)](path)


# What people have labelled.


def labelled(
    path: Path | str,
    text_column: str | tuple[str, str] | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
) -> Labelled:
    """Texts and their labels from a file: .csv, .tsv, .jsonl, .parquet, .arrow (text formats also as .gz).

    Args:
        text_column, label_column: two of the first for pairs; by default found by their usual names.
        classes: names in the order of their labels; by default those that occur, sorted. Give those of the training
            file for another one.
        numbers: whether labels are to be predicted as numbers; by default if one of them has a fraction.
    """
    path = Path(path).expanduser()
    texts: list[Text] = []
    values: list[Any] = []
    rows: list[int] = []
    columns: tuple[str, ...] = ()
    for number, fields in records(path):
        at = place(path, number)
        columns = columns or _columns(path, list(fields), text_column, label_column)
        for column in columns:
            if fields.get(column) is None:
                raise ValueError(f"{at} has no {column!r}; expected one in every row: its fields are {listed(fields)}.")
        *parts, value = (fields[column] for column in columns)
        for column, part in zip(columns, parts, strict=False):
            check_text(at, column, part)
        if str(value).strip() in ("", "nan"):
            raise ValueError(
                f"{at} has no label in {columns[-1]!r}; expected one in every row: add it, or leave it out."
            )
        texts.append((parts[0], parts[1]) if len(parts) == 2 else parts[0])
        values.append(value)
        rows.append(number)
    if not texts:
        raise ValueError(f"{path} has no rows; expected texts with labels.")
    labels, names = as_labels(path, values, rows, columns[-1], classes, numbers)
    return Labelled(texts, labels, names, rows)


def check_text(at: str, column: str, text: object) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{at} has a {type(text).__name__} in {column!r}; expected text.")
    check_characters(at, column, text)
    if not text.strip():
        raise ValueError(f"{at} has an empty text in {column!r}; expected some text: fill it in, or leave the row out.")


def check_characters(at: str, column: str, text: str) -> None:
    """JSON can have halves of characters, which are no text."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(f"{at} has half a character in {column!r} ({problem}); expected text: repair it.") from None


def _columns(path: Path, there: list[str], text: str | tuple[str, str] | None, label: str | None) -> tuple[str, ...]:
    """That of the text, or those of both texts, and that of the label."""
    if not isinstance(text, str | None) and len(text) != 2:
        raise ValueError(f"text_column is {text!r}; expected the name of a column, or of two for pairs.")
    given = [("text_column", name) for name in ((text,) if isinstance(text, str) else text or ())]
    for what, name in [*given, *([("label_column", label)] if label is not None else [])]:
        one_of(f"{what} for {path}", name, there)
    known = {name.lower(): name for name in reversed(there)}
    if not given:
        usual = next((names for names in (*PAIRS, *((name,) for name in TEXTS)) if all(x in known for x in names)), ())
        given = [("text_column", known[name]) for name in usual]
    if label is None:
        label = next((known[name] for name in LABELS if name in known), None)
    for what, found, names in (("text", given, TEXTS), ("label", label, LABELS)):
        if not found:
            raise ValueError(
                f"{path} has no column with a usual name for its {what}s ({', '.join(names[:4])}, ...); its columns "
                f"are {listed(there)}: say which as {what}_column."
            )
    return (*(name for _, name in given), str(label))


def as_labels(
    path: Path, values: list[Any], rows: list[int], column: str, classes: Sequence[str] | None, numbers: bool | None
) -> tuple[np.ndarray, list[str] | None]:
    counts = [_number(value) for value in values]
    if numbers is None:
        numbers = classes is None and None not in counts and any(x != round(x) for x in counts if x is not None)
    if numbers:
        for value, count, row in zip(values, counts, rows, strict=True):
            if count is None:
                raise ValueError(f"{place(path, row)} has {listed([value])} in {column!r}; expected a number.")
        return np.array(counts, np.float32), None
    names = [str(value).strip() if x is None else _named(value, x) for value, x in zip(values, counts, strict=True)]
    if classes is None:
        by_number = None not in counts
        classes = sorted(set(names), key=lambda name: (float(name) if by_number else 0.0, name))
        if len(classes) < 2:
            raise ValueError(f"{path} has {listed(classes)} in every row of {column!r}; expected two classes or more.")
    index = {str(name): i for i, name in enumerate(classes)}
    for name, row in zip(names, rows, strict=True):
        if name not in index:
            raise ValueError(f"{place(path, row)} has {listed([name])} in {column!r}; expected one of {listed(index)}.")
    return np.array([index[name] for name in names], np.int64), list(index)


def _named(value: Any, number: float) -> str:
    """The class of a label that is a number: "1.0" and 1 are the same one, "007" and "1e2" are as they are written."""
    whole = re.fullmatch(r"-?(0|[1-9]\d*)(\.0*)?", value.strip()) if isinstance(value, str) else number == round(number)
    return str(round(number)) if whole else str(value).strip()


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):  # the last: a whole number of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def listed(names: Any) -> str:
    """The first ones, and of each as much as fits into a message."""
    every = list(names)
    shown = ", ".join(repr(brief(name, 40)) for name in every[:SHOWN])
    return shown if len(every) <= SHOWN else f"{shown} and {len(every) - SHOWN:,} more"


def brief(value: object, most: int = 200) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def imdb(split: str, *, data: Path | str | None = None, seed: int = 0, holdout: float = 0.2) -> Labelled:
    """IMDB's movie reviews from `fetch("imdb")`: of its 25,000, those with the same words once, and of each class a
    share held out for testing. Line breaks, "<br />" in the file, are line breaks."""
    one_of("split", split, SPLITS)
    path = Path(data).expanduser() if data is not None else lion_data_folder() / "imdb"
    path = path / REVIEWS if path.is_dir() or data is None else path
    if not path.exists():
        raise FileNotFoundError(f"imdb is not in {path.parent}; expected {REVIEWS}: lion.data.fetch('imdb').")
    texts, labels = _reviews(path, path.stat().st_mtime_ns)
    part = stratified(labels, holdout, seed)[SPLITS.index(split)]
    return Labelled([texts[i] for i in part], labels[part], ["negative", "positive"])


@functools.lru_cache(maxsize=1)  # both splits, from reading it once
def _reviews(path: Path, changed: int) -> tuple[list[str], np.ndarray]:
    texts: dict[str, str] = {}
    labels = []
    for number, fields in records(path):
        if missing := {"text", "label", "source"} - fields.keys():
            raise ValueError(f"{place(path, number)} has no {listed(sorted(missing))}; expected {REVIEWS} as fetched.")
        if fields["source"] != "imdb":
            continue
        if fields["label"] not in ("0", "1"):
            raise ValueError(f"{place(path, number)} has the label {listed([fields['label']])}; expected '0' or '1'.")
        text = fields["text"].replace("<br />", "\n")
        words = " ".join(re.findall(r"\w+", text.lower()))
        if words not in texts:
            texts[words] = text
            labels.append(int(fields["label"]))
    if not texts:
        raise ValueError(f"{path} has no reviews of imdb; expected {REVIEWS} as fetched.")
    return list(texts.values()), np.array(labels, np.int64)

"""Text corpora: documents in files, on the Hugging Face hub, or fetched by name; read one after the other."""

import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lion.configs import checked
from lion.data.sources.fetching import located
from lion.data.sources.hub import hub_rows, on_hub
from lion.data.tables import check_text, ending, place, records, text_blocks, text_lines
from lion.data.token_files import stamps
from lion.limits import SomeExamples
from lion.ops.checks import one_of
from lion.terminal import listed

IN_FOLDERS = (".txt", ".jsonl", ".json", ".parquet", ".arrow")
ENDINGS = (*IN_FOLDERS, ".csv", ".tsv")  # a table in a folder of texts is more likely about the texts
NAMED = ("english", "imdb")
PART = 1 << 20  # characters of a document; longer files are cut
FEW = 20  # files


@dataclass(frozen=True)
class Documents:
    """Texts that are read again for every iteration."""

    name: str
    read: Callable[[], Iterator[str]]
    key: str  # identifies the documents
    size: int = 0  # bytes, roughly; 0 if unknown

    def __iter__(self) -> Iterator[str]:
        return self.read()


def documents(
    source: str | Path | Iterable[str | Path],
    *,
    column: str = "text",
    per: str = "file",
    limit: int | None = None,
    split: str = "train",
) -> Documents:
    """The documents of a source: a split of a dataset on the Hugging Face hub ("hf://allenai/c4/en"), files as for
    `corpus`, or "english" and "imdb" from `lion.data.fetch`. With `limit`, only the first ones."""
    if limit is not None:
        checked(SomeExamples, limit, "limit")
    found = _hub(str(source), column, split) if on_hub(source) else corpus(source, column=column, per=per)
    if limit is None:
        return found
    return Documents(found.name, lambda: islice(found.read(), limit), json.dumps([found.key, limit]))


def as_documents(texts: Iterable[str]) -> Documents:
    """Texts in memory as Documents."""
    if isinstance(texts, Documents):
        return texts
    if isinstance(texts, str):
        raise TypeError("documents is a str; expected a list of them, or lion.data.corpora.documents(path).")
    kept = list(texts)
    content = hashlib.sha256()
    for text in kept:
        content.update(hashlib.sha256(text.encode()).digest())
    return Documents("texts", lambda: iter(kept), content.hexdigest(), sum(map(len, kept)))


# Files.


def corpus(paths: str | Path | Iterable[str | Path], *, column: str = "text", per: str = "file") -> Documents:
    """The documents of files, of folders, or of what matches patterns such as "books/**/*.txt"; any also as .gz.

    Args:
        column: the field of .csv, .tsv, .jsonl, .parquet and .arrow files that holds the text.
        per: a document of a .txt file is the "file" (cut if it has more than a million characters), a "paragraph" up to
            an empty line, or a "line". "": the file, but with fewer than 20 files the paragraph, so that some can be
            held out.
    """
    one_of("per", per, ("", *TXT))
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found = sorted({path for one in given for path in _files(one)})
    if not found:
        raise ValueError("paths is empty; expected a file, a folder or a pattern such as 'books/*.txt'.")
    per = per or ("file" if len(found) >= FEW else "paragraph")
    known = stamps(found)
    return Documents(
        name=", ".join(map(str, given)),
        read=lambda: _read_files(found, column, per),
        key=json.dumps([known, column, per]),
        size=sum(size for _, size, _ in known),
    )


def _files(given: str | Path) -> list[Path]:
    if on_hub(given):
        raise ValueError(f"{given} is one of several sources; expected a set of the hub by itself.")
    path = located(given) if isinstance(given, str) and given in NAMED else Path(given).expanduser()
    if path.is_dir():
        inside = sorted(x for x in path.rglob("*") if x.is_file() and not x.name.startswith("."))
        found = [x for x in inside if ending(x) in IN_FOLDERS]
        if not found:
            raise ValueError(f"{path} has no texts; expected files that end in {', '.join(IN_FOLDERS)}.")
        return found
    found = [path] if path.is_file() else [Path(x) for x in glob.glob(str(path), recursive=True) if os.path.isfile(x)]
    if not found:
        raise ValueError(f"{path} matches no file; expected a file, a folder or a pattern such as 'books/*.txt'.")
    for file in found:
        if ending(file) not in ENDINGS:
            raise ValueError(f"{file} ends in {ending(file)!r}; expected one of {', '.join(ENDINGS)}.")
    return found


def several(given: str) -> list[str]:
    """Names, paths or patterns separated by spaces; or a single path or pattern that has spaces in it."""
    path = Path(given).expanduser()
    return [given] if path.exists() or any(glob.iglob(str(path), recursive=True)) else given.split()


def _read_files(paths: Sequence[Path], column: str, per: str) -> Iterator[str]:
    empty = True
    for path in paths:
        for text in TXT[per](path) if ending(path) == ".txt" else _read_column(path, column):
            if text and not text.isspace():
                empty = False
                yield text
    if empty:
        more = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
        raise ValueError(f"{paths[0]}{more} had no text in them; expected some.")


def _read_whole(path: Path) -> Iterator[str]:
    parts: list[str] = []  # joined when there are enough for a document
    size = 0
    for text in text_blocks(path):
        parts.append(text)
        size += len(text)
        if size <= PART:
            continue
        held = "".join(parts)
        while len(held) > PART:
            # at the end of a paragraph, or else of a line, or else of a word
            cuts = (held.rfind(mark, PART // 2, PART) + len(mark) for mark in ("\n\n", "\n", " "))
            cut = next((cut for cut in cuts if cut > PART // 2), PART)
            yield held[:cut]
            held = held[cut:]
        parts, size = [held], len(held)
    yield "".join(parts)


def _read_paragraphs(path: Path) -> Iterator[str]:
    lines: list[str] = []
    for line in text_lines(path):
        if not line.isspace():
            lines.append(line)
        elif lines:
            yield "".join(lines).rstrip("\n")
            lines = []
    yield "".join(lines).rstrip("\n")


def _read_lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\n") for line in text_lines(path))


def _read_column(path: Path, column: str) -> Iterator[str]:
    for number, fields in records(path, known={column.lower()}):
        yield _text(place(path, number), fields, column)


def _text(at: str, fields: dict[str, Any], column: str) -> str:
    """The text of a document, which may be empty."""
    if column not in fields:
        raise ValueError(
            f"{at} has no {column!r}; its fields are {listed(fields)}: say which holds the text as column."
        )
    check_text(at, column, fields[column])
    return fields[column]


TXT: dict[str, Callable[[Path], Iterator[str]]] = {
    "file": _read_whole,
    "paragraph": _read_paragraphs,
    "line": _read_lines,
}


# The hub.


def _hub(source: str, column: str, split: str) -> Documents:
    hub_rows(source, split)  # raises at once if the source is wrong

    def read() -> Iterator[str]:
        texts = (_text(at, fields, column) for at, fields in hub_rows(source, split))
        return (text for text in texts if text and not text.isspace())

    return Documents(source, read, json.dumps([source, column] if split == "train" else [source, column, split]))

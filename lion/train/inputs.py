"""Inputs for predictions: from words of the command line, files, and lines. What a task calls a file is read by it."""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lion.data.fasta import FASTA
from lion.data.findings import Problems
from lion.data.labelled import NAMES, PAIRS
from lion.data.tables import READERS, check_file, check_text, ending, place, records, text_blocks, text_lines
from lion.ops.checks import one_of
from lion.tasks import Input, Trained, WrongRun
from lion.terminal import listed

Say = Callable[[str], None]
LINES = (".txt", ".text", ".md")  # to predict, no tables: a text may have commas
ESCAPED = "surrogateescape"  # bytes that are no text are the error of their line, not of the file
TABLES = tuple(x for x in READERS if x not in LINES)
# A word that is meant as the name of a file, and not as a text.
NAMED = "|".join(re.escape(x) for x in (*TABLES, *FASTA, *LINES, ".png", ".jpg", ".jpeg", ".npz", ".ts", ".gz"))
FILE_NAME = re.compile(rf"[^\n]*[^\s.]({NAMED})", re.IGNORECASE)


def of_word(trained: Trained, word: str, say: Say = lambda message: None) -> Iterator[Input]:
    """The inputs of a word: the rows of a table, the records of FASTA, the content of another file, or the word itself
    if there is no such file. `say` gets a line that tells which it is."""
    reads, path = trained.task.reads, os.path.expanduser(word)
    if reads == "file":
        yield from trained.task.inputs(trained, word)
    elif os.path.isdir(path):
        raise ValueError(
            f"{word} is a folder; expected a {reads}, or files: {os.path.join(word, '*.txt')}. If it is a {reads} of "
            "this name, give it on standard input."
        )
    elif os.path.exists(path):
        several = {**dict.fromkeys(TABLES, "a table"), **dict.fromkeys(FASTA if reads == "sequence" else (), "FASTA")}
        kind = several.get(ending(Path(path)))
        say(f"{word}: a file, read as {kind or f'one {reads} (with --file, one a line)'}")
        yield from of_file(trained, Path(path)) if kind else [Input(word, "".join(text_blocks(Path(path))))]
    elif FILE_NAME.fullmatch(word):
        if not re.search(r"\s", word):
            raise FileNotFoundError(
                f"{word} is not there, and is called like a file; expected a file or a {reads}. If it is a {reads}, "
                "give it on standard input."
            )
        say(f"{word}: read as a {reads}, as there is no such file")
        yield Input(word, word)
    else:
        yield Input(word, word)


def of_file(trained: Trained, path: Path, column: str = "") -> Iterator[Input]:
    """The rows of a table, the records of FASTA, or the lines of another file.

    Args:
        column: of a table; two with a comma for pairs of texts. By default those of the run's own data, or those with
            a usual name.
    """
    reads = trained.task.reads
    table = reads != "file" and ending(path) in TABLES
    if column and not table:
        raise ValueError(f"column is {column!r}, but {path} is read without columns; expected none.")
    if reads == "file":
        yield from trained.task.inputs(trained, str(path))
    elif table:
        yield from _of_table(trained, path, column)
    elif not path.exists() or path.is_dir():
        check_file(path, "a file")
    elif reads == "sequence" and ending(path) in FASTA:
        yield from _of_fasta(path)
    else:
        yield from of_lines(trained, text_lines(path, ESCAPED), f"{path}, ")


def of_lines(trained: Trained, lines: Iterable[str], name: str = "") -> Iterator[Input]:
    """An input for each line: a text, a sequence, or a path."""
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\n")
        if number == 1:
            line = line.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # a mark of some editors
        if trained.task.reads == "file":
            yield from guarded(line, trained.task.inputs(trained, line))
        else:
            yield Input(f"{name}line {number}", line, line)


def _of_table(trained: Trained, path: Path, column: str) -> Iterator[Input]:
    """An input for each row, the bad ones too. Where a file cannot be read any further (a quote is never closed, there
    is a zero byte, JSON is one array) the error comes last."""
    columns: tuple[str, ...] = ()
    problems = Problems(path)
    try:
        for number, fields in records(path, findings=problems):
            yield from beside(path, problems, number)
            columns = columns or _columns(trained, path, list(fields), column)
            yield _of_row(place(path, number), fields, columns)
    except ValueError:
        yield from beside(path, problems)
        raise
    yield from beside(path, problems)


def beside(path: Path, problems: Problems, before: float = math.inf) -> Iterator[Input]:
    """Errors in the places of the rows that they are about."""
    return (Input(place(path, number), problem) for number, problem in problems.before(before))


def _of_row(at: str, fields: dict[str, Any], columns: tuple[str, ...]) -> Input:
    given = tuple(fields.get(name) for name in columns)
    try:
        for name, part in zip(columns, given, strict=True):
            check_text(at, name, part)
    except ValueError as problem:
        return Input(at, problem)
    return Input(at, given if len(given) == 2 else given[0], "\t".join(map(str, given)))


def _columns(trained: Trained, path: Path, there: list[str], column: str) -> tuple[str, ...]:
    """The columns of the inputs: one, or two for pairs of texts."""
    reads, pairs = trained.task.reads, getattr(trained.known, "pairs", False)

    def named(text: str) -> tuple[str, ...]:
        return tuple(text.split(",")) if pairs and text not in there else (text,)

    if column:
        for name in named(column):
            one_of(f"column for {path}", name, there)
        return named(column)
    known = {name.lower(): name for name in reversed(there)}
    own = named(getattr(trained.task, f"{reads}_column", ""))
    usual = PAIRS if pairs else [(name,) for name in NAMES[reads]]
    for names in (own, *usual):
        if known.keys() >= {name.lower() for name in names}:
            return tuple(known[name.lower()] for name in names)
    if len(there) == 1:
        return (there[0],)
    raise ValueError(
        f"{path} has no column with a usual name for its {reads}s; its columns are {listed(there)}: say which with "
        f"--column {'A,B' if pairs else 'NAME'}."
    )


def _of_fasta(path: Path) -> Iterator[Input]:
    """Not read by lion.data.fasta, for which a wrong letter is the end of the file."""
    name, parts = "", list[str]()
    for number, line in enumerate(text_lines(path, ESCAPED), 1):
        if line.startswith(">"):
            if name:
                yield Input(name, "".join(parts))
            name, parts = f"{path}, {next(iter(line[1:].split()), f'line {number}')}", []
        elif line.strip() and not name:
            raise ValueError(f"{place(path, number)} has no '>' and name before it; expected them, as FASTA has it.")
        else:
            parts.append(line.strip())
    if name:
        yield Input(name, "".join(parts))


def guarded(name: str, inputs: Iterable[Input]) -> Iterator[Input]:
    """The inputs; if they cannot be read any further, the last one is the error."""
    try:
        yield from inputs
    except WrongRun:
        raise
    except (ValueError, OSError) as problem:
        yield Input(name, problem)


def plain(trained: Trained, given: Iterable[Any]) -> Iterator[Input]:
    """Inputs from Python: texts, sequences or pairs as they are; or paths."""
    for x in given:
        if isinstance(x, Input):
            yield x
        elif trained.task.reads == "file":
            yield from guarded(str(x), trained.task.inputs(trained, str(x)))
        else:
            yield Input(x if isinstance(x, str) else "\t".join(x), x)

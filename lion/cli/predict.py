"""`lion predict`."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lion.cli.arguments import add_number, add_run, checked_algorithm
from lion.limits import Batch, Count
from lion.terminal import plural

if TYPE_CHECKING:
    from lion.tasks import Input, Trained
    from lion.train.predictions import Result

BEST = {"table": 3}  # classes of an input, by format; 1 in others
DESCRIPTION = """\
Predict classes, numbers or a gap with a run. INPUT is, by what the run was trained on:

  pictures    image files, and folders: all images below them
  texts, DNA  a text or a sequence; with one [MASK] for `mlm` and `dna`; a pair of texts with a tab between them
              a file: one text, but a table (.csv, .tsv, .jsonl, .parquet) has one in every row, FASTA in every record
  series      files of them, as for training; labels are not needed

--file reads one text or sequence a line, or the rows and records of tables and FASTA. `-`, or no INPUT at all, reads
standard input: one text, sequence or path a line. An input that is wrong, and a row that cannot be read, gets its error
in the place of its result, and the exit code is 1; behind a double quote that is never closed, nothing is read."""


def add_predict(commands) -> None:
    parser = commands.add_parser(
        "predict",
        help="classes or numbers of images, texts, series or DNA, or what is in a gap",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="see above")
    parser.add_argument("--file", type=Path, action="append", default=[], help="a file of inputs; may be given again")
    parser.add_argument("--column", default="", metavar="NAME", help="of tables (the run's own, or a usual name)")
    parser.add_argument("--format", default="", help="table, csv, json or jsonl (by the ending of --out, or table)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file")
    add_number(parser, "--best", Count, help="the k most likely classes (3 in a table, otherwise 1)")
    add_number(parser, "--batch", Batch, help="inputs at once (as in training)")
    parser.set_defaults(run=_predict)


def _predict(args: argparse.Namespace) -> None:
    from lion.cli.results import FORMATS, Shape
    from lion.nn.layers import set_form
    from lion.ops.checks import one_of
    from lion.progress import progress
    from lion.train.folder import load_run
    from lion.train.predictions import predictions, predicts_numbers

    form, backend = checked_algorithm(args)
    name = args.format or (args.out.suffix[1:] if args.out and args.out.suffix[1:] in FORMATS else "table")
    one_of("format", name, FORMATS)
    words = args.inputs or ([] if args.file else _piped())
    _check_out(args.out, [*args.file, *map(Path, words)])
    trained = load_run(args.folder, device=args.device)
    set_form(trained.model, form, backend=backend)
    best, batch = args.best or BEST.get(name, 1), args.batch or trained.batch
    paths = trained.task.reads == "file"
    texts = not paths and (bool(args.file) or any(word == "-" or os.path.exists(word) for word in words))
    shape = Shape(predicts_numbers(trained), paths, texts, best, batch)
    count = _Count()
    found = predictions(trained, _inputs(trained, words, args.file, args.column), best=best, batch=batch)
    with _output(args.out) as out, progress(0, trained.task.unit) as bar:
        for piece in FORMATS[name](count.watched(found, bar.advance), shape):
            if out.isatty():
                bar.__exit__()  # the results are the progress
            out.write(piece)
            out.flush()
    if args.out:
        print(f"{plural(count.all, 'result')} in {args.out}", file=sys.stderr)
    count.check()


def _piped() -> list[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError("there is nothing to predict; expected INPUT, --file FILE, or lines on standard input.")
    return ["-"]


def _check_out(out: Path | None, inputs: list[Path]) -> None:
    if out is not None and any(os.path.exists(path) and os.path.samefile(path, out) for path in inputs if out.exists()):
        raise ValueError(f"out is {out}, which is an input, too; expected another file.")


def _inputs(trained: "Trained", words: list[str], files: list[Path], column: str) -> "Iterator[Input]":
    from lion.train import inputs

    said: set[str] = set()

    def say(message: str) -> None:
        """Once for every way to read a word."""
        if (kind := message.rpartition(": ")[2]) not in said:
            print(message, file=sys.stderr)
        said.add(kind)

    for path in files:
        yield from inputs.guarded(str(path), inputs.of_file(trained, path, column))
    for word in words:
        if word == "-":
            yield from inputs.guarded("standard input", inputs.of_lines(trained, _lines()))
        else:
            yield from inputs.guarded(word, inputs.of_word(trained, word, say))


def _lines() -> TextIO:
    """Standard input. Bytes that are not UTF-8 are kept: paths may have them, and texts are checked."""
    with contextlib.suppress(AttributeError):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    return sys.stdin


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    from lion import files

    if path is None:
        yield sys.stdout
        return
    with files.writing(path.name, path.parent), path.open("w", encoding="utf-8", newline="") as file:
        yield file


class _Count:
    """How many results there are, and the errors among them."""

    def __init__(self) -> None:
        self.all = self.bad = 0
        self.first: Result | None = None  # with an error

    def watched(self, results: "Iterator[Result]", advance) -> "Iterator[Result]":
        for result in results:
            self.all += 1
            if result.error is not None:
                self.bad += 1
                self.first = self.first or result
            advance()
            yield result

    def check(self) -> None:
        if not self.all:
            raise ValueError("there is nothing to predict; expected an input, at least.")
        if self.first is None:
            return
        name, error = self.first.input.name, str(self.first.error)
        if self.all > 1:
            where = "" if name in error else f"{name}: "
            error = f"{self.bad:,} of {self.all:,} inputs have an error and no result; the first: {where}{error}"
        raise ValueError(error)

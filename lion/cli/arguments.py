"""Options that several commands have, and their checks."""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lion import configs


class Refused(Exception):
    """A number that was refused. Not a ValueError: argparse would print its usage before the message."""


class Ended(Exception):
    """A command that a signal has ended, in good order."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


def add_number(parser: argparse.ArgumentParser, name: str, hint: Any, **options: Any) -> None:
    """`parser.add_argument` for a number: types, limits and words are those of configs."""
    parser.add_argument(name, type=_reader(parser.prog, name, hint), **options)


def _reader(command: str, name: str, hint: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return configs.parsed(hint, text, name)
        except ValueError as problem:
            raise Refused(f"{command}: {problem}") from None

    return read


def add_run(parser: argparse.ArgumentParser, *, form: bool = True) -> None:
    """The folder of a run, the device, and the form and backend of attention."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    add_device(parser)
    if form:
        parser.add_argument("--form", default="auto", help="auto, full, rnn, chunk or scan: the same result (auto)")
        parser.add_argument("--backend", default="auto", help="auto, cpu, torch, ...: the same result (auto)")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="", help="cpu, cuda, ... (cuda if there is a GPU, otherwise cpu)")


def checked_algorithm(args: argparse.Namespace) -> tuple[Any, Any]:
    """The form and the backend."""
    from lion.ops.checks import one_of
    from lion.ops.kernels import BACKENDS, FORMS

    one_of("form", args.form, ("auto", *FORMS))
    one_of("backend", args.backend, ("auto", *BACKENDS))
    return args.form, args.backend


@contextlib.contextmanager
def stopping(message: str | None = None) -> Iterator[None]:
    """End the command when a signal has stopped the training; by default the message says how to go on."""
    from lion.train.ending import Stopped

    try:
        yield
    except Stopped as stop:
        raise Ended(message or str(stop), stop.signum) from None

"""Numbers on the command line: the same types, limits and words as in configs, for argparse."""

import argparse
from collections.abc import Callable
from typing import Any

from lion import configs


class Refused(Exception):
    """What a number is not. No ValueError: argparse would put all of its usage before it."""


def add_number(parser: argparse.ArgumentParser, name: str, hint: Any, **options: Any) -> None:
    """`parser.add_argument` for a number of some type."""
    parser.add_argument(name, type=_reader(parser.prog, name, hint), **options)


def _reader(command: str, name: str, hint: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return configs.parsed(hint, text, name)
        except ValueError as problem:
            raise Refused(f"{command}: {problem}") from None

    return read

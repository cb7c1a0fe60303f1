"""Campaigns: many attempts to make lion lose, mix up, crash, hang or run what it should not.

A module of this package is a campaign, with `run(numbers, seed)`: an attempt depends on its number and the seed alone.
`make torture` runs all of them at full length (`python -m tests.torture`), `make test` a few attempts of each
(tests/test_torture.py).
"""

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar


class Lost(Exception):
    """An attempt did not end as it should."""


@dataclass
class Campaign:
    """What became of the attempts. One that raises is lost."""

    every: ClassVar[list["Campaign"]] = []  # that there are, to see how far they are

    name: str
    tried: int = 0
    lost: list[str] = field(default_factory=list)  # which, and what happened

    def __post_init__(self) -> None:
        self.every.append(self)

    @property
    def survived(self) -> int:
        return self.tried - len(self.lost)

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        self.tried += 1
        try:
            yield
        except Exception as problem:
            self.lost.append(f"{what}: {told(problem)}")

    def all(self, results: Iterable[tuple[int, str]]) -> "Campaign":
        """Attempts that were made elsewhere: their numbers, and what was wrong."""
        for number, problem in results:
            with self.attempt(f"number {number}"):
                if problem:
                    raise Lost(problem)
        return self


def told(problem: BaseException) -> str:
    """An exception in a line."""
    if isinstance(problem, Lost):
        return str(problem)
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {str(problem)[:1500]} ({last.name}, line {last.lineno})"

"""Campaigns: many attempts to make lion lose, mix up, crash, hang or run what it should not.

A module of this package is a campaign, with `run(count, seed)`. `make torture` runs all of them at full length
(`python -m tests.torture`), `make test` a few attempts of each (tests/test_torture.py).
"""

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Campaign:
    """What became of the attempts. An attempt that does not end as it should raises, and is lost."""

    name: str
    tried: int = 0
    lost: list[str] = field(default_factory=list)  # how to do it again, and what happened

    @property
    def survived(self) -> int:
        return self.tried - len(self.lost)

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """`what` says how to do it once more."""
        self.tried += 1
        try:
            yield
        except Exception as problem:
            (*_, last) = traceback.extract_tb(problem.__traceback__)
            self.lost.append(f"{what}: {type(problem).__name__}: {problem} ({last.name}, line {last.lineno})")

"""What is found while a file or folder is read: notes for people, and what is wrong with it, listed all at once."""

import contextlib
import heapq
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lion.terminal import brief, plural, several

LISTED = 20  # problems that a message lists


class BadData(ValueError):
    """Rows or pictures that cannot be used."""

    def __init__(self, message: str, count: int = 1):
        super().__init__(message)
        self.count = count


class BadRow(ValueError):
    """What is wrong with one row; `kind` is as in `Findings.bad`."""

    def __init__(self, kind: str, words: str):
        super().__init__(words)
        self.kind = kind


class Findings:
    """Notes and problems of one file or folder.

    Args:
        where: the file or folder.
        unit: of its problems, "row" or "picture".
        others: unit of what `left_out` counts.
        skip: leave out what is bad, instead of raising `BadData`.
        at_once: raise at the first problem, for readers that do not collect them.
        errors: how text is decoded, as for `open`.
    """

    def __init__(
        self,
        where: Path | str,
        unit: str = "row",
        *,
        others: str = "file",
        skip: bool = False,
        at_once: bool = False,
        errors: str = "strict",
    ):
        self.where, self.unit, self.others, self.errors = where, unit, others, errors
        self.skip, self.at_once = skip, at_once
        self.notes: dict[str, str] = {}  # as `Task.facts` has them
        self.bad_places: set[Hashable] = set()
        self.kinds: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()  # not bad, but not used either, by kind: "hidden" files
        self._first: list[tuple[Any, str]] = []  # places and messages

    def bad(self, place: Hashable, kind: str, words: str, *, count: int = 1) -> None:
        """A problem, once for each place.

        Args:
            kind: what is counted, as "without a label".
            words: the whole message, which begins with the place.
            count: rows that are lost by it.
        """
        if self.at_once:
            raise BadData(words)
        if place in self.bad_places:
            return
        self.bad_places.add(place)
        self.kinds[kind] += count
        if len(self._first) < LISTED:
            self._first.append((place, words))

    @contextlib.contextmanager
    def row(self, place: Hashable) -> Iterator[None]:
        """Notes a `BadRow` that is raised inside, at this place."""
        try:
            yield
        except BadRow as problem:
            self.bad(place, problem.kind, str(problem))

    @property
    def counted(self) -> str:
        """The problems by kind: "2 without a label, 1 with an empty text"."""
        return _by_kind(self.kinds)

    def conclude(self) -> None:
        """Raise `BadData` with all problems, if there are any; or note how many are left out."""
        if self.skip or not self.kinds:
            both = ((self.kinds, self.unit), (self.left_out, self.others))
            skipped = [f"{plural(kinds.total(), unit)}: {_by_kind(kinds)}" for kinds, unit in both if kinds.total()]
            if skipped:
                self.notes["skipped"] = "; ".join(skipped)
            return
        if len(self.bad_places) == 1:
            raise BadData(self._first[0][1])
        words = [" ".join(x.removeprefix(f"{self.where}, ").split()) for _, x in sorted(self._first)]
        shown = [f"  - {brief(x, 300)}" for x in words]
        if more := len(self.bad_places) - len(shown):
            shown.append(f"  - and {more:,} more")
        head = f"{self.where} has {plural(self.kinds.total(), f'bad {self.unit}')} ({self.counted}); expected none"
        remedy = "repair them, or leave them out with --skip-bad"
        raise BadData("\n".join([f"{head}: {remedy}", *shown]), len(self.bad_places))

    def usable(self, places: Sequence[Hashable]) -> list[int]:
        """The indices of places that have no problem, after `conclude`. None at all is an error."""
        self.conclude()
        good = [index for index, place in enumerate(places) if place not in self.bad_places]
        if not good:
            got = f"{self.where} has no {several(self.unit)} that can be used ({self.counted})"
            raise ValueError(f"{got}; expected some with labels.")
        return good


class Problems(Findings):
    """The problems of a file one by one, for readers that go on behind them. Bytes that are no text are kept: the row
    that has them is the problem, if it needs them."""

    def __init__(self, where: Path | str):
        super().__init__(where, errors="surrogateescape")
        self._waiting: list[tuple[Any, str]] = []  # a heap: by place

    def bad(self, place: Hashable, kind: str, words: str, *, count: int = 1) -> None:
        if place not in self.bad_places:
            heapq.heappush(self._waiting, (place, words))
        super().bad(place, kind, words, count=count)

    def before(self, place: float = math.inf) -> Iterator[tuple[Any, BadData]]:
        """The problems before a row that were not asked for yet, with their places; by default all."""
        while self._waiting and self._waiting[0][0] < place:
            row, words = heapq.heappop(self._waiting)
            yield row, BadData(words)


def _by_kind(kinds: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common() if count)

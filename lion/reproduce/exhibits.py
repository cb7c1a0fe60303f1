"""Exhibits: what a table or a figure of the paper shows, and how its numbers are found here."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lion.reproduce.steps import Step, Workplace, in_order

ScaleName = Literal["laptop", "paper"]
SCALES: tuple[ScaleName, ...] = ("laptop", "paper")


class Value(NamedTuple):
    """A number, and its standard error over seeds; 0 if there is one seed."""

    mean: float
    error: float = 0.0

    @staticmethod
    def of(values: Sequence[float]) -> "Value":
        mean = sum(values) / len(values)
        if len(values) < 2:
            return Value(mean)
        variance = sum((x - mean) ** 2 for x in values) / (len(values) - 1)
        return Value(mean, math.sqrt(variance / len(values)))

    def minus(self, other: "Value | float") -> "Value":
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.mean - other.mean, math.hypot(self.error, other.error))

    def times(self, factor: float) -> "Value":
        return Value(self.mean * factor, abs(self.error * factor))


NOT_CONVERGED = "did not converge"  # printed in place of an accuracy, and below all of them


class Cell(NamedTuple):
    """A number of a table: the paper's, and where ours is found."""

    printed: float | str | None = None  # None: the paper has none here; a text, if it is none: NOT_CONVERGED
    steps: tuple[Step, ...] = ()  # one for each seed
    read: Callable[[Any], float | None] = lambda result: None  # of a step's result
    value: float | str | None = None  # ours, where nothing is run: what a recipe says
    parts: tuple["Cell", ...] = ()  # instead of steps: ours is the mean of these, seed by seed if all have as many

    @property
    def all_steps(self) -> list[Step]:
        return [step for cell in (self, *self.parts) for step in cell.steps]

    @property
    def uneven(self) -> bool:
        """Whether some of its parts have more seeds than others."""
        return len({len(x.steps) for x in self.parts}) > 1


@dataclass(frozen=True)
class Table:
    """Rows of cells by name, with a cell for each column."""

    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Cell]]
    form: str = "{:.1f}"  # of the numbers
    title: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)  # of columns that differ


class Numbers:
    """The numbers of tables by row and column: the paper's, or ours."""

    def __init__(self, values: Mapping[tuple[str, str], Value]):
        self.values = values

    def __call__(self, row: str, column: str) -> Value:
        if (row, column) not in self.values:
            raise Missing(f"{row}, {column}")
        return self.values[row, column]


class Missing(LookupError):
    """A number that is not there: it was not run, or not printed."""


class Claim(NamedTuple):
    """What the paper says its numbers show: the margins are all above 0 if they do."""

    words: str
    margins: Callable[[Numbers], Sequence[Value]]

    def verdict(self, numbers: Numbers) -> str:
        try:
            margins = self.margins(numbers)
        except Missing:
            return NOT_RUN
        if all(x.mean > x.error for x in margins):
            return SHOWS
        return DOES_NOT if any(x.mean < -x.error for x in margins) else CLOSE


SHOWS, DOES_NOT, CLOSE, NOT_RUN = "shows", "does not show", "within the spread", "not run"
VERDICTS = (SHOWS, DOES_NOT, CLOSE, NOT_RUN)


class Figure(NamedTuple):
    """A picture that is drawn of the results of steps; `draw` gets them in the order of the steps, None where a step is
    not finished, and says whether there was anything to draw."""

    name: str  # of the file, without its ending
    words: str  # below it
    steps: tuple[Step, ...]
    draw: Callable[[Sequence[Any], Path], bool]


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure of the paper, at one scale."""

    about: str  # what is run at this scale: models, data, sizes
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    not_run: str = ""  # what of the paper's exhibit has no counterpart here, and why

    @property
    def steps(self) -> list[Step]:
        """All that it needs, in order."""
        cells = [cell for table in self.tables for row in table.rows.values() for cell in row]
        steps = [step for cell in cells for step in cell.all_steps]
        return in_order([*steps, *(step for figure in self.figures for step in figure.steps)])

    def only(self, rows: Sequence[str]) -> "Exhibit":
        """The exhibit with some rows of its tables, and without figures that need others."""
        tables = tuple(
            Table(x.columns, {row: cells for row, cells in x.rows.items() if row in rows}, x.form, x.title, x.forms)
            for x in self.tables
        )
        left = {step for x in tables for cells in x.rows.values() for cell in cells for step in cell.all_steps}
        figures = tuple(x for x in self.figures if left.issuperset(x.steps))
        return Exhibit(self.about, tables, self.claims, figures, self.not_run)


def printed(exhibit: Exhibit) -> Numbers:
    """The paper's own numbers."""
    found = {}
    for table in exhibit.tables:
        for row, cells in table.rows.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if isinstance(cell.printed, int | float):
                    found[row, column] = Value(cell.printed)
                elif cell.printed == NOT_CONVERGED:
                    found[row, column] = Value(-math.inf)
    return Numbers(found)


def ours(exhibit: Exhibit, place: Workplace) -> Numbers:
    """What the finished steps have found."""
    found = {}
    for table in exhibit.tables:
        for row, cells in table.rows.items():
            for column, cell in zip(table.columns, cells, strict=True):
                value = _value(cell, place)
                if value is not None:
                    found[row, column] = value
    return Numbers(found)


def _value(cell: Cell, place: Workplace) -> Value | None:
    if not cell.uneven:
        values = by_seed(cell, place)
        return Value.of(values) if values else None
    each = [_value(x, place) for x in cell.parts]
    known = [x for x in each if x is not None]
    if len(known) < len(each):
        return None
    return Value(sum(x.mean for x in known), math.hypot(*(x.error for x in known))).times(1 / len(known))


def by_seed(cell: Cell, place: Workplace) -> list[float]:
    """The number of every finished step; of a mean, those of the seeds of which all parts are there, or one number if
    the parts have different seeds."""
    if isinstance(cell.value, int | float):
        return [cell.value]
    if cell.uneven:
        value = _value(cell, place)
        return [] if value is None else [value.mean]
    return [x for x in _of_seeds(cell, place) if x is not None]


def _of_seeds(cell: Cell, place: Workplace) -> list[float | None]:
    if cell.parts:
        seeds = zip(*(_of_seeds(x, place) for x in cell.parts), strict=True)
        return [None if None in values else sum(values) / len(values) for values in seeds]
    results = [place.result(step) for step in cell.steps]
    return [None if result is None else cell.read(result) for result in results]


# Claims that many exhibits have.


def above(column: str, *rows: str, words: str) -> Claim:
    """Each row has more than the next."""
    return Claim(words, lambda n: [n(a, column).minus(n(b, column)) for a, b in itertools.pairwise(rows)])


def first_of(column: str, row: str, others: Sequence[str], words: str) -> Claim:
    """One row has more than each of the others."""
    return Claim(words, lambda n: [n(row, column).minus(n(x, column)) for x in others])


# Registration.


class Named(NamedTuple):
    """An exhibit by the name that the paper gives it."""

    name: str  # table2
    title: str  # what the paper's caption says, shortened
    label: str  # in the paper's source
    claim: str  # what it claims, in a line
    make: Callable[[ScaleName], Exhibit]


_exhibits: dict[str, Named] = {}


def register_exhibit(name: str, title: str, *, label: str, claim: str) -> Callable:
    """A decorator: `lion reproduce` knows the function, which makes the exhibit at a scale, by this name."""

    def register(make: Callable[[ScaleName], Exhibit]) -> Callable[[ScaleName], Exhibit]:
        _exhibits[name] = Named(name, title, label, claim, make)
        return make

    return register


def exhibits() -> dict[str, Named]:
    """All exhibits, in the paper's order: tables, then figures; and what is beyond it."""
    import importlib
    import pkgutil

    from lion.reproduce import beyond, paper  # noqa: F401  # they register theirs

    for module in pkgutil.iter_modules(paper.__path__):
        importlib.import_module(f"{paper.__name__}.{module.name}")
    return {name: _exhibits[name] for name in sorted(_exhibits, key=_place)}


def kind_and_number(name: str) -> tuple[str, int]:
    """ "table2" is ("table", 2); what is not the paper's has no number, 0."""
    kind = name.rstrip("0123456789")
    return kind, int(name.removeprefix(kind) or 0)


def _place(name: str) -> tuple[int, int]:
    kind, number = kind_and_number(name)
    return ("table", "figure").index(kind) if number else 2, number

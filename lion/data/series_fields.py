"""Series as files have them, and their fields as numbers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data.findings import BadRow, Findings
from lion.data.tables import MISSING, place
from lion.terminal import listed

NO_LABEL = ("", "?", "nan")  # of other words, as "none", the labels of all series decide: `as_labels`
LARGEST = float(np.finfo(np.float32).max)


class Columns(NamedTuple):
    """Names of a table's columns; "": the one with a usual name."""

    label: str = ""
    id: str = ""
    time: str = ""


class Series(NamedTuple):
    """Some series, as a file has them."""

    values: list[np.ndarray]  # float64 [T, C] of each; NaN where one is missing
    labels: list[Any]  # of each, as they are written; empty: there are none
    rows: list[int]  # the place of each in its file, as lion.data.tables.Row has it
    columns: Columns = Columns()  # those that were found
    channels: tuple[str, ...] = ()  # their names, in a long table
    ids: Sequence[str] = ()  # of each, where the table has them
    numbers: bool | None = None  # what the file says about its labels; None: nothing
    held: int = 0  # so many, the last ones, are for evaluation

    def part(self, indices: Sequence[int]) -> "Series":
        """Some of them, in their order."""
        first = len(self.values) - self.held
        return self._replace(
            values=[self.values[i] for i in indices],
            labels=[self.labels[i] for i in indices] if self.labels else [],
            rows=[self.rows[i] for i in indices],
            ids=[self.ids[i] for i in indices] if self.ids else (),
            held=sum(i >= first for i in indices),
        )


class Asked(NamedTuple):
    """A file to read, and how: see `lion.data.series.read_series`."""

    path: Path
    columns: Columns
    labelled: bool
    length: int
    findings: Findings

    def at(self, row: int) -> str:
        return place(self.path, row)

    def check_label(self, row: int, label: Any, column: str) -> None:
        if self.labelled and (label is None or str(label).strip().lower() in NO_LABEL):
            remedy = "expected one for every series: add it, or leave it out."
            raise BadRow("without a label", f"{self.at(row)} has no label in {column}; {remedy}")


def numbers(fields: Sequence[Any], at: str, column: Callable[[int], str]) -> np.ndarray:
    """Fields as numbers, NaN where one is missing."""
    try:
        found = np.array(fields, np.float64)
    except (ValueError, TypeError):  # empty fields, or text: one by one, to say where
        found = np.empty(0)
    if found.shape != (len(fields),):
        found = np.array([number(x) for x in fields], np.float64)
        for index in np.flatnonzero(np.isinf(found)).tolist():
            if str(fields[index]).strip().lower().lstrip("+-") not in ("inf", "infinity"):
                raise BadRow(
                    "with a value that is no number",
                    f"{at} has {listed([fields[index]])} in {column(index)}; expected a number, or nothing where one "
                    "is missing.",
                )
    for index in np.flatnonzero(np.abs(found) > LARGEST).tolist():
        raise infinite(f"{at} has {found[index]:g} in {column(index)}")
    return found


def infinite(got: str) -> BadRow:
    return BadRow("with a value that is not finite", f"{got}; expected finite numbers: repair it.")


def number(field: Any) -> float:
    """Infinite: it is none."""
    if field is None or (isinstance(field, str) and field.strip().lower() in MISSING):
        return np.nan
    try:
        return float(field)
    except (TypeError, ValueError, OverflowError):
        return np.inf


def is_number(field: Any) -> bool:
    """Or a missing one."""
    return not np.isinf(number(field))


def counted(what: str, first: int = 1) -> Callable[[int], str]:
    return lambda index: f"{what} {first + index}"

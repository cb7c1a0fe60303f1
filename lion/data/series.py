"""Series of numbers over time, from files: .ts and .tsv of the UCR and UEA archives, tables, and .npz.

A wide table has a row for each series: its values in the order of the columns, and a label. A long table has a row for
each step: a column with the series that it belongs to, one for each channel, and a label, the same in all rows of a
series. Missing values are empty, "?" or "nan"; steps at the end that have no value at all make a series shorter.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lion.data.findings import BadRow, Findings
from lion.data.series_fields import LARGEST, Asked, Columns, Series, counted, infinite, numbers
from lion.data.series_tables import read_table
from lion.data.sources.archives import reading
from lion.data.tables import READERS, check_file, ending, text_lines
from lion.terminal import brief, listed


def read_series(
    path: Path | str,
    columns: Columns | None = None,
    *,
    labelled: bool = True,
    length: int = 0,
    findings: Findings | None = None,
) -> Series:
    """The series of a file: .ts, .npz, or a table, wide or long (.csv, .tsv, .jsonl, .parquet, .arrow).

    An .npz file has X [N, T] or [N, T, C] (in this order: steps before channels) and y [N]; X_test and y_test, if it
    has them, come last. A table without a header has its label first or last (`columns.label`): found out, where one of
    both is text, or whole numbers; .tsv files have it first.

    Args:
        columns: of a table. One that is named must be there.
        labelled: every series has a label. If not, what `columns` names may be missing, too: without `columns.id`, all
            rows are one series.
        length: steps of every series, if known: a row with so many fields, and no header, then has no label.
        findings: gets bad rows, and notes; by default the first bad row raises. The series without bad rows are
            returned, perhaps none: a step that is left out would change a series.
    """
    path = Path(path).expanduser()
    findings = findings or Findings(path, at_once=True)
    check_file(path, "a file of series")
    if ending(path) not in FORMATS:
        raise ValueError(f"{path} ends in {ending(path)!r}; expected one of {', '.join(FORMATS)}.")
    asked = Asked(path, columns or Columns(), labelled, length, findings)
    found = _usable(asked, FORMATS[ending(path)](asked))
    if not found.values and not findings.kinds:
        raise ValueError(f"{path} has no series; expected some.")
    return found


def _usable(asked: Asked, found: Series) -> Series:
    """Without steps at the end that have no value, and without series that have none at all, or other channels."""
    channels = [values.shape[1] for values in found.values]
    usual = Counter(channels).most_common(1)[0][0] if channels else 0
    others = "the first series" if channels[:1] == [usual] else "most series have"
    good = []
    for index, (values, row) in enumerate(zip(found.values, found.rows, strict=True)):
        with asked.findings.row(row):
            there = np.flatnonzero(~np.isnan(values).all(1))
            if not len(there):
                words = f"{asked.at(row)} has a series without a value; expected some: leave it out."
                raise BadRow("without a value", words)
            if channels[index] != usual:
                words = f"{asked.at(row)} has {channels[index]} channels; expected {usual}, as {others}."
                raise BadRow("with too many or too few channels", words)
            found.values[index] = values[: there[-1] + 1]
            good.append(index)
    return found if len(good) == len(channels) else found.part(good)


# The format of the archives.


def _read_ts(asked: Asked) -> Series:
    header: dict[str, str] = {}  # by name, in lower case
    found = Series([], [], [])
    has_label = False
    for row, line in enumerate(text_lines(asked.path, asked.findings.errors), 1):
        line = line.strip()
        if not line or line[0] in "#%":
            continue
        if "data" not in header:
            if not line.startswith("@"):
                raise ValueError(f"{asked.at(row)} is {brief(line, 40)!r}; expected @data before the first series.")
            name, _, value = line[1:].partition(" ")
            header[name.lower()] = value.strip().lower()
            has_label = any(header.get(x, "").startswith("true") for x in ("classlabel", "targetlabel"))
            continue
        if line[0] == "(" or header.get("timestamps") == "true":
            raise ValueError(
                f"{asked.at(row)} has time stamps, (time, value); expected values alone, at even steps: a long table "
                "(.csv) can have a column with the time."
            )
        if asked.labelled and not has_label:
            raise ValueError(
                f"{asked.path} has no labels; expected '@classLabel true' or '@targetlabel true' before @data."
            )
        with asked.findings.row(row):
            parts = line.split(":")
            labels = [parts.pop().strip()] if has_label else []
            for label in labels:
                asked.check_label(row, label if parts else "", "its last part, after a colon")
            found.values.append(_channels(parts, asked.at(row)))
            found.labels.extend(labels)
            found.rows.append(row)
    return found._replace(numbers=header.get("targetlabel", "").startswith("true") if has_label else None)


def _channels(parts: list[str], at: str) -> np.ndarray:
    """[T, C], of the text of each channel."""
    channels = [numbers(part.split(","), at, counted(f"channel {i}, step")) for i, part in enumerate(parts, 1)]
    if len({*map(len, channels)}) > 1:
        lengths = brief(", ".join(str(len(x)) for x in channels))
        words = f"{at} has channels of {lengths} steps; expected as many in each: put '?' there."
        raise BadRow("with channels of unequal lengths", words)
    return np.stack(channels, 1)


# Arrays.


def _read_npz(asked: Asked) -> Series:
    path, wanted = asked.path, "X of shape [N, T] or [N, T, C], and y of shape [N], of numbers"
    with reading(str(path), f"expected arrays {wanted}"), np.load(path, allow_pickle=False) as file:
        arrays = {name.lower(): file[name] for name in file.files}
    found = Series([], [], [])
    count = held = 0
    for end in ("", "_test"):
        x, y = arrays.get(f"x{end}"), arrays.get(f"y{end}")
        if x is None and end:
            continue
        if x is None or x.ndim not in (2, 3) or x.dtype.kind not in "fiub":
            got = f"the arrays {listed(arrays)}" if x is None else f"X{end} of shape {x.shape} and type {x.dtype}"
            raise ValueError(f"{path} has {got}; expected {wanted}.")
        if (y is None and asked.labelled) or (y is not None and y.shape not in ((len(x),), (len(x), 1))):
            got = "none" if y is None else f"y{end} of shape {y.shape}"
            raise ValueError(f"{path} has {len(x)} series in X{end}, and {got}; expected y{end} of shape ({len(x)},).")
        labels: list[Any] = [] if y is None else y.ravel().tolist()
        before = len(found.values)
        for index, values in enumerate(x.astype(np.float64) if x.ndim == 3 else x.astype(np.float64)[..., None]):
            count += 1
            with asked.findings.row(count):
                for step, channel in np.argwhere(np.abs(values) > LARGEST):
                    raise infinite(f"{asked.at(count)} has {values[step, channel]} in X{end}[{index}, {step}]")
                if labels:
                    asked.check_label(count, labels[index], "y")
                    found.labels.append(labels[index])
                found.values.append(values)
                found.rows.append(count)
        held = len(found.values) - before if end else 0
    return found._replace(held=held)


FORMATS: dict[str, Callable[[Asked], Series]] = {
    ".ts": _read_ts,
    ".npz": _read_npz,
    **dict.fromkeys(READERS, read_table),
}

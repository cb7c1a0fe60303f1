"""Series of numbers over time, from files: .ts and .tsv of the UCR and UEA archives, tables, and .npz.

A wide table has a row for each series: its values in the order of the columns, and a label. A long table has a row for
each step: a column with the series that it belongs to, one for each channel, and a label, the same in all rows of a
series. Missing values are empty, "?" or "nan"; steps at the end that have no value at all make a series shorter.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data.labelled import NAMES
from lion.data.sources.archives import reading
from lion.data.tables import READERS, check_file, delimited, delimiter_of, ending, place, records, text_lines
from lion.ops.checks import one_of
from lion.terminal import brief, listed

DELIMITERS = {".csv": ",", ".tsv": "\t"}
MISSING = ("", "?", "nan", "na", "n/a", "null", "none")
LARGEST = float(np.finfo(np.float32).max)
ENDS = ("first", "last")  # columns of the label, in tables without a header
USUAL = {  # names of columns
    "label": NAMES["label"],
    "id": ("id", "series", "series_id", "sample", "case"),
    "time": ("time", "t", "timestamp", "step"),
}


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


def read_series(path: Path | str, columns: Columns | None = None, *, labelled: bool = True, length: int = 0) -> Series:
    """The series of a file: .ts, .npz, or a table, wide or long (.csv, .tsv, .jsonl, .parquet, .arrow).

    An .npz file has X [N, T] or [N, T, C] (in this order: steps before channels) and y [N]; X_test and y_test, if it
    has them, come last. A table without a header has its label first or last (`columns.label`): found out, where one of
    both is text, or whole numbers; .tsv files have it first.

    Args:
        columns: of a table. One that is named must be there.
        labelled: every series has a label. If not, what `columns` names may be missing, too: without `columns.id`, all
            rows are one series.
        length: steps of every series, if known: a row with so many fields, and no header, then has no label.
    """
    path = Path(path).expanduser()
    check_file(path, "a file of series")
    if ending(path) not in FORMATS:
        raise ValueError(f"{path} ends in {ending(path)!r}; expected one of {', '.join(FORMATS)}.")
    found = FORMATS[ending(path)](path, columns or Columns(), labelled, length)
    if not found.values:
        raise ValueError(f"{path} has no series; expected some.")
    shape: tuple[int, ...] | None = None
    for index, (values, row) in enumerate(zip(found.values, found.rows, strict=True)):
        there = np.flatnonzero(~np.isnan(values).all(1))
        if not len(there):
            raise ValueError(f"{place(path, row)} has a series without a value; expected some: leave it out.")
        found.values[index] = values[: there[-1] + 1]
        shape = shape or values.shape
        if values.shape[1] != shape[1]:
            raise ValueError(
                f"{place(path, row)} has {values.shape[1]} channels; expected {shape[1]}, as the first series."
            )
    return found


def _numbers(fields: Sequence[Any], at: str, column: Callable[[int], str]) -> np.ndarray:
    """Fields as numbers, NaN where one is missing."""
    try:
        found = np.array(fields, np.float64)
    except (ValueError, TypeError):  # empty fields, or text: one by one, to say where
        found = np.empty(0)
    if found.shape != (len(fields),):
        found = np.array([_number(x) for x in fields], np.float64)
        for index in np.flatnonzero(np.isinf(found)).tolist():
            if str(fields[index]).strip().lower().lstrip("+-") not in ("inf", "infinity"):
                raise ValueError(
                    f"{at} has {listed([fields[index]])} in {column(index)}; expected a number, or nothing where one "
                    "is missing."
                )
    for index in np.flatnonzero(np.abs(found) > LARGEST).tolist():
        raise ValueError(f"{at} has {found[index]:g} in {column(index)}; expected finite numbers: repair it.")
    return found


def _number(field: Any) -> float:
    """Infinite: it is none."""
    if field is None or (isinstance(field, str) and field.strip().lower() in MISSING):
        return np.nan
    try:
        return float(field)
    except (TypeError, ValueError, OverflowError):
        return np.inf


def _is_number(field: Any) -> bool:
    return not np.isinf(_number(field))


def _counted(what: str, first: int = 1) -> Callable[[int], str]:
    return lambda index: f"{what} {first + index}"


def _no_label(path: Path, row: int, column: str) -> ValueError:
    return ValueError(
        f"{place(path, row)} has no label in {column}; expected one for every series: add it, or leave it out."
    )


# The format of the archives.


def _read_ts(path: Path, columns: Columns, labelled: bool, length: int) -> Series:
    header: dict[str, str] = {}  # by name, in lower case
    found = Series([], [], [])
    has_label = False
    for number, line in enumerate(text_lines(path), 1):
        line, at = line.strip(), place(path, number)
        if not line or line[0] in "#%":
            continue
        if "data" not in header:
            if not line.startswith("@"):
                raise ValueError(f"{at} is {brief(line, 40)!r}; expected @data before the first series.")
            name, _, value = line[1:].partition(" ")
            header[name.lower()] = value.strip().lower()
            has_label = any(header.get(x, "").startswith("true") for x in ("classlabel", "targetlabel"))
            continue
        if line[0] == "(" or header.get("timestamps") == "true":
            raise ValueError(
                f"{at} has time stamps, (time, value); expected values alone, at even steps: a long table (.csv) can "
                "have a column with the time."
            )
        if labelled and not has_label:
            raise ValueError(f"{path} has no labels; expected '@classLabel true' or '@targetlabel true' before @data.")
        parts = line.split(":")
        if has_label:
            label = parts.pop().strip()
            if not parts or (labelled and label.lower() in MISSING):
                raise _no_label(path, number, "its last part, after a colon")
            found.labels.append(label)
        channels = [
            _numbers(part.split(","), at, _counted(f"channel {channel}, step")) for channel, part in enumerate(parts, 1)
        ]
        if len({*map(len, channels)}) > 1:
            lengths = ", ".join(str(len(x)) for x in channels)
            raise ValueError(f"{at} has channels of {brief(lengths)} steps; expected as many in each: put '?' there.")
        found.values.append(np.stack(channels, 1))
        found.rows.append(number)
    return found._replace(numbers=header.get("targetlabel", "").startswith("true") if has_label else None)


# Arrays.


def _read_npz(path: Path, columns: Columns, labelled: bool, length: int) -> Series:
    wanted = "X of shape [N, T] or [N, T, C], and y of shape [N], of numbers"
    with reading(str(path), f"expected arrays {wanted}"), np.load(path, allow_pickle=False) as file:
        arrays = {name.lower(): file[name] for name in file.files}
    values: list[np.ndarray] = []
    labels: list[Any] = []
    held = 0
    for end in ("", "_test"):
        x, y = arrays.get(f"x{end}"), arrays.get(f"y{end}")
        if x is None and end:
            continue
        if x is None or x.ndim not in (2, 3) or x.dtype.kind not in "fiub":
            got = f"the arrays {listed(arrays)}" if x is None else f"X{end} of shape {x.shape} and type {x.dtype}"
            raise ValueError(f"{path} has {got}; expected {wanted}.")
        if (y is None and labelled) or (y is not None and y.shape not in ((len(x),), (len(x), 1))):
            got = "none" if y is None else f"y{end} of shape {y.shape}"
            raise ValueError(f"{path} has {len(x)} series in X{end}, and {got}; expected y{end} of shape ({len(x)},).")
        x = x.astype(np.float64).reshape(*x.shape[:2], -1)
        for row, step, channel in np.argwhere(np.abs(x) > LARGEST):
            raise ValueError(f"{path} has {x[row, step, channel]} in X{end}[{row}, {step}]; expected finite numbers.")
        values += list(x)
        labels += [] if y is None else y.ravel().tolist()
        held = len(x) if end else 0
    rows = list(range(1, len(values) + 1))
    for label, row in zip(labels, rows, strict=False):
        if labelled and str(label).strip() in ("", "nan"):
            raise _no_label(path, row, "y")
    return Series(values, labels, rows, held=held)


# Tables.


class Table(NamedTuple):
    names: list[str]  # of columns; empty: it has no header
    rows: Iterator[tuple[int, Sequence[Any]]]


class Line(NamedTuple):
    """A row of a table: a series, or a step of one."""

    number: int
    values: np.ndarray
    label: Any = None
    id: str = ""
    time: Any = None


def _read_table(path: Path, columns: Columns, labelled: bool, length: int) -> Series:
    names, rows = _table(path, columns)
    if not names:
        return _without_header(path, list(rows), columns, labelled, length)
    found = _columns(path, names, columns, labelled)
    taken = {x: names.index(x) for x in found if x}
    others = [i for i, name in enumerate(names) if i not in taken.values()]
    if not others:
        raise ValueError(f"{path} has the columns {listed(names)}; expected some with the values, too.")
    lines = []
    for number, fields in rows:
        if len(fields) != len(names):
            raise ValueError(f"{place(path, number)} has {len(fields)} fields; expected {len(names)}, as in line 1.")
        values = _numbers([fields[i] for i in others], place(path, number), lambda i: repr(names[others[i]]))
        label, own, time = (fields[taken[x]] if x else None for x in found)
        if labelled and str(label).strip().lower() in MISSING:
            raise _no_label(path, number, repr(found.label))
        if found.id and (own is None or not str(own).strip()):
            raise ValueError(f"{place(path, number)} has nothing in {found.id!r}; expected the series of each row.")
        lines.append(Line(number, values, label, str(own).strip(), time))
    long = bool(found.id) and len({line.id for line in lines}) < len(lines)
    if not labelled and columns.id:  # one series may have no id, or one step
        long = True
    if found.time and not long:
        raise ValueError(
            f"{path} has a column {found.time!r}, but none in which the rows of a series have the same "
            f"({', '.join(USUAL['id'])}); its columns are {listed(names)}: say which as id_column."
        )
    if long:
        return _grouped(path, lines, found, tuple(names[i] for i in others))
    return Series(
        [line.values[:, None] for line in lines],
        [line.label for line in lines] if found.label else [],
        [line.number for line in lines],
        found._replace(id=""),
        ids=[line.id for line in lines] if found.id else (),
    )


def _table(path: Path, columns: Columns) -> Table:
    if ending(path) not in DELIMITERS:
        there = records(path)
        first = next(there, None)
        names = [] if first is None else list(first.fields)
        every = (row for part in ([first] if first else [], there) for row in part)
        return Table(names, ((number, _in_order(fields, names, place(path, number))) for number, fields in every))
    rows = delimited(path, delimiter_of(path, DELIMITERS[ending(path)]), quotes=True)
    line, fields = next(rows, (1, []))
    head = [x.strip() for x in fields]
    if not _is_header(head, columns):
        return Table([], (row for part in ([(line, fields)] if fields else [], rows) for row in part))
    if len(set(head)) < len(head):
        twice = next(x for x in head if head.count(x) > 1)
        raise ValueError(f"{place(path, line)} has two columns {listed([twice])}; expected different names.")
    return Table(head, rows)


def _in_order(fields: dict[str, Any], names: list[str], at: str) -> list[Any]:
    if other := fields.keys() - set(names):
        raise ValueError(f"{at} has {listed(sorted(other))}; expected the fields of the first: {listed(names)}.")
    return [fields.get(name) for name in names]


def _is_header(fields: list[str], columns: Columns) -> bool:
    """Two names or more, or one that is known; or numbers of steps, counted from 0 or 1."""
    texts = [x for x in fields if not _is_number(x)]
    known = {*columns, *(x for some in USUAL.values() for x in some)}
    steps = [x for x in fields if _is_number(x)]
    counted = len(steps) > 2 and any(steps == [str(first + i) for i in range(len(steps))] for first in (0, 1))
    return len(texts) > 1 or counted or any(x in known or x.lower() in known for x in texts)


def _columns(path: Path, names: list[str], given: Columns, labelled: bool) -> Columns:
    """The columns of the label, the id and the time; "": there is none."""
    by_name = {name.lower(): name for name in reversed(names)}
    found = []
    for kind, name in given._asdict().items():
        if name and labelled:
            one_of(f"{kind}_column for {path}", name, names)
        usual = [by_name[x] for x in USUAL[kind] if x in by_name]
        found.append((name if name in names else "") if name else next(iter(usual), ""))
    if labelled and not found[0]:
        raise ValueError(
            f"{path} has no column with a usual name for its labels ({', '.join(USUAL['label'][:4])}, ...); its "
            f"columns are {listed(names)}: say which as label_column."
        )
    return Columns(*found)


def _without_header(
    path: Path, rows: list[tuple[int, Sequence[Any]]], columns: Columns, labelled: bool, length: int
) -> Series:
    """Rows of values with the label at one end. They may be of different lengths."""
    end = columns.label
    if labelled:
        end = end or _label_end(path, rows)
        one_of(f"label_column for {path}, which has no header,", end, ENDS)
    has_label = end in ENDS and bool(rows) and len(rows[0][1]) != (length or -1)
    found = Series([], [], [], Columns(end))
    for number, fields in rows:
        at, first = place(path, number), 1
        if has_label:
            label = fields[0 if end == "first" else -1].strip()
            if len(fields) < 2 or (labelled and label.lower() in MISSING):
                raise _no_label(path, number, f"its {end} column, beside the values")
            found.labels.append(label)
            fields, first = (fields[1:], 2) if end == "first" else (fields[:-1], 1)
        found.values.append(_numbers(fields, at, _counted("column", first))[:, None])
        found.rows.append(number)
    return found


def _label_end(path: Path, rows: list[tuple[int, Sequence[Any]]]) -> str:
    """Where the labels are: "first" or "last"."""
    if ending(path) == ".tsv" or not rows:  # as in the archive
        return "first"
    ends = {"first": [fields[0] for _, fields in rows], "last": [fields[-1] for _, fields in rows]}
    texts = {end: sum(not _is_number(x) for x in cells) for end, cells in ends.items()}
    if texts["first"] != texts["last"]:
        return max(ENDS, key=texts.__getitem__)
    whole = [end for end, cells in ends.items() if all(_number(x) % 1 == 0 for x in cells)]
    if len(whole) == 1:
        return whole[0]
    raise ValueError(
        f"{path} has no header, and its labels may be in the first column or in the last; say which with "
        "--label_column first or --label_column last."
    )


def _grouped(path: Path, lines: list[Line], columns: Columns, channels: tuple[str, ...]) -> Series:
    """A long table: the rows of each id, by their time if they have one, else in the order of the file."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.id, []).append(line)
    found = Series([], [], [], columns, channels, list(groups))
    for name, group in groups.items():
        head = group[0]
        for line in group:
            if columns.label and str(line.label).strip() != str(head.label).strip():
                raise ValueError(
                    f"{place(path, line.number)} has the label {listed([line.label])}, and line {head.number} of the "
                    f"same {columns.id!r}, {brief(name, 40)}, has {listed([head.label])}; expected one label for each."
                )
        if columns.time:
            group = sorted(group, key=lambda line: _time(line.time, place(path, line.number), columns.time))
        found.values.append(np.stack([line.values for line in group]))
        found.rows.append(head.number)
        if columns.label:
            found.labels.append(head.label)
    return found


def _time(field: Any, at: str, column: str) -> float:
    """A number, or the seconds of a date."""
    if isinstance(field, datetime.datetime | str) and not (isinstance(field, str) and _is_number(field)):
        try:
            when = datetime.datetime.fromisoformat(str(field).strip().replace("Z", "+00:00"))
            return (when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)).timestamp()
        except ValueError:
            pass
    found = _number(field)
    if not np.isfinite(found):
        raise ValueError(
            f"{at} has {listed([field])} in {column!r}; expected a number or a date, as 2024-12-31 23:59:59."
        )
    return found


FORMATS: dict[str, Callable[[Path, Columns, bool, int], Series]] = {
    ".ts": _read_ts,
    ".npz": _read_npz,
    **dict.fromkeys(READERS, _read_table),
}

"""Tables of series: wide and long ones, with a header and without."""

import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from lion.data.findings import BadRow
from lion.data.labelled import NAMES
from lion.data.series_fields import Asked, Columns, Series, counted, is_number, number, numbers
from lion.data.tables import MISSING, Row, delimited, delimiter_of, ending, format_note, records
from lion.ops.checks import one_of
from lion.terminal import brief, listed

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SAMPLE = 1000  # rows that tell what a column has
TEXTS = 3  # fields of text, and no number, that make a column one of text
STEPS = 4  # rows of a series on average, at least, in a table that may have a row for each step
ENDS = ("first", "last")  # columns of the label, in tables without a header
USUAL = {  # names of columns
    "label": NAMES["label"],
    "id": ("id", "series", "series_id", "sample", "case"),
    "time": ("time", "t", "timestamp", "step"),
}


class Table(NamedTuple):
    names: list[str]  # of columns; empty: it has no header
    rows: Iterator[tuple[int, Sequence[Any]]]


class Line(NamedTuple):
    """A row of a table: a series, or a step of one."""

    number: int
    values: np.ndarray
    label: Any = None
    id: str = ""
    time: float = 0.0


def read_table(asked: Asked) -> Series:
    path, findings = asked.path, asked.findings
    names, rows = _table(asked)
    if not names:
        return _without_header(asked, list(rows))
    found = _columns(asked, names)
    taken = {x: names.index(x) for x in found if x}
    others = [i for i, name in enumerate(names) if i not in taken.values()]
    if not others:
        raise ValueError(f"{path} has the columns {listed(names)}; expected some with the values, too.")
    first = list(itertools.islice(rows, 0 if findings.at_once else SAMPLE))  # or a later problem would come first
    sample = [fields for _, fields in first if len(fields) == len(names)]
    for i in others if asked.labelled else ():
        _check_values(asked, names[i], [fields[i] for fields in sample])
    lines: list[Line] = []
    ids: dict[int, str] = {}  # by row; of bad rows, too, where they tell theirs
    for row, fields in itertools.chain(first, rows):
        with findings.row(row):
            at = asked.at(row)
            if len(fields) != len(names):
                words = f"{at} has {len(fields)} fields; expected {len(names)}, as in line 1."
                raise BadRow("with too many or too few fields", words)
            label, own, time = (fields[taken[x]] if x else None for x in found)
            if found.id:
                ids[row] = _id(own, at, found.id)
            values = numbers([fields[i] for i in others], at, lambda i: repr(names[others[i]]))
            asked.check_label(row, label, repr(found.label))
            lines.append(Line(row, values, label, ids.get(row, ""), _time(time, at, found.time)))
    long = bool(found.id) and len({*ids.values()}) < len(ids)
    if not asked.labelled and asked.columns.id:  # one series may have no id, or one step
        long = True
    if found.time and not long:
        raise ValueError(
            f"{path} has a column {found.time!r}, but none in which the rows of a series have the same "
            f"({', '.join(USUAL['id'])}); its columns are {listed(names)}: say which: --id_column NAME."
        )
    found = found if long else found._replace(id="")
    by = "".join(f", {what} {name!r}" for what, name in (("series by", found.id), ("sorted by", found.time)) if name)
    findings.notes["columns"] = f"labels from {found.label!r}{by}"
    if not long and found.label and (name := _like_an_id(names, others, names.index(found.label), sample)):
        findings.notes["columns"] += (
            f", a row for each series (if a row is one step, and {name!r} tells whose: --id_column {name})"
        )
    if long:
        return _grouped(asked, lines, ids, found, tuple(names[i] for i in others))
    return Series(
        [line.values[:, None] for line in lines],
        [line.label for line in lines] if found.label else [],
        [line.number for line in lines],
        found,
        ids=[line.id for line in lines] if ids else (),
    )


def _check_values(asked: Asked, name: str, fields: Sequence[Any]) -> None:
    """Refuse a column without a single number: it has no values."""
    there = [x for x in fields if number(x) == number(x)]  # not missing
    if len(there) >= TEXTS and not any(map(is_number, there)):
        raise ValueError(
            f"{asked.path} has {listed(there[:1])} in the column {name!r}, and no number; expected values. If it tells "
            f"which series a row belongs to: --id_column {name}; if not, leave it out of the file."
        )


def _like_an_id(names: list[str], others: list[int], label: int, rows: list[Sequence[Any]]) -> str:
    """The first column whose rows of the same content stand together and have one label; "": none."""
    for i in others:
        runs = [(key, {fields[label] for fields in run}) for key, run in itertools.groupby(rows, itemgetter(i))]
        alone = len({key for key, _ in runs}) == len(runs)
        if alone and 1 < len(runs) <= len(rows) / STEPS and all(len(labels) == 1 for _, labels in runs):
            return names[i]
    return ""


def _table(asked: Asked) -> Table:
    path, findings = asked.path, asked.findings
    if ending(path) not in DELIMITERS:
        there = records(path, findings=findings)
        first = next(there, None)
        if first is None:
            return Table([], iter(()))
        names = list(first.fields)
        return Table(names, _in_order(asked, (row for part in ([first], there) for row in part), names))
    delimiter = delimiter_of(path, DELIMITERS[ending(path)], findings.errors)
    rows = delimited(path, delimiter, quotes=True, findings=findings)
    line, fields = next(rows, (1, []))
    head = [x.strip() for x in fields]
    is_header = _is_header(head, asked.columns)
    findings.notes["format"] = format_note(path, delimiter, header=is_header)
    if not is_header:
        return Table([], (row for part in ([(line, fields)] if fields else [], rows) for row in part))
    if len(set(head)) < len(head):
        twice = next(x for x in head if head.count(x) > 1)
        raise ValueError(f"{asked.at(line)} has two columns {listed([twice])}; expected different names.")
    return Table(head, rows)


def _in_order(asked: Asked, rows: Iterable[Row], names: list[str]) -> Iterator[tuple[int, list[Any]]]:
    known = {*names}
    for row, fields in rows:
        if other := fields.keys() - known:
            got = f"{asked.at(row)} has {listed(sorted(other))}"
            words = f"{got}; expected the fields of the first: {listed(names)}."
            asked.findings.bad(row, "with other fields", words)
            continue
        yield row, [fields.get(name) for name in names]


def _is_header(fields: list[str], columns: Columns) -> bool:
    """Two names or more, or one that is known; or numbers of steps, counted from 0 or 1."""
    texts = [x for x in fields if not is_number(x)]
    known = {*columns, *(x for some in USUAL.values() for x in some)}
    steps = [x for x in fields if is_number(x)]
    in_order = len(steps) > 2 and any(steps == [str(first + i) for i in range(len(steps))] for first in (0, 1))
    return len(texts) > 1 or in_order or any(x in known or x.lower() in known for x in texts)


def _columns(asked: Asked, names: list[str]) -> Columns:
    """The columns of the label, the id and the time; "": there is none."""
    by_name = {name.lower(): name for name in reversed(names)}
    found = []
    for kind, name in asked.columns._asdict().items():
        if name and asked.labelled:
            one_of(f"{kind}_column for {asked.path}", name, names)
        usual = [by_name[x] for x in USUAL[kind] if x in by_name]
        found.append((name if name in names else "") if name else next(iter(usual), ""))
    if asked.labelled and not found[0]:
        raise ValueError(
            f"{asked.path} has no column with a usual name for its labels ({', '.join(USUAL['label'][:4])}, ...); its "
            f"columns are {listed(names)}: say which: --label_column NAME."
        )
    return Columns(*found)


# Without a header.


def _without_header(asked: Asked, rows: list[tuple[int, Sequence[Any]]]) -> Series:
    """Rows of values with the label at one end. They may be of different lengths."""
    end = asked.columns.label
    if asked.labelled:
        end = end or _label_end(asked, [fields for _, fields in rows])
        one_of(f"label_column for {asked.path}, which has no header,", end, ENDS)
    has_label = end in ENDS and bool(rows) and len(rows[0][1]) != (asked.length or -1)
    asked.findings.notes["columns"] = f"labels from the {end} one"
    found = Series([], [], [], Columns(end))
    where = f"its {end} column, beside the values"
    for row, fields in rows:
        with asked.findings.row(row):
            at, first = asked.at(row), 1
            if has_label:
                label = fields[0 if end == "first" else -1].strip()
                asked.check_label(row, label if len(fields) > 1 else "", where)
                fields, first = (fields[1:], 2) if end == "first" else (fields[:-1], 1)
            found.values.append(numbers(fields, at, counted("column", first))[:, None])
            found.labels.extend([label] if has_label else [])
            found.rows.append(row)
    return found


def _label_end(asked: Asked, rows: list[Sequence[Any]]) -> str:
    """Where the labels are: "first" or "last". A bad value among them is not what decides."""
    if ending(asked.path) == ".tsv" or not rows:  # as in the archive
        return "first"
    cells = {end: [fields[i] for fields in rows] for end, i in zip(ENDS, (0, -1), strict=True)}
    there = {end: [x for x in some if x.strip().lower() not in MISSING] for end, some in cells.items()}
    texts = {end: sum(not is_number(x) for x in some) for end, some in there.items()}
    most, least = sorted(ENDS, key=texts.__getitem__, reverse=True)
    if texts[most] > texts[least] and texts[most] > len(there[most]) / 2:
        return most
    figures = {end: [number(x) for x in some if is_number(x)] for end, some in there.items()}
    whole = [end for end, some in figures.items() if some and all(x % 1 == 0 for x in some)]
    if len(whole) == 1:
        return whole[0]
    if texts[most] > texts[least]:
        return most
    raise ValueError(
        f"{asked.path} has no header, and its labels may be in the first column or in the last; say which with "
        "--label_column first or --label_column last."
    )


# Long tables.


def _grouped(
    asked: Asked, lines: list[Line], ids: dict[int, str], columns: Columns, channels: tuple[str, ...]
) -> Series:
    """The rows of each id, by their time if they have one, else in the order of the file. A series with a bad row is
    left out: without that step it would be another one. A row that does not tell its series is left out alone."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.id, []).append(line)
    for name, (head, *others) in groups.items():
        other = next((x for x in others if str(x.label).strip() != str(head.label).strip()), None)
        if columns.label and other:
            words = (
                f"{asked.at(other.number)} has the label {listed([other.label])}, and line {head.number} of the same "
                f"{columns.id!r}, {brief(name, 40)}, has {listed([head.label])}; expected one label for each."
            )
            asked.findings.bad(other.number, "with another label than the first of their series", words)
    bad = asked.findings.bad_places
    spoilt = {name for row, name in ids.items() if row in bad} if columns.id else {*groups} if bad else set()
    if spoilt:
        asked.findings.left_out["with a bad row"] += len(spoilt)
    kept = {name: group for name, group in groups.items() if name not in spoilt}
    found = Series([], [], [], columns, channels, list(kept))
    for group in kept.values():
        found.rows.append(group[0].number)
        found.labels.extend([group[0].label] if columns.label else [])
        in_order = sorted(group, key=lambda line: line.time)  # stable: without a time, as in the file
        found.values.append(np.stack([line.values for line in in_order]))
    return found


def _id(field: Any, at: str, column: str) -> str:
    if field is None or not str(field).strip():
        raise BadRow("without a series", f"{at} has nothing in {column!r}; expected the series of each row.")
    return str(field).strip()


def _time(field: Any, at: str, column: str) -> float:
    """A number, or the seconds of a date; 0 where the table has no column for it."""
    if not column:
        return 0.0
    if isinstance(field, datetime.datetime | str) and not (isinstance(field, str) and is_number(field)):
        try:
            when = datetime.datetime.fromisoformat(str(field).strip().replace("Z", "+00:00"))
            return (when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)).timestamp()
        except ValueError:
            pass
    found = number(field)
    if not np.isfinite(found):
        words = f"{at} has {listed([field])} in {column!r}; expected a number or a date, as 2024-12-31 23:59:59."
        raise BadRow("without a time", words)
    return found

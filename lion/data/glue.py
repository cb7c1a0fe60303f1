"""GLUE's tasks, from the official TSV files, from Parquet and Arrow files of Hugging Face, or from its hub."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data.labelled import Labelled, Text
from lion.data.sources.hub import hub_rows, on_hub
from lion.data.tables import delimited, place, records
from lion.ops.checks import one_of
from lion.terminal import brief, listed

log = logging.getLogger(__name__)

Example = tuple[str, list[str], Any]  # its place, for messages; its texts; its label

ENTAILED = ("entailment", "not_entailment")


class GlueTask(NamedTuple):
    folder: str  # as the official download has it
    columns: tuple[str, ...]  # Hugging Face's names for the one or two texts
    fields: tuple[int, ...]  # the same in the official TSV, by number
    label: int  # the field of the label in the TSV
    classes: tuple[str, ...] | None  # None: regression
    header: bool = True  # the first line of the TSV has the names of the fields
    broken: bool = False  # the official TSV has rows with missing fields, which everybody leaves out


GLUE = {
    "cola": GlueTask("CoLA", ("sentence",), (3,), 1, ("unacceptable", "acceptable"), header=False),
    "sst2": GlueTask("SST-2", ("sentence",), (0,), 1, ("negative", "positive")),
    "mrpc": GlueTask("MRPC", ("sentence1", "sentence2"), (3, 4), 0, ("not_equivalent", "equivalent")),
    "qqp": GlueTask("QQP", ("question1", "question2"), (3, 4), 5, ("not_duplicate", "duplicate"), broken=True),
    "stsb": GlueTask("STS-B", ("sentence1", "sentence2"), (7, 8), 9, None),
    "mnli": GlueTask("MNLI", ("premise", "hypothesis"), (8, 9), -1, ("entailment", "neutral", "contradiction")),
    "qnli": GlueTask("QNLI", ("question", "sentence"), (1, 2), 3, ENTAILED),
    "rte": GlueTask("RTE", ("sentence1", "sentence2"), (1, 2), 3, ENTAILED),
}
TSV = {"train": "train.tsv", "validation": "dev.tsv"}  # the labels of "test" are not public
MNLI_TSV = {
    "train": "train.tsv",
    "validation": "dev_matched.tsv",
    "validation_matched": "dev_matched.tsv",
    "validation_mismatched": "dev_mismatched.tsv",
}


def glue(task: str, folder: Path | str, split: str) -> Labelled:
    """Texts (pairs in most tasks), labels and names of classes; STS-B has scores from 0 to 5, and no classes.

    Args:
        task: a key of `GLUE`, or its official name.
        folder: the task's folder, or the one with the folders of all tasks; or hf://nyu-mll/glue.
        split: "train" or "validation"; MNLI also has "validation_mismatched".
    """
    name = task.lower().replace("-", "")
    one_of("task", name, GLUE)
    asked = GLUE[name]
    names = MNLI_TSV if name == "mnli" else TSV
    one_of("split", split, names)
    hub = "validation_matched" if (name, split) == ("mnli", "validation") else split
    if on_hub(folder):
        source, rows = str(folder), _columns(str(folder), hub_rows(str(folder), hub, name), asked)
    else:
        files = _find(Path(folder).expanduser(), asked, name, names[split], hub)
        source, rows = str(files[0]), itertools.chain.from_iterable(_read(path, asked) for path in files)
    texts: list[Text] = []
    labels: list[float] = []
    for at, parts, label in rows:
        texts.append((parts[0], parts[1]) if len(parts) == 2 else parts[0])
        labels.append(_label(at, label, asked.classes))
    if not texts:
        raise ValueError(f"{source} has no rows; expected those of {asked.folder}.")
    numbers = np.array(labels, np.float32 if asked.classes is None else np.int64)
    return Labelled(texts, numbers, list(asked.classes) if asked.classes else None)


def _find(folder: Path, asked: GlueTask, name: str, tsv: str, hub: str) -> list[Path]:
    tables = [f"{start}.{end}" for end in ("parquet", "arrow") for start in (hub, f"{hub}-*", f"{hub}/*")]
    for home in (folder, folder / asked.folder, folder / name, folder / "glue" / name):
        for pattern in (tsv, *tables, f"glue-{hub}.arrow"):
            if found := sorted(path for path in home.glob(pattern) if path.is_file()):
                return found
    raise FileNotFoundError(
        f"{asked.folder} is not in {folder}; expected {tsv}, {hub}-*.parquet or {hub}/*.arrow there, or in a folder "
        f"{asked.folder} of it: give that as data (--data FOLDER, or --data hf://nyu-mll/glue)."
    )


def _read(path: Path, asked: GlueTask) -> Iterator[Example]:
    if path.suffix == ".tsv":
        return _read_tsv(path, asked)
    return _columns(str(path), ((place(path, number), fields) for number, fields in records(path)), asked)


def _read_tsv(path: Path, asked: GlueTask) -> Iterator[Example]:
    rows = delimited(path, "\t", quotes=False)
    width = len(next(rows, (1, []))[1]) if asked.header else 4
    least = max(*asked.fields, asked.label) + 1
    if 0 < width < least:
        raise ValueError(f"{place(path, 1)} has {width} fields; expected at least {least}, as {asked.folder} has.")
    left_out = 0
    for number, fields in rows:
        if len(fields) == width:
            yield place(path, number), [fields[i] for i in asked.fields], fields[asked.label]
        elif not asked.broken:
            raise ValueError(f"{place(path, number)} has {len(fields)} fields; expected {width}: get it again.")
        else:
            left_out += 1
    if left_out:
        log.warning("%s: left out %d rows with fields missing", path, left_out)


def _columns(source: str, rows: Iterable[tuple[str, dict[str, Any]]], asked: GlueTask) -> Iterator[Example]:
    for at, fields in rows:
        for column in (*asked.columns, "label"):
            if column not in fields:
                raise ValueError(
                    f"{source} has no column {column!r}; expected it for {asked.folder}: it has {listed(fields)}."
                )
        yield at, [fields[column] for column in asked.columns], fields["label"]


def _label(at: str, label: Any, classes: tuple[str, ...] | None) -> float:
    if classes is None:
        try:
            score = float(label)
        except (TypeError, ValueError):
            score = -1.0
        if not 0 <= score <= 5:
            raise ValueError(f"{at} has the label {brief(repr(label))}; expected a score from 0 to 5.")
        return score
    known = {name: i for i, name in enumerate(classes)} | {str(i): i for i in range(len(classes))}
    if str(label) not in known:
        raise ValueError(f"{at} has the label {brief(repr(label))}; expected one of {', '.join(map(repr, known))}.")
    return known[str(label)]

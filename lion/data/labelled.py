"""Labelled texts: from tables (CSV, TSV, JSON lines, Parquet, Arrow), IMDB's reviews, and as batches of tokens."""

import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.data import digests
from lion.data.batches import Batch, LabelledRows, padded_width, split_keys
from lion.data.sources.fetching import FETCHED, located
from lion.data.splits import stratified
from lion.data.tables import check_text, place, records
from lion.data.tokenizers import TextTokenizer
from lion.ops.checks import one_of
from lion.terminal import listed

Text = str | tuple[str, str]  # a pair, for tasks that compare two texts
SPLITS = ("train", "test")
# The usual names of columns.
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
NAMES = {
    "text": ("text", "review", "sentence", "content", "comment", "document", "body", "message", "tweet", "title"),
    "sequence": ("sequence", "sequences", "seq", "dna", "nucleotides", "bases", "text"),
    "label": ("label", "labels", "sentiment", "class", "category", "target", "score", "rating", "stars", "gold_label"),
}


class Labelled(NamedTuple):
    texts: list[Text]
    labels: np.ndarray  # int64, by class; or float32, for regression
    classes: list[str] | None  # names, by label; None for regression
    rows: Sequence[int] = ()  # the place of each in its file: `Row.number`


# Tables.


def labelled(
    path: Path | str,
    text_column: str | tuple[str, str] | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
    what: str = "text",
) -> Labelled:
    """Texts and their labels from a file: .csv, .tsv, .jsonl, .parquet, .arrow (text formats also as .gz).

    Args:
        text_column, label_column: by default found by their usual names; two text columns for pairs.
        classes: names in the order of their labels; by default those that occur, sorted. For an evaluation set, give
            those of the training set.
        numbers: whether labels are regression targets; by default if one of them has a fraction.
        what: "text", or "sequence" for DNA: it decides the usual names, and the words of messages.
    """
    path = Path(path).expanduser()
    texts: list[Text] = []
    values: list[Any] = []
    rows: list[int] = []
    columns: tuple[str, ...] = ()
    for number, fields in records(path):
        at = place(path, number)
        columns = columns or _columns(path, list(fields), text_column, label_column, what)
        for column in columns:
            if fields.get(column) is None:
                raise ValueError(f"{at} has no {column!r}; expected one in every row: its fields are {listed(fields)}.")
        *parts, value = (fields[column] for column in columns)
        for column, part in zip(columns, parts, strict=False):
            check_text(at, column, part)
            if not part.strip():
                raise ValueError(
                    f"{at} has an empty text in {column!r}; expected some text: fill it in, or leave the row out."
                )
        if str(value).strip() in ("", "nan"):
            raise ValueError(
                f"{at} has no label in {columns[-1]!r}; expected one in every row: add it, or leave it out."
            )
        texts.append((parts[0], parts[1]) if len(parts) == 2 else parts[0])
        values.append(value)
        rows.append(number)
    if not texts:
        raise ValueError(f"{path} has no rows; expected {what}s with labels.")
    labels, names = as_labels(path, values, rows, columns[-1], classes, numbers)
    return Labelled(texts, labels, names, rows)


def _columns(
    path: Path, there: list[str], text: str | tuple[str, str] | None, label: str | None, what: str
) -> tuple[str, ...]:
    """The column of the text, or those of both texts; and that of the label."""
    if not isinstance(text, str | None) and len(text) != 2:
        raise ValueError(f"{what}_column is {text!r}; expected the name of a column, or of two for pairs.")
    texts, labels = (text,) if isinstance(text, str) else text or (), () if label is None else (label,)
    for kind, given in ((what, texts), ("label", labels)):
        for name in given:
            one_of(f"{kind}_column for {path}", name, there)
    known = {name.lower(): name for name in reversed(there)}
    found: list[str] = []
    for kind, given in ((what, texts), ("label", labels)):
        usual = [*(PAIRS if kind == "text" else ()), *((name,) for name in NAMES[kind])]
        names = given or next((tuple(known[x] for x in some) for some in usual if known.keys() >= {*some}), ())
        if not names:
            raise ValueError(
                f"{path} has no column with a usual name for its {kind}s ({', '.join(NAMES[kind][:4])}, ...); its "
                f"columns are {listed(there)}: say which as {kind}_column."
            )
        found += names
    return tuple(found)


def as_labels(
    path: Path, values: list[Any], rows: list[int], column: str, classes: Sequence[str] | None, numbers: bool | None
) -> tuple[np.ndarray, list[str] | None]:
    """Labels as numbers, and the names of their classes, as `labelled` gives them."""
    counts = [_number(value) for value in values]
    if numbers is None:
        numbers = classes is None and None not in counts and any(x != round(x) for x in counts if x is not None)
    if numbers:
        for value, count, row in zip(values, counts, rows, strict=True):
            if count is None:
                raise ValueError(f"{place(path, row)} has {listed([value])} in {column!r}; expected a number.")
        return np.array(counts, np.float32), None
    names = [str(value).strip() if x is None else _named(value, x) for value, x in zip(values, counts, strict=True)]
    if classes is None:
        by_number = None not in counts
        classes = sorted(set(names), key=lambda name: (float(name) if by_number else 0.0, name))
        if len(classes) < 2:
            raise ValueError(f"{path} has {listed(classes)} in every row of {column!r}; expected two classes or more.")
    index = {str(name): i for i, name in enumerate(classes)}
    for name, row in zip(names, rows, strict=True):
        if name not in index:
            raise ValueError(f"{place(path, row)} has {listed([name])} in {column!r}; expected one of {listed(index)}.")
    return np.array([index[name] for name in names], np.int64), list(index)


def _named(value: Any, number: float) -> str:
    """The class of a numeric label: "1.0" and 1 are the same class, "007" and "1e2" keep their spelling."""
    whole = re.fullmatch(r"-?(0|[1-9]\d*)(\.0*)?", value.strip()) if isinstance(value, str) else number == round(number)
    return str(round(number)) if whole else str(value).strip()


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):  # the last: an integer of hundreds of digits
        return None
    return found if math.isfinite(found) else None


# IMDB.


def imdb(split: str, *, data: Path | str | None = None, seed: int = 0, holdout: float = 0.2) -> Labelled:
    """IMDB's 25,000 movie reviews from `fetch("imdb")`, without duplicates; the test split has a share of `holdout` of
    each class. "<br />" in the file becomes a line break."""
    one_of("split", split, SPLITS)
    path = located("imdb", data)
    texts, labels = _reviews(path, path.stat().st_mtime_ns)
    part = stratified(labels, holdout, seed)[SPLITS.index(split)]
    return Labelled([texts[i] for i in part], labels[part], ["negative", "positive"])


@functools.lru_cache(maxsize=1)  # the file is read once for both splits
def _reviews(path: Path, changed: int) -> tuple[list[str], np.ndarray]:
    texts: dict[str, str] = {}
    labels = []
    expected = f"expected {FETCHED['imdb'].file} as fetched."
    for number, fields in records(path):
        if missing := {"text", "label", "source"} - fields.keys():
            raise ValueError(f"{place(path, number)} has no {listed(sorted(missing))}; {expected}")
        if fields["source"] != "imdb":
            continue
        if fields["label"] not in ("0", "1"):
            raise ValueError(f"{place(path, number)} has the label {listed([fields['label']])}; expected '0' or '1'.")
        text = fields["text"].replace("<br />", "\n")
        words = " ".join(re.findall(r"\w+", text.lower()))
        if words not in texts:
            texts[words] = text
            labels.append(int(fields["label"]))
    if not texts:
        raise ValueError(f"{path} has no reviews of imdb; {expected}")
    return list(texts.values()), np.array(labels, np.int64)


# Batches.


class LabelledTexts(LabelledRows):
    """Texts or pairs of texts with labels, as batches of tokens."""

    def __init__(
        self,
        texts: Sequence[Text],
        labels: Sequence[int] | Sequence[float] | np.ndarray,
        tokenizer: TextTokenizer,
        max_length: int,
    ):
        if len(texts) != len(labels) or not len(texts):
            raise ValueError(f"there are {len(texts)} texts and {len(labels)} labels; expected one label per text.")
        pairs = [text for text in texts if not isinstance(text, str)]
        if pairs and len(pairs) != len(texts):
            raise ValueError(f"{len(pairs)} of {len(texts)} texts are pairs; expected all or none.")
        self.max_length = max_length
        self.pad_id = next((x for x in (tokenizer.pad_id, tokenizer.eos_id) if x is not None), 0)
        self.types: np.ndarray | None = None
        if pairs:
            both = tokenizer.encode_pairs(pairs, max_length=max_length)
            encoded = [ids for ids, _ in both]
            self.types = np.concatenate([np.array(kinds, np.int8) for _, kinds in both])
        else:
            encoded = tokenizer.encode([x for x in texts if isinstance(x, str)], specials=True, max_length=max_length)
        super().__init__([np.array(ids, np.int32) for ids in encoded], labels)

    def digest(self) -> str:
        return digests.digest(self.ids, self.ends, self.types, self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `max_length` if that is less; `mask` [B, T], True for
        tokens; `label` [B]; for pairs `token_type_ids` [B, T], 0 for the first text and 1 for the second."""
        _, indices = split_keys(keys)
        starts = np.where(indices > 0, self.ends[indices - 1], 0)
        lengths = self.ends[indices] - starts
        width = padded_width(int(lengths.max()), self.max_length)
        mask = np.arange(width) < lengths[:, None]  # [B, T]
        places = np.where(mask, starts[:, None] + np.arange(width), 0)
        batch = {
            "input_ids": torch.from_numpy(np.where(mask, self.ids[places], self.pad_id).astype(np.int64)),
            "mask": torch.from_numpy(mask),
            "label": self.labels[torch.from_numpy(indices)],
        }
        if self.types is not None:
            batch["token_type_ids"] = torch.from_numpy(np.where(mask, self.types[places], 0).astype(np.int64))
        return batch

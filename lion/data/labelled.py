"""Labelled texts: from tables (CSV, TSV, JSON, Parquet, Arrow), IMDB's reviews, and as batches of tokens."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.data import digests
from lion.data.augment import draws
from lion.data.batches import Batch, LabelledRows, padded_width, split_keys
from lion.data.findings import BadRow, Findings
from lion.data.sources.fetching import FETCHED, located
from lion.data.splits import stratified
from lion.data.tables import MISSING, Row, check_text, numbered, place, records
from lion.data.tokenizers import TextTokenizer
from lion.ops.checks import one_of
from lion.terminal import listed

Text = str | tuple[str, str]  # a pair, for tasks that compare two texts
FEW_NUMBERS = 10  # classes with whole numbers for names; of more, they may be amounts
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
TEXTS = ("text", "review", "sentence", "content", "comment", "document", "body", "message", "tweet", "title", "quote")
CLASSES = ("label", "labels", "sentiment", "class", "category", "target")
NAMES = {
    "text": TEXTS,
    "sequence": ("sequence", "sequences", "seq", "dna", "nucleotides", "bases", "text"),
    "label": (*CLASSES, "score", "rating", "stars", "gold_label", "topic"),
}


class Labelled(NamedTuple):
    texts: list[Text]
    labels: np.ndarray  # int64, by class; or float32, for regression
    classes: list[str] | None  # names, by label; None for regression
    rows: Sequence[int] = ()  # the place of each in its file: `Row.number`
    notes: Mapping[str, str] = {}  # how the file was read, and what was skipped: `Findings.notes`

    def part(self, indices: Sequence[int] | np.ndarray) -> "Labelled":
        rows = [self.rows[i] for i in indices] if self.rows else ()
        return Labelled([self.texts[i] for i in indices], self.labels[indices], self.classes, rows, self.notes)


# Tables.


def labelled(
    path: Path | str,
    text_column: str | tuple[str, str] | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
    what: str = "text",
    skip_bad: bool = False,
    read: Callable[[str, str], Any] | None = None,
) -> Labelled:
    """Texts and their labels from a file: .csv, .tsv, .txt, .json, .jsonl, .parquet, .arrow (text also as .gz).

    What separates the fields of a .csv, .tsv or .txt is found out, and whether it has a header. Without one, columns
    are called "column 1", "column 2"; of two, the one with fewer different values is the label. All bad rows of a file
    are listed in one error.

    Args:
        text_column, label_column: by default found by their usual names; two text columns for pairs.
        classes: names in the order of their labels; by default those that occur, sorted. For an evaluation set, give
            those of the training set.
        numbers: whether labels are regression targets; by default if one of them has a fraction. Where all others are
            numbers, a label "n/a", "NA", "?", "null" or "none" is missing: a bad row.
        what: "text", or "sequence" for DNA: it decides the usual names, and the words of messages.
        skip_bad: leave bad rows out; `Labelled.notes` has their number.
        read: makes of a text and its place what `texts` has; by default the text itself.
    """
    path = Path(path).expanduser()
    findings = Findings(path, skip=skip_bad)
    asked = (label_column, *((text_column,) if isinstance(text_column, str) else text_column or ()))
    known = {x.lower() for x in (*_usual(what), *_usual("label"), *filter(None, asked))}
    found = records(path, known=known, findings=findings)
    first = next(found, None)
    if first is None:
        findings.skip = False
        findings.conclude()
        raise ValueError(f"{path} has no rows; expected {what}s with labels.")
    every: Iterator[Row] = itertools.chain([first], found)
    there = list(first.fields)
    if there == numbered(2) and not (text_column and label_column):
        kept = list(every)  # columns without names are told apart by their content
        every = iter(kept)
        text_column, label_column = _told_apart(kept, text_column, label_column)
    columns = _columns(path, there, text_column, label_column, what)
    findings.notes["columns"] = f"{what}s from {listed(columns[:-1])}, labels from {listed(columns[-1:])}"
    texts: list[Any] = []
    values: list[Any] = []
    rows: list[int] = []
    for number, fields in every:
        with findings.row(number):
            *parts, value = _checked(place(path, number), fields, columns)
            texts.append((*parts,) if len(parts) == 2 else read(parts[0], place(path, number)) if read else parts[0])
            values.append(value)
            rows.append(number)
    labels, names = as_labels(path, values, rows, columns[-1], classes, numbers, findings)
    good = findings.usable(rows)
    result = Labelled(texts, labels, names, rows, findings.notes)
    return result if len(good) == len(rows) else result.part(good)


def _checked(at: str, fields: dict[str, Any], columns: tuple[str, ...]) -> list[Any]:
    """A row's texts, and its label."""
    for column in columns:
        if fields.get(column) is None:
            words = f"{at} has no {column!r}; expected one in every row: its fields are {listed(fields)}."
            raise BadRow(f"without {column!r}", words)
    *parts, value = (fields[column] for column in columns)
    for column, part in zip(columns, parts, strict=False):
        try:
            check_text(at, column, part)
        except ValueError as problem:
            raise BadRow("that are not text", str(problem)) from None
        if not part.strip():
            remedy = "expected some text: fill it in, or leave the row out."
            raise BadRow("with an empty text", f"{at} has an empty text in {column!r}; {remedy}")
    if str(value).strip() in ("", "nan"):
        remedy = "expected one in every row: add it, or leave it out."
        raise BadRow("without a label", f"{at} has no label in {columns[-1]!r}; {remedy}")
    return [*parts, value]


def _usual(kind: str) -> list[str]:
    """The usual names of columns."""
    return [*(name for pair in PAIRS if kind == "text" for name in pair), *NAMES[kind]]


def _told_apart(rows: list[Row], text: Any, label: str | None) -> tuple[Any, str]:
    """The column of the text and that of the label, which has fewer different values."""
    names = list(rows[0].fields)
    if label is None:
        different = {name: len({row.fields[name] for row in rows}) for name in names if name != text}
        label = min(reversed(different), key=different.__getitem__)  # in doubt the last
    return text or next(name for name in names if name != label), label


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
                f"columns are {listed(there)}: say which: --{kind}_column NAME."
            )
        found += names
    return tuple(found)


def as_labels(
    path: Path,
    values: list[Any],
    rows: list[int],
    column: str,
    classes: Sequence[str] | None,
    numbers: bool | None,
    findings: Findings | None = None,
) -> tuple[np.ndarray, list[str] | None]:
    """Labels as numbers, and the names of their classes, as `labelled` gives them. Rows that `findings` gets as bad
    have labels that mean nothing."""
    found = findings or Findings(path)
    counts = [_number(value) for value in values]
    missing = _missing(values, counts, classes, numbers)
    for i in sorted(missing):
        got = f"{place(path, rows[i])} has {listed([values[i]])} in {column!r}, and no label"
        remedy = "expected a number, as in other rows: add it, or leave it out; or name it among --classes."
        found.bad(rows[i], "without a label", f"{got}; {remedy}")
    there = [x for i, x in enumerate(counts) if i not in missing]
    if numbers is None:
        numbers = classes is None and None not in there and any(x != round(x) for x in there if x is not None)
    if numbers:
        for value, count, row in zip(values, counts, rows, strict=True):
            if count is None:
                words = f"{place(path, row)} has {listed([value])} in {column!r}; expected a number."
                found.bad(row, "without a number", words)
        labels, names = np.array([0 if x is None else x for x in counts], np.float32), None
    else:
        spelt = [str(value).strip() if x is None else _named(value, x) for value, x in zip(values, counts, strict=True)]
        if classes is None:
            by_number = None not in there
            different = {name for i, name in enumerate(spelt) if i not in missing}
            classes = sorted(different, key=lambda name: (float(name) if by_number else 0.0, name))
            if len(classes) < 2:
                found.conclude()
                which = f"{listed(classes)} in every row" if classes else "no label in any row"
                raise ValueError(f"{path} has {which} of {column!r}; expected two classes or more.")
            if by_number and len(classes) > FEW_NUMBERS:
                found.notes["labels"] = (
                    f"{len(classes)} whole numbers, taken for classes; if they are amounts: --numbers"
                )
        index = {str(name): i for i, name in enumerate(classes)}
        for name, row in zip(spelt, rows, strict=True):
            if name not in index:
                words = f"{place(path, row)} has {listed([name])} in {column!r}; expected one of {listed(index)}."
                found.bad(row, "with another class", words)
        labels, names = np.array([index.get(name, 0) for name in spelt], np.int64), list(index)
    if findings is None:
        found.conclude()
    return labels, names


def _missing(
    values: list[Any], counts: list[float | None], classes: Sequence[str] | None, numbers: bool | None
) -> set[int]:
    """The indices of labels that are words for a missing one, as "n/a". Among texts, these are classes like others."""
    texts = {i: str(values[i]).strip() for i, x in enumerate(counts) if x is None}
    words = {i for i, text in texts.items() if text.lower() in MISSING and text not in (classes or ())}
    all_others = len(words) == len(texts) < len(values)
    return words if numbers or all_others else set()


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
    """Texts or pairs of texts with labels, as batches of tokens.

    Attributes:
        lengths: the tokens of each text before it was cut, [N].
    """

    def __init__(
        self,
        texts: Sequence[Text],
        labels: Sequence[int] | Sequence[float] | np.ndarray,
        tokenizer: TextTokenizer,
        max_length: int = 0,
        *,
        crop: int = 0,
        drop: float = 0.0,
        seed: int = 0,
        token_logits: np.ndarray | None = None,
    ):
        """
        Args:
            max_length: longer texts are cut; 0: none is.
            crop, drop: for training, where parts of a text take less time than the whole, and are harder to learn by
                heart: of longer texts, a window of `crop` tokens (0: all; pairs of texts stay whole); and of all, about
                this share of the tokens is left out, but for the first. Which ones is random, and new in every epoch.
            token_logits: [N, classes], what a linear model of the tokens says of each text.
        """
        if len(texts) != len(labels) or not len(texts):
            raise ValueError(f"there are {len(texts)} texts and {len(labels)} labels; expected one label per text.")
        pairs = sum(not isinstance(text, str) for text in texts)
        if pairs not in (0, len(texts)):
            raise ValueError(f"{pairs} of {len(texts)} texts are pairs; expected all or none.")
        rows = list(_encoded(tokenizer, tuple(texts)))
        self.lengths = np.array([row.shape[1] for row in rows])
        long = [i for i, length in enumerate(self.lengths) if 0 < max_length < length]
        if long:
            for i, row in zip(long, _tokens(tokenizer, [texts[i] for i in long], max_length), strict=True):
                rows[i] = row
        self.max_length = max_length or int(self.lengths.max())
        self.crop, self.drop, self.seed = 0 if pairs else crop, drop, seed
        self.pad_id = next((x for x in (tokenizer.pad_id, tokenizer.eos_id) if x is not None), 0)
        self.types = np.concatenate([row[1] for row in rows]).astype(np.int8) if pairs else None
        super().__init__([row[0] for row in rows], labels, token_logits)

    def digest(self) -> str:
        return digests.digest(self.ids, self.ends, self.types, self.labels)

    @property
    def row_lengths(self) -> np.ndarray:
        """The tokens of each in a batch, before some are left out, [N]."""
        lengths = super().row_lengths
        return np.minimum(lengths, self.crop) if self.crop else lengths

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `max_length` if that is less; `mask` [B, T], True for
        tokens; `label` [B]; `token_logits` [B, classes], if there are some; for pairs `token_type_ids` [B, T], 0 for
        the first text and 1 for the second."""
        epochs, indices = split_keys(keys)
        starts = np.where(indices > 0, self.ends[indices - 1], 0)
        whole = self.ends[indices] - starts
        lengths = np.minimum(whole, self.crop) if self.crop else whole
        mask = np.arange(padded_width(int(lengths.max()), self.max_length)) < lengths[:, None]  # [B, T]
        places = starts[:, None] + np.arange(mask.shape[1])
        if self.crop or self.drop:
            drawn = draws(self.seed, epochs, indices, count=mask.shape[1])
            places[:, 1:] += (drawn[:, 0] * (whole - lengths + 1)).astype(np.int64)[:, None]
            kept = mask & (drawn >= self.drop)
            kept[:, 0] = True
            order = np.argsort(~kept, axis=1, kind="stable")[:, : padded_width(int(kept.sum(1).max()), self.max_length)]
            places, mask = (np.take_along_axis(x, order, 1) for x in (places, kept))
        places = np.where(mask, places, 0)
        batch = {
            "input_ids": torch.from_numpy(np.where(mask, self.ids[places], self.pad_id).astype(np.int64)),
            "mask": torch.from_numpy(mask),
            **self.answers(indices),
        }
        if self.types is not None:
            batch["token_type_ids"] = torch.from_numpy(np.where(mask, self.types[places], 0).astype(np.int64))
        return batch


def _tokens(tokenizer: TextTokenizer, texts: Sequence[Text], max_length: int | None = None) -> list[np.ndarray]:
    """int32 [1, tokens] of each text; of pairs [2, tokens], the second for the types."""
    if texts and not isinstance(texts[0], str):
        pairs = [text for text in texts if not isinstance(text, str)]
        return [np.array(both, np.int32) for both in tokenizer.encode_pairs(pairs, max_length=max_length)]
    single = [text for text in texts if isinstance(text, str)]
    return [np.array([ids], np.int32) for ids in tokenizer.encode(single, specials=True, max_length=max_length)]


@functools.lru_cache(maxsize=2)  # both splits: their lengths are looked at before a cut is decided
def _encoded(tokenizer: TextTokenizer, texts: tuple[Text, ...]) -> list[np.ndarray]:
    return _tokens(tokenizer, texts)


CUTS = 256, 2048  # the least and the most that texts are cut to where nobody has said it


def chosen_cut(lengths: np.ndarray) -> int:
    """The length that long texts are cut to where nobody has said it: 0 for none, or else one in a hundred is cut. A
    batch is as wide as its longest text: a single very long one costs as much as a batch of them."""
    least, most = CUTS
    usual = -(-int(np.percentile(lengths, 99, method="lower")) // 64) * 64
    cut = min(max(usual, least), most)
    return 0 if lengths.max() <= min(2 * cut, most) else cut

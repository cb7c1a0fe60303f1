"""Labelled DNA sequences: from tables and FASTA files, UCI's splice junctions, and as batches of tokens."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.configs import checked
from lion.data import digests
from lion.data.augment import draws
from lion.data.batches import Batch, LabelledRows, padded_width, split_keys
from lion.data.fasta import CLS, FASTA, NO_NUCLEOTIDE, PAD, encode, read_fasta, reverse_complement
from lion.data.findings import BadRow, Findings
from lion.data.labelled import SPLITS, as_labels, labelled
from lion.data.sources.fetching import FETCHED, located
from lion.data.splits import stratified
from lion.data.tables import ending, place, text_lines
from lion.limits import Holdout, SomeTokens
from lion.ops.checks import one_of
from lion.terminal import brief, listed

NAMED = re.compile(r"(?:^|[\s|;,])(?:label|class)[=:](?:\"([^\"]+)\"|([^\s|;,]+))", re.IGNORECASE)
AROUND = 60  # nucleotides of UCI's splice junctions, 30 before and 30 after it


class LabelledDna(NamedTuple):
    tokens: list[np.ndarray]  # uint8, of each sequence
    labels: np.ndarray  # int64, by class; or float32, for regression
    classes: list[str] | None  # names, by label; None for regression
    notes: Mapping[str, str] = {}  # how the file was read, and what was skipped: `Findings.notes`

    def part(self, indices: Sequence[int] | np.ndarray) -> "LabelledDna":
        return LabelledDna([self.tokens[i] for i in indices], self.labels[indices], self.classes, self.notes)


def labelled_sequences(
    path: Path | str,
    sequence_column: str | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
    skip_bad: bool = False,
) -> LabelledDna:
    """Sequences and their labels from a table (.csv, .tsv, .txt, .json, .jsonl, .parquet, .arrow) or FASTA, of text
    also as .gz.

    A FASTA header has the label as label=word, class=word or label="two words", or else after its last "|", or else as
    its last word. The first header of a file decides which.

    Args:
        sequence_column, label_column: of a table; by default found by their usual names.
        classes, numbers, skip_bad: as for `lion.data.labelled.labelled`.
    """
    path = Path(path).expanduser()
    if ending(path) in FASTA:
        return _from_fasta(path, classes, numbers, skip_bad)
    found = labelled(
        path,
        sequence_column,
        label_column,
        classes=classes,
        numbers=numbers,
        what="sequence",
        skip_bad=skip_bad,
        read=_encoded,
    )
    tokens: list[Any] = found.texts
    return LabelledDna(tokens, found.labels, found.classes, found.notes)


def _encoded(sequence: str, at: str) -> np.ndarray:
    try:
        return encode(sequence, at)
    except ValueError as problem:
        raise BadRow(NO_NUCLEOTIDE, str(problem)) from None


def _named_label(header: str) -> str | None:
    match = NAMED.search(header)
    return match[1] or match[2] if match else None


def _last_part(header: str) -> str | None:
    _, bar, label = header.rstrip().rstrip("|").rpartition("|")
    return label.strip() or None if bar else None


def _last_word(header: str) -> str | None:
    words = header.rsplit(maxsplit=1)
    return words[1] if len(words) == 2 else None


HEADERS: dict[str, Callable[[str], str | None]] = {  # the label of a header, by style
    "label=...": _named_label,
    "name|label": _last_part,
    "name label": _last_word,
}


def _from_fasta(path: Path, classes: Sequence[str] | None, numbers: bool | None, skip_bad: bool = False) -> LabelledDna:
    findings = Findings(path, "sequence", skip=skip_bad)
    tokens: list[np.ndarray] = []
    values: list[Any] = []
    lines: list[int] = []
    style = ""
    for line, header, sequence in read_fasta(path, findings):
        style = style or next((name for name, label_of in HEADERS.items() if label_of(header)), "")
        label = HEADERS[style](header) if style else None
        if label is None:
            wanted = f"'>{style}', as the first has it" if style else ", ".join(f"'>{name}'" for name in HEADERS)
            words = f"{place(path, line)} has no label in its header, {brief(header)!r}; expected {wanted}."
            findings.bad(line, "without a label", words)
        if not len(sequence):
            words = f"{place(path, line)} has a header without a sequence; expected one: leave it out."
            findings.bad(line, "without nucleotides", words)
        if line not in findings.bad_places:
            tokens.append(sequence)
            values.append(label)
            lines.append(line)
    labels, names = as_labels(path, values, lines, "its header", classes, numbers, findings)
    good = findings.usable(lines)
    if style:
        words = ", a word, or several in double quotes" if style == "label=..." else ""
        findings.notes["columns"] = f"labels from headers, as '>{style}'{words}"
    return LabelledDna(tokens, labels, names, findings.notes).part(good)


def split_sequences(found: LabelledDna, holdout: float = 0.2, seed: int = 0) -> tuple[LabelledDna, LabelledDna]:
    """Two parts, the second with about this share of every class. The part of a sequence depends on its content: copies
    and reverse complements are in the same part, and other sequences hardly matter."""
    checked(Holdout, holdout, "holdout")
    names = [min(x.tobytes(), reverse_complement(x).tobytes()) for x in found.tokens]
    strata = found.labels if found.classes is not None else np.zeros(len(names), np.int64)
    kept, held = stratified(strata, holdout, seed, names)
    if not len(held):
        raise ValueError(
            f"there are {len(names)} sequences, too few to hold any out; expected two of a class, at least: add some, "
            "or give others with --test FILE."
        )
    return found.part(kept), found.part(held)


def splice(split: str, *, data: Path | str | None = None, seed: int = 0, holdout: float = 0.2) -> LabelledDna:
    """UCI's splice junctions from `fetch("splice")`: the middle of 60 nucleotides is the end of an exon ("EI"), of an
    intron ("IE") or neither ("N"). The labels are about one strand: no reverse complements here."""
    one_of("split", split, SPLITS)
    return split_sequences(_read_splice(located("splice", data)), holdout, seed)[SPLITS.index(split)]


def _read_splice(path: Path) -> LabelledDna:
    classes = ["EI", "IE", "N"]
    tokens, labels = [], []
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip() or line.startswith("@"):  # the description of the columns
            continue
        *bases, label = (field.strip() for field in line.split(","))
        if len(bases) != AROUND or label not in classes:
            raise ValueError(
                f"{place(path, number)} has {len(bases)} nucleotides and the class {brief(label)!r}; expected {AROUND} "
                f"and one of {listed(classes)}: get it again."
            )
        tokens.append(encode("".join(bases), place(path, number)))
        labels.append(classes.index(label))
    if not tokens:
        raise ValueError(f"{path} has no sequences; expected {FETCHED['splice'].file} as fetched.")
    return LabelledDna(tokens, np.array(labels, np.int64), classes)


class LabelledSequences(LabelledRows):
    """Sequences with labels as batches of tokens, each after [CLS].

    Args:
        max_length: tokens of a sequence with [CLS]; longer ones are cut. None: that of the longest.
        reverse_complement: half of the sequences, others in every epoch, are read from the other strand. For training
            on labels that do not depend on the strand.
        token_logits: [N, classes], what a linear model of the k-mers says of each sequence.
    """

    def __init__(
        self,
        found: LabelledDna,
        max_length: int | None = None,
        *,
        reverse_complement: bool = False,
        seed: int = 0,
        token_logits: np.ndarray | None = None,
    ):
        if len(found.tokens) != len(found.labels) or not len(found.tokens):
            raise ValueError(
                f"there are {len(found.tokens)} sequences and {len(found.labels)} labels; expected one label each."
            )
        if max_length is not None:
            checked(SomeTokens, max_length, "max_length")  # [CLS] and a nucleotide
        room = max(map(len, found.tokens)) if max_length is None else max_length - 1
        self.max_length, self.reverse_complement, self.seed = room + 1, reverse_complement, seed
        self.lengths = np.array([len(row) + 1 for row in found.tokens])  # tokens of each before it was cut, [N]
        super().__init__([row[:room] for row in found.tokens], found.labels, token_logits)

    def digest(self) -> str:
        return digests.digest(self.ids, self.ends, self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `max_length` if that is less; `mask` [B, T], True for
        tokens; `label` [B]; `token_logits` [B, classes], if there are some."""
        epochs, indices = split_keys(keys)
        other = draws(self.seed, epochs, indices, count=1)[:, 0] < (0.5 if self.reverse_complement else 0)
        rows = [self.ids[self.ends[i - 1] if i else 0 : self.ends[i]] for i in indices]
        ids = np.full((len(rows), padded_width(max(map(len, rows)) + 1, self.max_length)), PAD, np.int64)
        ids[:, 0] = CLS
        for line, row, turned in zip(ids, rows, other, strict=True):
            line[1 : 1 + len(row)] = reverse_complement(row) if turned else row
        return {
            "input_ids": torch.from_numpy(ids),
            "mask": torch.from_numpy(ids != PAD),
            **self.answers(indices),
        }

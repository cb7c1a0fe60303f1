"""What models of DNA learn from: windows of a genome with hidden nucleotides, and labelled sequences."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.configs import checked
from lion.data import SPLICE, content, lion_data_folder, stratified
from lion.data.augment import draws
from lion.data.batches import IGNORED, Batch, padded_width, split_keys
from lion.data.fasta import (
    BASES,
    CLS,
    FASTA,
    MASK,
    PAD,
    TOKENS,
    VOCABULARY,
    A,
    Genome,
    N,
    encode,
    read_fasta,
    reverse_complement,
)
from lion.data.kept import check_tokens
from lion.data.tables import SPLITS as TRAIN_TEST
from lion.data.tables import as_labels, brief, ending, labelled, listed, place, records, text_lines
from lion.data.text import MASKED, SPLITS
from lion.limits import SomeTokens, Tokens
from lion.ops.checks import one_of

SEQUENCES = ("sequence", "sequences", "seq", "dna", "nucleotides", "bases", "text")  # names of columns
NAMED = re.compile(r"(?:^|[\s|;,])(?:label|class)[=:]([^\s|;,]+)", re.IGNORECASE)
MOST_BLOCKS = 1 << 22  # of a genome
AROUND = 60  # nucleotides of UCI's splice junctions, 30 before and 30 after it


def _named_label(header: str) -> str | None:
    match = NAMED.search(header)
    return match[1] if match else None


def _last_part(header: str) -> str | None:
    _, bar, label = header.rstrip().rstrip("|").rpartition("|")
    return label.strip() or None if bar else None


def _last_word(header: str) -> str | None:
    words = header.rsplit(maxsplit=1)
    return words[1] if len(words) == 2 else None


HEADERS: dict[str, Callable[[str], str | None]] = {  # how a header has a label
    "label=...": _named_label,
    "name|label": _last_part,
    "name label": _last_word,
}


# Genomes.


class Windows:
    """Windows of `length` nucleotides of a genome, without gaps: for training anywhere in its part, for validation side
    by side in blocks held out, which no window for training reaches into.

    Args:
        split: "train" or "validation".
        holdout: the share of the blocks that are for validation: one of 10, for instance, then one of the next 10.
        block: the nucleotides of a block; windows for validation cannot be longer, but where two are side by side.
        seed: which blocks are held out. They are the same for any length.
    """

    def __init__(
        self,
        genome: Genome,
        length: int,
        split: str = "train",
        *,
        holdout: float = 0.1,
        block: int = 1 << 18,
        seed: int = 0,
    ):
        one_of("split", split, SPLITS)
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout is {holdout}; expected a share from 0, for none, to less than 1.")
        checked(Tokens, length, "length")
        checked(Tokens, block, "block")
        if len(genome) // block > MOST_BLOCKS:
            raise ValueError(f"block is {block}; expected at least {len(genome) // MOST_BLOCKS + 1} nucleotides.")
        self.genome, self.length, self.split = genome, length, split
        parts = _parts(genome, holdout, block, seed)[SPLITS.index(split)]
        parts = _common(parts, _between(genome.gaps, len(genome)))  # [stretches, 2]
        sizes = parts[:, 1] - parts[:, 0]
        if split == "validation" and not holdout:
            raise ValueError("holdout is 0, so nothing is held out to evaluate on; expected a share above 0.")
        if not (sizes >= length).any():
            raise ValueError(
                f"{split} of {genome.name} has no stretch of {length:,} nucleotides without a gap; the longest has "
                f"{sizes.max(initial=0):,} (holdout is {holdout}, block is {block:,}, of {len(genome):,}): take a "
                f"smaller {'length' if len(parts) else 'block, so that there are several'}."
            )
        self.parts, sizes = parts[sizes >= length], sizes[sizes >= length]
        self.nucleotides = int(sizes.sum())
        # In training a window may begin anywhere in a part; in validation where the one before it ends.
        self._stride = 1 if split == "train" else length
        self._ends = np.cumsum((sizes - length) // self._stride + 1)  # how many there are in all parts up to this one

    def __len__(self) -> int:
        """As many as fit in side by side."""
        return self.nucleotides // self.length if self.split == "train" else int(self._ends[-1])

    def starts(self, indices: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Where windows begin [B]. In training, `shifts` [B], from 0 to less than 1, decide where within a share of the
        genome that is the index's own: all windows of an epoch together go over all of it."""
        number = indices
        if self.split == "train":
            number = ((indices + shifts) * (self._ends[-1] / len(self))).astype(np.int64).clip(0, self._ends[-1] - 1)
        part = np.searchsorted(self._ends, number, side="right")
        before = np.where(part > 0, self._ends[part - 1], 0)
        return self.parts[part, 0] + (number - before) * self._stride

    def tokens(self, starts: np.ndarray) -> np.ndarray:
        """uint8 [B, length]"""
        found = np.stack([self.genome.tokens[start : start + self.length] for start in starts])
        check_tokens(found, len(VOCABULARY), self.genome.folder / TOKENS)
        return found

    def stretches(self) -> Iterator[np.ndarray]:
        """The tokens of all that windows are taken from, uint8, in rows of different lengths."""
        for start, end in self.parts:
            yield self.genome.tokens[start:end]


def _parts(genome: Genome, holdout: float, block: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Where stretches of both splits begin and end [stretches, 2]: blocks, joined where they are side by side."""
    counts = -(-np.diff(genome.bounds) // block)
    record = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(record)) - (np.cumsum(counts) - counts)[record]
    starts = genome.bounds[record] + within * block
    ends = np.minimum(starts + block, genome.bounds[record + 1])
    # One block of so many, all along the genome: its parts are not alike. At least one, but never all of them.
    count = min(max(round(holdout * len(record)), 1), len(record) - 1) if holdout else 0
    group = np.arange(len(record)) * count // len(record)
    order = np.lexsort([draws(seed, record, within, count=1)[:, 0], group])
    held = np.zeros(len(record), bool)
    held[order[np.unique(group[order], return_index=True)[1]] if count else []] = True
    new = np.ones(len(record), bool)
    new[1:] = (record[1:] != record[:-1]) | (held[1:] != held[:-1])
    joined = np.stack([starts[new], ends[np.append(new[1:], True)]], 1)
    return joined[~held[new]], joined[held[new]]


def _between(gaps: np.ndarray, length: int) -> np.ndarray:
    """What is not in them [stretches, 2], empty ones too."""
    return np.stack([np.append(0, gaps[:, 1]), np.append(gaps[:, 0], length)], 1)


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What both have in common, of stretches [., 2] in order that do not overlap."""
    starts = np.union1d(a[:, 0], b[:, 0])
    ends = np.full(len(starts), np.iinfo(np.int64).max)
    for some in (a, b):
        last = np.searchsorted(some[:, 0], starts, side="right") - 1
        ends = np.minimum(ends, np.where(last >= 0, some[last, 1], 0) if len(some) else 0)
    return np.stack([starts, ends], 1)[starts < ends]


class MaskedNucleotides:
    """Windows with hidden nucleotides, to be predicted from those around them.

    Args:
        rate: the share of nucleotides that are to be predicted. N never is.
        seed: of the choice, and in training of where windows are. In validation every epoch has the same ones.
        hidden: the share of those that are [MASK] instead; of the others, half are any base, half stay. By default as
            BERT has it in training, 0.8, and all in validation: a model that sees a target does well by copying it,
            which says nothing about what it knows, and cannot be compared with `markov_accuracy`.
        reverse_complement: of windows for training, half are read from the other strand.
    """

    def __init__(
        self,
        windows: Windows,
        rate: float = 0.15,
        seed: int = 0,
        *,
        hidden: float | None = None,
        reverse_complement: bool = True,
    ):
        if not 0 < rate <= 1:
            raise ValueError(f"rate is {rate}; expected a share of the nucleotides to hide, above 0 and at most 1.")
        learning = windows.split == "train"
        self.hidden = hidden if hidden is not None else MASKED if learning else 1.0
        if not 0 <= self.hidden <= 1:
            raise ValueError(f"hidden is {hidden}; expected a share from 0 to 1, or None.")
        self.windows, self.rate, self.seed, self.learning = windows, rate, seed, learning
        self.reverse_complement = reverse_complement and learning

    def __len__(self) -> int:
        return len(self.windows)

    def digest(self) -> str:
        """Of the genome: another has another."""
        return content.digest(self.windows.genome.tokens, self.windows.genome.bounds)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]; the labels of nucleotides that are not to be predicted are -100."""
        epochs, indices = split_keys(keys)
        epochs = epochs * self.learning
        numbers = draws(self.seed, epochs, indices, count=2 + self.windows.length)
        shifts, strands, choices = numbers[:, 0], numbers[:, 1:2], numbers[:, 2:] / self.rate  # [B], [B, 1], [B, T]
        tokens = self.windows.tokens(self.windows.starts(indices, shifts))
        if self.reverse_complement:
            tokens = np.where(strands < 0.5, reverse_complement(tokens), tokens)
        tokens = tokens.astype(np.int64)
        # One number decides it all: below 1 the token is a target, and where below that, what becomes of it.
        target = (choices < 1) & (tokens != N)
        others = (1 - self.hidden) / 2
        bases = A + ((choices - self.hidden) / max(others, 1e-9) * BASES).clip(0, BASES - 1).astype(np.int64)
        changed = np.select([choices < self.hidden, choices < self.hidden + others], [np.int64(MASK), bases], tokens)
        return {
            "input_ids": torch.from_numpy(np.where(target, changed, tokens)),
            "labels": torch.from_numpy(np.where(target, tokens, IGNORED)),
        }


# Labelled sequences.


class LabelledDna(NamedTuple):
    tokens: list[np.ndarray]  # uint8, of each sequence
    labels: np.ndarray  # int64, by class; or float32, where there are no classes
    classes: list[str] | None  # names, by label; None for numbers to be predicted

    def part(self, indices: np.ndarray) -> "LabelledDna":
        return LabelledDna([self.tokens[i] for i in indices], self.labels[indices], self.classes)


def labelled_sequences(
    path: Path | str,
    sequence_column: str | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
) -> LabelledDna:
    """Sequences and their labels from a table (.csv, .tsv, .jsonl, .parquet, .arrow) or FASTA, of text also as .gz.

    The headers of FASTA have the label as "label=..." or "class=...", or else behind their last "|", or else as their
    last word: all of a file in the way of the first.

    Args:
        sequence_column, label_column: of a table; by default found by their usual names.
        classes, numbers: as for `lion.data.tables.labelled`.
    """
    path = Path(path).expanduser()
    if ending(path) in FASTA:
        return _from_fasta(path, classes, numbers)
    first = next(iter(records(path)), None)
    if first is not None:
        sequence_column = sequence_column or _sequence_column(path, list(first.fields))
        one_of(f"sequence_column for {path}", sequence_column, first.fields)
    found = labelled(path, sequence_column, label_column, classes=classes, numbers=numbers)
    rows = zip(found.texts, found.rows, strict=True)
    tokens = [encode(str(sequence), place(path, row)) for sequence, row in rows]
    return LabelledDna(tokens, found.labels, found.classes)


def _sequence_column(path: Path, there: list[str]) -> str:
    known = {name.lower(): name for name in reversed(there)}
    found = next((known[name] for name in SEQUENCES if name in known), None)
    if found is None:
        raise ValueError(
            f"{path} has no column with a usual name for its sequences ({', '.join(SEQUENCES[:4])}, ...); its columns "
            f"are {listed(there)}: say which as sequence_column."
        )
    return found


def _from_fasta(path: Path, classes: Sequence[str] | None, numbers: bool | None) -> LabelledDna:
    tokens: list[np.ndarray] = []
    values: list[Any] = []
    lines: list[int] = []
    way = ""
    for line, header, sequence in read_fasta(path):
        way = way or next((name for name, label_of in HEADERS.items() if label_of(header)), "")
        label = HEADERS[way](header) if way else None
        if label is None:
            ways = f"'>{way}', as the first has it" if way else ", ".join(f"'>{name}'" for name in HEADERS)
            raise ValueError(f"{place(path, line)} has no label in its header, {brief(header)!r}; expected {ways}.")
        if not len(sequence):
            raise ValueError(f"{place(path, line)} has a header without a sequence; expected one: leave it out.")
        tokens.append(sequence)
        values.append(label)
        lines.append(line)
    labels, names = as_labels(path, values, lines, "its header", classes, numbers)
    return LabelledDna(tokens, labels, names)


def split_sequences(found: LabelledDna, holdout: float = 0.2, seed: int = 0) -> tuple[LabelledDna, LabelledDna]:
    """Two parts, the second with about this share of every class. Copies of a sequence are together, and so is the
    other strand of it. Which part one is in depends on it, and hardly on the others."""
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is {holdout}; expected a share between 0 and 1.")
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
    """UCI's splice junctions from `fetch("splice")`: what the middle of 60 nucleotides is, the end of an exon ("EI"),
    of an intron ("IE") or neither ("N"). It is about one strand: not for reverse complements."""
    one_of("split", split, TRAIN_TEST)
    path = Path(data).expanduser() if data is not None else lion_data_folder() / "splice"
    path = path / SPLICE if path.is_dir() or data is None else path
    if not path.exists():
        raise FileNotFoundError(f"splice is not in {path.parent}; expected {SPLICE}: lion.data.fetch('splice').")
    return split_sequences(_read_splice(path), holdout, seed)[TRAIN_TEST.index(split)]


def _read_splice(path: Path) -> LabelledDna:
    classes = ["EI", "IE", "N"]
    tokens, labels = [], []
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip() or line.startswith("@"):  # what the columns are
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
        raise ValueError(f"{path} has no sequences; expected {SPLICE} as fetched.")
    return LabelledDna(tokens, np.array(labels, np.int64), classes)


class LabelledSequences:
    """Sequences with labels: classes if they are whole numbers, or numbers to be predicted. [CLS] is in front of each.

    Args:
        max_length: of tokens, with [CLS]; of a longer sequence the first ones are taken. None: all of them.
        reverse_complement: half of them, others in every epoch, are read from the other strand. For training on what
            does not depend on the strand.
    """

    def __init__(
        self, found: LabelledDna, max_length: int | None = None, *, reverse_complement: bool = False, seed: int = 0
    ):
        if len(found.tokens) != len(found.labels) or not len(found.tokens):
            raise ValueError(
                f"there are {len(found.tokens)} sequences and {len(found.labels)} labels; expected one label each."
            )
        if max_length is not None:
            checked(SomeTokens, max_length, "max_length")  # [CLS] and a nucleotide
        room = max(map(len, found.tokens)) if max_length is None else max_length - 1
        self.max_length, self.reverse_complement, self.seed = room + 1, reverse_complement, seed
        rows = [row[:room] for row in found.tokens]
        self.ends = np.cumsum([len(row) for row in rows])
        self.ids = np.concatenate(rows)
        whole = np.issubdtype(found.labels.dtype, np.integer)
        self.labels = torch.from_numpy(found.labels.astype(np.int64 if whole else np.float32))

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """Of the sequences and labels: others have another."""
        return content.digest(self.ids, self.ends, self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `max_length` if that is less; `mask` [B, T], True for
        tokens; `label` [B]."""
        epochs, indices = split_keys(keys)
        other = np.zeros(len(keys), bool)
        if self.reverse_complement:
            other = draws(self.seed, epochs, indices, count=1)[:, 0] < 0.5
        rows = [self.ids[self.ends[i - 1] if i else 0 : self.ends[i]] for i in indices]
        ids = np.full((len(rows), padded_width(max(map(len, rows)) + 1, self.max_length)), PAD, np.int64)
        ids[:, 0] = CLS
        for line, row, turned in zip(ids, rows, other, strict=True):
            line[1 : 1 + len(row)] = reverse_complement(row) if turned else row
        return {
            "input_ids": torch.from_numpy(ids),
            "mask": torch.from_numpy(ids != PAD),
            "label": self.labels[torch.from_numpy(indices)],
        }

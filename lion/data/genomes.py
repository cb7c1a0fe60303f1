"""Windows of a genome, with masked nucleotides to predict."""

from collections.abc import Iterator

import numpy as np

from lion.configs import checked
from lion.data import digests
from lion.data.augment import draws
from lion.data.batches import MASKED, Batch, masked, split_keys
from lion.data.fasta import BASES, MASK, A, Genome, N, reverse_complement
from lion.data.packed import SPLITS
from lion.limits import Share, ShareBelowOne, SomeShare, Tokens
from lion.ops.checks import one_of

MOST_BLOCKS = 1 << 22  # of a genome
SHORTEST = 16  # nucleotides of a block that is not made smaller


class Windows:
    """Windows of `length` nucleotides of a genome, without gaps. Training windows may begin anywhere in the training
    blocks; validation windows lie side by side in the held-out blocks. No window reaches into the other split.

    Args:
        split: "train" or "validation".
        holdout: the share of the blocks that are held out: for 0.1, one of the first 10, one of the next 10, and so on.
        block: the nucleotides of a block. A validation window cannot be longer, unless two held-out blocks adjoin.
        seed: decides which blocks are held out, the same for any length.
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
        checked(ShareBelowOne, holdout, "holdout")
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
        # A training window may begin anywhere in a part; a validation window begins at the end of the one before.
        self._stride = 1 if split == "train" else length
        self._ends = np.cumsum((sizes - length) // self._stride + 1)  # the number of windows up to the end of each part

    def __len__(self) -> int:
        """The number of windows that fit side by side."""
        return self.nucleotides // self.length if self.split == "train" else int(self._ends[-1])

    def starts(self, indices: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """The first nucleotides of windows [B]. In training, each index has a stretch of the genome of its own, and
        `shifts` [B], from 0 to below 1, place the window in it: an epoch's windows cover the whole genome."""
        number = indices
        if self.split == "train":
            number = ((indices + shifts) * (self._ends[-1] / len(self))).astype(np.int64).clip(0, self._ends[-1] - 1)
        part = np.searchsorted(self._ends, number, side="right")
        before = np.where(part > 0, self._ends[part - 1], 0)
        return self.parts[part, 0] + (number - before) * self._stride

    def tokens(self, starts: np.ndarray) -> np.ndarray:
        """uint8 [B, length]"""
        return self.genome.intact(np.stack([self.genome.tokens[start : start + self.length] for start in starts]))

    def stretches(self) -> Iterator[np.ndarray]:
        """The tokens of all parts that windows are taken from, uint8, in rows of different lengths."""
        for start, end in self.parts:
            yield self.genome.tokens[start:end]


def fitted(genome: Genome, length: int, *, holdout: float, block: int) -> tuple[int, int]:
    """The length and block of windows; halved for a small genome, until one block at least is held out, and the windows
    of the held-out blocks have half of the asked share at least: a block at the end of a record may be short."""
    while holdout:
        if holdout * len(genome) >= block or block <= SHORTEST:
            try:
                train, held = (Windows(genome, length, x, holdout=holdout, block=block).nucleotides for x in SPLITS)
                if 2 * held >= holdout * (train + held) or block <= SHORTEST:
                    break
            except ValueError:
                if block <= SHORTEST:
                    raise
        block //= 2
        length = min(length, block)
    return length, block


def _parts(genome: Genome, holdout: float, block: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The begins and ends of both splits' stretches [stretches, 2]: adjoining blocks are joined."""
    counts = -(-np.diff(genome.bounds) // block)
    record = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(record)) - (np.cumsum(counts) - counts)[record]
    starts = genome.bounds[record] + within * block
    ends = np.minimum(starts + block, genome.bounds[record + 1])
    # Held-out blocks are spread evenly, because regions of a genome differ. At least one, but never all.
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
    """The stretches between gaps [stretches, 2], empty ones too."""
    return np.stack([np.append(0, gaps[:, 1]), np.append(gaps[:, 0], length)], 1)


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The intersection of two ordered lists of stretches [., 2]."""
    starts = np.union1d(a[:, 0], b[:, 0])
    ends = np.full(len(starts), np.iinfo(np.int64).max)
    for some in (a, b):
        last = np.searchsorted(some[:, 0], starts, side="right") - 1
        ends = np.minimum(ends, np.where(last >= 0, some[last, 1], 0) if len(some) else 0)
    return np.stack([starts, ends], 1)[starts < ends]


class MaskedNucleotides:
    """Masked language modelling on windows of a genome.

    Args:
        rate: the share of nucleotides that are targets. N never is one.
        seed: of the targets, and in training of the windows' places. In validation every epoch has the same ones.
        hidden: the share of targets that become [MASK]; half of the others become a random base, half stay. By default
            BERT's 0.8 in training and all in validation: a model that sees a target can copy it, which says nothing
            about what it knows, and cannot be compared with `markov_accuracy`.
        reverse_complement: half of the training windows are read from the other strand.
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
        checked(SomeShare, rate, "rate")

        learning = windows.split == "train"
        self.hidden = checked(Share, (MASKED if learning else 1.0) if hidden is None else hidden, "hidden")
        self.windows, self.rate, self.seed, self.learning = windows, rate, seed, learning
        self.reverse_complement = reverse_complement and learning

    def __len__(self) -> int:
        return len(self.windows)

    def digest(self) -> str:
        return digests.digest(self.windows.genome.tokens, self.windows.genome.bounds)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]; the label of a nucleotide that is not a target is -100."""
        epochs, indices = split_keys(keys)
        epochs = epochs * self.learning
        numbers = draws(self.seed, epochs, indices, count=2 + self.windows.length)
        shifts, strands, choices = numbers[:, 0], numbers[:, 1:2], numbers[:, 2:] / self.rate  # [B], [B, 1], [B, T]
        tokens = self.windows.tokens(self.windows.starts(indices, shifts))
        if self.reverse_complement:
            tokens = np.where(strands < 0.5, reverse_complement(tokens), tokens)
        tokens = tokens.astype(np.int64)
        shares = self.hidden, (1 - self.hidden) / 2
        return masked(tokens, choices, tokens != N, MASK, np.arange(A, A + BASES), shares)

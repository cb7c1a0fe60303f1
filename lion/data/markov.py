"""Markov models of DNA, tables of neighbours: the baseline for masked nucleotides."""

from collections.abc import Iterable, Sequence

import numpy as np

from lion.data.batches import IGNORED
from lion.data.fasta import BASES, A
from lion.data.genomes import MaskedNucleotides
from lion.ops.checks import one_of

SIDES = ("left", "both")
MOST = {"left": 12, "both": 6}  # neighbours on a side: a table has at most 4 ** 13 numbers, half a gigabyte
PRIOR = 5  # weight of the product of both sides' shares, in counts
AT_ONCE = 1 << 22  # tokens


def markov_accuracy(
    train: Iterable[np.ndarray],
    held_out: MaskedNucleotides,
    order: int = 5,
    *,
    sides: str = "left",
    peek: bool = True,
) -> float:
    """The accuracy on the targets of `held_out` of predicting the base that was most frequent between the same
    neighbours in `train`.

    A context ends at the first unknown neighbour: an N, the end of the window, and without `peek` a masked one. A
    context that does not occur in `train` is shortened, from the far end, until it does.

    Args:
        train: tokens, a row for each stretch: `windows.stretches()` of the training windows.
        sides: "left": the `order` neighbours to the left. "both": those and as many to the right, a naive two-sided
            table: counts of all of them together, and, as the guess for rare contexts, of each side by itself.
        peek: contexts are the true neighbours, even where `held_out` masks or replaces them. That is easier than a
            model's task; without `peek`, it is the same task.
    """
    one_of("sides", sides, SIDES)
    if not 0 <= order <= MOST[sides]:
        raise ValueError(f"order is {order}; expected from 0 to {MOST[sides]} neighbours, with sides={sides!r}.")
    rows = list(train)
    left = _shares(count_contexts(rows, order, 0))
    right = _shares(count_contexts(rows, 0, order)) if sides == "both" else None
    both = count_contexts(rows, order, order) if sides == "both" else None
    hits = targets = 0
    step = max(AT_ONCE // held_out.windows.length, 1)
    for start in range(0, len(held_out), step):
        batch = held_out.__getitems__([(0, i) for i in range(start, min(start + step, len(held_out)))])
        tokens, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
        if peek:
            tokens = np.where(labels != IGNORED, labels, tokens)
        at = np.nonzero(labels != IGNORED)
        before, code = _contexts(tokens, at, order, -1)
        scores = left[_place(before, code)]  # [targets, 4]
        if right is not None and both is not None:
            after, other = _contexts(tokens, at, order, 1)
            scores = scores * right[_place(after, other)] / left[0]
            scores *= PRIOR / scores.sum(1, keepdims=True)
            whole = (before == order) & (after == order)
            scores += both[np.where(whole, code * BASES**order + other, 0)] * whole[:, None]
        hits += int((scores.argmax(1) == labels[at] - A).sum())
        targets += len(code)
    if not targets:
        raise ValueError("held_out has no targets; expected some: take a higher rate, or more windows.")
    return hits / targets


def count_contexts(rows: Sequence[np.ndarray], left: int, right: int) -> np.ndarray:
    """The count of each base in each context without N: [4 ** (left + right), 4]. A context is a number in base 4: the
    neighbours on the left, then those on the right, the farthest first on each side."""
    width = left + 1 + right
    offsets = [*range(left), *reversed(range(left + 1, width)), left]
    counts = np.zeros(BASES**width, np.int64)
    for row in rows:
        for start in range(0, len(row) - width + 1, AT_ONCE):
            bases = row[start : start + AT_ONCE + width - 1] - np.uint8(A)  # other tokens become more than 3
            size = len(bases) - width + 1
            code, known = np.zeros(size, np.int64), np.ones(size, bool)
            for offset in offsets:
                part = bases[offset : offset + size]
                known &= part < BASES
                code = code * BASES + part
            counts += np.bincount(code[known], minlength=len(counts))
    return counts.reshape(-1, BASES)


def _shares(counts: np.ndarray) -> np.ndarray:
    """The shares of the bases in all contexts of 0, 1, 2, ... neighbours, end to end [contexts, 4]."""
    tables = [counts]  # [4 ** order, 4]
    while len(tables[0]) > 1:
        tables.insert(0, tables[0].reshape(BASES, -1, BASES).sum(0))  # without the farthest neighbour
    shares = [np.full((1, BASES), 1 / BASES)]
    for table in tables:
        total = table.sum(1, keepdims=True)
        shorter = np.tile(shares[-1], (len(table) // len(shares[-1]), 1))
        shares.append(np.where(total > 0, (table + 1) / (total + BASES), shorter))
    return np.concatenate(shares[1:])


def _place(count: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The row of a context of `count` neighbours in the table of `_shares`."""
    return (BASES**count - 1) // (BASES - 1) + code


def _contexts(
    tokens: np.ndarray, at: tuple[np.ndarray, ...], order: int, direction: int
) -> tuple[np.ndarray, np.ndarray]:
    """The number of known neighbours of each target, and the context that they form."""
    rows, columns = at
    known, count, code = np.ones(len(rows), bool), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for distance in range(1, order + 1):
        column = columns + direction * distance
        inside = (column >= 0) & (column < tokens.shape[1])
        base = tokens[rows, np.where(inside, column, 0)] - A
        known = known & inside & (base >= 0) & (base < BASES)
        code += np.where(known, base, 0) * BASES ** (distance - 1)
        count += known
    return count, code

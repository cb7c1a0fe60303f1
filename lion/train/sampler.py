"""The order of the data: a function of the seed and the step, for any number of processes."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

REPEATS = 8  # of an example in a batch, at most; but
ALWAYS = 1024  # examples are allowed
WINDOW = 16  # batches that are grouped by length together: enough to group, few enough to mix


def mixed(*numbers: int) -> int:
    """A seed that depends on all of them."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def check_batch(batch: int, examples: int) -> None:
    """Refuse a batch that repeats its examples too often: it may not fit into memory."""
    if batch > max(ALWAYS, REPEATS * examples):
        raise ValueError(
            f"batch is {batch:,}, and there are {examples:,} examples; expected at most {REPEATS} times as many, or "
            f"{ALWAYS:,}."
        )


class Sampler:
    """A batch sampler of keys (epoch, index). The shuffled epochs follow each other without end. A step takes the next
    `batch` keys; each process gets its part of them, in `accumulate` micro-batches.

    Args:
        lengths: of all examples; batches then have examples of about the same length, and less padding.
        repeats: repeated augmentation: each example that an epoch takes follows itself so many times, under keys of
            other epochs, which augment it in other ways; and the epoch takes so many times fewer.
    """

    def __init__(
        self,
        examples: int,
        batch: int,
        seed: int,
        steps: range,
        *,
        rank: int = 0,
        world: int = 1,
        accumulate: int = 1,
        lengths: np.ndarray | None = None,
        repeats: int = 1,
    ):
        check_batch(batch, examples)
        if batch % (world * accumulate):
            raise ValueError(
                f"batch is {batch}; expected a multiple of {world * accumulate}: {world} processes with {accumulate} "
                "micro-batches each."
            )
        self.examples, self.batch, self.seed, self.steps = examples, batch, seed, steps
        self.rank, self.world, self.accumulate, self.lengths = rank, world, accumulate, lengths
        self.repeats = repeats
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        return len(self.steps) * self.accumulate

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        part = self.batch // (self.world * self.accumulate)
        for step in self.steps:
            for n in range(self.accumulate):
                first = step * self.batch + (n * self.world + self.rank) * part
                yield [self._key(place) for place in range(first, first + part)]

    def _key(self, place: int) -> tuple[int, int]:
        epoch, position = divmod(place, self.examples)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(mixed(self.seed, epoch))
            self._epoch, self._order = epoch, torch.randperm(self.examples, generator=generator)
            if self.lengths is not None:
                self._order = self._grouped(self._order, torch.from_numpy(self.lengths), generator)
        which, copy = divmod(position, self.repeats)
        return epoch * self.repeats + copy, int(self._order[which])

    def _grouped(self, order: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
        """The same examples, in windows of several batches that are sorted by length and then shuffled as batches."""
        # Batches go on where the epoch before ended: those at both ends may be parts of one.
        head = min(-self._epoch * self.examples % self.batch, self.examples)
        whole = (self.examples - head) // self.batch
        parts = [order[:head]]
        for first in range(0, whole, WINDOW):
            last = min(first + WINDOW, whole)
            window = order[head + first * self.batch : head + last * self.batch]
            batches = window[lengths[window].argsort(stable=True)].view(-1, self.batch)
            parts.append(batches[torch.randperm(len(batches), generator=generator)].flatten())
        return torch.cat([*parts, order[head + whole * self.batch :]])


def eval_parts(examples: int, processes: int, lengths: np.ndarray | None) -> list[np.ndarray]:
    """The examples of the eval set that each process measures: sorted by their lengths, if known, for less padding."""
    order = np.arange(examples) if lengths is None else lengths.argsort(kind="stable")
    return [order[first::processes] for first in range(processes)]

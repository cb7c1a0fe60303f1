"""The order of the data: a function of the seed and the step, however many processes there are."""

from collections.abc import Iterator

import numpy as np
import torch

AGAIN = 8  # an example may be so often in a batch, more or less,
MOST = 1024  # or a batch may be so large, however few examples there are


def mixed(*numbers: int) -> int:
    """A seed that depends on all of them."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def check_batch(batch: int, examples: int) -> None:
    """A batch may have examples more than once, but it has to fit into memory."""
    if batch > max(MOST, AGAIN * examples):
        raise ValueError(
            f"batch is {batch:,}, and there are {examples:,} examples; expected at most {AGAIN} times as many, or "
            f"{MOST:,}."
        )


class Stream:
    """A batch sampler. The epochs' shuffled examples follow each other without end, and a step takes the next `batch`
    of them: of these, each process its share, in `accumulate` parts. Keys are (epoch, index)."""

    def __init__(
        self, examples: int, batch: int, seed: int, steps: range, *, rank: int = 0, world: int = 1, accumulate: int = 1
    ):
        check_batch(batch, examples)
        if batch % (world * accumulate):
            raise ValueError(
                f"batch is {batch}; expected a multiple of {world * accumulate}: {world} processes, in {accumulate} "
                "parts each."
            )
        self.examples, self.batch, self.seed, self.steps = examples, batch, seed, steps
        self.rank, self.world, self.accumulate = rank, world, accumulate
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
        return epoch, int(self._order[position])

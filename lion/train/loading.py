"""Batches from a DataLoader, and what goes wrong in the processes that load them, in words."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from lion.machine import processors
from lion.train.task import Batch, Examples

DEAD = re.compile(r"DataLoader worker .*(killed by signal|exited unexpectedly)", re.S)
CAUGHT = re.compile(r"Caught \w+ in DataLoader worker process \d+\.\n.*\n[\w.]+: (?P<words>.*)", re.S)


def batches(examples: Examples, keys: Any, workers: int) -> Iterator[Batch]:
    """One for each list of keys, loaded by so many processes."""
    workers = min(workers, processors())  # torch warns of more
    options: dict[str, Any] = {"batch_sampler": keys, "collate_fn": _as_it_is, "num_workers": workers}
    # With a generator of its own, or it would draw a number of those that dropout is made of.
    loader: DataLoader[Any] = DataLoader(examples, generator=torch.Generator(), **options)  # type: ignore[arg-type]
    try:
        yield from loader
    except RuntimeError as problem:
        if not DEAD.search(str(problem)):
            raise
        raise ChildProcessError(
            "a process that loads data has died: mostly there is too little memory. Continue with --resume, and "
            f"fewer processes, --workers {workers - 1}."
        ) from None
    except (ValueError, OSError) as problem:
        caught = CAUGHT.fullmatch(str(problem).rstrip())
        if caught is None:
            raise
        raise type(problem)(caught["words"]) from None


def _as_it_is(batch: Batch) -> Batch:
    return batch

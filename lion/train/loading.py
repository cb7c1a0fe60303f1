"""Batches from a DataLoader, with plain messages for errors in its processes."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from lion.machine import processors
from lion.tasks import Batch, Examples

DEAD = re.compile(r"DataLoader worker .*(killed by signal|exited unexpectedly)", re.S)
CAUGHT = re.compile(r"Caught \w+ in DataLoader worker process \d+\.\n.*\n[\w.]+: (?P<words>.*)", re.S)


def batches(examples: Examples, keys: Any, workers: int) -> Iterator[Batch]:
    """A batch for each list of keys, loaded by `workers` processes."""
    workers = min(workers, processors())  # torch warns of more
    options: dict[str, Any] = {"batch_sampler": keys, "collate_fn": _as_it_is, "num_workers": workers}
    # A generator of its own: the loader would draw a number from the global one, and change dropout.
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

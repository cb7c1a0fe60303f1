"""How much memory there is, and models that would not fit into it, told before they are made."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)
TRAINED = 4  # of every weight: itself, its gradient and AdamW's two means


def available_memory() -> int:
    """Bytes of the system's."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 8 << 30


def outline(make: Callable[[], Model]) -> Model:
    """The model without memory for its weights. Nothing random is drawn for it."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return make()


def to_train(make: Callable[[], Model]) -> Model:
    """The model, if there is memory to train it; on a GPU, to make it."""
    copies = 1 if torch.accelerator.is_available() else TRAINED
    parameters = sum(x.numel() for x in outline(make).parameters())
    needed, there = parameters * torch.get_default_dtype().itemsize * copies, available_memory()
    if needed > there:
        raise ValueError(
            f"the model has {parameters:,} parameters, and takes {needed / 2**30:,.1f} GiB to be trained; expected "
            f"less than {there / 2**30:,.1f} GiB, the memory there is: take a smaller dim, depth or vocabulary."
        )
    return make()

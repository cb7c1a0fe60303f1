"""This machine: its processors and memory, and an error for a model that would not fit, before it is made."""

import contextlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)
TRAINED = 4  # numbers per weight in training: itself, its gradient and AdamW's two means


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def description() -> str:
    """The processor, its cores and its instruction set, for measurements."""
    name = _entry("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def available_memory(device: torch.device | None = None) -> int:
    """Free memory in bytes: the system's, or a GPU's."""
    if device is not None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = _entry("/proc/meminfo", "MemAvailable")
    return int(found.split()[0]) * 1024 if found else 8 << 30


def _entry(path: str, name: str) -> str:
    """The value of a line "name : value" of one of Linux' files; "" if there is none."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return ""


def outline(make: Callable[[], Model]) -> Model:
    """The model without memory for its weights. No random numbers are drawn."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return make()


def to_train(make: Callable[[], Model]) -> Model:
    """The model, if there is memory to train it; on a GPU, memory to make it."""
    copies = 1 if torch.accelerator.is_available() else TRAINED
    parameters = sum(x.numel() for x in outline(make).parameters())
    needed, there = parameters * torch.get_default_dtype().itemsize * copies, available_memory()
    if needed > there:
        raise ValueError(
            f"the model has {parameters:,} parameters, and takes {needed / 2**30:,.1f} GiB to be trained; expected "
            f"less than {there / 2**30:,.1f} GiB, the memory there is: take a smaller dim, depth or vocabulary."
        )
    return make()

"""What is about to be trained, in words."""

from collections.abc import Iterator

import torch
from torch import nn

from lion.models.card import sizes
from lion.terminal import plural, several
from lion.train.config import Run


def announcement(
    run: Run, model: nn.Module, steps: int, examples: int, device: torch.device, processes: int
) -> Iterator[tuple[str, str]]:
    """The model and its training, for `lion.terminal.facts`; `examples` of the training set."""
    threads = f", {plural(torch.get_num_threads(), 'thread')}" if device.type == "cpu" else ""
    others = f", {processes} processes" if processes > 1 else ""
    yield "model", described(model)
    yield "steps", f"{steps:,} of {run.batch:,} {several(run.task.unit)}: {steps * run.batch / examples:.3g} epochs"
    yield "device", f"{device}{threads}{others}, {run.precision}"


def described(model: nn.Module) -> str:
    """A model's variant and sizes."""
    config, count = getattr(model, "config", None), sum(x.numel() for x in model.parameters())
    found = sizes(config)
    if None in found:
        return f"{type(model).__name__}, {count:,} parameters"
    return "{}, dim {}, depth {}, heads {}: {:,} parameters".format(*found, count)

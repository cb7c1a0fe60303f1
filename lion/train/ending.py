"""Early ends of a run: by a signal, by the end of another process, by a loss that is NaN or infinite."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import torch

from lion.tasks import Batch
from lion.train.config import Run

ELSEWHERE = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|failed to recv", re.IGNORECASE)


class Diverged(ValueError):
    """A loss or a gradient is NaN or infinite."""


class Stopped(Exception):
    """A signal has stopped the run; everything is saved."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Errors of communication mean that another process of the run has ended: say so."""
    try:
        yield
    except RuntimeError as problem:
        if not ELSEWHERE.search(str(problem)):
            raise
        raise ChildProcessError(
            "another process of this run has ended, and the run with it: see what that one said. What is saved is "
            "whole: continue with --resume."
        ) from None


@contextlib.contextmanager
def caught_signals() -> Iterator[list[int]]:
    """A list that signals to end are added to, for the loop to look at between steps. The second one works as usual."""
    found: list[int] = []
    before: dict[int, Any] = {}
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def note(signum: int, frame: object) -> None:
        found.append(signum)
        signal.signal(signum, before[signum])
        if signum == getattr(signal, "SIGHUP", None):  # the terminal is gone, and whatever is said to it is an error
            for descriptor in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    with contextlib.suppress(ValueError):  # only the main thread can
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                before[number] = signal.signal(number, note)
    try:
        yield found
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def cause(batch: Batch, rate: float, run: Run) -> str:
    """The most likely cause of a NaN."""
    for name, x in batch.items():
        if x.is_floating_point() and not torch.isfinite(x).all():
            return f"The data are the cause: {name} has values that are not finite."
    if run.precision != "float32":
        return f"Try --precision float32, or a smaller --optim.lr (it is {rate:g} now)."
    clip = "" if run.optim.clip else ", or --optim.clip 1"
    return f"The learning rate, {rate:g} now, is probably too high: try a smaller --optim.lr{clip}."

"""How a run ends before its time: by a signal, by another process's death, by numbers that are none."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import torch

from lion.train.config import Run
from lion.train.task import Batch

ELSEWHERE = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|failed to recv", re.IGNORECASE)


class Diverged(ValueError):
    """A loss or a gradient is not a number any more."""


class Stopped(Exception):
    """By a signal; everything is saved."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What a process finds when another one of its run has died, in words."""
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
    """Signals to end are noted down, to be looked at between two steps. A second one works as ever."""
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
    """The most likely one, of numbers that are none."""
    for name, x in batch.items():
        if x.is_floating_point() and not torch.isfinite(x).all():
            return f"The data are the cause: {name} has values that are not finite."
    if run.precision != "float32":
        return f"Try --precision float32, or a smaller --optim.lr (it is {rate:g} now)."
    clip = "" if run.optim.clip else ", or --optim.clip 1"
    return f"The learning rate, {rate:g} now, is probably too high: try a smaller --optim.lr{clip}."

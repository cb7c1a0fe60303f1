"""Comparable times: after a warm-up, interleaved in one process, the best of several."""

import time
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from lion.train.allocation import keep_memory

Work = Callable[[], object]


def inference(run: Callable[[], Tensor]) -> Work:
    """A forward pass without gradients."""

    def work() -> object:
        with torch.no_grad():
            return run()

    return work


def training(run: Callable[[], Tensor], leaves: Iterable[Tensor | None]) -> Work:
    """A forward and a backward pass, to the leaves that need gradients; without an optimizer."""
    wanted = [x for x in leaves if x is not None and x.requires_grad]
    along: list[Tensor] = []  # the output's gradient, made in the warm-up, because it is not the model's work

    def work() -> object:
        out = run()
        if not along:
            along.append(torch.ones_like(out))
        return torch.autograd.grad(out, wanted, along[0], allow_unused=True)

    return work


def interleaved(
    works: Mapping[str, Work],
    *,
    rounds: int = 5,
    least: int = 3,
    patience: float = 30.0,
    tick: Callable[[], object] = lambda: None,
) -> tuple[dict[str, float], int]:
    """The best time of each piece of work in seconds, and the number of tries, which is the same for all.

    After one warm-up run each, all run in turn, so that a noisy neighbour disturbs all alike. There are `rounds` tries,
    or as many as the slowest can do in `patience` seconds, but at least `least`. Every other round is in reverse order:
    what a run leaves in caches and memory helps or hurts all alike.
    """
    keep_memory()  # as in `lion train`; else the times would include the page faults of returned memory
    warm = {}
    for name, work in works.items():
        warm[name] = seconds(work)
        tick()
    fair = min(rounds, max(least, int(patience / max(warm.values(), default=1.0))))
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds):
        for name in list(works)[:: -1 if turn % 2 else 1]:
            if turn < fair:
                best[name] = min(best[name], seconds(works[name]))
            tick()
    return best, fair


def seconds(work: Work) -> float:
    _finish()
    start = time.perf_counter()
    work()
    _finish()
    return time.perf_counter() - start


def _finish() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()

"""Times that can be compared: warm, interleaved in one process, the best of several."""

import time
from collections.abc import Callable, Mapping

import torch


def interleaved(
    works: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    patience: float = 10.0,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, float]:
    """The best time of each piece of work in seconds.

    One run each to warm up, then `rounds` rounds of all in turn, so that a noisy neighbour disturbs all
    alike. Work that would take more than `patience` seconds over all rounds sits out some, never the first.
    """
    warm = {}
    for name, work in works.items():
        warm[name] = seconds(work)
        tick()
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds):
        for name, work in works.items():
            if turn == 0 or warm[name] * (turn + 1) <= patience:
                best[name] = min(best[name], seconds(work))
            tick()
    return best


def seconds(work: Callable[[], object]) -> float:
    _finish()
    start = time.perf_counter()
    work()
    _finish()
    return time.perf_counter() - start


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

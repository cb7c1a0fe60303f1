"""Times that can be compared: warm, interleaved in one process, the best of several."""

import time
from collections.abc import Callable, Mapping

import torch

from lion.train.allocation import keep_memory


def interleaved(
    works: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    least: int = 3,
    patience: float = 30.0,
    tick: Callable[[], object] = lambda: None,
) -> tuple[dict[str, float], int]:
    """The best time of each piece of work in seconds, and how many tries each had.

    One run each to warm up, then rounds of all in turn, so that a noisy neighbour disturbs all alike and all
    have the same number of tries: `rounds`, or as many as the slowest can have in `patience` seconds, but `least`.
    Every other round goes backwards: what the one before left in caches and memory helps or hurts all alike.
    """
    keep_memory()  # as `lion train` does; or pages that come and go would be a part of all times
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


def seconds(work: Callable[[], object]) -> float:
    _finish()
    start = time.perf_counter()
    work()
    _finish()
    return time.perf_counter() - start


def _finish() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()

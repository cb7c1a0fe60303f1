"""Times that can be compared: warm, interleaved in one process, the best of several."""

import time
from collections.abc import Callable, Mapping

import torch


def interleaved(
    works: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    slow: float = 20.0,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, float]:
    """The best time of each piece of work in seconds.

    One run each to warm up, then `rounds` rounds of all in turn, so that a noisy neighbour disturbs all
    alike. What takes longer than `slow` seconds is run only once more.
    """
    best: dict[str, float] = {}
    for name, work in works.items():
        best[name] = seconds(work)
        tick()
    first = dict(best)
    for turn in range(rounds):
        for name, work in works.items():
            if first[name] <= slow or turn == 0:
                best[name] = seconds(work) if turn == 0 else min(best[name], seconds(work))
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

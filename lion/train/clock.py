"""How long a run will take, from the steps and evaluations that it has done."""

import time

WARM_UP, TIMED, SECONDS = 3, 5, 1.0  # steps that do not count; steps and seconds after which the first estimate is good
FORWARD = 1 / 3  # of a step's time, without gradients


class Clock:
    """
    Args:
        begin, steps: the first step, and the one after the last.
        every: steps between evaluations.
        batches: steps of training that have as many examples as the eval set.
    """

    def __init__(self, begin: int, steps: int, every: int, batches: float):
        self.done, self.begin, self.steps, self.every = begin, begin, steps, every
        self._evaluation = FORWARD * batches  # in steps, until one has been timed
        self._evaluated: float | None = None  # seconds of the last
        self._since = self._paused = 0.0

    def step(self) -> None:
        self.done += 1
        if self.done - self.begin <= WARM_UP:
            self._since, self._paused = time.perf_counter(), 0.0

    def pause(self, seconds: float, *, evaluation: bool) -> None:
        """Something else took so long."""
        self._paused += seconds
        self._evaluated = seconds if evaluation else self._evaluated

    @property
    def known(self) -> bool:
        enough = self.done - self.begin >= WARM_UP + TIMED
        return enough and time.perf_counter() - self._since - self._paused > SECONDS

    @property
    def each(self) -> float:
        """Seconds of a step."""
        timed = max(1, self.done - self.begin - WARM_UP)
        return (time.perf_counter() - self._since - self._paused) / timed

    @property
    def left(self) -> float:
        """Seconds to the end."""
        evaluations = -(-self.steps // self.every) - self.done // self.every
        evaluation = self.each * self._evaluation if self._evaluated is None else self._evaluated
        return self.each * (self.steps - self.done) + evaluations * evaluation

"""Whether an exported model answers as torch does, at several sizes."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lion.export.subjects import Subject
from lion.progress import progress, working

TOLERANCE = 1e-4  # of the outputs' scale, in float32


class Trial(NamedTuple):
    sizes: dict[str, int]
    inputs: list[Tensor]
    wanted: list[Tensor]  # torch's outputs


class Checked(NamedTuple):
    """What a check has found."""

    worst: float  # the largest difference from torch, in parts of the outputs' scale
    trials: int

    def __str__(self) -> str:
        return f"{self.trials} sizes compared with torch, the largest difference {self.worst:.1e} of the outputs' scale"


def trials(subject: Subject, least: int = 1) -> Iterator[Trial]:
    """Inputs and torch's outputs, of sizes from `least` on. States are those behind the trial before, where the
    batch has the same size."""
    states: dict[str, Tensor] = {}
    for number, sizes in enumerate(x for x in subject.trials if min(n for k, n in x.items() if k != "batch") >= least):
        inputs = subject.some(sizes, number)
        if all(len(x) == sizes["batch"] for x in states.values()):
            inputs = [states.get(port.name, x) for port, x in zip(subject.inputs, inputs, strict=True)]
        with torch.no_grad():
            outputs = subject.module(*inputs)
        wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        names = (port.name.replace("present.", "past.") for port in subject.outputs)
        states = {name: x for name, x in zip(names, wanted, strict=True) if name.startswith("past.")}
        yield Trial(sizes, inputs, wanted)


def check(run: Callable[[list[Tensor]], list[Tensor]], subject: Subject, what: str) -> Checked:
    """Raise unless `run` gives what torch gives."""
    with working("comparing with torch"), progress(len(subject.trials), "size") as bar:

        def found() -> Iterator[tuple[Trial, list[Tensor]]]:
            for trial in trials(subject):
                yield trial, run(trial.inputs)
                bar.advance()

        return judged(found(), subject, what)


def judged(found: Iterable[tuple[Trial, list[Tensor]]], subject: Subject, what: str) -> Checked:
    worst, count = 0.0, 0
    for trial, outputs in found:
        for port, got, want in zip(subject.outputs, outputs, trial.wanted, strict=True):
            off = difference(got, want)
            if not off <= TOLERANCE:
                sizes = ", ".join(f"{name} {n}" for name, n in trial.sizes.items())
                raise ValueError(
                    f"{what} differs from torch at {sizes}: {port.name} by {off:.1e} of its scale; expected at most "
                    f"{TOLERANCE:.0e}. Nothing was written."
                )
            worst = max(worst, off)
        count += 1
    return Checked(worst, count)


def difference(got: Tensor, want: Tensor) -> float:
    """The largest difference, in parts of the largest value or of 1; NaN where one is infinite and the other is not."""
    if got.shape != want.shape or not torch.equal(got.isfinite(), want.isfinite()):
        return float("nan")
    got, want = got[want.isfinite()].double(), want[want.isfinite()].double()
    return float((got - want).abs().max() / want.abs().max().clamp(min=1)) if len(want) else 0.0

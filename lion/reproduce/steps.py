"""Steps of a plan: commands of lion, and the results that they leave."""

import functools
import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lion import files
from lion.reproduce.record import Finished, Record

COMMANDS, LOG = "steps", "log.txt"  # the folder of all steps; the log of each
RESULTS = "results.jsonl"  # of the finished ones
LONGEST = 100  # letters of a step's name


@dataclass(frozen=True)
class Step:
    """A command. A step among its words stands for that step's folder, and goes before it."""

    name: str  # of its folder, too
    words: tuple["str | Step", ...]  # of the command, without `lion`
    result: str  # the file that is there when the step is finished
    minutes: float = 0.0  # about: of a training on one core, of a measurement on two; 0: not known
    alone: bool = False  # measures time or memory: nothing else may run meanwhile

    @property
    def trains(self) -> bool:
        return self.words[0] == "train"

    @property
    def needs(self) -> list["Step"]:
        return [word for word in self.words if isinstance(word, Step)]


def training(recipe: str, *fields: "str | Step", seed: int = 0, minutes: float = 0.0) -> Step:
    """A run of `lion train`. `fields` are options of the command, as "--model.two_sided true"."""
    words: list[str | Step] = []
    for field in fields:
        words += shlex.split(field) if isinstance(field, str) else [field]
    changed = [part for part in words if isinstance(part, str)]
    name = _name([recipe, *changed], [x.name for x in words if isinstance(x, Step)], f"seed {seed}")
    return Step(name, ("train", recipe, *words, "--seed", f"{seed}"), "result.json", minutes)


def seeds(count: int, recipe: str, *fields: "str | Step", minutes: float = 0.0) -> tuple[Step, ...]:
    """The same run with several seeds."""
    return tuple(training(recipe, *fields, seed=seed, minutes=minutes) for seed in range(count))


def measuring(what: str, options: str = "", *runs: Step, minutes: float = 0.0, alone: bool = True) -> Step:
    """A run of `lion bench`."""
    words: tuple[str | Step, ...] = ("bench", what, *runs, *shlex.split(options))
    return Step(_name(["bench", *words[1:]], [x.name for x in runs]), words, "found.json", minutes, alone)


def _name(words: Sequence["str | Step"], beside: Sequence[str], last: str = "") -> str:
    """A folder's name that a person can read; where it would be long, a digest tells it from others."""
    text = " ".join(word.lstrip("-") for word in words if isinstance(word, str))
    name = re.sub(r"[^\w.,=+ -]", "_", text).replace(" ", "-")
    if len(name) > LONGEST or beside:
        digest = hashlib.sha256(" ".join([text, *beside]).encode()).hexdigest()[:8]
        name = f"{name[:LONGEST]}-{digest}"
    return f"{name}-{last.replace(' ', '')}" if last else name


def in_order(steps: Sequence[Step]) -> list[Step]:
    """All steps and what they need, each once, with what it needs before it; measurements last."""
    found: dict[str, Step] = {}

    def add(step: Step) -> None:
        for needed in step.needs:
            add(needed)
        found.setdefault(step.name, step)

    for step in steps:
        add(step)
    return sorted(found.values(), key=lambda step: step.alone)


@dataclass(frozen=True)
class Workplace:
    """The folder in which the steps of a scale are carried out, and the record of what they have found."""

    root: Path
    extra: tuple[str, ...] = ()  # more options for every `lion train`
    results: Path | None = None  # the file of the record; None: in the folder

    @functools.cached_property
    def record(self) -> Record:
        return Record(self.results or self.root / RESULTS)

    def folder(self, step: Step) -> Path:
        if step.trains and self.extra:
            digest = hashlib.sha256(" ".join(self.extra).encode()).hexdigest()[:8]
            return self.root / COMMANDS / f"{step.name}-with-{digest}"
        return self.root / COMMANDS / step.name

    def command(self, step: Step) -> list[str]:
        """The words of the command, without `lion`."""
        words = [f"{self.folder(x)}" if isinstance(x, Step) else x for x in step.words]
        folder = self.folder(step)
        if step.trains:
            return [*words, *self.extra, "--out", f"{folder}"]
        return [*words, "--json", f"{folder / step.result}"]

    def shown(self, step: Step) -> str:
        return shlex.join(["lion", *self.command(step)])

    def brief(self, step: Step) -> str:
        """The command without the place of its result."""
        return shlex.join(["lion", *self.command(step)[:-2]])

    def finish(self, step: Step, minutes: float) -> None:
        """Write down what the step has left in its folder."""
        result = files.read_json(self.folder(step) / step.result)
        self.record.add(self.folder(step).name, self.brief(step), minutes, result)

    def finished(self, step: Step) -> bool:
        return self.folder(step).name in self.record

    def at_hand(self, step: Step) -> bool:
        """Whether others can go on from it here: its result may be known from another machine."""
        return self.finished(step) and (self.folder(step) / step.result).exists()

    def began(self, step: Step) -> bool:
        return step.trains and not self.at_hand(step) and (self.folder(step) / "metrics.jsonl").exists()

    def of(self, step: Step) -> Finished | None:
        """The step's entry in the record; None if it has not been finished."""
        return self.record.get(self.folder(step).name)

    def result(self, step: Step) -> Any:
        """What the step found; None if it has not been finished."""
        found = self.of(step)
        return found and found.result

    def took(self, step: Step) -> float | None:
        """The minutes that the step has taken; None if it has not been finished."""
        found = self.of(step)
        return found and found.minutes

    def log(self, step: Step) -> Path:
        return self.folder(step).with_name(f"{self.folder(step).name}.{LOG}")

    def machines(self, steps: Sequence[Step]) -> Iterator[str]:
        """The machines that the finished steps ran on."""
        return (found.machine for step in steps if (found := self.of(step)))

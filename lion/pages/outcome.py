"""The outcome of a run in words: its score, and the simple baseline's beside it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lion.files import read_json
from lion.pages.figures import Html
from lion.pages.parts import beyond_chance, card
from lion.terminal import duration
from lion.train.metrics import SHARES

BASELINE = "baseline.json"
NAMES = {
    "f1": "F1",
    "macro_f1": "mean F1",
    "matthews": "Matthews' correlation",
    "spearman": "rank correlation",
    "pearson": "correlation",
}


class Outcome(NamedTuple):
    title: str
    cards: Sequence[Html]
    sections: Mapping[str, Sequence[Html]]


class Baseline(NamedTuple):
    name: str
    metric: str
    score: float
    seconds: float | None

    @staticmethod
    def read(folder: Path) -> "Baseline | None":
        if not (folder / BASELINE).exists():
            return None
        plain: Any = read_json(folder / BASELINE)
        return Baseline(str(plain["name"]), str(plain["metric"]), float(plain["score"]), plain.get("seconds"))

    @property
    def time(self) -> str:
        return "" if self.seconds is None else f" in {duration(max(1, self.seconds))}"

    def words(self) -> str:
        return f"{self.name}: {metric_name(self.metric)} {score(self.metric, self.score)}{self.time}"

    def beside(self) -> Html:
        return card(score(self.metric, self.score), f"{metric_name(self.metric)} of {self.name}", f"trained{self.time}")

    def verdict(self, metrics: dict[str, float], examples: int, place: str = "this page") -> str:
        """Whether the run was worth it."""
        ours, theirs = (score(self.metric, x) for x in (metrics[self.metric], self.score))
        both = f"{self.name} reaches {theirs}{self.time}, this model {ours}"
        if not _apart(self.metric, metrics[self.metric], self.score, examples):
            enough = " The simple model is enough." if metrics[self.metric] <= self.score else ""
            return (
                f"It made little difference: {both}. That is no further apart than chance explains with {examples:,} "
                f"examples.{enough}"
            )
        if metrics[self.metric] > self.score:
            return f"It was worth it: {both}."
        return f"It was not worth it yet: {both}. What to try next stands at the end of {place}."


def metric_name(metric: str) -> str:
    return NAMES.get(metric, metric)


def score(metric: str, x: float) -> str:
    return f"{x:.1%}" if metric in SHARES else f"{x:.2f}"


def _apart(metric: str, ours: float, theirs: float, examples: int) -> bool:
    if metric in SHARES:
        return beyond_chance(ours, theirs, examples)
    z, other = (math.atanh(min(max(x, -0.999), 0.999)) for x in (ours, theirs))  # Fisher's, of correlations
    return abs(z - other) > 2 * math.sqrt(2 / max(1, examples - 3))

"""Labelled data, from files of people's own or from known sets."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from lion.data.findings import BadData
from lion.tasks import Batch, Task, cached, classified
from lion.terminal import brief, plural
from lion.train.metrics import METRICS

SIMPLE = 5000  # training examples of a simple model, which has to take seconds
FEW = 12  # classes that are all shown with their counts; of more, the first and last few


class Plain(NamedTuple):
    """Examples as a model of scikit-learn takes them; of many, `SIMPLE` are enough to train on."""

    kind: str  # a key of lion.train.baseline.KINDS
    train: tuple[Sequence[Any] | np.ndarray, np.ndarray]  # inputs and labels
    eval: tuple[Sequence[Any] | np.ndarray, np.ndarray]


class LabelledTask(Task):
    """A class for each example, or a number."""

    data: str  # the file
    test: str = ""  # a file for the eval set
    label_column: str  # the one with the label, in a table; "": the one with a usual name
    skip_bad: bool = False  # leave out rows that cannot be used
    classes: tuple[str, ...]
    numbers: bool  # labels are numbers, not classes
    label_scale: tuple[float, float] | None  # mean and deviation that numbers are standardised by; None: the data's
    smoothing: float = 0.0  # of classes in training: so much of each goes to all alike
    metrics_of_classes: tuple[str, ...] = ("accuracy", "macro_f1")
    metrics_of_numbers: tuple[str, ...] = ("spearman", "pearson", "rmse")

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """[B, classes], or [B, 1] where labels are numbers: standardised ones (`in_units`)."""
        raise NotImplementedError

    def plain(self) -> Plain | None:
        """The data for a simple baseline, if it is the user's own."""
        return None

    def scale_of(self, train: Any) -> tuple[float, float]:
        """The `label_scale` for this training data, whose `labels` are an array, and `classes` None for numbers."""
        if self.label_scale is not None or train.classes is not None:
            return self.label_scale or (0.0, 1.0)
        labels = train.labels.astype(float)
        return float(labels.mean()), float(labels.std()) or 1.0

    def in_units(self, output: Tensor) -> Tensor:
        """Numbers that the model gives, [...], in the units of the labels."""
        mean, std = self.label_scale or (0.0, 1.0)
        return output.float() * std + mean

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of lion.train.metrics that are shown."""
        return self.metrics_of_numbers if self.numbers else self.metrics_of_classes

    @property
    def metric(self) -> str:  # type: ignore[override]  # the data decides it
        return self.metrics[0]

    def loss(self, model: nn.Module, batch: Batch, *, seed: int, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if self.numbers or not self.smoothing:
            return super().loss(model, batch, seed=seed, step=step)
        output, right = self.outputs(model, batch).float(), batch["label"]
        loss = F.cross_entropy(output, right, label_smoothing=self.smoothing)
        return loss, {"accuracy": (output.argmax(-1) == right).float().mean()}

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output, right = self.outputs(model, batch), batch["label"]
        if not self.numbers:
            probability, predicted = output.detach().float().softmax(-1).max(-1)
            kept = {"predicted": predicted, "right": right, "probability": probability}
            return {**classified(output, right), **kept}
        standard, (mean, std) = output[:, 0].float(), self.label_scale or (0.0, 1.0)
        loss = F.mse_loss(standard, (right - mean) / std, reduction="sum")
        predicted = self.in_units(standard.detach())
        return {"loss": loss, "examples": right.new_tensor(len(right)), "predicted": predicted, "right": right}

    def concluded(self, metrics: dict[str, Any]) -> dict[str, float]:
        values = metrics["predicted"], metrics["right"]
        return {"loss": metrics["loss"], **{name: METRICS[name](*values) for name in self.metrics}}

    def read_file(self, read: Callable, path: str, column: Any, train: Callable[[], Any] | None = None) -> Any:
        """A file of labelled data.

        Args:
            read: lion.data's function for such files.
            column: the one with the examples; empty: the one with a usual name.
            train: makes the training data, for a file with the eval set: it has the same classes.
        """
        classes = self.classes
        numbers: bool | None = self.numbers or None
        if train is not None:
            classes = classes if classes or numbers else tuple(train().classes or ())
            numbers = not classes
        file = Path(path).expanduser()
        columns = column or None, self.label_column or None
        skip = {"skip_bad": True} if self.skip_bad else {}
        try:
            return cached(read, file, *columns, classes=classes or None, numbers=numbers, **skip, file=file)
        except BadData as problem:
            raise to_skip(problem) from None

    # What was read, for people.

    def reached(self, score: float) -> str:
        """How good a linear model beside the network is."""
        words = f"r2 {score:.2f}" if self.numbers else f"{score:.1%} right"
        return f" ({words} on those it has not seen)"

    def source(self) -> str:
        """Where the examples are from."""
        return self.data

    share = "a tenth"  # that is held out of a file

    def held_out(self) -> str:
        """How the eval set was chosen."""
        whole = "" if self.numbers else " of every class"
        return f"all of {self.test}" if self.test else f"{self.share}{whole}, chosen by content"

    def notes(self) -> Mapping[str, str]:
        """More facts, from reading the data: `lion.data.findings.Findings.notes`."""
        return {}

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        sets, counts = (train_set, eval_set), (len(train_set), len(eval_set))
        labels = [np.asarray(x.labels) for x in sets]
        first, more = (counts[0], f", {counts[1]:,} from {self.test}") if self.test else (sum(counts), "")
        found = {"examples": f"{plural(first, self.unit)} from {self.source()}{more}", "skipped": "", **self.notes()}
        if self.numbers:
            found["numbers"] = _spread(np.concatenate(labels))
        else:
            found["classes"] = _shares(labels, list(self.names_of_classes()))
        found["split"] = f"{counts[0]:,} to train on, {counts[1]:,} to evaluate on: {self.held_out()}"
        if all(hasattr(x, "lengths") for x in sets):
            lengths = np.concatenate([x.lengths for x in sets])
            found["tokens"] = spread_of_lengths(lengths)
            cut = getattr(self, "max_length", 0) or 0
            if many := int((lengths > cut).sum()) if cut else 0:
                share = f"{plural(many, self.unit)} ({many / len(lengths):.1%})"
                found["cut"] = f"{share}, after {cut:,} tokens; --max-length 0 keeps all whole"
        return {name: text for name, text in found.items() if text}

    def names_of_classes(self) -> tuple[str, ...]:
        return self.classes


def read_notes(train: Mapping[str, str], test: Mapping[str, str]) -> dict[str, str]:
    """The notes of both sets: those of the first, and what was skipped of each, if they are different files."""
    found = dict(train)
    if train is not test and "skipped" in test and train.get("skipped") != test["skipped"]:
        found["skipped"] = "; ".join([*filter(None, [train.get("skipped")]), f"to evaluate on: {test['skipped']}"])
    return found


def to_skip(problem: BadData) -> BadData:
    """The problem with the remedy of tasks that have the field `skip_bad`; a list of several has it already."""
    return BadData(f"{problem} With --skip-bad it is left out.") if problem.count == 1 else problem


def _shares(labels: list[np.ndarray], names: list[str]) -> str:
    """The classes with their counts in both sets together."""
    held = np.bincount(labels[1], minlength=len(names))
    counts = np.bincount(labels[0], minlength=len(names)) + held
    order = np.argsort(-counts, kind="stable").tolist()
    shown = [f"{brief(names[i], 30)} {counts[i]:,}" for i in order]
    few = FEW // 4
    parts = shown if len(shown) <= FEW else [*shown[:few], "...", *shown[-few:]]
    without = int((held == 0).sum())
    more = f"; {without:,} without an example to evaluate on" if without else ""
    return f"{len(names):,}: {', '.join(parts)}{more}"


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.percentile(values, (0, 50, 100))
    return f"{low:.4g} to {high:.4g}, median {middle:.4g}, mean {values.mean():.4g}, deviation {values.std():.4g}"


def spread_of_lengths(lengths: np.ndarray) -> str:
    middle, most = (int(x) for x in np.percentile(lengths, (50, 95)))
    return f"median {middle:,}, 95 % have up to {most:,}, the longest {lengths.max():,}"

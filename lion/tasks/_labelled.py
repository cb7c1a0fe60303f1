"""Labelled data, from files of people's own or from known sets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from lion.tasks import Batch, Task, cached, classified
from lion.train.metrics import METRICS


class Plain(NamedTuple):
    """Examples as a model of scikit-learn takes them."""

    kind: str  # a key of lion.train.baseline.KINDS
    train: tuple[Sequence[Any], np.ndarray]  # inputs and labels
    eval: tuple[Sequence[Any], np.ndarray]


class LabelledTask(Task):
    """A class for each example, or a number."""

    test: str  # a file for the eval set
    label_column: str  # the one with the label, in a table; "": the one with a usual name
    classes: tuple[str, ...]
    numbers: bool  # labels are numbers, not classes
    label_scale: tuple[float, float] | None  # mean and deviation that numbers are standardised by; None: the data's
    metrics_of_classes = ("accuracy", "macro_f1")
    metrics_of_numbers = ("spearman", "pearson", "rmse")

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

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output, right = self.outputs(model, batch), batch["label"]
        if not self.numbers:
            return {**classified(output, right), "predicted": output.argmax(-1), "right": right}
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
        return cached(read, file, *columns, classes=classes or None, numbers=numbers, file=file)

"""Labelled data, from files of people's own or from known sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from lion.tasks import Batch, Task, cached, classified
from lion.train.metrics import METRICS


class LabelledTask(Task):
    """A class for each example, or a number."""

    test: str  # a file for the eval set
    label_column: str
    classes: tuple[str, ...]
    numbers: bool  # labels are numbers, not classes
    metrics_of_classes: tuple[str, ...] = ("accuracy", "macro_f1")
    metrics_of_numbers: tuple[str, ...] = ("spearman", "pearson")

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """[B, classes], or [B, 1] where labels are numbers."""
        raise NotImplementedError

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
            probability, predicted = output.detach().float().softmax(-1).max(-1)
            kept = {"predicted": predicted, "right": right, "probability": probability}
            return {**classified(output, right), **kept}
        predicted = output[:, 0].float()
        sums = {"loss": F.mse_loss(predicted, right, reduction="sum"), "examples": right.new_tensor(len(right))}
        return {**sums, "predicted": predicted.detach(), "right": right}

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

"""What tasks on labelled data have in common, whatever is labelled."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from lion.train.metrics import METRICS
from lion.train.task import Batch, Task, classified


class LabelledTask(Task):
    """A class for each example, or a number."""

    numbers: bool  # labels are numbers, not classes
    metrics_of_classes: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1")
    metrics_of_numbers: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """[B, classes], or [B, 1] where labels are numbers."""
        raise NotImplementedError

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of lion.train.metrics that are shown."""
        return self.metrics_of_numbers if self.numbers else self.metrics_of_classes

    @property
    def metric(self) -> str:  # type: ignore[override]  # it is the data's
        return self.metrics[0]

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output, right = self.outputs(model, batch), batch["label"]
        if not self.numbers:
            return {**classified(output, right), "predicted": output.argmax(-1), "right": right}
        predicted = output[:, 0].float()
        sums = {"loss": F.mse_loss(predicted, right, reduction="sum"), "examples": right.new_tensor(len(right))}
        return {**sums, "predicted": predicted.detach(), "right": right}

    def concluded(self, metrics: dict[str, Any]) -> dict[str, float]:
        values = metrics["predicted"], metrics["right"]
        return {"loss": metrics["loss"], **{name: METRICS[name](*values) for name in self.metrics}}

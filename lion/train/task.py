"""What is learned: a model, data, a loss, and how well it does. Images are one task; others come beside them."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.ops.checks import one_of

Batch = dict[str, Tensor]
TASKS = {
    "images": "lion.train.images:ImageTask",
    "mlm": "lion.train.text:MlmTask",
    "causal": "lion.train.text:CausalTask",
    "text": "lion.train.text:TextTask",
    "text_distill": "lion.train.text_distill:TextDistillTask",
    "long_range": "lion.train.long_range:LongRangeTask",
    "dna": "lion.train.dna:DnaTask",
    "dna_classes": "lion.train.dna:DnaClassesTask",
}


class Examples(Protocol):
    """Data for a DataLoader. What an example is depends on its key only: (epoch, index)."""

    def __len__(self) -> int: ...

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch: ...

    def digest(self) -> str:
        """Of the content: other data has another."""
        ...


class Task:
    """Tasks are frozen dataclasses: all that a run needs to be repeated."""

    unit: ClassVar[str] = "example"  # what progress is counted in
    metric: ClassVar[str] = "accuracy"  # the one that curves and tables show
    tunable: ClassVar[tuple[str, ...]] = ()  # fields that may change while the run stays the same
    makes_tokenizer: ClassVar[bool] = False  # of its data, where the field `tokenizer` names none

    def resolved(self) -> "Task":
        """With everything filled in that the data decides."""
        return self

    def make_model(self) -> nn.Module:
        raise NotImplementedError

    def train_set(self, seed: int) -> Examples:
        raise NotImplementedError

    def eval_set(self) -> Examples:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch, *, seed: int, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over the batch, to be minimised, and means to be shown beside it. By default what is measured."""
        sums = self.measure(model, batch)
        count = sums.pop("examples").clamp(min=1)
        shown = {name: x / count for name, x in sums.items() if not x.dim()}
        return shown.pop("loss"), shown

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sums over the batch, and "examples", how many it has; what has a value for each of them, [B], is kept."""
        raise NotImplementedError

    def concluded(self, metrics: dict[str, Any]) -> dict[str, float]:
        """What follows from the means of all that was measured, and from the values that were kept."""
        return metrics

    def digests(self) -> dict[str, str]:
        """Of what the model learns from beside the examples: a tokenizer, a teacher."""
        return {}

    def save_beside(self, folder: Path) -> None:
        """Write into the model's folder what else it takes to use it: a tokenizer, for instance."""

    def using(self, folder: Path) -> "Task":
        """The task with what `save_beside` wrote, in place of what that was made of."""
        return self

    def to_predict(self) -> dict[str, Any]:
        """What it takes, beside the model, to make use of it: names of classes and the like."""
        return {}


def classified(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What `measure` gives, of logits [N, classes] and labels [N]."""
    logits = logits.float()
    if labels.device.type == "cpu" and labels.numel() and int(labels.max()) >= logits.shape[-1]:
        raise ValueError(
            f"the data has the class {int(labels.max())}; expected 0 to {logits.shape[-1] - 1}, as the model has "
            f"{logits.shape[-1]}."
        )
    return {
        "loss": F.cross_entropy(logits, labels, reduction="sum"),
        "accuracy": (logits.argmax(-1) == labels).float().sum(),
        "examples": logits.new_tensor(len(labels)),
    }


def summed(totals: dict[str, Tensor], measured: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `measure` gave for one more batch, added to what it gave before."""

    def both(before: Tensor, x: Tensor) -> Tensor:
        return torch.cat([before, x]) if x.dim() else before + x

    return totals | {name: both(totals[name], x) if name in totals else x for name, x in measured.items()}


def means(totals: Mapping[str, Tensor | float]) -> dict[str, Any]:
    """Of all examples; values of each stay as they are."""
    count = float(totals["examples"])
    if not count:
        raise ValueError("nothing of the evaluation set is to be predicted; expected more data, or a larger mask.")

    def mean(x: Tensor | float) -> Tensor | float:
        return x if isinstance(x, Tensor) and x.dim() else float(x) / count

    return {name: mean(x) for name, x in totals.items() if name != "examples"}


def task_kind(task: Task) -> str:
    home = f"{type(task).__module__}:{type(task).__qualname__}"
    return next(kind for kind, place in TASKS.items() if place == home)


def task_of_kind(kind: str) -> type[Task]:
    one_of("kind of task", kind, TASKS)
    module, name = TASKS[kind].split(":")
    return getattr(importlib.import_module(module), name)

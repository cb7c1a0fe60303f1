"""Evaluation of runs."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lion.configs import checked
from lion.limits import Batch as BatchSize
from lion.nn.layers import set_form
from lion.ops.checks import BackendName, Form, one_of
from lion.progress import progress
from lion.tasks import Batch, Task, Trained
from lion.train.folder import CONFIG, load_run
from lion.train.predictions import Guess as Guess
from lion.train.predictions import most_likely as most_likely
from lion.train.predictions import predict as predict
from lion.train.sampler import eval_parts

# Fields of a model's config that its data decides.
BY_DATA = ("num_classes", "in_channels", "vocab_size", "channels", "classes", "answer")


def measure_all(
    task: Task, model: nn.Module, batches: Iterable[Batch], device: torch.device, precision: str = "float32"
) -> dict[str, Tensor]:
    """`Task.measure` added up over batches."""
    sums: dict[str, Tensor] = {}
    with torch.no_grad():
        for batch in batches:
            with autocast(device, precision):
                sums = summed(sums, task.measure(model, on_device(batch, device)))
    return sums


def summed(totals: dict[str, Tensor], measured: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sums of two parts of the eval set, added; kept values [B] are concatenated."""

    def both(before: Tensor, x: Tensor) -> Tensor:
        return torch.cat([before, x]) if x.dim() else before + x

    return totals | {name: both(totals[name], x) if name in totals else x for name, x in measured.items()}


def means(totals: Mapping[str, Tensor | float]) -> dict[str, Any]:
    """Means over all examples; kept values stay as they are."""
    count = float(totals["examples"])
    if not count:
        raise ValueError("the eval set has nothing to predict; expected more data, or a larger mask.")

    def mean(x: Tensor | float) -> Tensor | float:
        return x.cpu() if isinstance(x, Tensor) and x.dim() else float(x) / count

    return {name: mean(x) for name, x in totals.items() if name != "examples"}


def answers(measured: Mapping[str, Any], parts: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """The kept values, in the order of the eval set, of which each process has measured a part (`eval_parts`)."""
    order = torch.from_numpy(np.concatenate(parts).argsort())
    return {name: x[order] for name, x in measured.items() if isinstance(x, Tensor)}


def on_device(batch: Batch, device: torch.device) -> Batch:
    return {name: x.to(device, non_blocking=True) for name, x in batch.items()}


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


class Examined(NamedTuple):
    """A finished run and its eval set, measured."""

    folder: Path
    task: Any  # a Task
    classes: Sequence[str]
    model: nn.Module
    metrics: dict[str, float]
    examples: Any  # the eval set
    answers: dict[str, Tensor]  # the values that `Task.measure` keeps, in the order of the eval set
    test: str = ""  # in place of the run's own eval set


def examine(
    folder: Path,
    *,
    form: Form = "auto",
    backend: BackendName = "auto",
    batch: int | None = None,
    test: str = "",
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
    device: str = "",
) -> Examined:
    """Measure a run on its eval set.

    Args:
        form, backend: the algorithm; the metrics are the same.
        batch: examples at once, by default as in training.
        test: another eval set, as `Task.test_set` has it: the data of the run is not needed then.
        skip_bad: leave out what of that cannot be used, whatever the run did with its own data.
        columns: the columns of that, by the fields of the task: {"text_column": "words"}; by default the run's own.
    """
    trained = load_run(folder, device=device)
    batch = trained.batch if batch is None else checked(BatchSize, batch, "batch")
    set_form(trained.model, form, backend=backend)
    task: Any = trained.task.using(trained.beside)
    if test:
        if hasattr(task, "skip_bad"):
            task = dataclasses.replace(task, skip_bad=skip_bad)
        for name, column in (columns or {}).items():
            known = [x.name for x in dataclasses.fields(task) if x.name.endswith("_column")]
            one_of(f"the column that is {column!r}", name, known)
            task = dataclasses.replace(task, **{name: column})
        examples = task.test_set(trained, test)
        if "test" in {field.name for field in dataclasses.fields(task)}:
            task = dataclasses.replace(task, test=test)
    else:
        _check_model(task, trained)
        examples = task.eval_set()
    parts = eval_parts(len(examples), 1, getattr(examples, "row_lengths", None))
    keys = [(0, i) for i in parts[0].tolist()]
    with progress(total=len(examples), unit=task.unit) as bar:

        def batches() -> Iterable[Batch]:
            for first in range(0, len(keys), batch):
                part = keys[first : first + batch]
                yield examples.__getitems__(part)
                bar.advance(len(part))

        measured = means(measure_all(task, trained.model, batches(), trained.device))
    metrics = task.concluded(measured)
    return Examined(
        folder, task, trained.known.classes, trained.model, metrics, examples, answers(measured, parts), test
    )


def _check_model(task: Any, trained: Trained) -> None:
    """Refuse a model that was made for other data than the run's."""
    config: Any = trained.model.config
    if type(getattr(task, "model", None)) is not type(config):
        return
    wanted, folder = task.resolved().model, trained.folder
    for name in BY_DATA:
        got, want = (getattr(x, name, None) for x in (config, wanted))
        if got != want:
            raise ValueError(
                f"the model in {folder}/model has {name} {got!r}; expected {want!r}, as the data of {folder / CONFIG}."
            )

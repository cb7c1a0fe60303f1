"""Distillation: a loss that compares a model's logits with a teacher's."""

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.configs import check
from lion.limits import OneOf, Share, Temperature

KINDS = ("none", "soft", "hard")
_given: dict[str, nn.Module] = {}


@dataclass(frozen=True)
class Distill:
    kind: Annotated[str, OneOf(KINDS)] = "none"  # "soft": the teacher's distribution; "hard": its decision
    teacher: str = ""  # the folder of a run or of a saved model; or "module:function" (which no file may name)
    alpha: Share = 0.5  # the teacher's part of the loss
    temperature: Temperature = 3.0  # of the soft kind

    def __post_init__(self):
        check(self)
        if self.kind != "none" and not self.teacher:
            raise ValueError(f"distill.kind is {self.kind!r}; expected --distill.teacher too.")


def distillation_loss(logits: Tensor, teacher: Tensor, distill: Distill) -> Tensor:
    if logits.shape != teacher.shape:
        raise ValueError(
            f"the teacher has {teacher.shape[-1]} classes; expected {logits.shape[-1]}, as many as the student."
        )
    if distill.kind == "hard":
        return F.cross_entropy(logits, teacher.argmax(-1))
    student, wanted = (F.log_softmax(x / distill.temperature, -1) for x in (logits, teacher))
    # Gradients of softened distributions are smaller by the square of the temperature.
    return F.kl_div(student, wanted, reduction="batchmean", log_target=True) * distill.temperature**2


def give_teacher(name: str, teacher: nn.Module) -> None:
    """Let `Distill(teacher=name)` mean this module, which takes the same images and returns logits."""
    _given[name] = teacher.eval().requires_grad_(False)


class FromFile(str):
    """A teacher's name that was read from a file, and stays marked in all copies of a config: no function of that name
    is imported. A name from the command line or from Python is a plain str."""

    source: str  # the file

    def __new__(cls, name: str, source: str) -> "FromFile":
        made = super().__new__(cls, name)
        made.source = source
        return made

    def __reduce__(self) -> tuple[type["FromFile"], tuple[str, str]]:
        return FromFile, (str(self), self.source)


def read_from_file(task: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The fields of a task that were read from a file, with the teacher's name marked."""
    distill = task.get("distill")
    if not isinstance(distill, Mapping) or not isinstance(distill.get("teacher"), str):
        return dict(task)
    return {**task, "distill": {**distill, "teacher": FromFile(distill["teacher"], source)}}


def check_teacher(name: str) -> None:
    """Refuse a teacher that is a function named by a file, before anything is loaded."""
    known = name in _given or ":" not in name or model_folder(name) is not None
    if isinstance(name, FromFile) and not known:
        raise ValueError(
            f"distill.teacher is {str(name)!r} in {name.source}, a function, which no file may name; give it again: "
            f"--distill.teacher {name}"
        )


def load_teacher(name: str) -> nn.Module:
    check_teacher(name)
    return _given[name] if name in _given else _load(str(name))


def model_folder(name: str) -> Path | None:
    """The folder of a model: that of a run's, or the one that is named."""
    path = Path(name).expanduser()
    return next((folder for folder in (path / "model", path) if (folder / "config.json").exists()), None)


@functools.cache
def _load(name: str) -> nn.Module:
    from lion.models.saving import load_model

    folder = model_folder(name)
    if folder is not None:
        return load_model(folder).eval().requires_grad_(False)
    module, _, function = name.partition(":")
    if not function:
        raise ValueError(
            f"distill.teacher is {name!r}; expected the folder of a run or a model, or 'module:function', "
            "a function that makes the teacher."
        )
    teacher = getattr(importlib.import_module(module), function)()
    if not isinstance(teacher, torch.nn.Module):
        raise ValueError(f"distill.teacher is {name!r}, which makes a {type(teacher).__name__}; expected a module.")
    return teacher.eval().requires_grad_(False)

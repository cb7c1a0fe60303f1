"""Checkpoints: all that a run needs to go on as if it had never stopped.

That is the weights, the optimizer's state, the average of the weights and the step. Everything random, and the order
of the data, is a function of the seed and the step, and needs no saving.
"""

import errno
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from lion import files
from lion.configs import value
from lion.limits import Steps
from lion.train.optim import Average

FOLDER = "checkpoints"
VERSION = 1
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Checkpoint:
    """Reads and writes the checkpoints of one run. With several processes all call, and the first one writes."""

    def __init__(self, folder: Path, fingerprint: str, *, keep: int = 2, main: bool = True):
        self.folder = folder / FOLDER
        self.fingerprint = fingerprint  # of the model: what its parameters are called, and their shapes
        self.keep = keep
        self.main = main
        if main:
            for unfinished in self.folder.glob(".step-*"):  # by a process that was killed meanwhile
                shutil.rmtree(unfinished)

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average | None) -> Path:
        tensors: dict[str, Any] = {"model": get_model_state_dict(model, options=WHOLE)}
        tensors["optimizer"] = _flat(get_optimizer_state_dict(model, optimizer, options=WHOLE))
        if average is not None:
            tensors["average"] = {name: whole(x) for name, x in average.weights.items()}
        folder = self.folder / f"step-{step:08d}"
        if not self.main:
            return folder
        self.folder.mkdir(parents=True, exist_ok=True)

        def write(temporary: Path) -> None:
            for name, x in tensors.items():
                files.write_tensors(temporary / f"{name}.safetensors", x)
            sums = {path.name: files.checksum(path) for path in sorted(temporary.iterdir())}
            state = {"version": VERSION, "step": step, "fingerprint": self.fingerprint, "files": sums}
            files.write_json(temporary / "state.json", state)

        try:
            files.replace_folder(folder, write)
        except OSError as problem:
            raise _explained(problem, step, self.last()) from problem
        for old in self.all()[: -self.keep]:
            shutil.rmtree(old)
        return folder

    def all(self) -> list[Path]:
        """From the oldest to the newest. Only whole ones have such names."""
        found = [x for x in self.folder.glob("step-*") if re.fullmatch(r"step-\d{8}", x.name)]
        return sorted(found)

    def last(self) -> Path | None:
        return self.all()[-1] if self.all() else None

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average | None) -> int:
        """Put the newest checkpoint into all of them, and return its step; 0 if there is none."""
        folder = self.last()
        if folder is None:
            return 0
        state = self._checked(folder)
        weights: dict[str, Any] = files.read_tensors(folder / "model.safetensors")
        set_model_state_dict(model, weights, options=WHOLE)
        template = get_optimizer_state_dict(model, optimizer, options=StateDictOptions())
        saved: dict[str, Any] = {"state": _nested(files.read_tensors(folder / "optimizer.safetensors"))}
        saved["param_groups"] = template["param_groups"]
        set_optimizer_state_dict(model, optimizer, saved, options=WHOLE)
        if average is not None:
            means = files.read_tensors(folder / "average.safetensors")
            average.load({name: _like(x, average.weights[name]) for name, x in means.items()})
        return state["step"]

    def _checked(self, folder: Path) -> dict[str, Any]:
        others = [x for x in self.all() if x != folder]
        remedy = (
            f"Remove that folder to go on from {others[-1].name}." if others else "There is no other to go on from."
        )
        try:
            state = files.read_json(folder / "state.json")
            if not isinstance(state, dict) or state.get("version") != VERSION:
                raise files.DamagedFile(f"{folder} is no checkpoint of this version of lion.")
            value(Steps, state.get("step"), "step")
            files.check(folder, state.get("files"))
        except (ValueError, OSError) as problem:
            raise ValueError(f"the checkpoint {folder} cannot be used: {problem} {remedy}") from None
        if state.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"the checkpoint {folder} is of another model than this run's: give the options of the run it "
                "belongs to, or another folder with --out."
            )
        return state


def whole(x: Tensor) -> Tensor:
    """Of a tensor that may be spread over the processes."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _like(x: Tensor, other: Tensor) -> Tensor:
    """Spread over the processes as another."""
    if not hasattr(other, "full_tensor"):
        return x
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(x, other.device_mesh, other.placements)


def _flat(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """{"state": {"a.weight": {"step": ...}}} -> {"a.weight/step": ...}; learning rates and such are the config's."""
    named = state.get("state", {})
    return {f"{name}/{key}": torch.as_tensor(x) for name, inner in named.items() for key, x in inner.items()}


def _nested(flat: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    state: dict[str, dict[str, Tensor]] = {}
    for path, x in flat.items():
        name, key = path.rsplit("/", 1)
        state.setdefault(name, {})[key] = x
    return state


def _explained(problem: OSError, step: int, last: Path | None) -> OSError:
    if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return problem
    kept = f"the last one, {last.name}, is whole" if last else "there was none before it"
    return OSError(
        f"the disk is full: the checkpoint of step {step:,} could not be written; {kept}. "
        "Make room and continue with --resume."
    )

"""Checkpoints: all that a run needs to be resumed as if it had never stopped.

That is the weights, the optimizer's state, the average of the weights and the step. Random numbers and the order of the
data are functions of the seed and the step, and need no saving.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
from lion.train.folder import CHECKPOINTS
from lion.train.optim import Average

STATE = "state.json"
ALWAYS = ("model", "optimizer")  # the tensors that every checkpoint has
VERSION = 2  # version 1 had neither the run nor the digests of its data
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class State(NamedTuple):
    """The content of state.json."""

    folder: Path
    step: int
    fingerprint: str  # of the names and shapes of the model's parameters
    run: dict[str, Any]  # as JSON; empty in version 1
    contents: dict[str, Any]  # digests of the data

    @staticmethod
    def of(plain: Any, folder: Path) -> "State":
        """The state from state.json, once the checksums of all files have been compared."""
        if not isinstance(plain, dict) or plain.get("version") not in (1, VERSION):
            raise files.DamagedFile(f"{folder} is no checkpoint of this version of lion.")
        kinds = {"step": int, "fingerprint": str, "files": dict}
        kinds |= {"run": dict, "contents": dict} if plain["version"] > 1 else {}
        for name, kind in kinds.items():
            if not isinstance(plain.get(name), kind) or isinstance(plain[name], bool):
                raise files.DamagedFile(f"{folder / STATE} is damaged: {name} is {str(plain.get(name))[:80]!r}.")
        for name, x in plain.get("contents", {}).items():
            if not isinstance(x, dict) or not isinstance(x.get("digest"), str) or type(x.get("examples", 0)) is not int:
                raise files.DamagedFile(f"{folder / STATE} is damaged: contents has {name}: {str(x)[:80]!r}.")
        if missing := {f"{name}.safetensors" for name in ALWAYS} - plain["files"].keys():
            raise files.DamagedFile(f"{folder / STATE} is damaged: it has no checksum of {sorted(missing)[0]}.")
        if plain["step"] != number(folder):
            raise files.DamagedFile(f"{folder / STATE} is of step {plain['step']}, not of the one it is named by.")
        files.check(folder, plain["files"])
        return State(folder, plain["step"], plain["fingerprint"], plain.get("run", {}), plain.get("contents", {}))


def number(folder: Path) -> int:
    """The step in the name of a folder."""
    return int(folder.name.removeprefix("step-"))


class Checkpoint:
    """The checkpoints of one run. With several processes all call, and the first one writes."""

    def __init__(self, folder: Path, *, keep: int = 2, main: bool = True):
        self.folder = folder / CHECKPOINTS
        self.keep = keep
        self.main = main

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Average | None,
        about: Mapping[str, Any],
    ) -> Path:
        """`about`: the fingerprint of the model, the run and the digests of its data."""
        tensors: dict[str, Any] = {"model": get_model_state_dict(model, options=WHOLE)}
        tensors["optimizer"] = _flat(get_optimizer_state_dict(model, optimizer, options=WHOLE))
        if average is not None:
            tensors["average"] = {name: whole(x) for name, x in average.weights.items()}
        folder = self.folder / f"step-{step:08d}"
        if not self.main:
            return folder

        def write(temporary: Path) -> None:
            for name, x in tensors.items():
                files.write_tensors(temporary / f"{name}.safetensors", x)
            sums = {path.name: files.checksum(path) for path in sorted(temporary.iterdir())}
            files.write_json(temporary / STATE, {"version": VERSION, "step": step, **about, "files": sums})

        last = self.last()
        kept = f"The last one, {last.name}, is whole." if last else "There was none before it."
        with files.writing(f"the checkpoint of step {step:,}", self.folder, kept):
            self.folder.mkdir(parents=True, exist_ok=True)
            files.replace_folder(folder, write)
            for old in self.all()[: -self.keep]:
                shutil.rmtree(old)
        return folder

    def all(self) -> list[Path]:
        """All checkpoints, the oldest first. Only complete ones have such names."""
        found = [x for x in self.folder.glob("step-*") if re.fullmatch(r"step-\d{8}", x.name)]
        return sorted(found)

    def last(self) -> Path | None:
        return self.all()[-1] if self.all() else None

    def state(self) -> State | None:
        """The state of the newest checkpoint; None if there is none."""
        folder = self.last()
        if folder is None:
            return None
        others = [x for x in self.all() if x != folder]
        remedy = (
            f"Remove that folder to go on from {others[-1].name}." if others else "There is no other to go on from."
        )
        try:
            return State.of(files.read_json(folder / STATE), folder)
        except (files.DamagedFile, FileNotFoundError) as problem:
            raise ValueError(f"the checkpoint {folder} cannot be used: {problem} {remedy}") from None

    def load(self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average | None) -> None:
        """Load a checkpoint into the model, the optimizer and the average."""
        folder = state.folder
        weights: dict[str, Any] = files.read_tensors(folder / "model.safetensors")
        set_model_state_dict(model, weights, options=WHOLE)
        template = get_optimizer_state_dict(model, optimizer, options=StateDictOptions())
        saved: dict[str, Any] = {"state": _nested(files.read_tensors(folder / "optimizer.safetensors"))}
        saved["param_groups"] = template["param_groups"]
        set_optimizer_state_dict(model, optimizer, saved, options=WHOLE)
        if average is not None:
            path = folder / "average.safetensors"
            means = files.read_tensors(path) if path.exists() else weights  # a run that had no average begins one
            average.load({name: _like(means[name], x) for name, x in average.weights.items()})

    def load_weights(self, state: State, model: nn.Module) -> None:
        """Load the weights to be used: their average, where the run has one."""
        weights: dict[str, Any] = files.read_tensors(state.folder / "model.safetensors")
        path = state.folder / "average.safetensors"
        try:
            model.load_state_dict(weights | (files.read_tensors(path) if path.exists() else {}))
        except RuntimeError as problem:
            raise ValueError(f"the checkpoint {state.folder} is of another model than its run: {problem}") from None


def whole(x: Tensor) -> Tensor:
    """The whole of a tensor that may be sharded over the processes."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _like(x: Tensor, other: Tensor) -> Tensor:
    """A tensor sharded over the processes as another one is."""
    if not hasattr(other, "full_tensor"):
        return x
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(x, other.device_mesh, other.placements)


def _flat(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """{"state": {"a.weight": {"step": ...}}} -> {"a.weight/step": ...}; the config has the learning rates."""
    named = state.get("state", {})
    return {f"{name}/{key}": torch.as_tensor(x) for name, inner in named.items() for key, x in inner.items()}


def _nested(flat: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    state: dict[str, dict[str, Tensor]] = {}
    for path, x in flat.items():
        name, key = path.rsplit("/", 1)
        state.setdefault(name, {})[key] = x
    return state

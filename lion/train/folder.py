"""A run's folder. One process has it at a time, and nothing in it is changed before all checks have passed."""

import contextlib
import datetime
import json
import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from torch import nn

from lion import configs, files, legacy
from lion.devices import chosen
from lion.tasks import Trained
from lion.train.config import Run, Saved, read_run

CONFIG = "run.json"
LOCK = ".lock"
METRICS = "metrics.jsonl"
TOKENIZER = "tokenizer"
CHECKPOINTS = "checkpoints"
log = logging.getLogger("lion")
_held: set[Path] = set()  # folders of this process, which the system's lock does not keep out


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self._lock: IO[str] | None = None
        self._before: set[str] | None = None  # what was in it; None if it has had a run
        self._made: list[Path] = []  # folders that were not there, the innermost first

    @property
    def has_run(self) -> bool:
        """Whether there is a run in it that has got further than its start: one that was killed before is none."""
        metrics, others = self.path / METRICS, (self.path / CHECKPOINTS, self.path / "model")
        began = (metrics.exists() and metrics.stat().st_size > 0) or any(x.exists() for x in others)
        return began and (self.path / CONFIG).exists()

    @property
    def tokenizer(self) -> Path:
        """The run's own tokenizer, if it has one."""
        return self.path / TOKENIZER

    def lock(self) -> None:
        """Lock the folder until `unlock`, or until the process ends in any way. One in use is refused."""
        whole = self.path.resolve()
        if whole in _held:
            raise ValueError(f"{self.path} is in use: this process trains in it already.")
        self._made = [x for x in (self.path, *self.path.parents) if not x.exists()]
        with self.writing("the lock"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._before = None if self.has_run else {x.name for x in self.path.iterdir()}
            self._lock = (self.path / LOCK).open("a+")
        try:
            import fcntl

            # Not flock: processes that load data would hold it, too, and live a little longer.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            self._lock.seek(0)
            holder = _holder(self._lock.read())
            self._lock.close()
            self._lock = None
            raise ValueError(
                f"{self.path} is in use by {holder}: wait for it, stop it, or choose another folder with --out."
            ) from None
        except (ImportError, OSError) as problem:
            print(f"{self.path} cannot be locked ({problem}): see to it that no other process trains in it.")
        _held.add(whole)
        with self.writing("the lock"):
            self._lock.seek(0)
            self._lock.truncate()
            json.dump(_myself(), self._lock)
            self._lock.flush()
        for place in (self.path, self.path / CHECKPOINTS):
            files.clean(place)

    def unlock(self) -> None:
        if self._lock is not None:
            _held.discard(self.path.resolve())
            self._lock.close()
            self._lock = None

    def withdraw(self) -> None:
        """Remove what this process has written into the folder, of a run that has failed before its first step."""
        if self._before is None or not self.path.exists():
            return
        for path in self.path.iterdir():
            if path.name not in self._before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):  # others have written into it
            for folder in self._made:
                folder.rmdir()

    @contextlib.contextmanager
    def writing(self, what: str, kept: str = "") -> Iterator[None]:
        with files.writing(what, self.path, kept):
            yield

    def write_json(self, name: str, content: Any) -> None:
        with self.writing(name):
            files.write_json(self.path / name, content)


def _myself() -> dict[str, Any]:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"process": os.getpid(), "computer": platform.node(), "since": now, "command": " ".join(sys.argv)[:200]}


def _holder(text: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        who = json.loads(text)
        return f"process {who['process']} on {who['computer']} since {who['since']} ({who['command']})"
    return "another process"


def saved_run(folder: Path, recipe: str | None = None) -> Saved | None:
    """The run in a folder, if there is one; it must be of that recipe."""
    path = folder / CONFIG
    if not path.exists():
        return None
    saved = read_run(path)
    if recipe is not None and saved.recipe != legacy.RECIPES.get(recipe, recipe):
        raise ValueError(f"the run in {folder} is of the recipe {saved.recipe!r}; expected {recipe!r}.")
    return saved


def load_run(folder: Path, *, device: str = "") -> Trained:
    """A run, its model on a device (by default the GPU, if there is one) and ready for use. One that is not finished is
    used as its last checkpoint has it, and a warning is logged."""
    from lion.data.tokenizers import tokenizer_of_model

    path = folder / CONFIG
    if not path.exists():
        raise ValueError(f"there is no run in {folder}; expected a folder that `lion train` has made.")
    saved = read_run(path)
    task: Any = saved.run.task
    known = configs.from_json(task.known, saved.to_predict, f"{path}: to_predict")
    where = chosen(device)
    finished = (folder / "model").exists()
    model = (_finished(folder) if finished else _unfinished(folder, saved.run)).to(where).eval()
    trained = Trained(folder, task, model, known, batch=saved.run.batch // saved.run.accumulate or 1)
    if hasattr(task, "text_tokenizer"):
        config: Any = model.config
        if not hasattr(config, "vocab_size"):
            raise ValueError(f"the model in {folder}/model reads no text, and the run in {folder} does.")
        tokenizer_of_model(trained.beside, config.vocab_size)  # refuses a tokenizer of another model
    return trained


def _finished(folder: Path) -> nn.Module:
    from lion.models.saving import load_model

    try:
        return load_model(folder / "model")
    except (files.DamagedFile, FileNotFoundError) as problem:
        remedy = f"To write it once more, from the last checkpoint: lion train --resume --out {folder}"
        raise files.DamagedFile(f"{problem} {remedy}") from None


def _unfinished(folder: Path, run: Run) -> nn.Module:
    from lion.train.checkpoint import Checkpoint

    checkpoint = Checkpoint(folder)
    state = checkpoint.state()
    if state is None:
        raise ValueError(
            f"the run in {folder} is not finished, and has no checkpoint yet: lion train --resume --out {folder}"
        )
    model = run.task.using(folder / TOKENIZER).make_model()
    checkpoint.load_weights(state, model)
    examples = state.contents.get("training", {}).get("examples", 0)
    steps = run.steps_for(examples) if run.steps or examples else 0
    of = f" of {steps:,}" if steps else ""
    log.warning("the run in %s is not finished: step %s%s, from its last checkpoint", folder, f"{state.step:,}", of)
    return model

"""A run's folder: one process has it at a time, and nothing in it is changed before all checks have passed."""

import contextlib
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from lion import files
from lion.train.config import Run, read_run

CONFIG = "run.json"
LOCK = ".lock"
TOKENIZER = "tokenizer"
CHECKPOINTS = "checkpoints"
_held: set[Path] = set()  # by this process, which a lock of the system's does not keep out


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def has_run(self) -> bool:
        return (self.path / CONFIG).exists()

    @property
    def tokenizer(self) -> Path:
        """The run's own, if it has one."""
        return self.path / TOKENIZER

    def lock(self) -> None:
        """Until `unlock`, or until the process ends, however it does. Somebody else's is refused."""
        whole = self.path.resolve()
        if whole in _held:
            raise ValueError(f"{self.path} is in use: this process trains in it already.")
        with self.writing("the lock"):
            self.path.mkdir(parents=True, exist_ok=True)
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


def saved_run(folder: Path, recipe: str | None = None) -> Run | None:
    """The run in a folder, if there is one; it must be of that recipe."""
    path = folder / CONFIG
    if not path.exists():
        return None
    saved = read_run(path)
    if recipe is not None and saved.recipe != recipe:
        raise ValueError(f"the run in {folder} is of the recipe {saved.recipe!r}; expected {recipe!r}.")
    return saved.run


def saved_recipe(folder: Path) -> str | None:
    """The recipe that the run in a folder is of, if any."""
    path = folder / CONFIG
    return read_run(path).recipe if path.exists() else None

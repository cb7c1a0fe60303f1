"""The record of a run: metrics as JSON lines and for TensorBoard, a picture of the curves, and progress."""

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lion import files, machine
from lion._version import __version__
from lion.tasks import Task
from lion.terminal import duration
from lion.train.folder import RunFolder
from lion.train.metrics import SHARES

METRICS, ENVIRONMENT = "metrics.jsonl", "environment.json"
LARGEST = 1 << 1000  # whole numbers beyond it do not fit into a float
Row = dict[str, Any]


class Report:
    """The report of one run, by its main process; those of the others do nothing."""

    def __init__(self, folder: RunFolder, task: Task, steps: int, *, main: bool = True, resumed_at: int = 0):
        self.folder, self.steps, self.unit, self.metric, self.main = folder, steps, task.unit, task.metric, main
        self._began, self._first_step, self._examples = time.perf_counter(), resumed_at, 0
        self._bar: Any = None
        self._board: Any = None
        self._file: Any = None
        self._last_line = 0.0
        if not main:
            return
        path = folder.path / METRICS
        # Steps after the checkpoint are about to be repeated.
        rows = [row for row in read_metrics(path) if row["step"] <= resumed_at]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with folder.writing(METRICS):
            files.replace(path, lambda temporary: temporary.write_text(text))
            self._file = path.open("a")
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(folder.path / "tensorboard", purge_step=resumed_at + 1 if resumed_at else None)
        if sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                self._bar = tqdm(total=steps, initial=resumed_at, unit="step", dynamic_ncols=True, leave=False)

    def step(self, step: int, examples: int, shown: dict[str, float] | None = None) -> None:
        """One more step is done; `shown` is written and printed, if given."""
        if not self.main:
            return
        self._examples += examples
        rate = self._examples / (time.perf_counter() - self._began)
        if shown is not None:
            self.row({"step": step, "kind": "train", **shown, f"{self.unit}s_per_second": round(rate, 2)})
        if self._bar is not None:
            with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
                self._bar.update(1)
                if shown is not None:
                    self._bar.set_postfix_str(f"{_line(shown)}, {_number(rate)} {self.unit}s/s")
        elif shown is not None and time.perf_counter() - self._last_line > 10:
            self._last_line = time.perf_counter()
            done = step - self._first_step
            left = (self.steps - step) * (self._last_line - self._began) / max(1, done)
            speed = f"{_number(rate)} {self.unit}s/s"
            self.say(f"step {step:,} of {self.steps:,}: {_line(shown)}, {speed}, {duration(left)} left")

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        if self.main:
            self.row({"step": step, "kind": "eval", **metrics})
            self.say(f"step {step:,} of {self.steps:,}: eval {_line(metrics)}")

    def row(self, row: Row) -> None:
        with self.folder.writing(METRICS):
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, x in row.items():
                if isinstance(x, float):
                    self._board.add_scalar(f"{row['kind']}/{name}", x, row["step"])

    def say(self, text: str) -> None:
        if not self.main:
            return
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.write(text, file=sys.stdout)
            else:
                print(text, flush=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.close()
            if self._board is not None:
                self._board.close()
        if self._file is not None:
            with contextlib.suppress(OSError):  # each row has been written by itself, or said why not
                self._file.close()
            with contextlib.suppress(ImportError, OSError):
                draw_curves(self.folder.path, self.metric)


def read_metrics(path: Path) -> list[Row]:
    """The rows of a run. Lines that are no rows are left out: a last one that was cut off, for instance."""
    if not path.exists():
        return []
    return list(_rows(path.read_text(errors="replace")))


def _rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if _is_row(row):
                yield row


def _is_row(row: Any) -> bool:
    """Whether it has a step, a kind, and numbers."""
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str) or not isinstance(row.get("step"), int):
        return False
    numbers = [x for name, x in row.items() if name != "kind"]
    return all(isinstance(x, float) or (isinstance(x, int) and abs(x) < LARGEST) for x in numbers)


def environment() -> dict[str, Any]:
    """Versions and hardware that results may depend on."""
    return {
        "lion": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": machine.description(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", 1)),
    }


def note_environment(folder: RunFolder, resume: bool) -> None:
    """Write environment.json; say what has changed since the run began."""
    path, now = folder.path / ENVIRONMENT, environment()
    before: Any = {}
    if resume and path.exists():
        with contextlib.suppress(files.DamagedFile):  # it is only compared
            before = files.read_json(path)
    before = before if isinstance(before, dict) else {}
    other = [f"{name} is {now[name]}, was {x}" for name, x in before.items() if name in now and now[name] != x]
    if other:
        print(f"the run began in another environment, results may differ a little: {'; '.join(other)}")
    folder.write_json(ENVIRONMENT, now)


def draw_curves(folder: Path, metric: str) -> None:
    """curves.png: the loss, the task's metric, and the accuracy, in training and on the eval set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = read_metrics(folder / METRICS)
    names = [name for name in dict.fromkeys(("loss", metric, "accuracy")) if any(name in row for row in rows)]
    if not names:
        return
    figure, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 3.8), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for kind, style in (("train", {"alpha": 0.6, "linewidth": 1}), ("eval", {"marker": "o", "markersize": 3})):
            line = [(row["step"], row[name]) for row in rows if row["kind"] == kind and name in row]
            if line:
                axis.plot(*zip(*line, strict=True), label={"train": "training", "eval": "eval set"}[kind], **style)
        axis.set_xlabel("step")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False)
    files.replace(folder / "curves.png", lambda temporary: figure.savefig(temporary, dpi=130, format="png"))
    plt.close(figure)


def _line(metrics: dict[str, float]) -> str:
    shown = {name: x for name, x in metrics.items() if name != "lr"}
    return ", ".join(f"{name} {x:.2%}" if name in SHARES else f"{name} {x:.4g}" for name, x in shown.items())


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 else f"{x:.2g}"

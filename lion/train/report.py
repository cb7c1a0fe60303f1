"""The record of a run: metrics as JSON lines and for TensorBoard, a picture of the curves, and progress."""

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from lion import files, machine
from lion._version import __version__
from lion.progress import in_kernel, make_bar, working
from lion.tasks import Task
from lion.terminal import duration, facts, milliseconds, several
from lion.train.clock import Clock
from lion.train.folder import METRICS, RunFolder
from lion.train.metrics import SHARES

ENVIRONMENT, CURVES, DATA = "environment.json", "curves.png", "data.json"
BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
EVALUATING = "evaluating"
SECONDS = "seconds"  # of a row: of training until then, those before a run was resumed included
LARGEST = 1 << 1000  # whole numbers beyond it do not fit into a float
Row = dict[str, Any]


class Report:
    """The report of one run, by its main process; those of the others do nothing."""

    def __init__(self, folder: RunFolder, task: Task, steps: int, *, main: bool = True, resumed_at: int = 0):
        self.folder, self.steps, self.unit, self.metric, self.main = folder, steps, task.unit, task.metric, main
        self.clock = Clock(resumed_at, steps, steps, 0.0)
        self._began, self._first_step, self._examples = time.perf_counter(), resumed_at, 0
        self._before = 0.0  # seconds of training until the checkpoint that this goes on from
        self._told_time = False
        self._bar: Any = None
        self._words: dict[str, str] = {}  # behind the bar
        self._board: Any = None
        self._file: Any = None
        self._last_line = 0.0
        if not main:
            return
        path = folder.path / METRICS
        # Steps after the checkpoint are about to be repeated.
        rows = [row for row in read_metrics(path) if row["step"] <= resumed_at]
        self._before = max((row.get(SECONDS, 0.0) for row in rows), default=0.0)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with folder.writing(METRICS):
            files.replace(path, lambda temporary: temporary.write_text(text))
            self._file = path.open("a")
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(folder.path / "tensorboard", purge_step=resumed_at + 1 if resumed_at else None)

    def begin(self) -> None:
        """Show the bar. Whatever is printed before training has been."""
        if self.main and self._bar is None:
            self._bar = make_bar(self.steps, "step", initial=self._first_step, bar_format=BAR)

    def step(self, step: int, examples: int, shown: dict[str, float] | None = None) -> None:
        """One more step is done; `shown` is written and printed, if given."""
        if not self.main:
            return
        self._examples += examples
        seconds = time.perf_counter() - self._began
        rate = self._examples / seconds
        if shown is not None:
            times = {f"{several(self.unit)}_per_second": round(rate, 2), SECONDS: round(self._before + seconds, 3)}
            self.row({"step": step, "kind": "train", **shown, **times})
        self.clock.step()
        left = f"{duration(self.clock.left)} left" if self.clock.known else ""
        if left and not self._told_time:
            self._told_time = True
            each = milliseconds(self.clock.each)
            self.say(facts([("time", f"about {duration(self.clock.left)} ({each} ms a step)")]))
        if self._bar is not None:
            with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
                loss = self._words.get("loss", "") if shown is None else f"loss {shown['loss']:.3g}"
                self._note(left=left, loss=loss)
                self._bar.update(1)
        elif shown is not None and time.perf_counter() - self._last_line > 10:
            self._last_line = time.perf_counter()
            words = _line(shown), f"{_number(rate)} {several(self.unit)}/s", left
            self.say(f"step {step:,} of {self.steps:,}: {', '.join(filter(None, words))}")

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        if self.main:
            self.row({"step": step, "kind": "eval", **metrics})
            if self.metric in metrics:
                self._note(eval=f"eval {_line({self.metric: metrics[self.metric]}, 3)}")
            self.say(f"step {step:,} of {self.steps:,}: eval {_line(metrics)}")

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Callable[[float], None]]:
        """Show what is done between steps. The function that it gives takes the share that is done."""
        since = last = time.perf_counter()

        def tell(share: float) -> None:
            nonlocal last
            if time.perf_counter() - last > (10 if self._bar is None else 0.2):
                last = time.perf_counter()
                show(f"{what} {share:.0%}")

        def show(words: str) -> None:
            if self._bar is None:
                self.say(words)
                return
            with contextlib.suppress(OSError):
                self._bar.set_postfix_str(words)

        if self._bar is not None:
            show(what)
        try:
            yield tell
        finally:
            self.clock.pause(time.perf_counter() - since, evaluation=what == EVALUATING)
            self._note(refresh=True)

    def _note(self, refresh: bool = False, **words: str) -> None:
        """Put words behind the bar, in the place of those of the same name."""
        self._words |= words
        if self._bar is not None:
            with contextlib.suppress(OSError):
                shown = (self._words.get(name, "") for name in ("left", "loss", "eval"))
                self._bar.set_postfix_str(", ".join(filter(None, shown)), refresh=refresh)

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
            if self._bar is not None and not in_kernel():
                self._bar.write(text, file=sys.stdout)
            else:
                print(text, flush=True)

    def read(self, found: dict[str, str]) -> None:
        """Say what was read of the data, and keep it in data.json."""
        if self.main and found:
            self.folder.write_json(DATA, found)
            self.say(facts(found.items()))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # each row has been written by itself, or said why not
                self._file.close()
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.close()
            if self._board is not None:
                self._board.close()
        if self._file is not None:
            # ValueError: MPLBACKEND may name a backend of another installation, a notebook's.
            with contextlib.suppress(ImportError, OSError, ValueError), working("drawing the curves"):
                draw_curves(self.folder.path, self.metric)
        if self._file is not None and in_kernel() and (self.folder.path / CURVES).exists():
            from IPython.display import Image, display

            display(Image(filename=self.folder.path / CURVES, width=300 * len(_curves(self.folder.path, self.metric))))


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
    from matplotlib.figure import Figure  # not pyplot, whose backend is the notebook's

    rows, names = read_metrics(folder / METRICS), _curves(folder, metric)
    if not names:
        return
    figure = Figure(figsize=(5.5 * len(names), 3.8), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for kind, style in (("train", {"alpha": 0.6, "linewidth": 1}), ("eval", {"marker": "o", "markersize": 3})):
            line = [(row["step"], row[name]) for row in rows if row["kind"] == kind and name in row]
            if line:
                axis.plot(*zip(*line, strict=True), label={"train": "training", "eval": "eval set"}[kind], **style)
        axis.set_xlabel("step")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False)
    files.replace(folder / CURVES, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))


def _curves(folder: Path, metric: str) -> list[str]:
    """The names of what is drawn."""
    rows = read_metrics(folder / METRICS)
    return [name for name in dict.fromkeys(("loss", metric, "accuracy")) if any(name in row for row in rows)]


def _line(metrics: dict[str, float], digits: int = 4) -> str:
    shown = {name: x for name, x in metrics.items() if name not in ("lr", "gradient")}
    return ", ".join(
        f"{name} {x:.{digits - 2}%}" if name in SHARES else f"{name} {x:.{digits}g}" for name, x in shown.items()
    )


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 else f"{x:.2g}"

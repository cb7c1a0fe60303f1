"""A plan: the steps of exhibits, carried out in processes of their own; what is finished is not run again."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lion.machine import processors
from lion.progress import progress
from lion.reproduce.cost import WORDS, gpu_hours
from lion.reproduce.steps import Step, Workplace
from lion.terminal import brief, duration, plural, table

LOOK = 0.5  # seconds between looks at the running steps


@dataclass
class Plan:
    steps: Sequence[Step]
    place: Workplace
    at_once: int = 1  # trainings
    launch: Sequence[str] = (sys.executable,)  # what starts Python for a training: torchrun, accelerate launch, ...
    failed: dict[str, str] = field(default_factory=dict)  # the reason by the step's name

    @property
    def left(self) -> list[Step]:
        """The steps to do: those that are not finished, and those that they need and that are not at hand."""
        wanted: set[Step] = set()
        for step in reversed(self.steps):
            if not self.place.finished(step) or step in wanted:
                wanted |= {step, *(x for x in step.needs if not self.place.at_hand(x))}
        return [step for step in self.steps if step in wanted]

    def states(self) -> dict[Step, str]:
        left = {step: "interrupted" if self.place.began(step) else "to do" for step in self.left}
        return {step: left.get(step, "finished") for step in self.steps}

    def minutes(self, step: Step) -> float:
        """The minutes that it took, or is expected to take."""
        return self.place.took(step) or step.minutes

    def seconds_left(self) -> float:
        left = self.left
        trainings = sum(step.minutes for step in left if not step.alone)
        return 60 * (trainings / self.at_once + sum(step.minutes for step in left if step.alone))

    def words(self) -> str:
        """The plan for people: a row for each step."""
        if not self.steps:
            return "There is nothing to run."
        states = self.states().items()
        rows = [(_time(self.minutes(x), gpu_hours(x)), state, self.place.brief(x)) for x, state in states]
        return f"{table(('time', 'state', 'command'), rows)}\n\n{self.total()}"

    def total(self) -> str:
        """What is left, and its time."""
        if not self.left:
            return "All is finished."
        known, hours = self.seconds_left(), sum(gpu_hours(x) for x in self.left if not x.minutes)
        times = [f"about {duration(known)} on two cores"] if known else []
        times += [f"about {_hours(hours)} of a GPU ({WORDS})"] if hours else []
        return f"{plural(len(self.left), 'step')} to do{', ' if times else ''}{', and '.join(times)}."

    def run(self) -> None:
        """Carry out what is left. A step that fails keeps back only those that need it."""
        running: dict[Step, Running] = {}
        waiting = self.left
        with _interruptible(), progress(total=len(waiting), unit="step") as bar:
            try:
                while waiting or running:
                    self._give_up(waiting, bar.advance)
                    for step in [x for x in waiting if self._may_start(x, running)]:
                        if self._may_start(step, running):  # as long as there is room
                            waiting.remove(step)
                            running[step] = self._start(step, bar.visible)
                    time.sleep(LOOK)
                    for step, process in list(running.items()):
                        if process.ended:
                            del running[step]
                            self._end(step, process, bar.visible)
                            bar.advance()
                    bar.describe(", ".join(x.words for x in running.values()))
            finally:
                for process in running.values():
                    process.interrupt()
                for process in running.values():
                    process.wait()

    def _may_start(self, step: Step, running: dict[Step, "Running"]) -> bool:
        if not all(self.place.at_hand(x) for x in step.needs) or any(x.alone for x in running):
            return False
        return not running if step.alone else len(running) < self.at_once

    def _give_up(self, waiting: list[Step], advance: Callable[[], None]) -> None:
        """Leave out steps that need one that failed."""
        for step in list(waiting):
            lost = [x.name for x in step.needs if x.name in self.failed]
            if lost:
                self.failed[step.name] = f"it needs {lost[0]}"
                waiting.remove(step)
                advance()

    def _start(self, step: Step, silent: bool) -> "Running":
        if not silent:
            print(f"{self.place.shown(step)}", flush=True)
        words = self.place.command(step)
        if self.place.began(step):
            words = [*words, "--resume"]
        start = [*(self.launch if step.trains else (sys.executable,)), "-m", "lion.cli", *words]
        alone = step.alone or self.at_once == 1
        threads = {} if alone else {"OMP_NUM_THREADS": f"{max(1, processors() // self.at_once)}"}
        self.place.folder(step).parent.mkdir(parents=True, exist_ok=True)
        return Running(step, start, {**os.environ, **threads}, self.place.log(step))

    def _end(self, step: Step, process: "Running", silent: bool) -> None:
        if process.failed or not (self.place.folder(step) / step.result).exists():
            self.failed[step.name] = process.last_words() or "it left no result"
            print(f"failed: {self.place.shown(step)}\n  {self.failed[step.name]}", file=sys.stderr, flush=True)
            return
        self.place.finish(step, process.seconds / 60)  # of an interrupted training, the minutes since it went on
        if not silent:
            print(f"  done in {duration(process.seconds)}; {duration(self.seconds_left())} left, about", flush=True)


def _time(minutes: float, hours: float) -> str:
    if minutes:
        return f"{minutes:.0f} min" if minutes >= 1 else "<1 min"
    return _hours(hours) if hours else "-"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 1 else duration(3600 * hours)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM, and a terminal that is gone, end the plan as Ctrl-C does: with its processes. What is ignored
    stays ignored: nohup asks for that."""
    names = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    wanted = [name for name in names if signal.getsignal(name) is not signal.SIG_IGN]
    before = {name: signal.signal(name, signal.default_int_handler) for name in wanted}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


class Running:
    """The process of a step, which writes into a log."""

    def __init__(self, step: Step, command: Sequence[str], environment: dict[str, str], log: Path):
        self.step, self.log, self._began = step, log, time.perf_counter()
        with log.open("w") as file:
            file.write(f"{shlex.join(command)}\n")
            file.flush()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches it through `interrupt` alone: a second one would cut it off
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        return self._process.returncode != 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def words(self) -> str:
        """What it is, and how far."""
        return brief(f"{self.step.name}: {self.last_words()}", 60)

    def last_words(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[1:]
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def interrupt(self) -> None:
        """A training keeps its last steps, as after Ctrl-C. (A script's background jobs ignore SIGINT.)"""
        self._process.terminate()

    def wait(self) -> None:
        """Until it has ended; not for ever."""
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

"""What finished steps have found, in one file with a line for each, which can be taken to another machine."""

import datetime
import json
from pathlib import Path
from typing import Any, NamedTuple

from lion import files
from lion._version import __version__
from lion.machine import description


class Finished(NamedTuple):
    step: str  # the name of its folder
    command: str
    minutes: float
    machine: str
    date: str
    lion: str  # the version
    result: Any  # of its JSON file


class Record:
    """The finished steps of a plan, by name. A step that was run twice has its last result."""

    def __init__(self, path: Path):
        self.path = path
        self._steps = self._read()

    def __contains__(self, step: str) -> bool:
        return step in self._steps

    def get(self, step: str) -> Finished | None:
        return self._steps.get(step)

    def add(self, step: str, command: str, minutes: float, result: Any) -> None:
        """Write it down, beside what other plans have written meanwhile."""
        today = datetime.date.today().isoformat()
        found = Finished(step, command, round(minutes, 2), description(), today, __version__, result)
        self._steps = {**self._read(), step: found}
        text = "".join(json.dumps(x._asdict()) + "\n" for x in self._steps.values())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with files.writing("the result of a step", self.path.parent):
            files.replace(self.path, lambda temporary: temporary.write_text(text))

    def _read(self) -> dict[str, Finished]:
        if not self.path.exists():
            return {}
        found = {}
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            try:
                step = Finished(**json.loads(line))
            except (TypeError, ValueError) as problem:
                raise files.DamagedFile(f"{self.path}, line {number} is no finished step: {problem}.") from None
            found[step.step] = step
        return found

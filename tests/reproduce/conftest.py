"""Steps of plans run in the tests' own process: starting another takes many times as long as these small runs."""

import contextlib
import gc
import shlex
import sys
import time

import pytest

from lion.cli import main
from lion.reproduce import plan


class InProcess(plan.Running):
    """A step that is over when it has been started."""

    def __init__(self, step, command, environment, log):
        self.step, self.log, self._began = step, log, time.perf_counter()
        assert environment["PATH"]
        with log.open("w") as file:
            file.write(f"{shlex.join(command)}\n")
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                self.code = main(command[command.index("lion.cli") + 1 :])

    ended = True

    @property
    def failed(self):
        return self.code != 0

    def interrupt(self):
        pass

    def wait(self):
        pass


@pytest.fixture(autouse=True)
def in_process(monkeypatch, request):
    if "processes" not in request.fixturenames:
        monkeypatch.setattr(plan, "Running", InProcess)
        monkeypatch.setattr(plan, "LOOK", 0.0)


@pytest.fixture
def processes():
    """For tests of the processes themselves."""
    return sys.executable


@pytest.fixture(scope="module")
def little_garbage():
    """Measuring memory collects garbage first, for which all that torch has loaded need not be looked through."""
    gc.freeze()
    yield
    gc.unfreeze()

"""Work in processes of its own: forked from one that has imported everything, and limited in time and memory.

    children = Children(folder)
    done = children.run("tests.torture.children:command", ["train", "digits.lion_s"], seconds=30)
    found = children.attempts("tests.torture.raw_operators:attempts", seed, range(5000))

A server (this module, run by Python) imports lion and what it imports once, for all campaigns of a thread. For each
piece of work it forks a child, in a session of its own, whose output goes to files; what becomes of it comes back as a
line of JSON. Short attempts share a child, and one that ends or hangs it is the only one that is lost.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture import told

MEMORY = 4 << 30  # bytes that a child may take beyond what it begins with
BATCH = 100  # short attempts of one child
RESULTS = "results"  # of short attempts
CRASHED = 70  # exit code of a child that an exception has ended
GRACE = 3.0  # seconds for a child's own children to end after it
EVERYTHING = (  # that takes long to import
    *("accelerate", "lion.train.loop", "lion.recipes", "lion.tasks.causal", "sklearn.datasets"),
    *("lion.integrations.hf", "matplotlib.pyplot", "lion.bench.demo"),
    *("tests.torture.data_files", "tests.torture.raw_operators"),
)
ENVIRONMENT = {
    "PIP_NO_INDEX": "1",
    "npm_config_offline": "true",
    "HF_HUB_OFFLINE": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Done(NamedTuple):
    code: int  # exit code; below 0: the signal that ended it
    stdout: str
    stderr: str
    hung: bool
    left: int  # processes that outlived it

    def check(self) -> None:
        """As a command is to end: well, or with a line that says what is wrong, or with argparse's usage."""
        if self.hung:
            raise AssertionError("it did not end in time")
        last = self.stderr.strip().splitlines()[-1:] or [""]
        if "Traceback" in self.stderr or self.code not in (0, 1, 2):
            raise AssertionError(f"it ended with {self.code}: {last[0]}")
        if self.code == 1 and not last[0].startswith("lion "):
            raise AssertionError(f"it ended with 1 and the words {last[0]!r}; expected them to begin with the command")
        if self.left:
            raise AssertionError(f"it left {self.left} processes behind")


class Children:
    """`folder` is where they work, and where data is kept; `imports` what they begin with."""

    def __init__(
        self, folder: Path, *, imports: Sequence[str] = EVERYTHING, environment: Mapping[str, str] | None = None
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.server = _server(tuple(imports), frozenset((environment or {}).items()), threading.get_ident())

    def run(self, function: str, argument: Any, *, seconds: float) -> Done:
        """`module:function` of an argument that JSON can be made of; what it returns is the exit code."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps([str(self.folder), function, argument, seconds]).encode() + b"\n")
        self.server.stdin.flush()
        return Done(*json.loads(self.server.stdout.readline()))

    def attempts(
        self, function: str, argument: Any, numbers: range, *, seconds: float = 60
    ) -> Iterator[tuple[int, str]]:
        """What was wrong with attempts of these numbers. `module:function` of the argument makes what is then called
        with each number; if it raises, the attempt is lost. `seconds` are for one of them."""
        left = list(numbers)
        while left:
            job = [function, argument, left[:BATCH]]
            done = self.run("tests.torture.children:batch", job, seconds=seconds)
            found = [json.loads(line) for line in (self.folder / RESULTS).read_text().splitlines()]
            yield from found
            if len(found) < len(left[:BATCH]):
                end = "it hung" if done.hung else f"it ended the process with {done.code}: {done.stderr[-1500:]}"
                found.append((left[len(found)], end))
                yield found[-1]
            del left[: len(found)]


@functools.cache
def _server(
    imports: tuple[str, ...], environment: frozenset[tuple[str, str]], thread: int
) -> "subprocess.Popen[bytes]":
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", __name__, *imports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, **dict(environment)},
    )
    atexit.register(server.communicate)  # which closes its input: it ends
    return server


def command(argv: list[str]) -> int:
    """A call of `lion`."""
    from lion.cli import main

    return main(argv)


def batch(job: list[Any]) -> int:
    """Attempts one after the other, with a line of results for each."""
    function, argument, numbers = job
    with open(RESULTS, "w") as results:
        attempt: Callable[[int], None] = _named(function)(argument)
        for number in numbers:
            problem = ""
            try:
                attempt(number)
            except BaseException as raised:
                problem = told(raised)
            print(json.dumps([number, problem]), file=results, flush=True)
    return 0


def _named(function: str) -> Callable[[Any], Any]:
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)


def serve(imports: Sequence[str]) -> None:
    for name in imports:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)  # a child of a process with threads may wait for them for ever
    for line in sys.stdin:
        folder, function, argument, seconds = json.loads(line)
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _be_a_child(Path(folder), function, argument)
        print(json.dumps(_watched(child, Path(folder), seconds)), flush=True)


def _be_a_child(folder: Path, function: str, argument: Any) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ["LION_DATA"] = str(folder / "data")
    (folder / RESULTS).write_bytes(b"")
    for number, name in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        code = _named(function)(argument)
    except SystemExit as end:  # argparse's
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    # As a process ends, but for the seconds that it takes to free all that was imported.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else CRASHED)


def _watched(child: int, folder: Path, seconds: float) -> Done:
    until, hung, status, so_far = time.monotonic() + seconds, False, 0, 0
    results = folder / RESULTS
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if results.exists() and results.stat().st_size != so_far:  # an attempt has ended
            until, so_far = time.monotonic() + seconds, results.stat().st_size
        if time.monotonic() > until:
            hung = True
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    grace = time.monotonic() + (0 if hung else GRACE)
    while (left := _group(child)) and time.monotonic() < grace:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        if left:
            os.killpg(child, signal.SIGKILL)
    said = [(folder / name).read_text(errors="replace")[-20_000:] for name in ("stdout", "stderr")]
    return Done(os.waitstatus_to_exitcode(status), *said, hung, 0 if hung else left)


def _group(leader: int) -> int:
    """How many processes of a child's session are alive."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return 0
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            found += group == str(leader) and state != "Z"
    return found


if __name__ == "__main__":
    serve(sys.argv[1:])

"""Runs that are killed, and disks that are full or can only be read: every kind of task, every moment of a save.

Nothing is lost if the run, resumed, ends with the weights that it would have had, bit for bit.
"""

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

from tests.torture import Campaign
from tests.torture.children import Children, Done
from tests.torture.faults import TROUBLES
from tests.torture.small_runs import commands, write_data

# Two evaluations, three saves and a model.
LONGER = ["--steps", "6", "--save_every", "2", "--eval_every", "3", "--log_every", "1", "--ema", "0.9"]


def run(numbers: range, seed: int) -> list[Campaign]:
    """By turns of all kinds of task, each with kills and with a fault of the disk."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        children = Children(home / "work")
        write_data(home)
        kinds = list(commands(home).items())
        return [
            campaign
            for place, (kind, argv) in enumerate(kinds)
            if (turns := [number for number in numbers if number % len(kinds) == place])
            for campaign in _of_task(kind, [*argv, *LONGER], home, children, turns, seed)
        ]


def _of_task(
    kind: str, argv: list[str], home: Path, children: Children, numbers: list[int], seed: int
) -> list[Campaign]:
    whole = home / "whole" / kind
    done = _train(children, argv, whole, counted=home / "counted")
    assert done.code == 0, done.stderr
    calls = int((home / "counted").read_text())
    killed, failed = Campaign(f"killed: {kind}"), Campaign(f"disk: {kind}")
    for number in numbers:
        generator = random.Random(f"{seed} {number}")
        moments = [generator.randint(1, calls) for _ in range(generator.randint(1, 3))]
        with killed.attempt(f"number {number}: killed at calls {moments} of {calls}"):
            folder = _fresh(home)
            for moment in moments:
                done = _train(children, argv, folder, at=moment)
                assert done.code in (0, -signal.SIGKILL), done
            _goes_on(children, argv, folder, whole)
        moment, trouble = generator.randint(1, calls), generator.choice(TROUBLES)
        with failed.attempt(f"number {number}: {os.strerror(trouble)} from call {moment} of {calls}"):
            folder = _fresh(home)
            done = _train(children, argv, folder, at=moment, fault=trouble)
            done.check()
            assert done.code == 0 or str(folder) in done.stderr, done.stderr
            _goes_on(children, argv, folder, whole)
    return [killed, failed]


def _fresh(home: Path) -> Path:
    folder = home / "runs" / "one"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _train(
    children: Children,
    argv: list[str],
    folder: Path,
    *,
    at: int = 0,
    fault: int | str = "kill",
    counted: Path | None = None,
) -> Done:
    given = {
        "argv": ["train", *argv, "--out", str(folder), "--resume"],
        "at": at,
        "fault": fault,
        "folder": str(folder),
    }
    return children.run("tests.torture.faults:train", {**given, "counted": str(counted or os.devnull)}, seconds=120)


def _goes_on(children: Children, argv: list[str], folder: Path, whole: Path) -> None:
    done = _train(children, argv, folder)
    assert done.code == 0, done.stderr
    same(folder, whole)


def same(folder: Path, whole: Path) -> None:
    """The model, the last checkpoint, and nothing that is not finished."""
    last = max(path.name for path in (whole / "checkpoints").iterdir())
    names = [f"checkpoints/{last}/{name}.safetensors" for name in ("model", "optimizer", "average")]
    for name in ("model/model.safetensors", *names):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    hidden = [path.name for path in (*folder.iterdir(), *(folder / "checkpoints").iterdir()) if path.name[0] == "."]
    assert hidden == [".lock"], hidden

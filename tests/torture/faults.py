"""Faults of the file system, and deaths at its calls: what a campaign plants into a process that trains."""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# All that lion's files go through, on their way to the disk and off it.
CALLS = (
    (os, "replace"),
    (os, "rename"),
    (os, "fsync"),
    (os, "open"),
    (os, "unlink"),
    (shutil, "rmtree"),
    (Path, "open"),
)
WRITES = "wax+"


def train(given: dict[str, Any]) -> int:
    """A call of `lion`, with a fault: {"argv": [...], "at": 17, "fault": "kill" or an errno, "folder": ...}.

    The fault is at the call of that number of those that concern the folder. "kill" ends the process there, half of the
    times after the call; an errno is what this call and all after it fail with. At 0 calls are counted only, and their
    number is written to the file `counted`.
    """
    from lion.cli import main

    counted = [0]
    for place, name in CALLS:
        setattr(place, name, _faulty(getattr(place, name), name, given, counted))
    code = main(given["argv"])
    if not given["at"]:
        with open(given["counted"], "w") as file:
            file.write(str(counted[0]))
    return code


def _faulty(call: Callable[..., Any], name: str, given: dict[str, Any], counted: list[int]) -> Callable[..., Any]:
    def faulty(*args: Any, **options: Any) -> Any:
        if not _concerns(name, args, options, given["folder"]):
            return call(*args, **options)
        counted[0] += 1
        if not given["at"] or counted[0] < given["at"]:
            return call(*args, **options)
        if given["fault"] != "kill":
            raise OSError(given["fault"], os.strerror(given["fault"]), str(args[0]))
        if given["at"] % 2:
            call(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        raise AssertionError

    return faulty


def _concerns(name: str, args: tuple[Any, ...], options: dict[str, Any], folder: str) -> bool:
    """Whether it changes something in the folder. (What fsync is of, only a descriptor says.)"""
    if name == "fsync":
        return os.readlink(f"/proc/self/fd/{args[0]}").startswith(folder)
    if not isinstance(args[0], str | Path) or not str(args[0]).startswith(folder):
        return False
    if name == "open":
        mode = next((x for x in (*args[1:], options.get("mode")) if isinstance(x, str | int)), "r")
        return bool(mode & os.O_ACCMODE) if isinstance(mode, int) else any(x in mode for x in WRITES)
    return True


TROUBLES = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.EACCES)

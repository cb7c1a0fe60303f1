"""Attempts in processes of their own: one that crashes, hangs or takes too much memory is seen, and others go on."""

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

SECONDS = 20.0  # for an attempt
MEMORY = 4 << 30  # bytes of address space, beyond what there is at the start
PROCESSES = 2

Job = tuple[Any, ...]
Work = Callable[..., str]  # "" if all is well, or what is wrong


class Child:
    def __init__(self, begin: Callable[[], Work]):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(begin, theirs, self.pipe), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.until = 0.0

    def give(self, job: Job) -> None:
        self.job, self.until = job, time.monotonic() + SECONDS
        with contextlib.suppress(OSError):  # it has ended: that is seen when its answer is looked for
            self.pipe.send(job)

    def answer(self) -> str | None:
        """What became of the job; None if that is not known yet."""
        if self.pipe.poll():
            with contextlib.suppress(EOFError, OSError):
                return self.pipe.recv()
            self.process.join(5)
            return f"the process ended with code {self.process.exitcode}"
        return f"nothing after {SECONDS:g} seconds" if time.monotonic() > self.until else None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def results(begin: Callable[[], Work], jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
    """Each job and what is wrong with it, as they are done. `begin` makes the worker, in every process."""
    rest = iter(jobs)
    children = [Child(begin) for _ in range(PROCESSES)]
    try:
        for place in range(len(children)):
            if (job := next(rest, None)) is not None:
                children[place].give(job)
        while busy := [child for child in children if child.job is not None]:
            wait([child.pipe for child in busy], timeout=0.5)
            for place, child in enumerate(children):
                if child.job is None or (said := child.answer()) is None:
                    continue
                yield child.job, said
                if not child.process.is_alive() or time.monotonic() > child.until:
                    child.end()
                    children[place] = child = Child(begin)
                child.job = None
                if (job := next(rest, None)) is not None:
                    child.give(job)
    finally:
        for child in children:
            child.end()


def _serve(begin: Callable[[], Work], pipe: Connection, other: Connection) -> None:
    other.close()
    with open("/proc/self/statm") as file:
        there = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (there + MEMORY, there + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.devnull, "w") as nothing:  # what a library that aborts has to say
        os.dup2(nothing.fileno(), 2)
    work = begin()
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(work(*pipe.recv()))

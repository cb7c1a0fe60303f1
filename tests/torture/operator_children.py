"""Attempts in processes of their own, which may crash, hang or be killed without taking the others along."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from random import Random

import torch

from tests.torture import Campaign

PER_PROCESS = 500
SECONDS = 60  # to start, and then a second for each attempt; most take a few milliseconds


def campaigns(
    module: str, count: int, seed: int, name_of: Callable[[int], str], environment: Mapping[str, str] | None = None
) -> list[Campaign]:
    """What became of `count` attempts of `python -m MODULE`, which runs `attempts`, by their names."""
    done: dict[int, str] = {}  # why an attempt was lost, or nothing
    while len(done) < count:
        first = len(done)
        done |= dict(_in_a_process(module, first, min(first + PER_PROCESS, count), seed, environment or {}))
    all_: dict[str, Campaign] = {}
    for number, problem in sorted(done.items()):
        campaign = all_.setdefault(name_of(number), Campaign(name_of(number)))
        with campaign.attempt(f"python -m {module} {number} {number + 1} {seed}"):
            if problem:
                raise AssertionError(problem)
    return list(all_.values())


def _in_a_process(
    module: str, first: int, stop: int, seed: int, environment: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """The attempts up to `stop`, or to the one that ended the process."""
    command = [sys.executable, "-m", module, str(first), str(stop), str(seed)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    try:
        output, errors = child.communicate(timeout=SECONDS + (stop - first))
        ended = f"the process ended with {child.returncode}: {errors.strip()[-1500:]}"
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        ended = "it did not end"
    following = first
    for line in output.splitlines():
        number, problem = json.loads(line)
        yield number, problem
        following = number + 1
    if following < stop:
        yield following, ended


def attempts(attempt: Callable[[int, Random], None]) -> None:
    """The child's side: the numbers from argv[1] to argv[2], of the seed argv[3]. An exception loses an attempt."""
    first, stop, seed = map(int, sys.argv[1:])
    torch.set_num_threads(2)
    for number in range(first, stop):
        random = Random(f"{seed} {number}")
        torch.manual_seed(random.getrandbits(32))
        problem = ""
        try:
            attempt(number, random)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps([number, problem]), flush=True)

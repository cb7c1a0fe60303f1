"""Memory that is freed and taken again, as in every step of a training."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ASKS = "THP_MEM_ALLOC_ENABLE"  # which a command that ran in this process may have set

COUNT = """
import resource, sys, torch
from lion.train.allocation import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
def step():
    tensors = [torch.ones(60 << 16) for _ in range(8)]  # 15 MiB each
    del tensors
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def plain_environment():
    return {name: value for name, value in os.environ.items() if name != ASKS}


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_kept_memory_is_not_got_again():
    # Whether glibc returns memory depends on what else has been allocated; so that it does, at any rate:
    returning = plain_environment() | {"MALLOC_MMAP_THRESHOLD_": str(2**20), "MALLOC_TRIM_THRESHOLD_": str(2**20)}

    def faults(how):
        done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, check=True, env=returning)
        return int(done.stdout)

    assert faults("keep") < 0.1 * faults("leave")


LARGE = """
import contextlib, io, resource
from lion.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["--version"])
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not HUGE.is_file() or "[madvise]" not in HUGE.read_text(), reason="large pages are not for the asking"
)
def test_commands_ask_for_large_pages():
    def faults(**env):
        env = plain_environment() | env
        done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, check=True, env=env)
        return int(done.stdout)

    pages = 64 * 2**20 / 4096
    assert faults() < 0.1 * pages
    assert faults(**{ASKS: "0"}) > 0.9 * pages  # as whoever runs it wants it

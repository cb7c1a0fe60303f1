"""bfloat16 on processors that advertise AMX: some virtual machines trap on its instructions.

torch's bfloat16 matrix products use them through oneDNN, and the process dies of SIGILL without a message. oneDNN does
not use them if ONEDNN_MAX_CPU_ISA says so at its first call. This module does not import torch, so that the command
line can set the variable before torch starts.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

REMEDY = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
SETTING = "=".join(*REMEDY.items())
WARNING = (
    "this processor advertises AMX and traps on it, so torch's bfloat16 products end in an illegal instruction. "
    f"Set {SETTING} before Python starts, or use float32."
)
PRODUCT = "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); x @ x; torch.nn.functional.linear(x, x)"


def advertised() -> bool:
    """Whether the processor advertises AMX. Only Linux lets programs use it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    return any("amx_tile" in line.split() for line in lines if line.startswith("flags"))


@functools.cache
def traps() -> bool:
    """Whether a bfloat16 product kills a process here, as tried in a child process."""
    if not advertised():
        return False
    return subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True).returncode == -signal.SIGILL


def avoid() -> bool:
    """Set the remedy where it is needed, before torch starts. Returns whether it was needed."""
    if not traps():
        return False
    os.environ.update(REMEDY)
    traps.cache_clear()  # the next child process has the remedy
    return True


def refuse() -> None:
    """Raise an error where a bfloat16 product would kill the process."""
    if traps():
        raise ValueError(WARNING)


def state() -> str:
    """A line about bfloat16 on this processor, for `lion doctor`."""
    if traps():
        return f"not usable: {WARNING}"
    limited = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return f"usable, as ONEDNN_MAX_CPU_ISA={limited} has it" if limited else "usable"

"""The compiled kernels: where they are, why they are not, and how they are called."""

import ctypes
import os
import struct
from pathlib import Path

import torch
from torch import Tensor

from lion.ops.cpu.build import FAILURE, HERE, NAME

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
NORMS = {"none": 0, "sum": 1, "max": 2, "raw": 3}
DIRECTIONS = {"forward": 1, "backward": 2, "both": 3}

NOT_GIVEN = (0, 0, 0, 0)

FAILURES: dict[int, tuple[type[Exception], str]] = {  # by what lion_run returns
    1: (MemoryError, "lion's CPU kernel could not get its scratch memory."),
    3: (RuntimeError, "lion's CPU kernels were built for another version of lion: reinstall it."),
    4: (ValueError, "orders or cu_seqlens point outside the tokens; expected permutations, and borders from 0 to T."),
}


class Library:
    """The shared library. LION_CPU_LIBRARY names another file, LION_CPU_ISA an instruction set other than the best."""

    def __init__(self, path: Path):
        library = ctypes.CDLL(str(path))
        self._run = library.lion_run
        self._run.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p]
        self._name = library.lion_instruction_set
        self._name.argtypes, self._name.restype = [ctypes.c_char_p], ctypes.c_char_p
        self._peak = library.lion_peak
        self._peak.argtypes, self._peak.restype = [ctypes.c_int, ctypes.c_int64], ctypes.c_double
        self._wanted = os.environ.get("LION_CPU_ISA", "").encode()
        self.instruction_set = self._name(self._wanted).decode()
        self.has_thread_pool = bool(library.lion_has_thread_pool())

    def __str__(self) -> str:
        threads = (
            "on torch's threads" if self.has_thread_pool else "on one thread: torch's OpenMP library was not found"
        )
        return f"{self.instruction_set}, {threads}"

    def run(self, fields: list[int], *, backward: bool) -> None:
        """fields: those of `Problem` in problem.h, in order."""
        packed = struct.pack(f"{len(fields)}q", *fields)
        status = self._run(packed, len(packed), backward, self._wanted)
        if status:
            kind, text = FAILURES.get(status, FAILURES[3])
            raise kind(text)

    def peak(self, dtype: torch.dtype) -> float:
        """FLOP/s that one thread reaches in multiply-adds and nothing else: the best of several short runs."""
        double = dtype == torch.float64
        return max(self._peak(double, 1_000_000) for _ in range(10))


def load() -> Library | str:
    """The library, or why there is none."""
    path = Path(os.environ.get("LION_CPU_LIBRARY", HERE / NAME))
    if not path.exists():
        failure = HERE / FAILURE
        return failure.read_text().strip() if failure.exists() else "lion was installed without compiling it"
    try:
        library = Library(path)
    except (OSError, AttributeError) as error:
        return f"{path.name} does not load: {error}"
    if not library.instruction_set:
        return f"LION_CPU_ISA asks for {os.environ['LION_CPU_ISA']!r}, which this processor or build does not have"
    return library


def rows(x: Tensor | None) -> tuple[int, int, int, int]:
    """Pointer and strides of [B, T, H, ...] or of [H, ...], which is the same for every token."""
    if x is None:
        return NOT_GIVEN
    stride = x.stride()
    if len(stride) < 3:
        return x.data_ptr(), 0, 0, stride[0]
    return x.data_ptr(), stride[0], stride[1], stride[2]


LIBRARY = load()

"""The compiled kernels: where they are, why they are not, and how they are called."""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lion.ops.cpu.build import FAILURE, HERE, NAME

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
NONE, SUM, MAX, RAW = range(4)  # RAW: num, den and their log scale, undivided
NORMS = {"none": NONE, "sum": SUM, "max": MAX}
DIRECTIONS = {"forward": 1, "reverse": 2, "both": 3}

NOT_GIVEN = (0, 0, 0, 0)


class BadValues(ValueError):
    """The kernel read a decay or a gate that is NaN or too large."""


PROBLEM, FEATURES = struct.Struct("90q"), struct.Struct("20q")  # every field of `Problem` and `Features` in problem.h

FAILURES: dict[int, tuple[type[Exception], str]] = {  # by what lion_run returns
    1: (MemoryError, "lion's CPU kernel could not get its scratch memory."),
    3: (RuntimeError, "lion's CPU kernels were built for another version of lion: reinstall it."),
    4: (ValueError, "orders are no permutations, or cu_seqlens do not run from 0 to T; expected each token once."),
    5: (
        BadValues,
        "log_decay is positive or log_gain is infinite, or one of them NaN; expected logs of decays and gates.",
    ),
}


class Library:
    """The shared library. LION_CPU_LIBRARY names another file, LION_CPU_ISA an instruction set other than the best."""

    def __init__(self, path: Path):
        library = ctypes.CDLL(str(path))
        self._run = library.lion_run
        self._run.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p]
        self._features = library.lion_features
        self._features.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p]
        self._name = library.lion_instruction_set
        self._name.argtypes, self._name.restype = [ctypes.c_char_p], ctypes.c_char_p
        self._peak = library.lion_peak
        self._peak.argtypes, self._peak.restype = [ctypes.c_int, ctypes.c_int64], ctypes.c_double
        self._chunk_tokens = library.lion_chunk_tokens
        self._chunk_tokens.argtypes, self._chunk_tokens.restype = [ctypes.c_int64] * 5, ctypes.c_int64
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
        self._check(self._run(PROBLEM.pack(*fields), PROBLEM.size, backward, self._wanted))

    def run_features(self, fields: list[int]) -> None:
        """fields: those of `Features`."""
        self._check(self._features(FEATURES.pack(*fields), FEATURES.size, self._wanted))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            kind, text = FAILURES.get(status, FAILURES[3])
            raise kind(text)

    def peak(self, dtype: torch.dtype, threads: int) -> float:
        return self._peak(dtype == torch.float64, threads)

    def chunk_tokens(self, *sizes: int) -> int:
        return self._chunk_tokens(*sizes)


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


def address(x: Tensor | None) -> int:
    """Of its first element; 0 is not given."""
    if x is None:
        return 0
    where = x.data_ptr()
    if not where and x.numel():
        raise RuntimeError(f"a tensor of shape {tuple(x.shape)} has no memory; expected one that is not freed.")
    return where


def rows(x: Tensor | None) -> tuple[int, int, int, int]:
    """Pointer and strides of [B, T, H, ...] or of [H, ...], which is the same for every token."""
    if x is None:
        return NOT_GIVEN
    stride = x.stride()
    where = x.data_ptr() or address(x)
    if len(stride) < 3:
        return where, 0, 0, stride[0]
    return where, stride[0], stride[1], stride[2]


LIBRARY = load()


def below_autograd(operator: Callable, *arguments):
    """Call an operator of which no gradient is wanted without the detour through autograd, which takes a while."""
    if torch.compiler.is_compiling():
        return operator(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def loaded() -> Library:
    if isinstance(LIBRARY, str):
        raise RuntimeError(f"lion's CPU kernels are not available: {LIBRARY}.")
    return LIBRARY


def peak(dtype: torch.dtype, threads: int) -> float:
    """FLOP/s that the threads reach in multiply-adds and nothing else: the best of several short runs."""
    return max(loaded().peak(dtype, threads) for _ in range(10))


def chunk_tokens(tokens: int, D: int, V: int, orders: int = 1, *, diagonal: bool = False) -> int:
    """How long the chunks are that the kernels cut a sequence into."""
    return loaded().chunk_tokens(tokens, D, V, orders, diagonal)

"""The compiled kernels: where they are, why they are not, and how they are called."""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lion.ops.cpu.build import FAILURE, HERE, NAME

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
NONE, SUM, MAX, RAW, NO_OUTPUT = range(5)  # RAW: num, den and their log scale, undivided; the last: states alone
NORMS = {"none": NONE, "sum": SUM, "max": MAX}
DIRECTIONS = {"forward": 1, "reverse": 2, "both": 3}


class BadValues(ValueError):
    """The kernel read a decay or a gate that is NaN or too large."""


class _Struct(ctypes.Structure):
    __slots__ = ("alive",)  # so that a name that is no field is an error
    offsets: ClassVar[dict[str, int]]

    def put(self, **tensors: Tensor | None) -> None:
        """Fill in the Rows of tensors that are given. Quicker than assignment, of which a small call would notice."""
        for name, x in tensors.items():
            if x is not None:
                _put_rows(self, self.offsets[name], *rows(x))


_put_rows = struct.Struct("4q").pack_into


def _structure(name: str, *fields: tuple[Any, str]) -> Any:
    named = [(field, kind) for kind, fields_of in fields for field in fields_of.split()]
    made: Any = type(name, (_Struct,), {"_fields_": named, "__slots__": ()})
    made.offsets = {field: getattr(made, field).offset for field, _ in named}
    return made


# The structs of problem.h, by their fields. What is not given is 0. The library tells its own (`layout`).
Int = ctypes.c_int64
Rows = _structure("Rows", (Int, "data batch token head"))
State = _structure("State", (Int, "sums keys log_scale"))
Problem = _structure(
    "Problem",
    (Int, "B T H D V dtype norm direction threads wide_out chunk orders sequences"),
    (Rows, "q k v log_decay log_gain self_weight log_decay_reverse"),
    (Int, "log_decay_channels self_weight_channels decay_between gates_absorbed decay_per_order"),
    (Rows, "rate rate_reverse"),
    (Rows, "mask"),
    (Int, "cu_seqlens order"),
    (Rows, "out den log_scale"),
    (State * 2, "entering leaving"),
    (Rows, "dout dden dq dk dv dlog_decay dlog_gain dself_weight dlog_decay_reverse drate drate_reverse"),
    (State * 2, "dentering dleaving"),
)
Delta = _structure(
    "Delta",
    (Int, "B T H D V dtype direction include_self threads chunk"),
    (Rows, "q k v beta cost cost_reverse out"),
    (State * 2, "entering leaving"),
    (Rows, "dout dq dk dv dbeta dcost dcost_reverse"),
    (State * 2, "dentering dleaving"),
)
Features = _structure("Features", (Int, "B T H D map dtype backward threads"), (Rows, "x dy out"))


def layout() -> str:
    """Names, offsets and sizes of all fields."""
    lines = []
    for structure in (Problem, Delta, Features):
        for name, kind in structure._fields_:
            lines.append(f"{structure.__name__}.{name} {structure.offsets[name]} {ctypes.sizeof(kind)}\n")
    return "".join(lines)


FAILURES: dict[int, tuple[type[Exception], str]] = {  # by what lion_run returns
    1: (MemoryError, "lion's CPU kernel could not get its scratch memory."),
    3: (ValueError, "orders are no permutations, or cu_seqlens do not run from 0 to T; expected each token once."),
    4: (
        BadValues,
        "log_decay is positive or log_gain is infinite, or one of them NaN; expected logs of decays and gates.",
    ),
}


class Library:
    """The shared library. LION_CPU_LIBRARY names another file, LION_CPU_ISA an instruction set other than the best."""

    def __init__(self, path: Path):
        library = ctypes.CDLL(str(path))
        self._run = library.lion_run
        self._run.argtypes = [ctypes.POINTER(Problem), ctypes.c_int, ctypes.c_char_p]
        self._delta = library.lion_delta
        self._delta.argtypes = [ctypes.POINTER(Delta), ctypes.c_int, ctypes.c_char_p]
        self._features = library.lion_features
        self._features.argtypes = [ctypes.POINTER(Features), ctypes.c_char_p]
        library.lion_layout.restype = ctypes.c_char_p
        self.layout = library.lion_layout().decode()
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

    def run(self, problem: Any, *, backward: bool) -> None:
        self._check(self._run(problem, backward, self._wanted))

    def run_delta(self, problem: Any, *, backward: bool) -> None:
        self._check(self._delta(problem, backward, self._wanted))

    def run_features(self, features: Any) -> None:
        self._check(self._features(features, self._wanted))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            kind, text = FAILURES[status]
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
    if library.layout != layout():
        return f"{path.name} was built for another version of lion: build it again, python -m lion.ops.cpu.build"
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


def rows(x: Tensor) -> tuple[int, int, int, int]:
    """Pointer and strides of [B, T, H, ...] or of [H, ...], which is the same for every token."""
    stride = x.stride()
    where = x.data_ptr() or address(x)
    if len(stride) < 3:
        return where, 0, 0, stride[0]
    return where, stride[0], stride[1], stride[2]


LIBRARY = load()


def direct(x: Tensor) -> bool:
    """Whether an operator's function may be called in place of the operator: x is a plain tensor, and nothing watches
    the operators. Torch's dispatcher takes up to ten microseconds for so many arguments."""
    return (
        not torch.compiler.is_compiling()
        and type(x) in (Tensor, torch.nn.Parameter)
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._get_tracing_state() is None
        and not torch._C._autograd._profiler_enabled()
    )


def below_autograd(operator: Callable, function: Callable, *arguments):
    """Call an operator, or its function, without the detour through autograd: no gradient is wanted."""
    given = [x for x in arguments if isinstance(x, Tensor)]
    dense = all(x.is_cpu and x.layout is torch.strided and not x.is_nested for x in given)  # else no kernel is found
    with torch._C._AutoDispatchBelowAutograd():
        return (function if dense and direct(arguments[0]) else operator)(*arguments)


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

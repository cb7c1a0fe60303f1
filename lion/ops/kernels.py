"""The table of kernels. A new kernel is one row here, and is tested because it is in the table."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lion.ops.call import Call
from lion.ops.checks import Form, check_values, one_of
from lion.ops.cpu import delta as cpu_delta
from lion.ops.cpu import fused as cpu_fused
from lion.ops.cpu import gated as cpu_gated
from lion.ops.cpu import library as cpu
from lion.ops.cpu import scan as cpu_scan
from lion.ops.plain import plain
from lion.ops.state import States
from lion.ops.torch import delta, dense, scan
from lion.ops.torch.lowering import Kernel, lowered, states_behind
from lion.ops.triton import available as triton
from lion.ops.triton import scan as triton_scan
from lion.ops.triton.operators import WIDEST

FORMS: dict[Form, str] = {
    "full": "the T x T matrix at once",
    "rnn": "two recurrences, token by token",
    "chunk": "rows of blocks of the matrix, one after the other",
    "scan": "chunks, with both directions' states carried between them",
}
DECAYS = {
    "none": "no decay",
    "scalar": "one decay per head, fixed or per token",
    "diagonal": "one decay per key channel, fixed or per token",
    "gated diagonal": "the same, with input gates",
    "delta": "the delta rule, with one decay per head or none",
}
CHUNKED = ("chunk", "scan")  # the forms that chunk_size applies to


class Backend(NamedTuple):
    about: str
    missing: Callable[[torch.device, torch.dtype], str | None]  # why it cannot run there, or None if it can
    checks_values: bool = False  # its kernels do, as they read
    lacks: tuple[str, ...] = ()  # keys of NEEDS
    states: Callable[[Call], States] = states_behind  # `lion.attention_states`
    fused: Any = None  # parts of a layer as one operator each: an object with what cpu/fused.py has


def _cpu_missing(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu":
        return "it is for tensors in the CPU's memory"
    if isinstance(cpu.LIBRARY, str):
        return cpu.LIBRARY
    return None if dtype in cpu.DTYPES else f"it has no {str(dtype).removeprefix('torch.')}"


NEEDS = {  # what a call may need that a backend may lack, and how it is said
    "states": "it takes and returns no states",
    "two-sided decays": "it has the same decays for both directions",
    "torch.func": "torch.func and forward-mode differentiation cannot look into its operators",
    "wide heads": f"it has at most {WIDEST} channels of keys or values per head",
}
BACKENDS = {  # the fastest first
    "cpu": Backend(
        "compiled kernels for the CPU",
        _cpu_missing,
        checks_values=True,
        lacks=("torch.func",),
        states=cpu_scan.states_behind,
        fused=cpu_fused,
    ),
    "triton": Backend(
        "kernels for GPUs, in Triton",
        triton.missing,
        lacks=("torch.func", "wide heads"),
        states=triton_scan.states_behind,
    ),
    "torch": Backend("plain PyTorch, on every device that torch has", lambda device, dtype: None),
}


def checked(kernel: Kernel) -> Kernel:
    """A kernel that does not look at the values itself, of a backend that does."""

    def attention(call: Call) -> Tensor | tuple[Tensor, States]:
        check_values(call)
        return kernel(call)

    return attention


TORCH_FORMS: dict[str, Kernel] = {
    "full": lowered(dense.full),
    "rnn": lowered(dense.rnn),
    "chunk": lowered(dense.chunk),
    "scan": lowered(scan.scan, undecayed=scan.one_state),
}
KERNELS: dict[tuple[str, str, str], Kernel] = {  # by backend, form and decay
    ("cpu", "scan", "none"): cpu_scan.attention,
    ("cpu", "scan", "scalar"): cpu_scan.attention,
    ("cpu", "scan", "diagonal"): cpu_scan.attention,
    ("cpu", "scan", "gated diagonal"): checked(lowered(cpu_gated.scan)),
    ("cpu", "scan", "delta"): checked(lowered(cpu_delta.scan, undecayed=cpu_delta.undecayed_scan)),
    **{("triton", "scan", decay): triton_scan.attention for decay in DECAYS if decay != "delta"},
    **{("torch", form, decay): kernel for form, kernel in TORCH_FORMS.items() for decay in DECAYS if decay != "delta"},
    ("torch", "full", "delta"): lowered(delta.full),
    ("torch", "rnn", "delta"): lowered(delta.rnn),
    ("torch", "scan", "delta"): lowered(delta.scan, undecayed=delta.undecayed_scan),
}


def fused(backend: str = "auto") -> Iterable[Any]:
    """The fused paths of the backends that may be used, the fastest first."""
    return [row.fused for name, row in BACKENDS.items() if row.fused is not None and backend in ("auto", name)]


def why_not_compiled() -> str | None:
    """Why there are no compiled kernels on this machine, or None if there are."""
    return cpu.LIBRARY if isinstance(cpu.LIBRARY, str) else None


# On torch, up to this many tokens one dense block is faster than carrying states: on the CPU as measured
# (docs/results.md). Elsewhere it is an estimate: a GPU is good at a few large products, and the dense block is a dozen
# launches, the states are a hundred; at 512 tokens its T x T numbers take as long as those launches (docs/gpu.md).
SHORT = 192
SHORT_ELSEWHERE = 512


class Choice(NamedTuple):
    """What `lion.attention` runs, and why. Printed, it is one sentence."""

    form: str
    backend: str
    decay: str
    why: str

    def __str__(self) -> str:
        return f"{self.form} on {self.backend} ({DECAYS[self.decay]}): {self.why}"


class Wanted(NamedTuple):
    """What the choice of a kernel depends on."""

    form: str
    backend: str
    device: torch.device
    dtype: torch.dtype
    decay: str
    length: int
    chunk_size: int | None
    needs: tuple[str, ...] = ()  # keys of NEEDS


def choose(wanted: Wanted) -> Choice:
    """The kernel for a call; what is asked for by name is used, or refused with what would work."""
    form, backend, kind = wanted.form, wanted.backend, wanted.decay
    where = wanted.device, wanted.dtype
    if form != "auto":
        one_of("form", form, ("auto", *FORMS))
    if backend != "auto":
        one_of("backend", backend, ("auto", *BACKENDS))
    if wanted.chunk_size is not None and form not in ("auto", *CHUNKED):
        chunked = " and ".join(map(repr, CHUNKED))
        raise ValueError(f"chunk_size is for the forms {chunked}, and form is {form!r}: leave one of the two out.")
    passed_by = {}  # backends that are for such a device, and why they are not taken
    for name in _auto_backends() if backend == "auto" else (backend,):
        lacking = [NEEDS[need] for need in wanted.needs if need in BACKENDS[name].lacks]
        reason = lacking[0] if lacking else BACKENDS[name].missing(*where)
        if reason and backend == "auto":
            passed_by[name] = reason
            continue
        if reason:
            works = ", ".join(repr(b) for b in usable_backends(*where) if b != name)
            raise ValueError(f"backend {name!r} cannot run this: {reason}. What works here: {works}.")
        candidates = {form: "the form was asked for"} if form != "auto" else _by_length(name, wanted)
        if backend != "auto" and form == "auto" and wanted.chunk_size is None:
            candidates = candidates | {x: "the backend has no other form" for x in FORMS if x not in candidates}
        for candidate, why in candidates.items():
            if (name, candidate, kind) in KERNELS:
                return Choice(candidate, name, kind, why + _but(wanted.device, passed_by))
        passed_by[name] = f"it has no kernel for {DECAYS[kind]}" if form == "auto" else f"it has no form {form!r}"
    works = ", ".join(f"{b} {f}" for b, f, d in KERNELS if d == kind and b in usable_backends(*where))
    raise ValueError(f"no kernel for form {form!r} on backend {backend!r} with {DECAYS[kind]}. What works: {works}.")


def _but(device: torch.device, passed_by: dict[str, str]) -> str:
    """Why a GPU's own kernels are not taken, where they are not."""
    reason = passed_by.get("triton") if device.type == "cuda" else None
    return f"; not on triton: {reason}" if reason else ""


def _auto_backends() -> Iterable[str]:
    return ("torch",) if plain() else BACKENDS


def usable_backends(device: torch.device, dtype: torch.dtype = torch.float32) -> list[str]:
    """The fastest first."""
    return [name for name, backend in BACKENDS.items() if backend.missing(device, dtype) is None]


def short(device: torch.device) -> int:
    return SHORT if device.type == "cpu" else SHORT_ELSEWHERE


def _by_length(backend: str, wanted: Wanted) -> dict[str, str]:
    """The exact forms to try, the fastest first, and why."""
    linear = "linear in the number of tokens"
    if wanted.chunk_size is not None:
        return dict.fromkeys(["scan", "chunk"], "chunk_size asks for chunks")
    if torch.compiler.is_exporting():
        return dict.fromkeys(["scan", "full"], "an exported graph is to serve every length")
    if backend == "torch" and wanted.decay not in ("none", "delta") and wanted.length <= short(wanted.device):
        return {"full": f"{wanted.length} tokens are few enough for one dense block", "scan": linear}
    return dict.fromkeys(["scan", "full"], linear)

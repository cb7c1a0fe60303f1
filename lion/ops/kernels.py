"""The table of kernels. A new kernel is one row here, and is tested because it is in the table."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lion.ops import torch_forms, torch_scan
from lion.ops.checks import one_of
from lion.ops.options import Options

FORMS = {
    "full": "the T x T matrix at once",
    "rnn": "two recurrences, token by token",
    "chunk": "rows of blocks of the matrix, one after the other",
    "scan": "chunks, with both directions' states carried between them",
}
DECAYS = {
    "none": "no decay",
    "scalar": "one decay per head, fixed or per token",
    "diagonal": "one decay per key channel, fixed or per token",
}
CHUNKED = ("chunk", "scan")  # the forms that chunk_size applies to


class Backend(NamedTuple):
    about: str
    missing: Callable[[torch.device], str | None]  # why it cannot run on a device, or None if it can


BACKENDS = {
    "torch": Backend("plain PyTorch, on every device that torch has", lambda device: None),
}

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Options], tuple[Tensor, Tensor | None]]

KERNELS: dict[tuple[str, str, str], Kernel] = {  # by backend, form and decay
    **{("torch", "full", decay): torch_forms.full for decay in DECAYS},
    **{("torch", "rnn", decay): torch_forms.rnn for decay in DECAYS},
    **{("torch", "chunk", decay): torch_forms.chunk for decay in DECAYS},
    **{("torch", "scan", decay): torch_scan.scan for decay in DECAYS},
    ("torch", "scan", "none"): torch_scan.one_state,
}


# Up to this many tokens one dense block is faster than carrying states (docs/results.md).
SHORT = 192


class Choice(NamedTuple):
    """What `lion.attention` runs, and why. Printed, it is one sentence."""

    form: str
    backend: str
    decay: str
    why: str

    def __str__(self) -> str:
        return f"{self.form} on {self.backend} ({DECAYS[self.decay]}): {self.why}"


def choose(form: str, backend: str, decay: str, length: int, device: torch.device, chunk_size: int | None) -> Choice:
    """The kernel for a call; what is asked for by name is used, or refused with what would work."""
    one_of("form", form, ("auto", *FORMS))
    one_of("backend", backend, ("auto", *BACKENDS))
    if chunk_size is not None and form not in ("auto", *CHUNKED):
        chunked = " and ".join(map(repr, CHUNKED))
        raise ValueError(f"chunk_size is for the forms {chunked}, and form is {form!r}: leave one of the two out.")
    forms, why = ([form], "the form was asked for") if form != "auto" else _by_length(decay, length, chunk_size)
    backends = usable_backends(device) if backend == "auto" else [backend]
    for name in backends:
        reason = BACKENDS[name].missing(device)
        if reason:
            works = ", ".join(map(repr, usable_backends(device)))
            raise ValueError(f"backend {name!r} cannot run on {device}: {reason}. What works here: {works}.")
        for candidate in forms:
            if (name, candidate, decay) in KERNELS:
                return Choice(candidate, name, decay, why)
    works = ", ".join(f"{b} {f}" for b, f, d in KERNELS if d == decay and b in usable_backends(device))
    raise ValueError(f"no kernel for form {form!r} on backend {backend!r} with {DECAYS[decay]}. What works: {works}.")


def usable_backends(device: torch.device) -> list[str]:
    """The fastest first."""
    return [name for name, backend in BACKENDS.items() if backend.missing(device) is None]


def _by_length(decay: str, length: int, chunk_size: int | None) -> tuple[list[str], str]:
    """The exact forms to try, the fastest first, and why."""
    if chunk_size is not None:
        return ["scan", "chunk"], "chunk_size asks for chunks"
    if torch.compiler.is_exporting():
        return ["scan", "full"], "an exported graph is to serve every length"
    if decay != "none" and length <= SHORT:
        return ["full", "scan"], f"{length} tokens are few enough for one dense block"
    return ["scan", "full"], "linear in the number of tokens"

"""Tables for `lion doctor` and `lion list`: what is installed, what runs here, and why the rest does not."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable

import torch

from lion import amx
from lion._version import __version__
from lion.devices import devices
from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS
from lion.ops.cpu import library
from lion.ops.kernels import BACKENDS, DECAYS, FORMS, KERNELS, why_not_compiled
from lion.packages import extras, packages
from lion.terminal import table


def doctor() -> str:
    installed = [
        ("lion", __version__),
        ("python", platform.python_version()),
        ("torch", torch.__version__),
        *((name, importlib.metadata.version(name)) for name in ("numpy", "safetensors")),
        *packages(),
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    cpu = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads used by torch, {capability}"
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    machine = [
        ("cpu", cpu),
        ("compiled kernels", why_not_compiled() or str(library.LIBRARY)),
        ("bfloat16", amx.state()),
        ("torch.compile", "usable" if compiler else "not on the CPU: no C++ compiler was found (install g++)"),
    ]
    found = []
    for name, backend in BACKENDS.items():
        for kind, why in devices().items():
            reason = why or backend.missing(torch.device(kind), torch.float32)
            found.append((name, kind, "usable" if reason is None else f"not usable: {reason}"))
    return "\n\n".join(
        [
            table(("package", "version"), installed),
            table(("extra", "what it is for", ""), extras()),
            table(("machine", ""), machine),
            table(("backend", "device", ""), found),
            kernels(),
        ]
    )


DECAY_RANKS = {
    1: "per head, fixed",
    2: "per channel, fixed",
    3: "per token",
    4: "per token and channel",
}
DIM, HEADS = 384, 6  # sizes of the layers whose parameters are counted


def variants() -> str:
    """The table of variants, with a layer's number of parameters."""
    rows = []
    for name, variant in VARIANTS.items():
        layer = LionAttention(DIM, HEADS, name)
        log_decay = layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay
        one = log_decay[0] if layer.two_sided else log_decay
        decay = "none" if one is None else DECAY_RANKS[one.dim()] + ", two-sided" * layer.two_sided
        parameters = sum(x.numel() for x in layer.parameters())
        time = "T^2 D" if variant.softmax else "T D V"
        norm = "softmax" if variant.softmax else variant.norm
        rows.append(
            (name, f"{parameters / 1e3:,.0f}k", "delta rule" if variant.delta else decay, norm, time, variant.about)
        )
    header = ("variant", "parameters", "decay", "norm", "time", "what it is")
    return table(header, rows) + f"\n\nparameters: a layer with {DIM} channels and {HEADS} heads"


def kernels() -> str:
    """Which backend has which form for which decay."""
    rows = []
    for decay in DECAYS:
        cells = (", ".join(b for b in BACKENDS if (b, form, decay) in KERNELS) or "none" for form in FORMS)
        rows.append((decay, *cells))
    return table(("kernels: decay", *FORMS), rows)


LISTS: dict[str, Callable[[], str]] = {
    "variants": variants,
    "forms": lambda: table(("form", "how it is computed"), list(FORMS.items())),
    "decays": lambda: table(("decay", "what it is"), list(DECAYS.items())),
    "backends": lambda: table(("backend", "what it is"), [(name, x.about) for name, x in BACKENDS.items()]),
    "kernels": kernels,
}


def listing(what: str | None) -> str:
    return "\n\n".join(LISTS[name]() for name in ([what] if what else LISTS))

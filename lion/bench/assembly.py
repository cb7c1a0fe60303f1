"""Triton's kernels compiled without a GPU: registers, spills, shared memory and tensor core instructions."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lion.ops.triton.available import INSTALLED, interpreting

ARCHITECTURES = {"sm_80": 80, "sm_86": 86, "sm_90": 90, "sm_100": 100, "gfx942": "gfx942"}
WAVE = {"cuda": 32, "hip": 64}


class Kernel(NamedTuple):
    """A compiled kernel."""

    name: str
    registers: int  # of a thread
    spills: int  # words of a thread that are stored to local memory and loaded again: instructions for it
    shared: int  # bytes of a program
    products: int  # tensor core instructions


def check_usable() -> None:
    if not INSTALLED:
        raise ValueError("Triton is not installed; expected it: pip install 'lion-attention[triton]'.")
    if interpreting():
        raise ValueError("TRITON_INTERPRET is set; expected a Triton that compiles: unset it.")


def compiled(
    architecture: str,
    decay: str,
    D: int,
    dtype: torch.dtype,
    *,
    backward: bool = True,
    tokens: int = 4096,
    direction: str = "both",
    masked: bool = False,
    packed: bool = False,
) -> Iterator[Kernel]:
    """The kernels of a call with a norm and gradients of everything, as a GPU would be given them."""
    check_usable()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as it is by default; without a warning
    from lion.ops.triton import launch
    from lion.ops.triton.configurations import configuration

    q = torch.empty(1, tokens, 1, D, dtype=dtype, device="meta")
    f = None if decay == "none" else q.new_empty(1, tokens, 1, D if decay == "diagonal" else 1, dtype=torch.float32)
    mask = torch.empty(1, tokens, dtype=torch.bool, device="meta") if masked else None
    found: list[Kernel] = []

    def record(kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
        name = kernel.__name__
        name += " transposed" if arguments.get("TRANSPOSED") else ""
        if name not in [x.name for x in found]:
            found.append(_resources(name, kernel.warmup(grid=(programs,), **arguments)))

    with _target(architecture), _replaced(launch, "launch", record):
        use = configuration(q, q, f, None, False, architecture=architecture)
        x = launch.Launches(q, q, q, f, f, mask, None, direction, True, packed, False, use)
        out, den, saved, _ = launch.forward(x, "sum", True, False, dtype, dtype != torch.float32)
        yield from found
        if backward:
            done = len(found)
            launch.backward(x, out, None, None, saved if saved.numel() else out, den, "sum", costs=True)
            yield from found[done:]


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class _Driver:
    """What Triton asks of the driver of a GPU before it compiles."""

    def __init__(self, architecture: str) -> None:
        from triton.backends.compiler import GPUTarget

        kind = "cuda" if architecture.startswith("sm_") else "hip"
        self.target = GPUTarget(kind, ARCHITECTURES[architecture], WAVE[kind])
        self.device = -1 - list(ARCHITECTURES).index(architecture)  # Triton keeps kernels by device

    def get_current_target(self):
        return self.target

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, device: int) -> int:
        return 0


@contextlib.contextmanager
def _target(architecture: str) -> Iterator[None]:
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_Driver(architecture))
    try:
        yield
    finally:
        driver._active = before


def _resources(name: str, kernel: Any) -> Kernel:
    shared = kernel.metadata.shared
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]

        def entry(field: str) -> int:
            return int(re.search(rf"\.{field}: +(\d+)", text)[1])  # type: ignore[index]

        return Kernel(name, entry("vgpr_count"), entry("vgpr_spill_count"), shared, len(re.findall("v_mfma", text)))
    tools = Path(_triton_folder()) / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.asm["cubin"])
        usage, code = (
            subprocess.run([*map(str, command), str(path)], capture_output=True, text=True, check=True).stdout
            for command in ([tools / "cuobjdump", "--dump-resource-usage"], [tools / "nvdisasm", "-c"])
        )
    registers = int(re.search(r"REG:(\d+)", usage)[1])  # type: ignore[index]
    spills = len(re.findall(r"\b(?:STL|LDL)\b", code))
    products = len(re.findall(r"\b(?:[HDQI]G?MMA|UTC\w*MMA)\b", code))
    return Kernel(name, registers, spills, shared, products)


def _triton_folder() -> str:
    import triton

    return os.path.dirname(triton.__file__)

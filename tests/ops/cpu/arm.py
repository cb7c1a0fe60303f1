"""The kernels for ARM: cross-compiled with driver.cpp into a program, which runs on an emulated processor."""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lion.ops.cpu import build
from lion.ops.cpu.library import DIRECTIONS, DTYPES, NORMS

COMPILER, ROOT = "aarch64-linux-gnu-g++", "/usr/aarch64-linux-gnu"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
DRIVER = Path(__file__).with_name("driver.cpp")


PROCESSORS = {  # what is emulated, and the kernels that are to run there
    "NEON": ("cortex-a57", "baseline"),
    "SVE of 256 bits": ("max,sve-default-vector-length=32", "sve256"),
    "SVE of 512 bits": ("max,sve-default-vector-length=64", "baseline"),
}


def missing() -> str | None:
    """Why there is nothing to run on, or None if there is."""
    if not shutil.which(COMPILER):
        return f"{COMPILER} is not installed"
    return None if any(map(shutil.which, EMULATORS)) else f"{EMULATORS[0]} is not installed"


def program(folder: Path) -> Path:
    """The driver, beside the library of all kernels for ARM."""
    library, target = folder / build.NAME, folder / "driver"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", COMPILER)
        build.build(library, instruction_sets=build.ARM)
    build.run([COMPILER, *build.FLAGS, str(DRIVER), str(library), f"-Wl,-rpath,{folder}", "-o", str(target)])
    return target


def emulated(name: str, program: Path) -> list[str]:
    """The command that runs a program on one of PROCESSORS."""
    emulator = next(filter(None, map(shutil.which, EMULATORS)))
    return [emulator, "-cpu", PROCESSORS[name][0], "-L", ROOT, str(program)]


def run(
    command: Sequence[str],
    tensors: dict[str, Tensor],
    *,
    norm: str = "none",
    direction: str = "both",
    chunk: int = 0,
) -> tuple[dict[str, Tensor], str]:
    """The output and the gradients of q [B, T, H, D], k, v, dout, and where there are any log_decay [B, T, H, .], or
    steps of that name and rate [H, D]; and the name of the kernels that ran."""
    q, v, decay, rate = tensors["q"], tensors["v"], tensors.get("log_decay"), tensors.get("rate")
    (B, T, _, D), (H, V) = q.shape, v.shape[2:]
    how = [DTYPES[q.dtype], NORMS[norm], DIRECTIONS[direction], chunk]
    header = struct.pack(
        "12q", B, T, H, D, V, *how, decay is not None, 1 if decay is None else decay[0, 0, 0].numel(), rate is not None
    )
    names = [name for name in ("q", "k", "v", "dout", "log_decay", "rate") if name in tensors]
    sent = header + b"".join(tensors[name].contiguous().numpy().tobytes() for name in names)
    done = subprocess.run(command, input=sent, capture_output=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{command[-1]} fails: {done.stderr.decode()}")
    numbers = torch.frombuffer(bytearray(done.stdout), dtype=q.dtype)
    shapes: dict[str, Any] = {"out": v.shape} | {name: tensors[name].shape for name in names if name != "dout"}
    parts = numbers.split([shape.numel() for shape in shapes.values()])
    found = {name: x.view(shape) for (name, shape), x in zip(shapes.items(), parts, strict=True)}
    return found, done.stderr.decode()

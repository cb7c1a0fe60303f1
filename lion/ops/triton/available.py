"""Where Triton's kernels can run. Nothing here imports Triton."""

import contextlib
import importlib.metadata
import importlib.util
import os
import re

import torch

OLDEST = (3, 5)  # Triton's version


def _version() -> tuple[int, ...]:
    """The first two numbers of the installed Triton's version, without importing it; () if nobody says."""
    for name in ("triton", "pytorch-triton-rocm", "triton-rocm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return tuple(map(int, re.findall(r"\d+", importlib.metadata.version(name))[:2]))
    return ()


INSTALLED = importlib.util.find_spec("triton") is not None
VERSION = _version() if INSTALLED else ()


def interpreting() -> bool:
    """Whether Triton runs its kernels on the CPU, slowly, to look at what they compute."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    if os.environ.get("LION_TRITON") == "0":
        return "LION_TRITON=0 switches it off"
    if not INSTALLED:
        return "Triton is not installed (pip install 'lion-attention[triton]')"
    if VERSION and VERSION < OLDEST:
        return f"Triton {'.'.join(map(str, VERSION))} is installed, and {'.'.join(map(str, OLDEST))} is needed"
    if device.type == "cpu" and interpreting():
        return None
    if device.type != "cuda":
        return "it is for NVIDIA's and AMD's GPUs (on the CPU only with TRITON_INTERPRET=1, to test it)"
    if interpreting():
        return "TRITON_INTERPRET=1 is for tensors in the CPU's memory"
    if dtype == torch.float64:
        return "it has no float64 on GPUs"
    if not torch.cuda.is_available():
        return "no usable GPU or driver was found"
    if torch.version.hip is None:
        gpu = torch.cuda.get_device_properties(device)
        if gpu.major < 8:
            return f"the GPU has compute capability {gpu.major}.{gpu.minor}, and 8.0 is needed"
    return None

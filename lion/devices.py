"""Devices: which ones there are, why others cannot be used, and the one that commands take."""

import shutil
import subprocess
from typing import Any

import torch

CPU = torch.device("cpu")


def devices() -> dict[str, str | None]:
    """Every kind of device that torch knows of, and why it cannot be used, or None."""
    cuda, mps = None, None
    if not torch.backends.cuda.is_built():
        cuda = "this torch was built without CUDA"
    elif not torch.cuda.is_available():
        cuda = "no usable GPU or driver was found"
    if not torch.backends.mps.is_built():
        mps = "this torch was built without Metal"
    elif not torch.backends.mps.is_available():
        mps = "no Apple GPU was found"
    return {"cpu": None, "cuda": cuda, "mps": mps}


def described(device: torch.device) -> dict[str, Any]:
    """What a measurement on a GPU depends on: to be written beside its numbers."""
    if device.type != "cuda":
        return {}
    gpu = torch.cuda.get_device_properties(device)
    found = {
        "name": gpu.name,
        "capability": f"{gpu.major}.{gpu.minor}",
        "memory": gpu.total_memory,
        "processors": gpu.multi_processor_count,
        "runtime": torch.version.hip or torch.version.cuda,
    }
    if torch.version.hip is None and shutil.which("nvidia-smi"):
        fields = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit")
        query = ["nvidia-smi", f"--id=GPU-{gpu.uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        found |= dict(zip(fields, map(str.strip, answer.split(",")), strict=False))
    return found


def chosen(name: str = "") -> torch.device:
    """The device of that name, as "cpu" or "cuda:1"; "": a GPU if CUDA has one, otherwise the CPU."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    reason = devices().get(kind, "torch knows no such device")
    # Not by trying: every process of a distributed run would take memory of the first GPU.
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if reason is None and index and not (index.isdecimal() and int(index) < count):
        reason = f"there are {count}, counted from 0"
    if reason is not None:
        raise ValueError(f"--device {name} cannot be used: {reason}.")
    return torch.device(name)

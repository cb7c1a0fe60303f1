"""Devices: which ones there are, why others cannot be used, and the one that commands take."""

import torch


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


def chosen(name: str = "") -> torch.device:
    """The device of that name, as "cpu" or "cuda:1"; "": a GPU if there is one that CUDA can use, otherwise the CPU."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    reason = devices().get(name.split(":")[0], "torch knows no such device")
    if reason is None:
        try:
            return torch.zeros((), device=name).device  # one that is not there, as cuda:9, is refused by torch
        except (RuntimeError, AssertionError) as problem:
            reason = str(problem).splitlines()[0]
    raise ValueError(f"--device {name} cannot be used: {reason.removesuffix('.')}.")

"""The table of configurations, by architecture, dtype and kind of decay.

It is static: nothing is tried at run time, so that results do not differ from machine to machine or from run to run.
`lion bench compile` says what the rows compile to. A better row is found on a GPU: docs/gpu.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lion.ops.flops import tile_tokens


class Configuration(NamedTuple):
    C: int  # tokens in a chunk
    BD: int  # channels of keys in a tile
    BV: int  # channels of values in a tile
    step: int  # of these in the gradients of q and k: all at once take more registers than there are
    warps: int
    gradient_warps: int  # of `gradients`, which holds the most
    stages: int
    precision: str  # of products of float32: a tl.dot's input_precision


class Row(NamedTuple):
    """The first row that fits a call is taken: any architecture, dtype or decay fits "*"."""

    architecture: str
    dtype: str  # "half", or "single": float32, or sums of half precision that are not divided yet
    decay: str
    C: int
    BD: int
    BV: int
    step: int
    warps: int
    gradient_warps: int
    stages: int


TABLE = (
    Row("*", "half", "diagonal", 32, 32, 64, 32, 4, 4, 1),
    Row("*", "half", "*", 64, 64, 64, 32, 4, 8, 2),
    Row("*", "single", "diagonal", 16, 32, 32, 32, 4, 4, 1),
    Row("*", "single", "*", 32, 32, 32, 32, 4, 4, 1),
)


def configuration(
    q: Tensor,
    v: Tensor,
    f: Tensor | None,
    chunk_size: int | None,
    wide: bool,
    *,
    interpreted: bool = False,
    architecture: str | None = None,
) -> Configuration:
    T, D, V = q.shape[1], q.shape[-1], v.shape[-1]
    if interpreted:
        return _fitted(Row("*", "*", "*", 64, 64, 64, 64, 4, 4, 1), T, D, V, chunk_size, "ieee")
    architecture = architecture or architecture_of(q.device)
    half = q.dtype in (torch.bfloat16, torch.float16)
    wanted = (architecture, "half" if half and not wide else "single", decay_of(f))
    row = next(row for row in TABLE if all(x in ("*", y) for x, y in zip(row[:3], wanted, strict=True)))
    return _fitted(row, T, D, V, chunk_size, precision(architecture, half))


def _fitted(row: Row, T: int, D: int, V: int, chunk_size: int | None, precision: str) -> Configuration:
    """No more tokens and channels than there are."""
    C = tile_tokens(T, chunk_size, row.C)
    BD, BV, step = (min(most, _power_of_two(n)) for n, most in ((D, row.BD), (V, row.BV), (V, row.step)))
    return Configuration(C, BD, BV, step, row.warps, row.gradient_warps, row.stages, precision)


def decay_of(f: Tensor | None) -> str:
    return "none" if f is None else "scalar" if f.shape[-1] == 1 else "diagonal"


def precision(architecture: str, half: bool) -> str:
    """Three TF32 products are as exact as float32's; one is enough for what was half precision, and where torch is told
    so. AMD's have none."""
    if architecture.startswith("gfx"):
        return "ieee"
    return "tf32" if half or torch.get_float32_matmul_precision() != "highest" else "tf32x3"


def architecture_of(device: torch.device) -> str:
    gpu = torch.cuda.get_device_properties(device)
    return f"sm_{gpu.major}{gpu.minor}" if torch.version.hip is None else gpu.gcnArchName.split(":")[0]


def _power_of_two(n: int) -> int:
    """The next one; tensor cores take at least 16."""
    return max(16, 1 << max(0, n - 1).bit_length())

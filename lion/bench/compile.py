"""`lion bench compile`: Triton's kernels compiled for GPUs that are not there, and what the roofline allows them.

Nothing here is run on a GPU. Times are estimates: the larger of bytes over bandwidth and FLOPs over the peak.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lion.bench.assembly import ARCHITECTURES, check_usable, compiled
from lion.bench.op import DTYPES
from lion.bench.results import check_choices, save
from lion.ops import flops
from lion.ops.triton.scan import Arguments
from lion.progress import progress
from lion.terminal import table

DECAYS = ("none", "scalar", "diagonal")
FLASH_BACKWARD = 2.5  # times the forward pass's FLOPs
CAUSAL = {"forward": 3584, "forward+backward": 3584 + 8704}  # bytes per token, at 64 channels in half precision


class Device(NamedTuple):
    """By the maker's data sheet, dense: bytes and half precision FLOPs in a second."""

    bandwidth: float
    peak: float


DEVICES = {
    "A100 80GB": Device(2.039e12, 312e12),
    "H100 SXM": Device(3.35e12, 989e12),
    "MI300X": Device(5.3e12, 1307e12),
}


class Traffic(NamedTuple):
    """Bytes per token and head that the kernels load and store, with both directions and a norm."""

    forward: float
    backward: float


def traffic(decay: str, D: int, V: int, dtype: torch.dtype, C: int = 64, BD: int = 64, BV: int = 64) -> Traffic:
    """Counted from the kernels' loads and stores; tests/ops/triton counts what the interpreter sees."""
    e, wide = dtype.itemsize, torch.float32.itemsize
    state = dtype.itemsize if dtype == torch.bfloat16 else wide  # of a number in a stored state
    d, v = -(-D // BD), -(-V // BV)  # tiles
    of_state, of_keys = D * V * state / C, D * wide / C
    walks = 1 if decay == "none" else 2
    cost = {"none": 0, "scalar": wide, "diagonal": D * wide}[decay]  # of one walk
    by_tile = {"none": 0, "scalar": wide * d * v, "diagonal": D * wide * v}[decay]
    if decay == "none":
        of_state = of_keys = 0  # one for the whole sequence, which stays in the cache
    states = walks * (v * D * e + d * V * e + by_tile + of_state + of_keys)
    pairs = 0 if decay == "none" else v * D * e + V * e
    forward = states + pairs + v * D * e + walks * (of_state + of_keys * v) + V * e + wide
    forward += walks * v * cost * (2 if decay == "diagonal" else 1)
    saved = wide if e == 2 else e
    divisors = V * saved + V * e + 3 * wide
    adjoint = states + walks * (by_tile + d * v * 2 * wide) + (walks * (of_state + 2 * of_keys * v) if cost else 0)
    of_v = 2 * v * D * e + V * e + v * wide + walks * of_state + V * e + walks * v * cost
    of_q = d * (2 * V * e + 2 * wide) + 2 * D * e + walks * (of_state + of_keys) + D * e
    of_costs = walks * d * (3 * cost) if cost else 0
    backward = divisors + states + adjoint + of_v + 2 * of_q + 2 * of_costs
    return Traffic(forward, backward)


def work(decay: str, tokens: int, D: int) -> tuple[float, float]:
    """FLOPs per token and head, forward and backward."""
    f = None if decay == "none" else [1, tokens, 1, D if decay == "diagonal" else 1]
    x = Arguments([1, tokens, 1, D], [1, tokens, 1, D], [1, tokens, 1, D], f, f, "sum", "both")  # type: ignore[arg-type]
    return flops.of_tiles(x) / tokens, flops.of_tiles(x, backward=True, costs=decay != "none") / tokens


def roofline(tokens: Sequence[int], dtype: torch.dtype) -> list[dict]:
    """Microseconds for 1,024 tokens of 16 heads with 64 channels, by device, length and pass."""
    D, found = 64, []
    moved = traffic("scalar", D, D, dtype)
    for name, device in DEVICES.items():
        for T in tokens:
            one, other = work("scalar", T, D)
            flash = 4 * T * D
            for kind, many, size, softmax in (
                ("forward", one, moved.forward, flash),
                ("forward+backward", one + other, sum(moved), (1 + FLASH_BACKWARD) * flash),
            ):
                seconds = {
                    "triton": max(size / device.bandwidth, many / device.peak),
                    "flash": softmax / device.peak,
                    "causal twice": CAUSAL[kind] / device.bandwidth,
                }
                times = {x: 1024 * 16 * 1e6 * y for x, y in seconds.items()}
                found.append({"device": name, "tokens": T, "pass": kind, "microseconds": times})
    return found


def run(
    architectures: Sequence[str] = tuple(ARCHITECTURES),
    dtypes: Sequence[str] = ("bfloat16", "float32"),
    dims: Sequence[int] = (64, 128),
    decays: Sequence[str] = DECAYS,
    tokens: Sequence[int] = (1024, 2048, 4096, 16384),
    forward_only: bool = False,
    json_path: Path | None = None,
) -> dict:
    """Compile, print, write the JSON."""
    check_usable()
    check_choices(architectures=(architectures, ARCHITECTURES), dtypes=(dtypes, DTYPES), decays=(decays, DECAYS))
    plans = [(a, t, D, x) for a in architectures for t in dtypes for D in dims for x in decays]
    kernels: list[dict] = []
    with progress(total=len(plans), unit="configuration") as bar:
        for architecture, dtype, D, decay in plans:
            place = {"architecture": architecture, "dtype": dtype, "D": D, "decay": decay}
            bar.describe(" ".join(map(str, place.values())))
            made = compiled(architecture, decay, D, DTYPES[dtype], backward=not forward_only)
            kernels.extend({**place, **kernel._asdict()} for kernel in made)
            save(json_path, {"kernels": kernels}, unfinished=True)
            bar.advance()
    per_token = []
    for dtype in dtypes:
        for D in dims:
            for decay in decays:
                moved, (one, other) = traffic(decay, D, D, DTYPES[dtype]), work(decay, 4096, D)
                bytes_ = {"bytes forward": moved.forward, "bytes backward": moved.backward}
                per_token.append(
                    {"dtype": dtype, "D": D, "decay": decay, **bytes_, "FLOPs forward": one, "FLOPs backward": other}
                )
    found = {"kernels": kernels, "per token": per_token, "roofline": roofline(tokens, torch.bfloat16)}
    print(report(found))
    save(json_path, found)
    return found


def report(found: dict) -> str:
    header = ("architecture", "dtype", "D", "decay", "kernel", "registers", "spills", "shared", "products")
    names = ("architecture", "dtype", "D", "decay", "name", "registers", "spills", "shared", "products")
    kernels = [[x[name] for name in names] for x in found["kernels"]]
    counted = [[y if isinstance(y, str) else f"{y:,.0f}" for y in x.values()] for x in found["per token"]]
    times = []
    for x in found["roofline"]:
        micro = [f"{y:.3g}" for y in x["microseconds"].values()]
        times.append((x["device"], f"{x['tokens']:,}", x["pass"], *micro))
    return "\n\n".join(
        [
            "Compiled, not run on a GPU. Spills: instructions that store registers to local memory or load them.",
            table(header, kernels),
            "Per token and head, D = V, both directions, norm sum:",
            table(("dtype", "D", "decay", *list(found["per token"][0])[3:]), counted),
            "Roofline, not measured: microseconds for 1,024 tokens of 16 heads, D = V = 64, half precision. The\n"
            "larger of bytes over bandwidth and FLOPs over peak; flash: softmax attention, by its FLOPs; causal\n"
            "twice: a causal kernel run in both directions, by its bytes.",
            table(("device", "tokens", "pass", "triton", "flash", "causal twice"), times),
        ]
    )

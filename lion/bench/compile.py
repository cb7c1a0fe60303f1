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
from lion.ops.triton.configurations import Configuration, configuration
from lion.ops.triton.operators import Arguments
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
    state = e if dtype == torch.bfloat16 else wide  # of a number in a stored state
    d, v = -(-D // BD), -(-V // BV)  # tiles
    of_state, of_keys = D * V * state / C, D * wide / C
    divisors = V * (wide if e == 2 else e) + V * e + 3 * wide
    if decay == "none":  # one state, which is written once, and read by every chunk
        states: float = v * D * e + d * V * e
        forward = states + v * (D * e + of_keys) + of_state + V * e + wide
        of_v = v * D * e + of_state + V * e
        of_q = d * (V * e + 2 * wide) + of_state + of_keys + D * e
        return Traffic(forward, divisors + 2 * states + 2 * wide * d * v + of_v + 2 * of_q)
    walks, diagonal = 2, decay == "diagonal"
    cost = D * wide if diagonal else wide  # of a token and walk
    loads = 2 if diagonal else 1  # of a cost: by rows and by columns
    by_tile = walks * v * (cost if diagonal else d * cost)
    states = walks * (v * D * e + d * V * e + of_state + of_keys) + by_tile
    arriving = walks * (of_state + v * of_keys)
    forward = states + 2 * v * D * e + V * e + arriving + walks * v * cost * loads + V * e + wide
    through = 2 * walks * v * of_keys  # written and read
    adjoint = states + by_tile + walks * d * v * 2 * wide + arriving + through
    of_v = 2 * v * D * e + V * e + v * wide + walks * of_state + walks * v * cost * loads + V * e
    of_q = d * (2 * V * e + 2 * wide) + 2 * D * e + walks * (of_state + of_keys) + D * e
    of_costs = cost * (14 if diagonal else 10 * d)
    return Traffic(forward, divisors + states + adjoint + of_v + 2 * of_q + of_costs)


def configured(decay: str, D: int, dtype: torch.dtype) -> Configuration:
    """The table's row for an A100: those of the others have the same tiles so far."""
    q = torch.empty(1, 4096, 1, D, dtype=dtype, device="meta")
    f = None if decay == "none" else q[..., :1] if decay == "scalar" else q
    return configuration(q, q, f, None, False, architecture="sm_80")


def work(decay: str, tokens: int, D: int, C: int = 64) -> tuple[float, float]:
    """FLOPs per token and head, forward and backward."""
    f = None if decay == "none" else [1, tokens, 1, D if decay == "diagonal" else 1]
    x = Arguments([1, tokens, 1, D], [1, tokens, 1, D], [1, tokens, 1, D], f, f, chunk_size=C)  # type: ignore
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
                use = configured(decay, D, DTYPES[dtype])
                moved = traffic(decay, D, D, DTYPES[dtype], use.C, use.BD, use.BV)
                one, other = work(decay, 4096, D, use.C)
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

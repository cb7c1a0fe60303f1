"""`lion bench kernel`: the compiled kernels by threads, length and kind of decay, and the cost of a call."""

from collections.abc import Callable
from pathlib import Path

import torch

import lion
from lion.bench.op import DECAYS, Inputs, Shape
from lion.bench.results import save
from lion.bench.timing import Work, interleaved, training
from lion.ops.call import Call
from lion.ops.cpu import library
from lion.ops.kernels import KERNELS
from lion.progress import progress
from lion.terminal import milliseconds, table

THREADED = ("1,1,65536,64", "1,2,8192,64", "1,8,4096,64")
LENGTHS = ("1,1,4096,64", "1,1,65536,64", "1,1,1048576,64")
DECAYED = ("1,8,1024,64", "1,8,4096,64")
SMALL = "1,1,16,64"
CALLS = 100  # of a small one, in a run


def work(shape: str, decay: str = "per-token", *, threads: int = 0, backward: bool = False) -> Work:
    inputs = Inputs.random(Shape.parse(shape), torch.float32, decay, torch.device("cpu"))

    def forward():
        return lion.attention(*inputs, form="scan", backend="cpu")

    if backward:
        return training(forward, inputs.trainable())

    def run() -> None:
        if threads:
            torch.set_num_threads(threads)
        with torch.no_grad():
            forward()

    return run


def run(rounds: int = 7, tune: bool = False, json_path: Path | None = None) -> dict[str, dict[str, float]] | None:
    """Measure, print, write the JSON. All times are seconds."""
    if tune:
        from lion.bench import tune as sizes

        sizes.run(rounds, json_path)
        return None
    library.loaded()  # raises with the reason, if there is none
    threads = torch.get_num_threads()
    decays = [x for x, kind in DECAYS.items() if ("cpu", "scan", kind) in KERNELS]
    plans: dict[str, Callable[[], dict[str, Work]]] = {
        "threads": lambda: {f"{x} {n}": work(x, threads=n) for x in THREADED for n in (1, threads)},
        "length": lambda: {x: work(x) for x in LENGTHS},
        "forward": lambda: {f"{x} {d}": work(x, d) for x in DECAYED for d in decays},
        "training": lambda: {f"{x} {d}": work(x, d, backward=True) for x in DECAYED for d in decays},
        "call": lambda: {SMALL: repeated(work(SMALL)), "the work": repeated(alone(SMALL))},
    }
    found: dict[str, dict[str, float]] = {}
    with progress(total=len(plans), unit="table") as bar:
        for name, plan in plans.items():
            bar.describe(name)
            found[name], _ = interleaved(plan(), rounds=10 * rounds if name == "call" else rounds)
            torch.set_num_threads(threads)
            bar.advance()
    print(report(found, threads, decays))
    save(json_path, {"threads": threads, "seconds": found})
    return found


def repeated(once: Work) -> Work:
    def run() -> None:
        for _ in range(CALLS):
            once()

    return run


def alone(shape: str) -> Work:
    """The compiled code by itself, with packed arguments and allocated memory."""
    from lion.ops.cpu import scan

    q, k, v, log_decay = Inputs.random(Shape.parse(shape), torch.float32, "per-token", torch.device("cpu"))
    return scan.prepared(Call(q, k, v, log_decay))


def report(found: dict[str, dict[str, float]], threads: int, decays: list[str]) -> str:
    scaling = [
        (x, milliseconds(one), milliseconds(all_), f"{one / all_:.2f}x")
        for x in THREADED
        for one, all_ in [[found["threads"][f"{x} {n}"] for n in (1, threads)]]
    ]
    lengths = [
        (x, milliseconds(found["length"][x]), f"{found['length'][x] / Shape.parse(x).T * 1e9:.0f}") for x in LENGTHS
    ]
    kinds = []
    for x in DECAYED:
        for decay in decays:
            cells = []
            for what in ("forward", "training"):
                took, usual = (found[what][f"{x} {d}"] for d in (decay, "per-token"))
                cells += [milliseconds(took), f"{took / usual:.2f}"]
            kinds.append((x, decay, *cells))
    call, itself = (found["call"][x] / CALLS * 1e6 for x in (SMALL, "the work"))
    return "\n\n".join(
        [
            "float32, forward, norm sum; shapes are B,H,T,D",
            table(("threads", "1: ms", f"{threads}: ms", "faster"), scaling),
            table(("length", "ms", "ns per token"), lengths),
            table(("decay", "", "fwd ms", "of per-token", "fwd+bwd ms", "of per-token"), kinds),
            f"A call at {SMALL} takes {call:.0f} microseconds, {call - itself:.0f} more than the work itself.",
        ]
    )

"""`lion bench op --variants`: what the kinds of operator behind the variants cost beside each other."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import lion
from lion.bench.op import Inputs, Shape
from lion.bench.results import save
from lion.bench.timing import interleaved
from lion.progress import progress
from lion.terminal import milliseconds, ratio, table

USUAL = Shape(1, 8, 4096, 64)
# By name: the kind of decay (op.DECAYS), whether it is a delta rule, and the form.
KINDS = {
    "no decay": ("none", False, "auto"),
    "per-token decay": ("per-token", False, "auto"),
    "diagonal decay": ("diagonal", False, "auto"),
    "delta rule": ("none", True, "scan"),
    "delta rule, token by token": ("none", True, "rnn"),
}
# Which is said of which: (kind, of what)
COMPARED = (
    ("no decay", "per-token decay"),
    ("diagonal decay", "per-token decay"),
    ("delta rule", "delta rule, token by token"),
)


def work(shape: Shape, decay: str, delta: bool, form: str, *, backward: bool) -> Callable[[], object]:
    q, k, v, log_decay = Inputs.random(shape, torch.float32, decay, torch.device("cpu"))
    options: dict = {"form": form}
    leaves: list[Tensor] = [q, k, v] if log_decay is None else [q, k, v, log_decay]
    if delta:
        beta = torch.rand(q.shape[:3], generator=torch.Generator().manual_seed(1))
        k = F.normalize(k, dim=-1)
        leaves = [q, k, v, beta]
        options |= {"beta": beta, "norm": "none"}
    along = torch.ones_like(v)

    def forward() -> object:
        with torch.no_grad():
            return lion.attention(q, k, v, log_decay, **options)

    def both() -> object:
        return torch.autograd.grad(lion.attention(q, k, v, log_decay, **options), leaves, along)

    if backward:
        for x in leaves:
            x.requires_grad_()
    return both if backward else forward


def run(shape: Shape = USUAL, *, rounds: int = 5, json_path: Path | None = None) -> dict[str, dict[str, float]]:
    """Seconds by pass and kind."""
    found: dict[str, dict[str, float]] = {}
    tries = []
    with progress(total=2 * len(KINDS) * (rounds + 1), unit="run") as bar:
        for which, backward in (("forward", False), ("forward+backward", True)):
            bar.describe(which)
            works = {name: work(shape, *kind, backward=backward) for name, kind in KINDS.items()}
            found[which], fair = interleaved(works, rounds=rounds, tick=bar.advance)
            tries.append(f"{fair} ({which})")
    rows = [(name, *(milliseconds(found[which][name]) for which in found)) for name in KINDS]
    print(f"float32, {shape} = B,H,T,D, {torch.get_num_threads()} threads, best of {' and '.join(tries)}\n")
    print(table(("operator", "fwd ms", "fwd+bwd ms"), rows), end="\n\n")
    for name, of in COMPARED:
        times = " and ".join(f"{ratio(found[which][of] / found[which][name])} ({which})" for which in found)
        print(f"{name}: {times} as fast as {of}")
    save(json_path, {"shape": list(shape), "seconds": found})
    return found

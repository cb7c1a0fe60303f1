"""`lion bench op --variants`: the operators behind the variants, beside each other."""

from pathlib import Path

import torch
import torch.nn.functional as F

import lion
from lion.bench.op import Inputs, Shape
from lion.bench.results import save
from lion.bench.timing import Work, inference, interleaved, training
from lion.devices import CPU
from lion.progress import progress
from lion.terminal import milliseconds, ratio, table

USUAL = Shape(1, 8, 4096, 64)
# By name: the kind of decay (op.DECAYS), whether it is a delta rule, and the form.
OPERATORS = {
    "no decay": ("none", False, "auto"),
    "per-token decay": ("per-token", False, "auto"),
    "diagonal decay": ("diagonal", False, "auto"),
    "delta rule": ("none", True, "scan"),
    "delta rule, token by token": ("none", True, "rnn"),
}
COMPARED = {
    "no decay": "per-token decay",
    "diagonal decay": "per-token decay",
    "delta rule": "delta rule, token by token",
}


def work(shape: Shape, decay: str, delta: bool, form: str, *, backward: bool, device: torch.device = CPU) -> Work:
    q, k, v, log_decay = Inputs.random(shape, torch.float32, decay, device)
    options: dict = {"form": form}
    if delta:
        k = F.normalize(k, dim=-1)
        beta = torch.rand(q.shape[:3], generator=torch.Generator().manual_seed(1))
        options |= {"beta": beta.to(device), "norm": "none"}
    leaves = [x for x in (q, k, v, log_decay, options.get("beta")) if x is not None]
    for x in leaves:
        x.requires_grad_(backward)

    def run() -> torch.Tensor:
        return lion.attention(q, k, v, log_decay, **options)

    return training(run, leaves) if backward else inference(run)


def run(
    shape: Shape = USUAL, *, rounds: int = 5, device: torch.device = CPU, json_path: Path | None = None
) -> dict[str, dict[str, float]]:
    """Seconds by pass and operator."""
    found: dict[str, dict[str, float]] = {}
    tries = []
    with progress(total=2 * len(OPERATORS) * (rounds + 1), unit="run") as bar:
        for which, backward in (("forward", False), ("forward+backward", True)):
            bar.describe(which)
            works = {name: work(shape, *kind, backward=backward, device=device) for name, kind in OPERATORS.items()}
            found[which], fair = interleaved(works, rounds=rounds, tick=bar.advance)
            tries.append(f"{fair} ({which})")
    rows = [(name, *(milliseconds(times[name]) for times in found.values())) for name in OPERATORS]
    print(f"float32, {shape} = B,H,T,D, {torch.get_num_threads()} threads, best of {' and '.join(tries)}\n")
    print(table(("operator", "fwd ms", "fwd+bwd ms"), rows), end="\n\n")
    for name, of in COMPARED.items():
        times = " and ".join(f"{ratio(found[which][of] / found[which][name])} ({which})" for which in found)
        print(f"{name}: {times} as fast as {of}")
    save(json_path, {"shape": list(shape), "seconds": found})
    return found

"""`lion bench layer`: whole attention layers, projections included, beside the same layer with softmax."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import lion
from lion.bench.results import save
from lion.bench.timing import interleaved
from lion.progress import progress
from lion.terminal import milliseconds, ratio, table

SNAKES = ("snake", "transposed_snake")
# The five of the paper's Table 2: a variant, and the orders it walks.
PAPERS = {
    "lion_lit": ("lion_lit", None),
    "lion_d": ("lion_d", None),
    "lion_d, 2 orders": ("lion_d", SNAKES),
    "lion_s": ("lion_s", None),
    "lion_s, 2 orders": ("lion_s", SNAKES),
}
Works = dict[str, Callable[[], object]]


def works(names: dict[str, tuple[str, Sequence[str] | None]], batch: int, tokens: int, dim: int, heads: int) -> Works:
    """Forward and backward of a layer of each."""
    x = torch.randn(batch, tokens, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    along = torch.ones_like(x)

    def work(layer: lion.LionAttention) -> Callable[[], object]:
        leaves = [x, *layer.parameters()]
        return lambda: torch.autograd.grad(layer(x), leaves, along)

    layers = {name: lion.LionAttention(dim, heads, variant, orders=orders) for name, (variant, orders) in names.items()}
    return {name: work(layer) for name, layer in layers.items()}


def run(
    *,
    batch: int = 8,
    tokens: int = 197,
    dim: int = 384,
    heads: int = 6,
    every: bool = False,
    rounds: int = 30,
    json_path: Path | None = None,
) -> dict[str, float]:
    """Seconds of each, forward and backward."""
    names: dict[str, tuple[str, Sequence[str] | None]] = {"softmax": ("softmax", None), **PAPERS}
    if every:
        names |= {name: (name, None) for name in lion.VARIANTS}
    with progress(total=len(names) * (rounds + 1), unit="run") as bar:
        seconds, tries = interleaved(works(names, batch, tokens, dim, heads), rounds=rounds, tick=bar.advance)
    rows = [
        (name, milliseconds(s), f"{s / seconds['softmax']:.2f}", ratio(seconds["softmax"] / s))
        for name, s in seconds.items()
    ]
    print(
        f"float32, B={batch}, T={tokens}, dim={dim}, {heads} heads, {torch.get_num_threads()} threads, "
        f"best of {tries}\n"
    )
    print(table(("layer", "fwd+bwd ms", "of softmax's time", "faster"), rows))
    save(json_path, {"seconds": seconds, "best_of": tries})
    return seconds

"""`lion bench layer`: whole attention layers, projections included, beside the same layer with softmax."""

from collections.abc import Sequence
from pathlib import Path

import torch

import lion
from lion.bench.results import save, setting
from lion.bench.timing import Work, interleaved, training
from lion.devices import chosen
from lion.progress import progress
from lion.terminal import milliseconds, ratio, table

SNAKES = ("snake", "transposed_snake")
Layers = dict[str, tuple[str, Sequence[str] | None]]  # the variant and the orders of each layer
PAPERS: Layers = {  # the five of the paper's Table 2
    "lion_lit": ("lion_lit", None),
    "lion_d": ("lion_d", None),
    "lion_d, 2 orders": ("lion_d", SNAKES),
    "lion_s": ("lion_s", None),
    "lion_s, 2 orders": ("lion_s", SNAKES),
}


def work(variant: str, orders: Sequence[str] | None, x: torch.Tensor, heads: int) -> Work:
    """The forward and backward pass of a layer."""
    layer = lion.LionAttention(x.shape[-1], heads, variant, orders=orders).to(x.device)
    return training(lambda: layer(x), [x, *layer.parameters()])


def run(
    *,
    batch: int = 8,
    tokens: tuple[int, ...] = (197,),
    dim: int = 384,
    heads: int = 6,
    all: bool = False,
    rounds: int = 30,
    device: str = "cpu",
    json_path: Path | None = None,
) -> dict[int, dict[str, float]]:
    """Seconds of each layer, forward and backward, for each number of tokens. `all`: of every variant."""
    layers: Layers = {"softmax": ("softmax", None), **PAPERS}
    if all:
        layers |= {name: (name, None) for name in lion.VARIANTS}
    there = chosen(device)
    found, all_tries = {}, {}
    for length in tokens:
        x = torch.randn(batch, length, dim, generator=torch.Generator().manual_seed(0)).to(there).requires_grad_()
        works = {name: work(*layer, x, heads) for name, layer in layers.items()}
        with progress(total=len(works) * (rounds + 1), unit="run") as bar:
            seconds, tries = interleaved(works, rounds=rounds, tick=bar.advance)
        found[length], all_tries[length] = seconds, tries
        softmax = seconds["softmax"]
        rows = [(name, milliseconds(s), f"{s / softmax:.2f}", ratio(softmax / s)) for name, s in seconds.items()]
        threads = torch.get_num_threads()
        print(f"float32, B={batch}, T={length}, dim={dim}, {heads} heads, {threads} threads, best of {tries}\n")
        print(table(("layer", "fwd+bwd ms", "of softmax's time", "faster"), rows), flush=True)
        if length != tokens[-1]:
            print()
    save(json_path, {"setting": setting(device=device), "seconds": found, "best_of": all_tries})
    return found

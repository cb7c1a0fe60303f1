"""A picture of every variant: its mask, before queries and keys are multiplied in."""

import math
from pathlib import Path

import torch

from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS

TOKENS, DIM, HEADS = 48, 64, 4


def draw(path: Path) -> None:
    """The masks of freshly made layers on random tokens, one head of each, beside each other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 7
    rows = math.ceil(len(VARIANTS) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(2.1 * columns, 2.35 * rows), layout="constrained")
    for axis in axes.flat:
        axis.axis("off")
    for axis, name in zip(axes.flat, VARIANTS, strict=False):
        torch.manual_seed(1)
        x = torch.randn(1, TOKENS, DIM)
        with torch.no_grad():
            layer = LionAttention(DIM, HEADS, name)
            # These two have no mask: what a key does depends on all the others.
            masked = not (layer.variant.softmax or layer.variant.delta)
            weights = layer.weights(x, of_mask=masked)[0, 0].abs()
        weights = weights / weights.amax(-1, keepdim=True)
        image = axis.imshow(weights.numpy(), cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(name if masked else f"{name} (with q, k)", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.5, label="weight of token j for token i,\nof the largest for i")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)

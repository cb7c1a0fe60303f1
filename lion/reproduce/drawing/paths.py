"""The paths along which the patches of an image are walked, and the weights that follow from them."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lion
from lion.nn.orders import ORDERS, grid_orders
from lion.reproduce.drawing.canvas import BOTH, FORWARD, GREEN, GREY, INK, arrow, bare, canvas, ramp, save, tint

TITLES = {
    "rows": "row by row",
    "snake": "snake",
    "transposed_snake": "transposed snake",
}
SNAKES = ("snake", "transposed_snake")
COLOURS = {"rows": FORWARD, "snake": FORWARD, "transposed_snake": GREEN}
SIDE = 6  # patches of the grid of the paths
WIDE, DECAY = 13, 0.8  # of the grid of the weights
CAPTION = (
    "Above, the paths: the circle is the first patch, the square the last, and the reverse walk takes the same way "
    f"back. Below, what each patch counts for the one in the middle (x), walked both ways with a decay of {DECAY:g} "
    "per step; shown is the square root, darker is more."
)


def places(name: str, height: int, width: int) -> list[tuple[int, int]]:
    """(row, column) of the patches, in the order of the path."""
    return [divmod(token, width) for token in ORDERS[name](height, width).tolist()]


def strides(name: str, height: int, width: int) -> list[float]:
    """The lengths of the steps, in patches: 1 is to a neighbour."""
    path = places(name, height, width)
    return [math.dist(a, b) for a, b in itertools.pairwise(path)]


def weights(names: Sequence[str], height: int, width: int, decay: float) -> Tensor:
    """[height, width]: what each patch counts for the one in the middle; of several paths the mean, as in the paper."""
    tokens = height * width
    ones, values = torch.ones(1, tokens, 1, 1).double(), torch.eye(tokens).double()[None, :, None]
    log_decay = torch.tensor([decay], dtype=torch.float64).log()
    each = [
        lion.attention(ones, ones, values, log_decay, orders=grid_orders([name], height, width))[0, :, 0]
        for name in names
    ]
    middle = height // 2 * width + width // 2
    return torch.stack(each).mean(0)[middle].view(height, width)


def draw(path: Path) -> bool:
    figure = canvas(11.4, 6.1)
    above, below = figure.subplots(2, 4)
    for axis, name in zip(above, TITLES, strict=False):
        _path(axis, name, COLOURS[name], numbers=True)
        longest = max(strides(name, SIDE, SIDE))
        words = "every step is to a neighbour" if longest == 1 else f"{SIDE - 1} jumps, of {longest:.0f} patches each"
        _title(axis, TITLES[name], words)
    for name, shift in zip(SNAKES, (-0.13, 0.13), strict=True):
        _path(above[3], name, COLOURS[name], shift=shift)
    _title(above[3], "two paths", "both snakes: the outputs' mean")
    for axis, names in zip(below, [*((name,) for name in TITLES), SNAKES], strict=True):
        shown = weights(names, WIDE, WIDE, DECAY)
        colours = ramp(COLOURS[names[0]] if len(names) == 1 else BOTH)
        axis.imshow((shown / shown.max()).sqrt().numpy(), cmap=colours, vmin=0, vmax=1.15)
        _grid(axis, WIDE, 0.6)
        axis.plot(WIDE // 2, WIDE // 2, "x", color="white", markersize=7, markeredgewidth=2)
        axis.set_xlim(-0.7, WIDE - 0.3)
        axis.set_ylim(WIDE - 0.3, -0.7)
        bare(axis)
    figure.subplots_adjust(left=0.012, right=0.988, top=0.885, bottom=0.01, wspace=0.07, hspace=0.06)
    return save(figure, path)


def _title(axis: Any, title: str, words: str) -> None:
    axis.text(SIDE / 2 - 0.5, -1.3, title, ha="center", fontsize=12, fontweight="bold", color=INK)
    axis.text(SIDE / 2 - 0.5, -0.8, words, ha="center", fontsize=10, color=INK)


def _grid(axis: Any, side: int, width: float) -> None:
    for i in range(side + 1):
        axis.plot([-0.5, side - 0.5], [i - 0.5] * 2, color="0.8", lw=width, zorder=1)
        axis.plot([i - 0.5] * 2, [-0.5, side - 0.5], color="0.8", lw=width, zorder=1)


def _path(axis: Any, name: str, colour: str, *, numbers: bool = False, shift: float = 0.0) -> None:
    """Patches and arrows between them; with numbers, darker the later they are."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    path = places(name, SIDE, SIDE)
    _grid(axis, SIDE, 1.0)
    for i, (row, column) in enumerate(path if numbers else ()):
        fill = tint(colour, 0.05 + 0.33 * i / len(path))
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fc=fill, ec="none", zorder=0))
        halo = [withStroke(linewidth=2, foreground=fill)]
        at = (column - 0.45, row - 0.43)
        axis.text(*at, i + 1, fontsize=7.5, color="0.3", va="top", ha="left", zorder=6, path_effects=halo)
    for a, b in itertools.pairwise(path):
        start, end = ((column + shift, row + shift) for row, column in (a, b))
        if math.dist(a, b) > 1:
            arrow(axis, start, end, GREY, width=1.1, head=9, linestyle=(0, (4, 3)), shrinkA=3, shrinkB=6)
        else:
            arrow(axis, start, end, colour, width=1.7, head=10)
    first, last = path[0], path[-1]
    axis.plot(first[1] + shift, first[0] + shift, "o", color=colour, markersize=7.5, zorder=4)
    axis.plot(last[1] + shift, last[0] + shift, "s", color="white", mec=colour, mew=1.8, markersize=7.5, zorder=4)
    axis.set_xlim(-0.6, SIDE - 0.4)
    axis.set_ylim(SIDE - 0.4, -0.6)
    bare(axis)

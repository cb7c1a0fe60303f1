"""The chunkwise form: the blocks of attention and mask that a chunk needs, and the two walks that a mask is made of."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import lion
from lion.ops.checks import Direction
from lion.ops.torch.scores import arriving, leaving
from lion.reproduce.drawing.canvas import BOTH, FORWARD, INK, REVERSE, bare, canvas, ramp, save

TOKENS, CHUNK, CHANNELS = 24, 6, 4
SHOWN = 2  # the chunk whose row of blocks is taken apart
FIXED = 0.88
CAPTION = (
    "Attention and masks in chunks. Above, every block of C x C numbers, of the forward walk (blue), of the reverse "
    f"walk (orange), or of both (violet); framed is what chunk {SHOWN + 1} needs. Below, this row of blocks: off the "
    "diagonal each is the product of what stands beside it, of queries Q and keys K, or of the decays from the chunk's "
    "border to its queries (r) and from the keys to that border (s), which are 1 at most. Darker is more."
)
CAPTION_OF_MASKS = (
    "The bidirectional masks, made of those of the two walks. M is, for tokens i (rows) and j (columns), the decay on "
    "the way from j to i: darker is more, white is 0, the diagonal is 1."
)


class Block(NamedTuple):
    """A block of the chunkwise form: rows @ columns, or what is computed at once on the diagonal."""

    i: int
    j: int
    rows: Tensor | None  # [C, d]: of the queries' chunk
    columns: Tensor | None  # [d, C]: of the keys' chunk
    whole: Tensor  # [C, C]


def decays(name: str) -> Tensor | None:
    """log lambda of every token, [T]; None without decay."""
    if name == "lion_lit":
        return None
    if name == "lion_d":
        return torch.full((TOKENS,), FIXED, dtype=torch.float64).log()
    return F.logsigmoid(2.2 + 1.6 * torch.randn(TOKENS, generator=torch.Generator().manual_seed(5)).double())


def features() -> tuple[Tensor, Tensor]:
    """Queries and keys, [T, D]: positive and of length 1, as the paper's."""
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(TOKENS, CHANNELS, generator=generator).double() for _ in range(2))
    q, k = (F.normalize(F.silu(1.4 * x) + 0.5, dim=-1) for x in (q, k))
    return q, k


def matrix(q: Tensor, k: Tensor, log_decay: Tensor | None, direction: Direction = "both") -> Tensor:
    """[T, T]: what the operator multiplies the values by, not normalised."""
    T = len(q)
    values = torch.eye(T).double()[None, :, None]
    cost = None if log_decay is None else log_decay[None, :, None]
    return lion.attention(q[None, :, None], k[None, :, None], values, cost, norm="none", direction=direction)[0, :, 0]


def mask(log_decay: Tensor | None, direction: Direction = "both") -> Tensor:
    """[T, T]: the same of queries and keys that are all 1."""
    ones = torch.ones(TOKENS, 1).double()
    return matrix(ones, ones, log_decay, direction)


def blocks(q: Tensor, k: Tensor, log_decay: Tensor | None, chunk: int) -> list[Block]:
    """All blocks, as the form `chunk` computes them: off the diagonal from a factor per query and one per key."""
    T = len(q)
    cost = (torch.zeros(T).double() if log_decay is None else log_decay)[:, None]
    found = []
    for i in range(T // chunk):
        rows = slice(i * chunk, (i + 1) * chunk)
        found.append(Block(i, i, None, None, matrix(q[rows], k[rows], None if log_decay is None else log_decay[rows])))
        for reverse, outside in ((False, slice(0, rows.start)), (True, slice(rows.stop, None))):
            queries = q[rows] * arriving(cost[rows], reverse=reverse).exp()
            keys = k[outside] * leaving(cost[outside], reverse=reverse).exp()
            for j, part in enumerate(keys.split(chunk), i + 1 if reverse else 0):
                if len(part):
                    found.append(Block(i, j, queries, part.T, queries @ part.T))
    return found


def assembled(parts: Sequence[Block], chunk: int) -> Tensor:
    """[T, T]: the blocks in their places."""
    T = chunk * (1 + max(x.i for x in parts))
    whole = torch.zeros(T, T).double()
    for x in parts:
        whole[x.i * chunk : (x.i + 1) * chunk, x.j * chunk : (x.j + 1) * chunk] = x.whole
    return whole


def colour(i: int, j: int) -> str:
    """Blocks below the diagonal are the forward walk's, those above it the reverse walk's."""
    return BOTH if i == j else FORWARD if j < i else REVERSE


class Column(NamedTuple):
    """A column of the picture."""

    title: str
    matrix: str
    q: Tensor
    k: Tensor
    log_decay: Tensor | None
    block: str  # names, of chunks i and j
    rows: tuple[str, str]  # of the queries' factors in the forward and in the reverse walk
    columns: str  # of the keys' factor


def columns() -> list[Column]:
    ones = torch.ones(TOKENS, 1).double()
    q, k = features()
    vectors = "$M_{{{i}{j}}}$", ("$r_{{{i}}}^F$", "$r_{{{i}}}^B$"), "$s_{{{j}}}$"
    scores = "$A_{{{i}{j}}}$", ("$Q_{{{i}}}$", ""), "$K_{{{j}}}^T$"
    return [
        Column("LION-LIT: no decay", "attention  $A = QK^T$", q, k, None, *scores),
        Column(f"LION-D: a fixed decay, {FIXED:g}", "mask  $M$", ones, ones, decays("lion_d"), *vectors),
        Column("LION-S: a decay per token", "mask  $M$", ones, ones, decays("lion_s"), *vectors),
    ]


def draw(path: Path) -> bool:
    figure = canvas(12.6, 6.85)
    for n, column in enumerate(columns()):
        parts = blocks(column.q, column.k, column.log_decay, CHUNK)
        left, wide = 0.01 + 0.33 * n, 0.32
        above = figure.add_axes((left, 0.335, wide, 0.655), anchor="S")
        below = figure.add_axes((left, 0.0, wide, 0.315), anchor="N")
        _whole(above, parts, column)
        _row(below, [x for x in parts if x.i == SHOWN], column)
    return save(figure, path)


def _shares(parts: Sequence[Block], column: Column) -> Callable[[Tensor], Tensor]:
    """The colours of a column's numbers. A mask's begin at 0; attention's at its least, as none is near 0."""
    lowest = 0.0 if column.log_decay is not None else min(x.whole.min().item() for x in parts)
    most = max(x.whole.max().item() for x in parts)
    return lambda numbers: (numbers - lowest) / (most - lowest)


def _whole(axis: Any, parts: Sequence[Block], column: Column) -> None:
    from matplotlib.patches import Rectangle

    shares = _shares(parts, column)
    for x in parts:
        _cells(axis, shares(x.whole), (x.j * CHUNK, x.i * CHUNK), colour(x.i, x.j))
    for border in range(0, TOKENS + 1, CHUNK):
        axis.plot([0, TOKENS], [border] * 2, color=INK, lw=0.9)
        axis.plot([border] * 2, [0, TOKENS], color=INK, lw=0.9)
    axis.add_patch(Rectangle((0, SHOWN * CHUNK), TOKENS, CHUNK, fc="none", ec=INK, lw=3, zorder=5))
    for n in range(TOKENS // CHUNK):
        middle = (n + 0.5) * CHUNK
        _text(axis, (-0.9, middle), n + 1, size=10)
        _text(axis, (middle, -0.9), n + 1, size=10)
    _text(axis, (TOKENS / 2, -4.6), column.title, size=12.5, fontweight="bold")
    _text(axis, (TOKENS / 2, -2.7), column.matrix)
    axis.set_xlim(-2.2, TOKENS + 0.6)
    axis.set_ylim(TOKENS + 0.3, -5.4)
    bare(axis)


def _row(axis: Any, parts: Sequence[Block], column: Column) -> None:
    gap, strip = 1.2, 0.8
    shares = _shares(parts, column)
    right = TOKENS + gap * (TOKENS // CHUNK - 1)
    ordered = sorted(parts, key=lambda x: x.j)
    for x in ordered:
        names = {"i": x.i + 1, "j": x.j + 1}
        left = x.j * (CHUNK + gap)
        _cells(axis, shares(x.whole), (left, 0), colour(x.i, x.j), framed=True)
        _text(axis, (left + CHUNK / 2, CHUNK + 1.2), column.block.format(**names))
        if x.columns is not None:
            tall = strip * len(x.columns)
            _cells(axis, x.columns, (left, -0.4 - tall), colour(x.i, x.j), tall=strip, framed=True)
            _text(axis, (left + CHUNK / 2, -1.5 - tall), column.columns.format(**names))
    for x, name in zip((ordered[0], ordered[-1]), column.rows, strict=True):
        if x.rows is None or not name:
            continue
        wide = strip * x.rows.shape[1]
        at = -0.4 - wide if x.j < x.i else right + 0.4
        # The same queries meet the keys on both sides.
        shade = BOTH if column.log_decay is None else colour(x.i, x.j)
        _cells(axis, x.rows, (at, 0), shade, wide=strip, framed=True)
        _text(axis, (at + wide / 2, CHUNK + 1.2), name.format(i=x.i + 1))
    axis.set_xlim(-3.7, right + 1.6)
    axis.set_ylim(CHUNK + 2.1, -5.6)
    bare(axis)


def _text(axis: Any, at: tuple[float, float], words: object, size: float = 11.5, **more: Any) -> None:
    axis.text(*at, words, fontsize=size, ha="center", va="center", color=INK, **more)


def _cells(
    axis: Any,
    shares: Tensor,
    at: tuple[float, float],
    colour: str,
    *,
    wide: float = 1.0,
    tall: float = 1.0,
    framed: bool = False,
) -> None:
    """A picture of numbers from 0 to 1, its upper left corner at a place."""
    from matplotlib.patches import Rectangle

    height, width = shares.shape[0] * tall, shares.shape[1] * wide
    extent = (at[0], at[0] + width, at[1] + height, at[1])
    axis.imshow(shares.numpy(), cmap=ramp(colour), vmin=0, vmax=1.35, extent=extent, aspect="auto")
    if framed:
        axis.add_patch(Rectangle(at, width, height, fc="none", ec=INK, lw=0.9, zorder=4))


# The mask, made of two walks.


def draw_masks(path: Path) -> bool:
    figure = canvas(11.6, 5.95)
    axes = figure.subplots(2, 4)
    names = {"lion_d": f"LION-D\n$\\lambda = {FIXED:g}$", "lion_s": "LION-S\n$\\lambda_i$ per token"}
    for row, (name, words) in zip(axes, names.items(), strict=True):
        log_decay = decays(name)
        parts = [
            (mask(log_decay, "forward"), FORWARD, "forward walk\n$M^F$"),
            (mask(log_decay, "reverse"), REVERSE, "reverse walk\n$M^B$"),
            (torch.eye(TOKENS).double(), INK, "counted twice\n$I$"),
            (mask(log_decay), BOTH, "both\n$M$"),
        ]
        for axis, (numbers, shade, title), sign in zip(row, parts, " +-=", strict=True):
            _cells(axis, numbers, (0, 0), shade, framed=True)
            _text(axis, (-2.3, TOKENS / 2), f"${sign}$" if sign.strip() else "", size=22)
            if name == "lion_d":
                _text(axis, (TOKENS / 2, -2.9), title, linespacing=1.4)
            axis.set_xlim(-4.5, TOKENS + 0.3)
            axis.set_ylim(TOKENS + 0.3, -0.3)
            bare(axis)
        _text(row[0], (-6.2, TOKENS / 2), words, linespacing=1.6)
    figure.subplots_adjust(left=0.08, right=0.995, top=0.89, bottom=0.015, wspace=0.02, hspace=0.08)
    return save(figure, path)

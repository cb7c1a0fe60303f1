"""The block: of a standard Transformer, of LION as it is trained, and of LION as a bidirectional RNN."""

from pathlib import Path
from typing import Any

from torch import Tensor

from lion.reproduce.drawing import chunks
from lion.reproduce.drawing.canvas import (
    BOTH,
    FORWARD,
    GREEN,
    GREY,
    INK,
    REVERSE,
    arrow,
    bare,
    box,
    canvas,
    line,
    ramp,
    save,
    tint,
)

TOKENS = 12  # of the matrices
WALKED = 4  # tokens of the RNN
TITLE, SIZE = 13, 11
CAPTION = (
    "A Transformer block; in the place of its softmax attention, LION as it trains, and as it runs. The matrices are "
    f"LION-S's, of {TOKENS} tokens."
)
PANEL = "#f7f6f2"


def matrices() -> dict[str, Tensor]:
    """The matrices of the picture: softmax attention, and LION-S's scores, mask and weights; rows sum to 1."""
    q, k = (x[:TOKENS] for x in chunks.features())
    log_decay = chunks.decays("lion_s")
    assert log_decay is not None
    log_decay = log_decay[:TOKENS]
    scores, product = chunks.matrix(q, k, None), chunks.matrix(q, k, log_decay)
    ones = q.new_ones(TOKENS, 1)
    return {
        "softmax": (8 * scores).softmax(-1),
        "scores": scores,
        "mask": chunks.matrix(ones, ones, log_decay),
        "weights": product / product.sum(-1, keepdim=True),
    }


def draw(path: Path) -> bool:
    figure = canvas(13.4, 7.6)
    axis = figure.add_axes((0.005, 0.005, 0.99, 0.99))
    found = matrices()
    _transformer(axis, found["softmax"])
    _training(axis, found)
    _inference(axis)
    line(axis, [(6.9, 8.15), (8.3, 8.15)], GREY, 1.2, linestyle=(0, (4, 3)))
    axis.set_xlim(0, 36)
    axis.set_ylim(-1.2, 19.2)
    bare(axis)
    return save(figure, path)


def _panel(axis: Any, left: float, width: float, title: str, below: str) -> None:
    box(axis, (left + width / 2, 9.1), width, 16.4, fill=PANEL, edge="0.8", rounding=0.4)
    axis.text(left + width / 2, 18.15, title, fontsize=TITLE, fontweight="bold", ha="center", color=INK)
    axis.text(left + width / 2, -0.15, below, fontsize=SIZE, ha="center", va="center", color=INK)


def _picture(axis: Any, numbers: Tensor, at: tuple[float, float], side: float, colour: str) -> None:
    """A square matrix, its centre at a place."""
    from matplotlib.patches import Rectangle

    x, y = at[0] - side / 2, at[1] - side / 2
    lowest, most = numbers.min(), numbers.max()
    shares = (numbers - lowest) / (most - lowest)
    extent = (x, x + side, y, y + side)
    axis.imshow(shares.numpy(), cmap=ramp(colour), vmin=0, vmax=1.6, extent=extent, aspect="auto", zorder=3)
    axis.add_patch(Rectangle((x, y), side, side, fc="none", ec=INK, lw=1, zorder=4))


def _sign(axis: Any, at: tuple[float, float], sign: str) -> None:
    axis.text(*at, sign, fontsize=17, ha="center", va="center", color=INK)


def _plus(axis: Any, at: tuple[float, float]) -> None:
    from matplotlib.patches import Circle

    axis.add_patch(Circle(at, 0.34, fc="white", ec=INK, lw=1.3, zorder=4))
    axis.text(*at, "$+$", fontsize=12, ha="center", va="center", color=INK, zorder=5)


def _transformer(axis: Any, weights: Tensor) -> None:
    left, width = 0.3, 6.9
    middle, side = left + 3.9, left + 1.0  # the boxes, and the way around them
    _panel(axis, left, width, "Transformer block", "softmax attention: $T^2$")
    for low, high in ((1.55, 10.9), (11.5, 16.1)):  # residual connections
        line(axis, [(middle, low), (side, low), (side, high)], GREY)
        arrow(axis, (side, high), (middle - 0.36, high), GREY)
    for low, high in ((0.4, 2.1), (3.2, 4.4), (5.4, 6.05), (9.95, 10.54), (11.26, 12.1), (13.2, 13.8), (14.9, 15.74)):
        arrow(axis, (middle, low), (middle, high))
    arrow(axis, (middle, 16.46), (middle, 17.6))
    axis.text(middle + 0.45, 0.55, "$X$", fontsize=13, color=INK)
    box(axis, (middle, 2.65), 4.4, 1.1, "normalisation", size=SIZE)
    for x, name in ((-1.6, "$Q$"), (0.0, "$K$"), (1.6, "$V$")):
        box(axis, (middle + x, 4.9), 1.2, 1.0, name, size=13)
    box(axis, (middle, 8.0), 5.3, 3.9, fill=tint(GREY, 0.16), edge=GREY)
    _picture(axis, weights, (middle, 8.45), 2.35, GREY)
    axis.text(middle, 6.62, r"softmax$(QK^T)\,V$", fontsize=SIZE, ha="center", va="center", color=INK)
    _plus(axis, (middle, 10.9))
    box(axis, (middle, 12.65), 4.4, 1.1, "normalisation", size=SIZE)
    box(axis, (middle, 14.35), 4.4, 1.1, "MLP", size=SIZE)
    _plus(axis, (middle, 16.1))


def _training(axis: Any, found: dict[str, Tensor]) -> None:
    left, width = 8.3, 13.2
    middle = left + width / 2
    _panel(
        axis,
        left,
        width,
        "LION in training: full linear attention",
        "in place of softmax attention; all tokens at once: $T^2$",
    )
    places = {"$\\phi(Q)$": left + 2.0, "$\\phi(K)$": left + 4.4, "$\\lambda$": left + 7.4, "$V$": left + 11.3}
    shades = {"$\\lambda$": GREEN}
    box(axis, (middle, 2.1), width - 1.6, 1.1, "one projection of all tokens", size=SIZE)
    arrow(axis, (middle, 0.4), (middle, 1.53))
    axis.text(middle + 0.45, 0.55, "$X$", fontsize=13, color=INK)
    for name, x in places.items():
        arrow(axis, (x, 2.67), (x, 3.7))
        fill = tint(shades[name], 0.16) if name in shades else "white"
        box(axis, (x, 4.3), 1.9, 1.2, name, fill=fill, edge=shades.get(name, INK), size=13)
    row, side = 8.1, 3.1
    first, second = left + 3.2, left + 7.4
    for x in (left + 2.0, left + 4.4):
        arrow(axis, (x, 4.92), (x, row - side / 2 - 0.05))
    arrow(axis, (second, 4.92), (second, row - side / 2 - 0.05), GREEN)
    _picture(axis, found["scores"], (first, row), side, GREY)
    _sign(axis, ((first + second) / 2, row), r"$\odot$")
    _picture(axis, found["mask"], (second, row), side, GREEN)
    axis.text(first, row + 1.95, "$QK^T$", fontsize=12, ha="center", va="center", color=INK)
    axis.text(second, row + 1.95, "mask $M$", fontsize=SIZE, ha="center", va="center", color=INK)
    third = (first + second) / 2
    arrow(axis, (third, row + 0.6), (third, 11.35))
    axis.text(third + 0.3, 11.0, "Scale", fontsize=SIZE, ha="left", va="center", color=INK)
    _picture(axis, found["weights"], (third, 13.0), side, BOTH)
    values = places["$V$"]
    _sign(axis, ((third + side / 2 + values - 0.75) / 2, 13.0), r"$\times$")
    arrow(axis, (values, 4.92), (values, 13.0 - side / 2 - 0.05))
    box(axis, (values, 13.0), 1.5, side, "$V$", size=13)
    arrow(axis, (third, 14.6), (third, 15.35))
    box(axis, (middle, 15.95), width - 1.6, 1.15, r"$Y = \mathrm{Scale}(QK^T \odot M)\,V$", size=13,
        fill=tint(BOTH, 0.13), edge=BOTH)  # fmt: skip
    arrow(axis, (middle, 16.55), (middle, 17.6))


def _inference(axis: Any) -> None:
    from matplotlib.patches import Circle

    left, width = 22.6, 13.1
    _panel(
        axis,
        left,
        width,
        "LION in inference: a bidirectional RNN",
        "the same outputs, token by token: one state for each walk",
    )
    step = 3.1
    tokens = [left + 1.8 + step * n for n in range(WALKED)]
    ahead, back = 6.3, 9.6  # the two rows of states

    def state(x: float, y: float, colour: str, words: str) -> None:
        axis.add_patch(Circle((x, y), 0.78, fc=tint(colour, 0.2), ec=colour, lw=1.6, zorder=4))
        axis.text(x, y, words, fontsize=12, ha="center", va="center", color=INK, zorder=5)

    for n, x in enumerate(tokens, 1):
        f, b = x - 0.55, x + 0.75
        box(axis, (x, 2.1), 1.9, 1.1, f"$x_{n}$", size=13)
        arrow(axis, (x, 0.4), (x, 1.53))
        box(axis, (x, 4.0), 2.5, 1.0, f"$q_{n}\\,k_{n}\\,v_{n}\\,\\lambda_{n}$", size=11)
        arrow(axis, (x, 2.67), (x, 3.48))
        arrow(axis, (f, 4.52), (f, ahead - 0.8), FORWARD)
        arrow(axis, (b, 4.52), (b, back - 0.8), REVERSE)
        state(f, ahead, FORWARD, f"$S^F_{n}$")
        state(b, back, REVERSE, f"$S^B_{n}$")
        arrow(axis, (f, ahead + 0.8), (f, 11.9), FORWARD)
        arrow(axis, (b, back + 0.8), (b, 11.9), REVERSE)
        box(axis, (x + 0.1, 12.5), 2.5, 1.15, f"$y^F_{n} + y^B_{n}$", size=12)
        arrow(axis, (x + 0.1, 13.1), (x + 0.1, 13.8))
        box(axis, (x + 0.1, 14.4), 2.5, 1.15, f"$\\div\\;(c^F_{n} + c^B_{n})$", size=11)
        arrow(axis, (x + 0.1, 15.0), (x + 0.1, 15.6))
        box(axis, (x + 0.1, 16.15), 1.9, 1.05, f"$y_{n}$", size=13, fill=tint(BOTH, 0.13), edge=BOTH)
        arrow(axis, (x + 0.1, 16.7), (x + 0.1, 17.6))
        if n < WALKED:
            arrow(axis, (f + 0.8, ahead), (f + step - 0.8, ahead), FORWARD, width=2)
            arrow(axis, (b + step - 0.8, back), (b + 0.8, back), REVERSE, width=2)
    for x, y, colour, name in (
        (tokens[0] - 0.55 + step / 2, ahead, FORWARD, "forward"),
        (tokens[-1] + 0.75 - step / 2, back, REVERSE, "reverse"),
    ):
        behind = {"fc": PANEL, "ec": "none", "pad": 0.8}
        axis.text(x, y + 0.6, name, fontsize=10.5, ha="center", va="center", color=colour, bbox=behind, zorder=6)

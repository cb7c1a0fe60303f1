"""What the drawings share: colours, a canvas, arrows and boxes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lion.optional import need
from lion.pages.figures import LOOKS

# One colour for one thing, in all drawings.
FORWARD, REVERSE, BOTH = (LOOKS[name][0] for name in ("lion_s", "lion_d", "chunk"))
GREEN, GREY, INK, FAINT = LOOKS["lion_lit"][0], LOOKS["softmax"][0], "#1b1d20", "#d8d6d0"
DPI = 130


def canvas(width: float, height: float, **more: Any) -> Any:
    """A figure on white, in inches."""
    need("matplotlib", "matplotlib", "cli")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", **more)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, facecolor="white")
    return True


def ramp(colour: str) -> Any:
    """Colours from white to this one, and on to a darker one."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb

    red, green, blue = (0.45 * x for x in to_rgb(colour))
    return LinearSegmentedColormap.from_list(colour, ["white", colour, to_hex((red, green, blue))])


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """So much of the colour, on white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - x) for x in to_rgb(colour))
    return red, green, blue


def bare(axis: Any) -> None:
    """Without ticks and frame, and as high as wide per unit."""
    axis.set_aspect("equal")
    axis.axis("off")


def arrow(
    axis: Any,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    *,
    style: str = "-|>",
    width: float = 1.4,
    head: float = 11,
    bend: float = 0.0,
    **more: Any,
) -> None:
    axis.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": style,
            "color": colour,
            "lw": width,
            "mutation_scale": head,
            "shrinkA": 0,
            "shrinkB": 0,
            "connectionstyle": f"arc3,rad={bend}",
            **more,
        },
    )


def box(
    axis: Any,
    centre: tuple[float, float],
    width: float,
    height: float,
    text: str = "",
    *,
    fill: Any = "white",
    edge: Any = INK,
    size: float = 10,
    rounding: float = 0.12,
    **more: Any,
) -> None:
    """A box with rounded corners around a text."""
    from matplotlib.patches import FancyBboxPatch

    x, y = centre
    style = f"round,pad=0,rounding_size={rounding}"
    axis.add_patch(
        FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle=style, fc=fill, ec=edge, lw=1.3)
    )
    if text:
        axis.text(x, y, text, ha="center", va="center", fontsize=size, color=INK, **more)


def line(axis: Any, points: Sequence[tuple[float, float]], colour: str = INK, width: float = 1.4, **more: Any) -> None:
    axis.plot(*zip(*points, strict=True), color=colour, lw=width, solid_capstyle="round", **more)

"""Accuracy against training speed, a point for each model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lion.reproduce.drawing.canvas import BOTH, FORWARD, GREEN, GREY, INK, REVERSE, canvas, save

# Colours of models, by how their names begin; others have matplotlib's.
LOOKS = {"DeiT": GREY, "LION-LIT": GREEN, "LION-D": REVERSE, "LION-S": FORWARD, "Hydra": BOTH, "Vim": "#8a6a00"}
PLACES = ((7, 5), (7, -13), (-7, 5), (-7, -13), (0, 9), (0, -17))  # of a label beside its point, the best first


def draw(points: Sequence[tuple[str, float, float]], path: Path, x: str, y: str) -> bool:
    """Points (name, x, y), x on a logarithmic axis. Models with two scans have diamonds."""
    if not points:
        return False
    figure = canvas(6.8, 4.5, layout="constrained")
    axis = figure.subplots()
    for i, (name, speed, percent) in enumerate(points):
        colour = next((look for begin, look in LOOKS.items() if name.startswith(begin)), f"C{i % 10}")
        marker = "D" if name.endswith("2 scans") else "o"
        axis.plot(speed, percent, marker, color=colour, markersize=7.5, markeredgecolor="white", zorder=3)
    axis.set_xscale("log")
    axis.margins(x=0.18, y=0.14)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.draw_without_rendering()  # what is where is known from here on
    _labels(figure, axis, points)
    return save(figure, path)


def _labels(figure: Any, axis: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Each name beside its point, where it covers the least of the points and the names before."""
    from matplotlib.transforms import Bbox

    renderer = figure.canvas.get_renderer()
    marks = [axis.transData.transform(point[1:]) for point in points]
    taken = [Bbox.from_bounds(a - 9, b - 9, 18, 18) for a, b in marks]
    inside = axis.get_window_extent(renderer)
    for name, *at in points:
        best, least = None, float("inf")
        for dx, dy in PLACES:
            side = "left" if dx > 0 else "right" if dx < 0 else "center"
            label = axis.annotate(
                name, at, xytext=(dx, dy), textcoords="offset points", ha=side, fontsize=9, color=INK, zorder=4
            )
            found = label.get_window_extent(renderer)
            covered = sum(_overlap(found, other) for other in taken)
            covered += found.width * found.height - _overlap(found, inside)  # what is outside
            if covered < least:
                if best is not None:
                    best.remove()
                best, least = label, covered
            else:
                label.remove()
        assert best is not None
        taken.append(best.get_window_extent(renderer))


def _overlap(a: Any, b: Any) -> float:
    wide = min(a.x1, b.x1) - max(a.x0, b.x0)
    high = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(0.0, wide) * max(0.0, high)

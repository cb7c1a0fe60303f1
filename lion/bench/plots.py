"""Line plots of measured numbers."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lion.optional import need

Points = list[tuple[float, float]]
PEERS = ("softmax", "BERT", "Mamba-2")  # the models that the others are compared with, in grey


class Panel(NamedTuple):
    title: str
    x: str  # label of an axis with base 2
    y: str
    lines: Mapping[str, Points]
    log: bool = True  # the y axis, too; else it begins at 0
    marks: Sequence[float] = ()  # on the x axis


def lines_of(
    records: Sequence[dict], name: Callable[[dict], str], x: str, y: Callable[[dict], float | None]
) -> dict[str, Points]:
    """A line for each name, through the records that have y."""
    lines: dict[str, Points] = {}
    for record in records:
        value = y(record)
        if value is not None:
            lines.setdefault(name(record), []).append((record[x], value))
    return lines


def draw_lines(rows: Sequence[Sequence[Panel]], path: Path, title: str = "") -> None:
    """Rows of panels, and one legend. A line whose name begins with a peer's is grey."""
    need("matplotlib", "matplotlib", "cli").use("Agg")
    import matplotlib.pyplot as plt

    size = (4.4 * len(rows[0]) + 2, 3.8 * len(rows))  # with the legend
    figure, axes = plt.subplots(len(rows), len(rows[0]), figsize=size, layout="constrained", squeeze=False)
    styles = _styles(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    for axis, panel in zip(axes.flat, [panel for row in rows for panel in row], strict=True):
        for name, line in panel.lines.items():
            axis.plot(*zip(*line, strict=True), marker="o", markersize=4, label=name, **styles[name])
        axis.set_title(panel.title, fontsize=10)
        axis.set_xscale("log", base=2)
        if panel.log:
            axis.set_yscale("log")
        else:
            highest = max((y for line in panel.lines.values() for _, y in line), default=0)
            axis.set_ylim(bottom=0, top=1.15 * highest or 1)
        axis.set_xticks(_apart({x for line in panel.lines.values() for x, _ in line}))
        axis.minorticks_off()
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
        for mark in panel.marks:
            axis.axvline(mark, color="0.7", linestyle=":", linewidth=1)
        axis.set_xlabel(panel.x)
        axis.set_ylabel(panel.y)
        axis.grid(alpha=0.3)
    handles = {label: h for axis in axes.flat for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _apart(marks: Collection[float]) -> list[float]:
    """The marks of a logarithmic axis whose labels have room: of two that are close, the larger."""
    found: list[float] = []
    room = 0.05 * math.log(max(marks) / min(marks)) if marks else 0
    for x in sorted(marks, reverse=True):
        if not found or math.log(found[-1] / x) > room:
            found.append(x)
    return found[::-1]


def _styles(names: Collection[str]) -> dict[str, dict[str, str]]:
    peers = [name for name in names if name.startswith(PEERS)]
    others = [name for name in names if name not in peers]
    styles = {name: {"color": f"C{n % 10}"} for n, name in enumerate(others)}
    return styles | {name: {"color": "0.4", "linestyle": ("--", ":", "-.")[n % 3]} for n, name in enumerate(peers)}

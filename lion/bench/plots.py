"""Pictures beside measured numbers."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lion.optional import need

Line = Sequence[tuple[float, float]]
PEERS = ("softmax", "BERT", "Mamba-2")  # what the others are compared with, in grey


class Panel(NamedTuple):
    title: str
    x: str  # an axis with a base of 2
    y: str
    lines: Mapping[str, Line]
    log: bool = True  # y, too; else it begins at 0
    marks: Sequence[float] = ()  # of x


def picture_beside(json_path: Path | None, draw: Callable[[Path], None]) -> None:
    """A PNG with the name of the JSON, where numbers are written at all; says so."""
    if json_path is None:
        return
    if not importlib.util.find_spec("matplotlib"):
        print("no picture: matplotlib is not installed (pip install 'lion-attention[cli]')")
        return
    path = json_path.with_suffix(".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(path)
    print(f"picture saved to {path}")


def draw_lines(rows: Sequence[Sequence[Panel]], path: Path) -> None:
    """Rows of as many panels each, a line for every name; one that begins with a peer's is grey."""
    need("matplotlib", "matplotlib", "cli").use("Agg")
    import matplotlib.pyplot as plt

    room = (4.4 * len(rows[0]) + 2, 3.8 * len(rows))  # with the legend
    figure, axes = plt.subplots(len(rows), len(rows[0]), figsize=room, layout="constrained", squeeze=False)
    styles = _styles(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    for axis, panel in zip(axes.flat, [panel for row in rows for panel in row], strict=True):
        for name, line in panel.lines.items():
            if line:
                axis.plot(*zip(*line, strict=True), marker="o", markersize=4, label=name, **styles[name])
        axis.set_title(panel.title, fontsize=10)
        axis.set_xscale("log", base=2)
        if panel.log:
            axis.set_yscale("log")
        else:
            highest = max((y for line in panel.lines.values() for _, y in line), default=0)
            axis.set_ylim(bottom=0, top=1.15 * highest or 1)
        axis.set_xticks(sorted({x for line in panel.lines.values() for x, _ in line}))
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
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _styles(names: Sequence[str] | Mapping[str, object]) -> dict[str, dict]:
    peers = [name for name in names if name.startswith(PEERS)]
    others = [name for name in names if name not in peers]
    colours = {name: f"C{n % 10}" for n, name in enumerate(others)} | dict.fromkeys(peers, "0.4")
    dashes = ("--", ":", "-.")
    return {
        name: {"color": colours[name], "linestyle": dashes[peers.index(name) % 3] if name in peers else "-"}
        for name in names
    }

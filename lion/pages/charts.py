"""Charts of predictions: a confusion matrix, a scatter plot, a histogram, and lines as small as a word."""

import math
from collections.abc import Sequence

import numpy as np

from lion.pages.figures import Axis, Html, colour, frame, place, svg, tag
from lion.terminal import brief

CELL, LETTER, NAME = 30, 6.6, 18  # pixels of a cell and of a letter; letters of a class
MOST = 1500  # dots of a scatter plot
BINS = 25
SPARK = (240, 56)


def matrix(counts: np.ndarray, classes: Sequence[str]) -> Html:
    """A confusion matrix with its numbers: a row is a true class, a column a predicted one."""
    names = [brief(name, NAME) for name in classes]
    edge = 22 + LETTER * max(map(len, names))
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    parts = []
    for i, name in enumerate(names):
        middle = (i + 0.5) * CELL
        parts.append(tag("text", name, x=-8, y=f"{middle + 4:g}", text_anchor="end"))
        parts.append(tag("text", name, transform=f"translate({middle + 4:g} -8) rotate(-90)"))
        for j, count in enumerate(counts[i]):
            # The root shows rare mistakes, too.
            strength = shares[i, j] if i == j else math.sqrt(shares[i, j])
            cell = {"x": j * CELL, "y": i * CELL, "width": CELL - 2, "height": CELL - 2, "rx": 4}
            tip = tag("title", f"{classes[i]}, predicted {classes[j]}: {count:,}")
            looks = {"style": colour("eval" if i == j else "wrong"), "fill_opacity": f"{0.06 + 0.94 * strength:.2f}"}
            parts.append(tag("rect", tip, **cell, class_="cell" if count else "none", **looks))
            if count:
                at = {"x": (j + 0.5) * CELL - 1, "y": middle + 3.5, "text_anchor": "middle"}
                parts.append(tag("text", f"{count}", **at, class_="on" if strength > 0.62 else "strong"))
    width = height = edge + len(names) * CELL
    body = tag("g", *parts, transform=f"translate({edge:g} {edge:g})")
    style = f"max-width: {1.25 * width:.0f}px; min-width: {0.75 * width:.0f}px"
    return svg(body, height, "confusion matrix", width=width, style=style)


def scatter(right: np.ndarray, predicted: np.ndarray) -> Html:
    """Predicted numbers over true ones; of many examples some, the same each time."""
    both = np.concatenate([right, predicted])
    low, high = float(both.min()), float(both.max())
    margin = 0.04 * (high - low) or 1.0
    x, y = (Axis.linear(label, low - margin, high + margin) for label in ("true", "predicted"))
    some = np.random.default_rng(0).permutation(len(right))[:MOST]
    (a, b), (c, d) = place(x, y, x.low, y.low), place(x, y, x.high, y.high)
    parts = [tag("path", d=f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}", class_="mark")]
    for i in some:
        at = place(x, y, float(right[i]), float(predicted[i]))
        parts.append(tag("circle", cx=f"{at[0]:.1f}", cy=f"{at[1]:.1f}", r=2.6, class_="speck"))
    return frame([tag("g", *parts, style=colour("eval"))], x, y, "predicted numbers over true ones")


def histogram(values: np.ndarray, label: str) -> Html:
    """Around 0, which is in the middle."""
    reach = float(np.abs(values).max()) or 1.0
    counts, edges = np.histogram(values, BINS, (-reach, reach))
    x, y = Axis.linear(label, -reach, reach), Axis.linear("examples", 0, 1.05 * float(counts.max()))
    parts = []
    for count, left, right in zip(counts, edges, edges[1:], strict=False):
        (a, top), (b, bottom) = place(x, y, float(left), float(count)), place(x, y, float(right), 0)
        tip = tag("title", f"{left:.3g} to {right:.3g}: {count:,}")
        sizes = {"width": f"{b - a - 1:.1f}", "height": f"{bottom - top:.1f}"}
        parts.append(tag("rect", tip, x=f"{a + 0.5:.1f}", y=f"{top:.1f}", **sizes, class_="bar"))
    zero = place(x, y, 0, 0)
    parts.append(tag("path", d=f"M{zero[0]:.1f} 0V{zero[1]:.1f}", class_="mark"))
    return frame([tag("g", *parts, style=colour("eval"))], x, y, f"histogram: {label}")


def sparkline(series: np.ndarray) -> Html:
    """Numbers [time, channels], each channel from its least to its greatest; a gap where a number is missing."""
    wide, high = SPARK
    series = np.asarray(series, float).reshape(len(series), -1)
    series = series[np.linspace(0, len(series) - 1, min(len(series), wide)).astype(int)]
    lines = []
    for channel, name in zip(series.T, ("eval", "wrong", "lion_lit", "chunk", "rnn", "full"), strict=False):
        there = np.isfinite(channel)
        if not there.any():
            continue
        low, high_value = channel[there].min(), channel[there].max()
        scale = (high - 4) / ((high_value - low) or 1.0)
        step = wide / max(1, len(channel) - 1)
        parts = [
            f"{'L' if i and there[i - 1] else 'M'}{i * step:.1f} {high - 2 - (channel[i] - low) * scale:.1f}"
            for i in np.flatnonzero(there)
        ]
        lines.append(tag("path", d="".join(parts), class_="line thin", style=colour(name)))
    return svg(tag("g", *lines), high, "the series", width=wide)

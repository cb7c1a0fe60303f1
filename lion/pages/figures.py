"""The look of pages: HTML elements, plots as SVG, pictures as PNG, and the style sheet.

The page loads nothing, and no library draws: plots take their colours from the style sheet, so that they follow the
reader's light or dark mode, and stay sharp on paper.
"""

import base64
import html
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Colours on light and on dark ground, after Okabe and Ito, for all kinds of colour vision; and markers.
LOOKS = {
    "lion_s": ("#0067a6", "#5ab4ec", "circle"),
    "lion_d": ("#c8500a", "#f2915a", "square"),
    "lion_lit": ("#00805c", "#3cc8a0", "triangle"),
    "softmax": ("#6b7078", "#a3a9b2", "cross"),
    "full": ("#b0487f", "#e08fbd", "square"),
    "rnn": ("#8a6a00", "#d9b640", "triangle"),
    "chunk": ("#6b53b8", "#a995ee", "diamond"),
    "scan": ("#0067a6", "#5ab4ec", "circle"),
    "training": ("#6b7078", "#a3a9b2", "diamond"),
    "eval": ("#0067a6", "#5ab4ec", "circle"),
    "wrong": ("#c8500a", "#f2915a", "square"),
}
# Colours from none to all, on light and on dark ground.
RAMPS = {
    "ink": (("#f7f5f0", "#8b8a86", "#17181a"), ("#212427", "#7d7f82", "#f4f2ec")),
    "lion_s": (("#f2f6f9", "#5aa7da", "#003c68"), ("#1f252b", "#2a7fbd", "#b5e0ff")),
    "lion_d": (("#faf5f1", "#ea9259", "#853000"), ("#282119", "#c2622a", "#ffd2b3")),
}
MARKERS = {  # outlines around 0
    "circle": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "square": "M-3.1-3.1h6.2v6.2h-6.2z",
    "triangle": "M0-4.2L4 3H-4z",
    "diamond": "M0-4.4L4.4 0L0 4.4L-4.4 0z",
    "cross": "M-3.2-3.2L3.2 3.2M3.2-3.2L-3.2 3.2",
}
VOID = {"br", "img", "meta", "source"}
WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 22, 32, 44


class Html(str):
    """Text that is already markup."""


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An element. Text is escaped, Html is not. In an attribute's name, _ becomes - and a trailing _ goes."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{named}>" if name in VOID else f"<{name}{named}>{together(*inside)}</{name}>")


def together(*parts: object) -> Html:
    return Html("".join(part if isinstance(part, Html) else html.escape(str(part)) for part in parts))


def listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def colour(name: str) -> str:
    return f"--c:var(--{name})"


class Axis(NamedTuple):
    label: str
    low: float
    high: float
    ticks: Mapping[float, str]
    log: bool = False

    @staticmethod
    def linear(label: str, low: float, high: float, *, percent: bool = False) -> "Axis":
        """A linear axis with about five round numbers."""
        rough = (high - low) / 5
        power = math.floor(math.log10(rough))
        step = min((1, 2, 5, 10), key=lambda x: abs(x * 10.0**power - rough)) * 10.0**power
        marks = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        form = f"{{:.{max(0, -power - 2)}%}}" if percent else f"{{:,.{max(0, -power)}f}}"
        return Axis(label, low, high, {x: form.format(x) for x in marks})

    @staticmethod
    def powers(label: str, values: Sequence[float], base: int = 10) -> "Axis":
        """A logarithmic axis with marks at powers of the base."""
        low, high = min(values) / 1.3, max(values) * 1.3
        marks = range(math.ceil(math.log(low, base)), math.floor(math.log(high, base)) + 1)
        return Axis(label, low, high, {float(base) ** n: f"{float(base) ** n:,.10g}" for n in marks}, log=True)

    def at(self, x: float) -> float:
        """The place of x on the axis: 0 at its low end, 1 at its high end."""
        low, high, x = (math.log(v) if self.log else v for v in (self.low, self.high, x))
        return (x - low) / (high - low)


class Line(NamedTuple):
    name: str  # of LOOKS
    points: Sequence[tuple[float, float]]
    tips: Sequence[str] = ()  # one per point, which then has a marker


def frame(parts: Sequence[Html], x: Axis, y: Axis, about: str) -> Html:
    """A plot: axes, and parts that are drawn at `place`."""
    wide, high = place(x, y, x.high, y.low)
    body = tag("g", _ticks(x, wide, high), _rungs(y, wide, high), *parts, transform=f"translate({LEFT} {TOP})")
    return svg(body, HEIGHT, about)


def place(x: Axis, y: Axis, a: float, b: float) -> tuple[float, float]:
    return x.at(a) * (WIDTH - LEFT - RIGHT), (1 - y.at(b)) * (HEIGHT - TOP - BOTTOM)


def plot(lines: Sequence[Line], x: Axis, y: Axis, about: str) -> Html:
    parts = []
    for line in lines:
        places = [place(x, y, a, b) for a, b in line.points]
        path = tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in places), class_="line")
        parts.append(tag("g", path, style=colour(line.name), class_=line.name))
        marks = [_marker(line.name, *at, tip) for at, tip in zip(places, line.tips, strict=False)]
        parts.append(tag("g", *marks, style=colour(line.name)))
    return frame(parts, x, y, about)


def legend(lines: Sequence[tuple[str, str]]) -> Html:
    """A legend of (name, label)."""
    items = []
    for name, label in lines:
        line = tag("path", d="M0 7H26", class_=f"line {name}")
        sample = tag("svg", line, _marker(name, 13, 7), viewBox="0 0 26 14", aria_hidden="true")
        items.append(tag("li", sample, label, style=colour(name)))
    return tag("ul", *items, class_="legend")


class Row(NamedTuple):
    group: str  # the name is shown for the first row of a group
    label: str
    values: np.ndarray  # a single one is a dot, several are a hill
    begin: float  # a ring
    tip: str


def hills(name: str, rows: Sequence[Row], x: Axis, line_at: tuple[float, str], about: str) -> Html:
    """Distributions of values, a row for each."""
    step, gap, left, top = 23, 12, 108, 34
    wide = WIDTH - left - RIGHT
    parts, place, group = [], 0.0, ""
    for row in rows:
        if row.group != group:
            place += gap if group else 0
            parts.append(tag("text", row.group, x=-left, y=place + step - 5, class_="strong"))
            group = row.group
        place += step
        parts.append(tag("text", row.label, x=-10, y=place - 5, text_anchor="end"))
        parts.append(tag("path", d=f"M0 {place:g}H{wide}", class_="grid"))
        inside = [min(max(x.at(v), 0), 1) * wide for v in (float(np.median(row.values)), row.begin)]
        if len(row.values) > 1:
            outline = _hill(row.values, x, wide, place, height=0.95 * step)
            parts.append(tag("path", tag("title", row.tip), d=outline, class_="hill", style=colour(name)))
        parts.append(tag("circle", cx=f"{inside[1]:.1f}", cy=place, r=3.4, class_="ring", style=colour(name)))
        if len(row.values) == 1:
            dot = tag("circle", tag("title", row.tip), cx=f"{inside[0]:.1f}", cy=place, r=5, class_="dot")
            parts.append(tag("g", dot, style=colour(name)))
    where = x.at(line_at[0]) * wide
    mark = tag("path", d=f"M{where:.1f} -6V{place + 4:g}", class_="mark")
    note = tag("text", line_at[1], x=f"{where:.1f}", y=-12, text_anchor="middle", class_="strong")
    body = tag("g", _ticks(x, wide, place + 6), mark, note, *parts, transform=f"translate({left} {top})")
    return svg(body, top + place + 6 + BOTTOM + 14, about)


def _hill(values: np.ndarray, x: Axis, wide: float, base: float, height: float) -> str:
    bins = 120
    places = np.array([min(max(x.at(float(v)), 0), 1) for v in np.quantile(values, np.linspace(0.0005, 0.9995, 2000))])
    counts = np.histogram(places, bins=bins, range=(0, 1))[0].astype(float)
    near = np.exp(-0.5 * (np.arange(-6, 7) / 2.0) ** 2)
    counts = np.convolve(np.pad(counts, 6), near / near.sum(), mode="valid")
    tops = base - height * counts / counts.max()
    there = np.flatnonzero(counts > counts.max() * 2e-3)
    points = [(i + 0.5, tops[i]) for i in range(there[0], there[-1] + 1)]
    line = "L".join(f"{i * wide / bins:.1f} {top:.1f}" for i, top in points)
    return f"M{points[0][0] * wide / bins:.1f} {base:g}L{line}L{points[-1][0] * wide / bins:.1f} {base:g}Z"


def picture(ramp: str, shares: np.ndarray, about: str) -> Html:
    """Numbers from 0 to 1, [height, width], as pixels: a picture for light mode and one for dark mode."""
    light, dark = (_ramp(shares, stops) for stops in RAMPS[ramp])
    return tag("picture", tag("source", media="(prefers-color-scheme: dark)", srcset=_data(dark)), image(light, about))


def image(pixels: np.ndarray, about: str) -> Html:
    """uint8 [height, width, 3]."""
    height, width, _ = pixels.shape
    return tag("img", src=_data(pixels), alt=about, width=width, height=height)


def key(ramp: str, low: str, high: str) -> Html:
    """A key to the colours of pictures."""
    return tag("div", tag("span", low), picture(ramp, np.linspace(0, 1, 64)[None], ""), tag("span", high), class_="key")


def _ramp(shares: np.ndarray, stops: Sequence[str]) -> np.ndarray:
    """[height, width, 3] bytes."""
    colours = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    at = np.linspace(0, 1, len(stops))
    channels = [np.interp(shares.clip(0, 1), at, colours[:, i]) for i in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: unfiltered rows

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _data(pixels: np.ndarray) -> str:
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode()


def svg(body: Html, height: float, about: str, *, width: float = WIDTH, **more: object) -> Html:
    return tag("svg", body, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=about, class_="plot", **more)


def _marker(name: str, x: float, y: float, tip: str = "") -> Html:
    title = tag("title", tip) if tip else ""
    marker = LOOKS[name][2]
    kind = "cross" if marker == "cross" else "dot"
    return tag("path", title, d=MARKERS[marker], transform=f"translate({x:.1f} {y:.1f})", class_=kind)


def _ticks(x: Axis, wide: float, high: float) -> Html:
    """The ticks of the x axis; a label may have two lines."""
    parts = []
    lines = 1
    for value, label in x.ticks.items():
        place = f"{x.at(value) * wide:.1f}"
        parts.append(tag("path", d=f"M{place} 0V{high:g}", class_="grid"))
        for i, line in enumerate(label.split("\n")):
            y = high + 17 + 14 * i
            parts.append(tag("text", line, x=place, y=y, text_anchor="middle", class_="faint" if i else "tick"))
            lines = max(lines, i + 1)
    parts.append(tag("text", x.label, x=wide / 2, y=high + 22 + 15 * lines, text_anchor="middle"))
    return tag("g", *parts)


def _rungs(y: Axis, wide: float, high: float) -> Html:
    parts = []
    for value, label in y.ticks.items():
        place = (1 - y.at(value)) * high
        parts.append(tag("path", d=f"M0 {place:.1f}H{wide}", class_="grid"))
        parts.append(tag("text", label, x=-8, y=f"{place + 4:.1f}", text_anchor="end"))
    parts.append(tag("text", y.label, x=4 - LEFT, y=-16, class_="strong"))
    return tag("g", *parts)


def style() -> str:
    sheet = Path(__file__).with_name("style.css").read_text()
    for place, i in (("@light", 0), ("@dark", 1)):
        sheet = sheet.replace(place, " ".join(f"--{name}: {look[i]};" for name, look in LOOKS.items()))
    return sheet

"""How the demo's report looks: elements of HTML, plots as SVG, pictures as PNG, and the style sheet.

Nothing is loaded from anywhere, and no library draws: plots take their colours from the page's style sheet, so that
they follow the reader's light or dark mode, and stay sharp on paper.
"""

import base64
import html
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# On light and on dark ground; after Okabe and Ito, whose colours differ for all kinds of colour vision.
COLOURS = {
    "lion_s": ("#0067a6", "#5ab4ec"),
    "lion_d": ("#c8500a", "#f2915a"),
    "lion_lit": ("#00805c", "#3cc8a0"),
    "softmax": ("#6b7078", "#a3a9b2"),
    "full": ("#b0487f", "#e08fbd"),
    "rnn": ("#8a6a00", "#d9b640"),
    "chunk": ("#6b53b8", "#a995ee"),
    "scan": ("#0067a6", "#5ab4ec"),
}
# From none to all, on light and on dark ground.
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
SHAPES = {
    "lion_s": "circle",
    "lion_d": "square",
    "lion_lit": "triangle",
    "softmax": "cross",
    "full": "square",
    "rnn": "triangle",
    "chunk": "diamond",
    "scan": "circle",
}
VOID = {"br", "img", "meta", "source"}
WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 32, 44


class Html(str):
    """Text that is markup already."""


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An element. Everything is escaped, but what is Html. A trailing _ of an attribute is left out, others are -."""
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
        """With about five round numbers."""
        rough = (high - low) / 5
        power = math.floor(math.log10(rough))
        step = min((1, 2, 5, 10), key=lambda x: abs(x * 10.0**power - rough)) * 10.0**power
        marks = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        form = f"{{:.{max(0, -power - 2)}%}}" if percent else f"{{:,.{max(0, -power)}f}}"
        return Axis(label, low, high, {x: form.format(x) for x in marks})

    @staticmethod
    def powers(label: str, values: Sequence[float], base: int = 10) -> "Axis":
        """Logarithmic, with marks at powers of the base."""
        low, high = min(values) / 1.3, max(values) * 1.3
        marks = range(math.ceil(math.log(low, base)), math.floor(math.log(high, base)) + 1)
        return Axis(label, low, high, {float(base) ** n: f"{float(base) ** n:,.10g}" for n in marks}, log=True)

    def at(self, x: float) -> float:
        """0 at its low end, 1 at its high end."""
        low, high, x = (math.log(v) if self.log else v for v in (self.low, self.high, x))
        return (x - low) / (high - low)


class Line(NamedTuple):
    name: str  # of COLOURS
    points: Sequence[tuple[float, float]]
    tips: Sequence[str] = ()  # one per point, which then has a marker


def plot(lines: Sequence[Line], x: Axis, y: Axis, about: str) -> Html:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [_ticks(x, wide, high), _rungs(y, wide, high)]
    for line in lines:
        places = [(x.at(a) * wide, (1 - y.at(b)) * high) for a, b in line.points]
        path = tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in places), class_="line")
        parts.append(tag("g", path, style=colour(line.name), class_=line.name))
        marks = [_marker(line.name, *place, tip) for place, tip in zip(places, line.tips, strict=False)]
        parts.append(tag("g", *marks, style=colour(line.name)))
    return _svg(tag("g", *parts, transform=f"translate({LEFT} {TOP})"), HEIGHT, about)


def legend(lines: Sequence[tuple[str, str]]) -> Html:
    """Of (name, label)."""
    items = []
    for name, label in lines:
        line = tag("path", d="M0 7H26", class_=f"line {name}")
        items.append(
            tag(
                "li",
                tag("svg", line, _marker(name, 13, 7), viewBox="0 0 26 14", aria_hidden="true"),
                label,
                style=colour(name),
            )
        )
    return tag("ul", *items, class_="legend")


class Row(NamedTuple):
    group: str  # shown where it changes
    label: str
    values: np.ndarray  # one is shown as a dot, many as a hill
    begin: float  # a ring
    tip: str


def hills(name: str, rows: Sequence[Row], x: Axis, line_at: tuple[float, str], about: str) -> Html:
    """How values are distributed, a row for each of several sets."""
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
    return _svg(body, top + place + 6 + BOTTOM + 14, about)


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
    """Numbers from 0 to 1, [height, width], as pixels: one picture for light ground and one for dark."""
    light, dark = (_data(_png(_ramp(shares, stops))) for stops in RAMPS[ramp])
    height, width = shares.shape
    return tag(
        "picture",
        tag("source", media="(prefers-color-scheme: dark)", srcset=dark),
        tag("img", src=light, alt=about, width=width, height=height),
    )


def key(ramp: str, low: str, high: str) -> Html:
    """What the colours of pictures stand for."""
    return tag("div", tag("span", low), picture(ramp, np.linspace(0, 1, 64)[None], ""), tag("span", high), class_="key")


def _ramp(shares: np.ndarray, stops: Sequence[str]) -> np.ndarray:
    """[height, width, 3] bytes."""
    colours = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    at = np.linspace(0, 1, len(stops))
    channels = [np.interp(shares.clip(0, 1), at, colours[:, i]) for i in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: rows as they are

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _svg(body: Html, height: float, about: str) -> Html:
    return tag("svg", body, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=about, class_="plot")


def _marker(name: str, x: float, y: float, tip: str = "") -> Html:
    title = tag("title", tip) if tip else ""
    shape = SHAPES[name]
    kind = "cross" if shape == "cross" else "dot"
    return tag("path", title, d=MARKERS[shape], transform=f"translate({x:.1f} {y:.1f})", class_=kind)


def _ticks(x: Axis, wide: float, high: float) -> Html:
    """Along the bottom; a label may have two lines."""
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


STYLE = """
:root { color-scheme: light dark; --page: #faf9f6; --card: #ffffff; --ink: #1b1d20; --soft: #545a63; --faint: #70767e;
  --edge: #e4e1d9; --grid: #eae8e2; --accent: var(--lion_s); @light }
@media (prefers-color-scheme: dark) { :root { --page: #121416; --card: #1a1d20; --ink: #eceae5; --soft: #a9afb7;
  --faint: #8b9199; --edge: #2b2f34; --grid: #282c30; @dark } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.6; font-size: 1.0625rem;
  font-family: "Inter var", Inter, ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
  "Noto Sans", sans-serif; font-feature-settings: "cv11"; -webkit-font-smoothing: antialiased; }
header, section, footer, nav { max-width: 62rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: clamp(2.5rem, 7vw, 5rem); }
.brand { color: var(--accent); font-weight: 650; letter-spacing: .02em; margin: 0 0 .9rem; }
h1 { font-size: clamp(1.8rem, 4.6vw, 2.85rem); line-height: 1.14; letter-spacing: -.025em; font-weight: 680;
  margin: 0 0 1rem; max-width: 24em; text-wrap: balance; }
.lead { font-size: clamp(1.06rem, 2vw, 1.2rem); color: var(--soft); max-width: 40em; margin: 0; text-wrap: pretty; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: .9rem; margin: 2.2rem 0 0; padding: 0; }
.cards div { background: var(--card); border: 1px solid var(--edge); border-radius: 14px; padding: 1.1rem 1.15rem; }
.cards dt { font-size: .875rem; color: var(--soft); line-height: 1.4; }
.cards dd { margin: 0; }
.cards .figure { font-size: clamp(1.65rem, 3.6vw, 2.2rem); font-weight: 680; letter-spacing: -.03em; line-height: 1.15;
  font-variant-numeric: tabular-nums; margin-bottom: .3rem; white-space: nowrap; }
.cards .figure small { font-size: .55em; font-weight: 600; letter-spacing: 0; color: var(--soft); margin-left: .2em; }
.cards .beside { font-size: .8125rem; color: var(--faint); margin-top: .45rem; line-height: 1.4; }
.cards div { display: flex; flex-direction: column; }
.cards .figure { order: -1; }
nav { margin-top: 2rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .35rem 1.4rem; margin: 0; padding: .9rem 0; list-style: none;
  border-block: 1px solid var(--edge); font-size: .925rem; }
nav a { color: var(--soft); text-decoration: none; }
nav a:hover { color: var(--accent); }
section { padding-top: 3.6rem; scroll-margin-top: 0; }
h2 { font-size: clamp(1.35rem, 2.8vw, 1.65rem); letter-spacing: -.018em; line-height: 1.25; font-weight: 660;
  margin: 0 0 .6rem; }
h3 { font-size: 1rem; font-weight: 640; margin: 0 0 .2rem; }
p { max-width: 44em; margin: 0 0 .8rem; text-wrap: pretty; }
section > p { color: var(--soft); }
strong { color: var(--ink); font-weight: 620; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em; }
.panel { background: var(--card); border: 1px solid var(--edge); border-radius: 14px; padding: 1.25rem;
  margin: 1.3rem 0 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.6rem 1.8rem; }
figure { margin: 0; min-width: 0; }
figcaption, .note { font-size: .875rem; color: var(--soft); line-height: 1.5; margin: .6rem 0 0; max-width: 52em; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; list-style: none; margin: 0 0 1rem; padding: 0;
  font-size: .9rem; }
.legend li { display: flex; align-items: center; gap: .5rem; }
.legend svg { width: 26px; height: 14px; flex: none; overflow: visible; }
.plot { display: block; width: 100%; height: auto; }
.plot text { font-size: 11.5px; fill: var(--soft); font-variant-numeric: tabular-nums; }
.plot .strong { fill: var(--ink); font-weight: 600; }
.plot .faint { fill: var(--faint); font-size: 10.5px; }
.grid { stroke: var(--grid); stroke-width: 1; fill: none; }
.mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
.line { stroke: var(--c); stroke-width: 2; fill: none; stroke-linejoin: round; stroke-linecap: round; }
.softmax .line, .line.softmax { stroke-dasharray: 5 4; }
.dot { fill: var(--c); stroke: var(--card); stroke-width: 1; }
.cross { stroke: var(--c); stroke-width: 2; stroke-linecap: round; fill: none; }
.hill { fill: var(--c); fill-opacity: .28; stroke: var(--c); stroke-width: 1.4; stroke-linejoin: round; }
.ring { fill: var(--card); stroke: var(--c); stroke-width: 1.5; }
.scroll { overflow-x: auto; margin: 0 -1.25rem; padding: 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .6rem 1.1rem .6rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { font-size: .8125rem; font-weight: 550; color: var(--soft); line-height: 1.35; vertical-align: bottom; }
tbody th { font-weight: 600; }
.label { display: inline-block; min-width: 6.6em; white-space: nowrap; }
.about { display: inline-block; color: var(--soft); font-weight: 400; font-size: .9rem; }
.number { text-align: right; white-space: nowrap; }
thead .number { white-space: normal; max-width: 8.5em; }
.below { color: var(--faint); }
.chip { display: inline-block; width: .72em; height: .72em; border-radius: 3px; background: var(--c);
  margin-right: .6em; }
.masks { display: grid; grid-template-columns: 11.5rem 1fr; gap: 2rem 2.2rem; align-items: start; }
.masks .note { margin: 2.1rem 0 0; }
.digit h3 { margin-bottom: .6rem; }
.title { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline; gap: 0 1.5rem;
  margin-bottom: .6rem; }
.title h3 { margin: 0; }
.heads { display: grid; grid-template-columns: repeat(4, 1fr); gap: .5rem .9rem; }
.heads figcaption { margin-top: .3rem; font-size: .8125rem; line-height: 1.4; }
.heads figcaption strong { display: block; }
.key { display: grid; grid-template-columns: auto 1fr auto; gap: .5rem; align-items: center; font-size: .8125rem;
  color: var(--soft); white-space: nowrap; }
.key picture { width: 5.5rem; }
.key img { height: .55rem; border-radius: 3px; image-rendering: auto; }
picture, img { display: block; width: 100%; }
img { height: auto; image-rendering: pixelated; border-radius: 4px; outline: 1px solid var(--edge); }
footer { margin-top: 4rem; padding-bottom: 3rem; color: var(--faint); font-size: .875rem; }
footer dl { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; margin: 0; padding-top: 1.2rem;
  border-top: 1px solid var(--edge); }
footer dl div { display: flex; gap: .45rem; }
footer dd { margin: 0; color: var(--soft); }
@media (max-width: 56rem) { .cards { grid-template-columns: repeat(2, 1fr); } }
@media (max-width: 40rem) {
  body { font-size: 1rem; }
  header, section, footer, nav { padding-inline: 1.1rem; }
  .cards { gap: .6rem; } .cards div { padding: .9rem; }
  .panel { padding: 1rem; } .scroll { margin: 0 -1rem; padding: 0 1rem; }
  .masks { grid-template-columns: 1fr; gap: .8rem; } .masks .note { margin: .8rem 0 0; } .digit { max-width: 8rem; }
  .heads { gap: .5rem; } .heads figcaption { font-size: .75rem; line-height: 1.35; }
  .plot text { font-size: 13.5px; } .plot .faint { font-size: 12px; }
  th, td { padding-right: .9rem; } .about { display: block; font-size: .8125rem; line-height: 1.35; max-width: 11em; }
}
@media print {
  @page { margin: 14mm; }
  body { background: none; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; }
  header { padding-top: 0; } section { padding-top: 1.6rem; }
  header, section, footer { padding-inline: 0; max-width: none; }
  .cards { grid-template-columns: repeat(4, 1fr); } .pair { grid-template-columns: 1fr 1fr; }
  .panel, .cards div, figure, tr, p { break-inside: avoid; } h2, section > p { break-after: avoid; }
  .plot text { font-size: 13.5px; } .plot .faint { font-size: 12px; }
  .scroll { overflow: visible; }
}
"""


def style() -> str:
    sheet = STYLE
    for place, i in (("@light", 0), ("@dark", 1)):
        sheet = sheet.replace(place, " ".join(f"--{name}: {both[i]};" for name, both in COLOURS.items()))
    return sheet

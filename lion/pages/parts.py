"""The parts of pages: the document itself, cards, tables, and curves over the steps of training."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lion.files import replace
from lion.pages.figures import Axis, Html, Line, plot, style, tag, together


def write(path: Path, title: str, header: Html, sections: Mapping[str, Sequence[Html]], footer: dict[str, Any]) -> None:
    """Write a page of one file: plots, pictures and style are in it."""
    links = [tag("li", tag("a", name, href=f"#{_anchor(name)}")) for name in sections]
    body = [header, tag("nav", tag("ul", *links), aria_label="Sections")]
    body += [tag("section", tag("h2", name), *parts, id=_anchor(name)) for name, parts in sections.items()]
    body.append(tag("footer", tag("dl", *(tag("div", tag("dt", k), tag("dd", x)) for k, x in footer.items()))))
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style())),
    ]
    page = tag("html", tag("head", *head), tag("body", *body), lang="en")
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of a file may hold bytes that are no text.
    whole = f"<!doctype html>\n{page}\n".encode(errors="replace")
    replace(path, lambda temporary: temporary.write_bytes(whole))


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def opening(title: str, leads: Sequence[str], cards: Sequence[Html]) -> Html:
    """The header of a page."""
    words = [tag("p", lead, class_="lead") for lead in leads]
    return tag("header", tag("p", "lion", class_="brand"), tag("h1", title), *words, tag("dl", *cards, class_="cards"))


def card(figure: str, label: str, beside: str, *, unit: str = "") -> Html:
    shown = tag("dd", figure, tag("small", unit) if unit else "", class_="figure")
    return tag("div", tag("dt", label), shown, tag("dd", beside, class_="beside"))


def panel(inside: Html, note: str = "") -> Html:
    below = tag("p", note, class_="note") if note else ""
    return tag("div", tag("div", inside, class_="scroll", tabindex=0), below, class_="panel")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """A table with a name and numbers in every row."""
    titles = [tag("th", title, scope="col", class_="number" if i else "name") for i, title in enumerate(header)]
    lines = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell, class_="number") for cell in cells))
        for name, *cells in rows
    ]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))


def named(name: str, about: str = "") -> Html:
    return together(tag("span", name, class_="label"), " ", tag("span", about, class_="about"))


def over_steps(lines: Sequence[Line], label: str, *, percent: bool = False) -> Html:
    values = [y for line in lines for _, y in line.points]
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05
    x = Axis.linear("step", 0, max(x for line in lines for x, _ in line.points))
    y = Axis.linear(label, low - margin, high + margin, percent=percent)
    return plot(lines, x, y, f"{label} over the steps of training")


def apart(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points without those just before the next one, as the last but one can be."""
    near = points[-1][0] / 40
    return [point for point, after in itertools.pairwise(points) if after[0] - point[0] > near] + [points[-1]]


def smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Running means over a twentieth of all points: single batches are noisy."""
    reach = len(points) // 40
    around = [points[max(0, i - reach) : i + reach + 1] for i in range(len(points))]
    return [(x, sum(y for _, y in some) / len(some)) for (x, _), some in zip(points, around, strict=True)]


def beyond_chance(share: float, other: float, examples: int) -> bool:
    """Whether two shares of so many examples differ by more than two standard errors."""
    mean = (share + other) / 2
    return abs(share - other) > 2 * math.sqrt(2 * mean * (1 - mean) / examples)

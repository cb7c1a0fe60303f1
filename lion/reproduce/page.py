"""The page of an exhibit: the paper's numbers and ours, what it claims and whether that shows; as HTML and Markdown."""

import base64
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lion import files
from lion.pages.figures import Html, listed, tag, together
from lion.pages.parts import card, opening, panel, table, write
from lion.reproduce.exhibits import (
    DOES_NOT,
    NOT_RUN,
    SHOWS,
    VERDICTS,
    Cell,
    Exhibit,
    Named,
    Table,
    by_seed,
    kind_and_number,
    ours,
    printed,
)
from lion.reproduce.steps import Step, Workplace
from lion.terminal import duration, plural
from lion.train.report import environment

NOT_PRINTED = "no numbers"  # of the paper, on a claim: a curve, a formula
MARKS = {SHOWS: "yes", DOES_NOT: "no"}  # classes of verdicts
SMALL = 1000  # pixels of a picture's width, of which two go beside each other
PAGE, MARKDOWN = "index.html", "README.md"
WORDS = {"laptop": "at laptop scale", "paper": "at the paper's scale"}


class Judged(NamedTuple):
    """A claim, whether the paper's own numbers show it, and whether ours do."""

    words: str
    paper: str
    ours: str


def judged(exhibit: Exhibit, place: Workplace) -> list[Judged]:
    theirs, own = printed(exhibit), ours(exhibit, place)
    return [Judged(x.words, _of_paper(x.verdict(theirs)), x.verdict(own)) for x in exhibit.claims]


def _of_paper(verdict: str) -> str:
    return NOT_PRINTED if verdict == NOT_RUN else verdict


def write_pages(named: Named, exhibit: Exhibit, scale: str, place: Workplace, folder: Path) -> Path:
    """Write index.html, README.md and the pictures; returns the first."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _draw(exhibit, place, folder)
    claims = judged(exhibit, place)
    path = folder / PAGE
    write(
        path,
        f"lion: {named.name} of the paper",
        _opening(named, exhibit, scale, place, claims),
        _sections(exhibit, place, claims, pictures),
        where(exhibit.steps, place),
    )
    text = markdown(named, exhibit, scale, place, claims, pictures)
    files.replace(folder / MARKDOWN, lambda temporary: temporary.write_text(text))
    return path


def _draw(exhibit: Exhibit, place: Workplace, folder: Path) -> dict[str, Path]:
    """The pictures that there are results for, by the words below them."""
    found = {}
    for figure in exhibit.figures:
        path = folder / f"{figure.name}.png"
        if figure.draw([place.result(step) for step in figure.steps], path):
            found[figure.words] = path
    return found


def shown(cell: Cell, form: str, place: Workplace) -> tuple[str, str]:
    """The paper's number, and ours: the mean, and each seed's."""
    values = by_seed(cell, place)
    theirs = form.format(cell.printed) if isinstance(cell.printed, int | float) else cell.printed or "-"
    if not values:
        return theirs, cell.value if isinstance(cell.value, str) else "-"
    mean = form.format(sum(values) / len(values))
    return theirs, mean if len(values) == 1 else f"{mean} ({', '.join(form.format(x) for x in values)})"


class Column(NamedTuple):
    """A column of a table as it is shown: what a column of the exhibit says, in the paper or here."""

    name: str
    paper: bool
    cells: list[str]


def columns(part: Table, place: Workplace) -> list[Column]:
    """Every column twice, as the paper has it and as we have it, but for those that are empty."""
    found = []
    for i, name in enumerate(part.columns):
        form = part.forms.get(name, part.form)
        both = [shown(cells[i], form, place) for cells in part.rows.values()]
        for paper, texts in zip((True, False), zip(*both, strict=True), strict=True):
            if any(text != "-" for text in texts):
                found.append(Column(name, paper, list(texts)))
    return found


def _table(part: Table, place: Workplace) -> Html:
    """The paper's number and ours below the name of their column; the name alone where only one of them has any."""
    found = columns(part, place)
    both = len({column.paper for column in found}) > 1
    lower = [tag("th", "paper" if x.paper else "ours", scope="col", class_="number") for x in found]
    upper = [
        tag("th", name, scope="colgroup", colspan=len(list(some)), class_="number")
        for name, some in itertools.groupby(found, key=lambda x: x.name)
    ]
    corner = tag("th", "", scope="col", class_="name", **({"rowspan": 2} if both else {}))
    lines = []
    for i, row in enumerate(part.rows):
        cells = [tag("td", _number(x.cells[i]), class_=f"number {'paper' if x.paper else 'ours'}") for x in found]
        lines.append(tag("tr", tag("th", row, scope="row"), *cells))
    head = [tag("tr", corner, *upper), *([tag("tr", *lower)] if both else [])]
    return tag("table", tag("thead", *head), tag("tbody", *lines), class_="compared")


def _number(text: str) -> Html:
    """A number; what is in parentheses behind it, each seed's, is small."""
    mean, bracket, seeds = text.partition(" (")
    return together(mean, tag("small", f" ({seeds}") if bracket and seeds.endswith(")") else "")


def counts(claims: Sequence[Judged]) -> dict[str, int]:
    """How many claims have each of the verdicts that there are."""
    found = {verdict: sum(x.ours == verdict for x in claims) for verdict in VERDICTS}
    return {verdict: count for verdict, count in found.items() if count}


def summary(claims: Sequence[Judged]) -> str:
    """Counts of the verdicts, in words."""
    several = {SHOWS: "show", DOES_NOT: "do not show"}
    parts = [f"{n} {verdict if n == 1 else several.get(verdict, verdict)}" for verdict, n in counts(claims).items()]
    return f"Of {plural(len(claims), 'claim')}: {listed(parts)}." if claims else ""


def _opening(named: Named, exhibit: Exhibit, scale: str, place: Workplace, claims: Sequence[Judged]) -> Html:
    done = [step for step in exhibit.steps if place.finished(step)]
    minutes = sum(place.took(step) or 0.0 for step in done)
    cards = []
    if claims:
        right = sum(x.ours == SHOWS for x in claims)
        others = ", ".join(f"{n} {x}" for x, n in counts(claims).items() if x != SHOWS)
        cards.append(card(f"{right} of {len(claims)}", "claims of the paper show", others or "all of them"))
    if exhibit.steps:
        cards.append(card(f"{len(done)} of {len(exhibit.steps)}", "runs are finished", "the commands are below"))
        figure, unit = duration(60 * minutes).split(" ", 1)
        cards.append(card(figure, "of computing", "all runs, one after the other", unit=unit))
    leads = [_prose(named.title), _prose(f"The paper: {named.claim}")]
    return opening(_title(named, exhibit, scale), leads, cards)


def _title(named: Named, exhibit: Exhibit, scale: str) -> str:
    kind, number = kind_and_number(named.name)
    title = f"{kind.capitalize()} {number} of the paper" if number else "Beyond the paper"
    return f"{title}, {WORDS[scale]}" if exhibit.steps else title


def _prose(text: str) -> Html:
    """A text with `code` in it."""
    return together(*(tag("code", x) if i % 2 else x for i, x in enumerate(text.split("`"))))


def _sections(
    exhibit: Exhibit, place: Workplace, claims: Sequence[Judged], pictures: dict[str, Path]
) -> dict[str, Sequence[Html]]:
    sections: dict[str, Sequence[Html]] = {}
    if claims:
        rows = [[_prose(x.words), _verdict("paper", x.paper), _verdict("ours", x.ours)] for x in claims]
        inside = table(["claim", "the paper's numbers", "ours"], rows)
        note = "The paper's numbers: what is printed. Within the spread: less apart than a standard error."
        sections["What is claimed"] = [tag("div", panel(inside, note), class_="claims")]
    numbers: list[Html] = []
    for part in exhibit.tables:
        if part.title:
            numbers.append(tag("h3", _prose(part.title), class_="above"))
        numbers.append(panel(_table(part, place)))
    if numbers:
        sections["Numbers"] = numbers
    if pictures:
        sections["Pictures"] = _pictures(pictures)
    about = [tag("p", _prose(exhibit.about))]
    if exhibit.not_run:
        about.append(tag("p", tag("strong", "Not run: "), _prose(exhibit.not_run)))
    sections["What was run" if exhibit.steps else "What is drawn"] = about
    if exhibit.steps:
        lines = [
            tag("tr", tag("td", _command(place.brief(step))), tag("td", _minutes(place.took(step))))
            for step in exhibit.steps
        ]
        sections["Commands"] = [panel(tag("table", tag("tbody", *lines), class_="facts commands took"))]
    return sections


def _command(text: str) -> Html:
    """A command, which is not broken within an option."""
    words = [tag("span", word) if word.startswith("--") else word for word in text.split(" ")]
    return tag("code", *(part for word in words for part in (word, " ")))


def _verdict(whose: str, verdict: str) -> Html:
    """A verdict; whose it is shows on phones, where there is no header above it."""
    return tag(
        "span", tag("small", f"{whose}: ", class_="whose"), verdict, class_=f"said-{MARKS.get(verdict, 'other')}"
    )


def _pictures(pictures: dict[str, Path]) -> list[Html]:
    """Each in a panel; many small ones side by side."""
    small = {words: path for words, path in pictures.items() if _width(path) <= SMALL}
    if len(small) < 4:
        return [panel(_embedded(path, words), _prose(words)) for words, path in pictures.items()]
    figures = [tag("figure", _embedded(path, words), tag("figcaption", _prose(words))) for words, path in small.items()]
    large = [panel(_embedded(path, words), _prose(words)) for words, path in pictures.items() if words not in small]
    return [panel(tag("div", *figures, class_="pair")), *large]


def _width(path: Path) -> int:
    """Pixels of a PNG."""
    return int.from_bytes(path.read_bytes()[16:20], "big")


def _embedded(path: Path, words: str) -> Html:
    data = base64.b64encode(path.read_bytes()).decode()
    wide = " wide" if _width(path) > SMALL else ""
    return tag("div", tag("img", src=f"data:image/png;base64,{data}", alt=words), class_=f"drawn{wide}")


def _minutes(minutes: float | None) -> str:
    return "not run" if minutes is None else duration(60 * minutes)


def where(steps: Sequence[Step], place: Workplace) -> dict[str, Any]:
    """The versions, and the machines that finished steps ran on."""
    machines = dict.fromkeys(place.machines(steps))
    now = environment()
    return {"lion": now["lion"], "torch": now["torch"], "machine": "; ".join(machines) or now["processor"]}


def _markdown_table(part: Table, place: Workplace) -> list[str]:
    found = columns(part, place)
    both = len({column.paper for column in found}) > 1
    whose = [f", {'paper' if x.paper else 'ours'}" if both else "" for x in found]
    header = ["", *(x.name + more for x, more in zip(found, whose, strict=True))]
    rows = [header, ["---", *("---:" for _ in found)]]
    rows += [[row, *(x.cells[i] for x in found)] for i, row in enumerate(part.rows)]
    return [f"| {' | '.join(map(_cell, row))} |" for row in rows]


def _cell(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(
    named: Named,
    exhibit: Exhibit,
    scale: str,
    place: Workplace,
    claims: Sequence[Judged],
    pictures: dict[str, Path],
) -> str:
    label = f" (`{named.label}`)" if named.label else ""
    lines = [f"# {_title(named, exhibit, scale)}", "", f"{named.title}{label}", ""]
    lines += [f"The paper: {named.claim}", ""]
    lines += [exhibit.about, ""]
    if exhibit.not_run:
        lines += [f"**Not run:** {exhibit.not_run}", ""]
    if claims:
        lines += ["| claim | the paper's numbers | ours |", "|---|---|---|"]
        lines += [f"| {_cell(x.words)} | {x.paper} | **{x.ours}** |" for x in claims]
        lines.append("")
    for part in exhibit.tables:
        lines += [part.title, ""] if part.title else []
        lines += [*_markdown_table(part, place), ""]
    for words, path in pictures.items():
        lines += [f"![{words.split('.')[0]}]({path.name})", "", words, ""]
    if exhibit.steps:
        lines += ["Commands, and how long they took:", ""]
        lines += [f"    {place.brief(step)}  # {_minutes(place.took(step))}" for step in exhibit.steps]
        lines.append("")
    lines.append(", ".join(f"{name} {x}" for name, x in where(exhibit.steps, place).items()) + ".")
    return "\n".join(lines) + "\n"

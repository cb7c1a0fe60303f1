"""The index of all exhibits: a row for each, with how many of its runs are finished and of its claims show."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lion import files
from lion.pages.figures import tag
from lion.pages.parts import card, opening, panel, table, write
from lion.reproduce.exhibits import SHOWS, Exhibit, Named, ScaleName
from lion.reproduce.page import MARKDOWN, PAGE, WORDS, counts, judged, where
from lion.reproduce.steps import Workplace

NOTE = "Runs: finished of all. Claims: those that our numbers show, of all that the paper makes; then the others."


class Row(NamedTuple):
    name: str
    title: str
    runs: str
    claims: str
    written: bool  # whether it has a page


def write_index(known: Mapping[str, Named], scale: ScaleName, place: Workplace, folder: Path) -> Path:
    """Write index.html and README.md, which link to the pages that are there."""
    made = {name: named.make(scale) for name, named in known.items()}
    rows = [_row(known[name], exhibit, place, folder) for name, exhibit in made.items()]
    title = f"The paper, made again {WORDS[scale]}"
    steps = list({step.name: step for exhibit in made.values() for step in exhibit.steps}.values())
    done = sum(place.finished(step) for step in steps)
    facts = where(steps, place)
    cards = [
        card(f"{sum(x.written for x in rows)} of {len(rows)}", "tables and figures have a page", "the others: not yet"),
        card(f"{done} of {len(steps)}", "runs are finished", "shared runs are counted once"),
    ]
    linked = [
        [tag("a", x.name, href=f"{x.name}/{PAGE}") if x.written else x.name, x.title, x.runs, x.claims] for x in rows
    ]
    inside = tag("div", panel(table(["", "what it is", "runs", "claims"], linked), NOTE), class_="claims exhibits")
    path = folder / PAGE
    write(path, f"lion: {title}", opening(title, [], cards), {"Tables and figures": [inside]}, facts)
    lines = [f"# {title}", "", f"{done} of {len(steps)} runs are finished. {NOTE}", ""]
    lines += ["| | what it is | runs | claims |", "|---|---|---|---|"]
    lines += [f"| {_link(x)} | {x.title} | {x.runs} | {x.claims} |" for x in rows]
    lines += ["", ", ".join(f"{name} {x}" for name, x in facts.items()) + "."]
    text = "\n".join(lines) + "\n"
    files.replace(folder / MARKDOWN, lambda temporary: temporary.write_text(text))
    return path


def _row(named: Named, exhibit: Exhibit, place: Workplace, folder: Path) -> Row:
    done, steps = sum(place.finished(step) for step in exhibit.steps), len(exhibit.steps)
    runs = f"{done} of {steps}" if done else "not run" if steps else "none needed"
    written = any((folder / named.name / page).exists() for page in (PAGE, MARKDOWN))
    claims = judged(exhibit, place) if done or not steps else []
    shown = f"{sum(x.ours == SHOWS for x in claims)} of {len(claims)} show" if claims else "-"
    others = [f"{n} {verdict}" for verdict, n in counts(claims).items() if verdict != SHOWS]
    return Row(named.name, named.title, runs, "; ".join([shown, *filter(None, [", ".join(others)])]), written)


def _link(row: Row) -> str:
    return f"[{row.name}]({row.name}/{MARKDOWN})" if row.written else row.name

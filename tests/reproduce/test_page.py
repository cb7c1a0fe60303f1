"""Pages: the paper's numbers and ours, verdicts, pictures and commands, from steps that are finished by hand."""

import base64
import json
import re
from html.parser import HTMLParser

import pytest

from lion.machine import description
from lion.pages.figures import VOID
from lion.reproduce.exhibits import (
    CLOSE,
    DOES_NOT,
    NOT_RUN,
    SCALES,
    SHOWS,
    Cell,
    Claim,
    Exhibit,
    Figure,
    Named,
    Table,
    Value,
    above,
    exhibits,
)
from lion.reproduce.page import NOT_PRINTED, columns, judged, summary, write_pages
from lion.reproduce.steps import Workplace, measuring, seeds

TABLE = Named("table2", "Models, with `code`.", "tab:models", "LION is better.", lambda scale: made())
FIGURE = Named("figure9", "A drawing.", "fig:drawing", "It is drawn.", lambda scale: made())
LION, PEER = seeds(2, "cifar10.lion_s", minutes=8), seeds(2, "cifar10.softmax", minutes=8)
MEASURED = measuring("op", "--shapes 1,1,4,4", minutes=1)


def accuracy(result):
    return 100 * result["accuracy"]


def at_most(row, factor, words):
    return Claim(words, lambda n: [Value(factor).minus(n(row, "time"))])


def dot(results, path):
    """A picture of one pixel, if the first step is finished."""
    from lion.pages.figures import _png

    if results and results[0] is None:
        return False
    import numpy as np

    path.write_bytes(_png(np.zeros((1, 1, 3), np.uint8)))
    return True


def made(**more):
    rows = {
        "LION | S": [Cell(74.0, LION, accuracy), Cell(2.03, (MEASURED,), lambda found: found["times"])],
        "softmax": [Cell(79.8, PEER, accuracy), Cell("out of memory")],
        "ViT": [Cell(72.2), Cell(None)],
    }
    tables = (Table(("accuracy", "time"), rows, title="Small size.", forms={"time": "{:.2f}"}),)
    claims = (
        above("accuracy", "LION | S", "softmax", words="LION is above softmax"),
        above("accuracy", "softmax", "ViT", words="softmax is above ViT"),
        at_most("LION | S", 3.0, "LION takes less than 3 times as long"),
        at_most("softmax", 3.0, "softmax, too"),
    )
    figures = (Figure("dots", "Points. Each is `one`.", (LION[0],), dot),)
    return Exhibit("What was `run`.", tables, claims, figures, "ViT, by another recipe.", **more)


def finish(place, step, result, minutes=7.4):
    folder = place.folder(step)
    folder.mkdir(parents=True)
    (folder / step.result).write_text(json.dumps(result))
    place.finish(step, minutes)


@pytest.fixture
def place(tmp_path):
    """All but one seed of softmax has been run."""
    place = Workplace(tmp_path / "laptop")
    for step, share in zip((*LION, PEER[0]), (0.8123, 0.8001, 0.5), strict=True):
        finish(place, step, {"accuracy": share})
    finish(place, MEASURED, {"times": 1.5}, minutes=0.2)
    return place


class Page(HTMLParser):
    """A page's text, links and cells; its tags must be balanced."""

    def __init__(self, path):
        super().__init__()
        self.markup = path.read_text()
        self.open, self.words, self.sources, self.classes, self.rows = [], "", [], [], []
        self.feed(self.markup)
        self.close()
        assert self.open == []
        self.words = re.sub(r"\s+", " ", self.words)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag not in ("code", "span", "strong"):
            self.words += " "
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        self.classes += [word for name, value in attrs if name == "class" for word in value.split()]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def markdown_tables(text):
    """The cells of every table, by line."""
    lines = text.splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def test_numbers_of_the_paper_and_ours_with_every_seed(place, tmp_path):
    path = write_pages(TABLE, made(), "laptop", place, tmp_path / "table2")
    page = Page(path)
    assert page.words.startswith(" lion: table2 of the paper")
    assert "Table 2 of the paper, at laptop scale" in page.words
    assert ["LION | S", "74.0", "80.6 (81.2, 80.0)", "2.03", "1.50"] in page.rows
    assert ["softmax", "79.8", "50.0", "out of memory", "-"] in page.rows
    assert ["ViT", "72.2", "-", "-", "-"] in page.rows
    assert ["paper", "ours", "paper", "ours"] in page.rows
    text = (path.parent / "README.md").read_text()
    rows = markdown_tables(text)
    assert ["", "accuracy, paper", "accuracy, ours", "time, paper", "time, ours"] in rows
    assert [r"LION \| S", "74.0", "80.6 (81.2, 80.0)", "2.03", "1.50"] in rows
    for words in ("Small size.", "The paper: LION is better.", "ViT, by another recipe.", description()):
        assert words in page.words
        assert words in text
    assert "(`tab:models`)" in text


def test_every_row_of_a_markdown_table_has_as_many_cells(place, tmp_path):
    text = (write_pages(TABLE, made(), "laptop", place, tmp_path).parent / "README.md").read_text()
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 2  # claims and numbers, each with empty lines around it
    for block in blocks:
        header, rule, *rows = markdown_tables("\n".join(block))
        assert len(header) == len(rule)
        assert all(re.fullmatch(r"-+:?", x) for x in rule)
        assert {len(row) for row in rows} == {len(header)}


def test_verdicts(place, tmp_path):
    found = {x.words: (x.paper, x.ours) for x in judged(made(), place)}
    assert found == {
        "LION is above softmax": (DOES_NOT, SHOWS),
        "softmax is above ViT": (SHOWS, NOT_RUN),
        "LION takes less than 3 times as long": (SHOWS, SHOWS),
        "softmax, too": (NOT_PRINTED, NOT_RUN),
    }
    page = Page(write_pages(TABLE, made(), "laptop", place, tmp_path))
    assert ["LION is above softmax", f"paper: {DOES_NOT}", f"ours: {SHOWS}"] in page.rows
    assert {"said-yes", "said-no", "said-other"} <= set(page.classes)
    assert "claims of the paper show 2 of 4 2 not run" in page.words
    rows = markdown_tables((tmp_path / "README.md").read_text())
    assert ["LION is above softmax", DOES_NOT, f"**{SHOWS}**"] in rows
    assert summary(judged(made(), place)) == "Of 4 claims: 2 show and 2 not run."


def test_a_difference_within_the_spread_is_no_verdict(tmp_path):
    place = Workplace(tmp_path)
    for step, share in zip((*LION, *PEER), (0.80, 0.84, 0.81, 0.82), strict=True):
        finish(place, step, {"accuracy": share})
    assert judged(made(), place)[0].ours == CLOSE


def test_pictures_are_in_the_page_and_beside_the_text(place, tmp_path):
    path = write_pages(TABLE, made(), "laptop", place, tmp_path)
    page, png = Page(path), (tmp_path / "dots.png").read_bytes()
    pictures = [x for x in page.sources if not x.startswith("#")]
    assert pictures == [f"data:image/png;base64,{base64.b64encode(png).decode()}"]  # nothing is loaded
    assert "drawn" in page.classes
    assert "photo" not in page.classes  # that is a square
    text = (tmp_path / "README.md").read_text()
    assert "![Points](dots.png)" in text
    assert "Points. Each is `one`." in text
    sheet = re.search(r"<style>(.*?)</style>", page.markup, re.S).group(1)
    rule = re.search(r"\.drawn img \{(.*?)\}", sheet).group(1)
    assert "image-rendering: auto" in rule  # and not pixelated
    assert "max-width: 100%" in rule


def test_without_its_runs_a_picture_is_left_out(tmp_path):
    path = write_pages(TABLE, made(), "laptop", Workplace(tmp_path / "none"), tmp_path)
    page = Page(path)
    assert "Pictures" not in page.words
    assert not (tmp_path / "dots.png").exists()
    assert ["LION | S", "74.0", "2.03"] in page.rows  # no column of ours
    assert "runs are finished 0 of 5" in page.words
    assert all(row[-1] == "not run" for row in page.rows if row[0].startswith("lion train"))


def test_many_small_pictures_go_side_by_side(place, tmp_path):
    for count, found in ((2, False), (4, True)):
        figures = tuple(Figure(f"dots{i}", f"Points {i}.", (), dot) for i in range(count))
        page = Page(write_pages(TABLE, Exhibit("", figures=figures), "laptop", place, tmp_path / f"{count}"))
        assert ("pair" in page.classes) == found
        assert len([x for x in page.sources if x.startswith("data:")]) == count


def test_commands_and_their_time(place, tmp_path):
    path = write_pages(TABLE, made(), "laptop", place, tmp_path)
    commands = {row[0].strip(): row[1] for row in Page(path).rows if row[0].startswith("lion ")}
    assert commands == {
        "lion train cifar10.lion_s --seed 0": "7 min",
        "lion train cifar10.lion_s --seed 1": "7 min",
        "lion train cifar10.softmax --seed 0": "7 min",
        "lion train cifar10.softmax --seed 1": "not run",
        "lion bench op --shapes 1,1,4,4": "12 s",
    }
    text = (tmp_path / "README.md").read_text()
    for command, time in commands.items():
        assert f"    {command}  # {time}\n" in text
        assert len(command) < 100
    assert "runs are finished 4 of 5" in Page(path).words
    assert "22 min" in Page(path).words  # 3 x 7.4 and 0.2


def test_columns_that_are_empty_are_left_out(place):
    table = Table(("accuracy", "time"), {"a": [Cell(None, LION, accuracy), Cell(None)]})
    assert [(x.name, x.paper, x.cells) for x in columns(table, place)] == [("accuracy", False, ["80.6 (81.2, 80.0)"])]


def test_where_the_paper_has_no_numbers_ours_stand_alone(place, tmp_path):
    table = Table(("accuracy",), {"a": [Cell(None, LION, accuracy)]})
    claim = Claim("a is above 0", lambda n: [n("a", "accuracy")])
    page = Page(write_pages(TABLE, Exhibit("", (table,), (claim,)), "laptop", place, tmp_path))
    assert ["", "accuracy"] in page.rows
    assert ["a", "80.6 (81.2, 80.0)"] in page.rows
    assert ["", "accuracy"] in markdown_tables((tmp_path / "README.md").read_text())
    assert ["a is above 0", f"paper: {NOT_PRINTED}", f"ours: {SHOWS}"] in page.rows


def test_a_drawing_has_no_scale_and_no_commands(tmp_path):
    exhibit = Exhibit("What is drawn.", figures=(Figure("dots", "Points.", (), dot),))
    page = Page(write_pages(FIGURE, exhibit, "paper", Workplace(tmp_path), tmp_path))
    assert "Figure 9 of the paper A drawing." in page.words
    for words in ("scale", "Commands", "What was run", "What is claimed"):
        assert words not in page.words
    assert "What is drawn" in page.words


def test_code_in_prose(place, tmp_path):
    markup = Page(write_pages(TABLE, made(), "laptop", place, tmp_path)).markup
    assert "What was <code>run</code>." in markup
    assert "Models, with <code>code</code>." in markup


def test_text_of_results_is_no_markup(tmp_path):
    table = Table(("a & b",), {"<b>": [Cell("<i>")]})
    page = Page(write_pages(TABLE, Exhibit("x < y", (table,)), "laptop", Workplace(tmp_path), tmp_path))
    assert ["<b>", "<i>"] in page.rows
    assert "x < y" in page.words
    assert "<i>" not in page.markup


@pytest.mark.parametrize("scale", SCALES)
def test_a_number_of_an_exhibit_has_one_name(scale):
    """Claims find numbers by row and column: two tables must not have the same."""
    for named in exhibits().values():
        places = [(row, column) for table in named.make(scale).tables for row in table.rows for column in table.columns]
        assert len(places) == len(set(places)), named.name

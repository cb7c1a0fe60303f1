"""docs/start.md is the first page that people read: four commands for each kind of data, of one form."""

import re
import shlex

import pytest

from lion.fields import every
from lion.recipes import recipe
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "start.md"
TASKS = ("Pictures", "Texts", "Series", "DNA")
RECIPES = ("images", "text", "series", "dna.classify", "mlm")
OPTIONS = {"out", "file", "column", "best", "test", "resume", "help"}  # of commands


def first_commands(section):
    """The first indented lines of a section that stand together."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)[1]
    return [shlex.split(line, comments=True) for line in re.search(r"(?:^    \S.*\n)+", text, re.M)[0].splitlines()]


@pytest.mark.parametrize("section", TASKS)
def test_four_commands_of_a_task(section):
    """test_commands.py reads each of them."""
    train, look, predict, evaluate = first_commands(section)
    assert train[:2] == ["lion", "train"]
    run = f"runs/{train[2]}"
    assert look == ["open", f"{run}/report.html"]
    assert predict[:3] == ["lion", "predict", run]
    assert (evaluate[:3] == ["lion", "eval", run]) == (section != "Texts")


def test_options_of_the_page_are_there():
    found = {name.replace("-", "_") for name in re.findall(r"(?<!-)--([a-z][\w.-]*)", PAGE.read_text())}
    fields = {field.path for name in RECIPES for field in every(recipe(name))}
    assert {"image_size", "epochs", "max_length", "skip_bad"} <= found
    assert found - fields <= OPTIONS

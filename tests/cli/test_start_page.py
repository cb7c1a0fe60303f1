"""docs/start.md is the first page that people read: what it tells them to type is what the commands take."""

import re
import shlex
from pathlib import Path

import pytest

from lion.cli import main
from lion.fields import every
from lion.recipes import recipe

PAGE = Path(__file__).parents[2] / "docs" / "start.md"
TASKS = ("Pictures", "Texts", "Series", "DNA")
RECIPES = ("images", "text", "series", "dna.classify", "mlm")
OPTIONS = {"out", "file", "column", "best", "test", "resume", "help"}  # of commands


def commands(section):
    """Of a section of the page, the first indented lines that stand together."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)[1]
    block = re.search(r"(?:^    \S.*\n)+", text, re.M)[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.mark.parametrize("section", TASKS)
def test_four_commands_of_a_task(section, tmp_path, monkeypatch, capsys):
    train, look, *others = commands(section)
    assert len(others) == 2
    monkeypatch.chdir(tmp_path)  # there is no run, and no data
    assert train[:2] == ["lion", "train"]
    assert main([*train[1:], "--show"]) == 0
    run = f"runs/{train[2]}"
    assert look == ["open", f"{run}/report.html"]
    capsys.readouterr()
    for program, *words in others:
        assert (program, words[1]) == ("lion", run)
        assert main(words) == 1
        assert f"there is no run in {run}" in capsys.readouterr().err


def test_options_of_the_page_are_there():
    found = {name.replace("-", "_") for name in re.findall(r"(?<!-)--([a-z][\w.-]*)", PAGE.read_text())}
    fields = {field.path for name in RECIPES for field in every(recipe(name))}
    assert {"image_size", "epochs", "max_length", "skip_bad"} <= found
    assert found - fields <= OPTIONS

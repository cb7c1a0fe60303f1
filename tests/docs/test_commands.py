"""Every command of README.md and docs is one that the programs take: options, recipes, names, extras, files.

What is quick runs, in an empty folder; `lion train` shows the run instead; a command that wants a run reads its words,
and says that there is none.
"""

import re

import pytest

from lion.cli import main, parsed
from lion.models.registry import names_without_size
from lion.nn.variants import VARIANTS
from lion.ops.kernels import BACKENDS, DECAYS, FORMS
from tests.docs.pages import PAGES, ROOT, commands, mentions
from tests.test_packages import extras_of_the_project

STAND_INS = {"RECIPE": "digits.lion_s", "NAME": "table2", "brackets": "digits.lion_s"}  # the last: contributing.md's
LONG = ("bench", "data", "demo", "doctor")  # their words are read, and tests/cli runs them
NO_RUN = "there is no run in"
MODELS = {*names_without_size()}
NAMES = {  # options of `lion bench` whose values are names
    "backend": {*BACKENDS, "einsum"},  # the one of contributing.md
    "decay": {"none", "fixed", "per-token", "diagonal"},
    "decays": {*DECAYS},
    "forms": {*FORMS},
    "models": MODELS,
    "model": MODELS,
    "modes": {"recurrence", "cache", "attention"},
    "variants": {*VARIANTS},
}


def lion(words, capsys):
    command, *rest = (STAND_INS.get(word, word) for word in words[1:])
    if command in ("train", "distill") and not {"--list", "--help"} & {*rest}:
        rest.append("--show")
    if command == "reproduce":
        rest.insert(0, "--dry-run")
    args = parsed([command, *rest])
    if (command in LONG and not hasattr(args, "folders")) or getattr(args, "draw", None):
        return check_names(vars(args))
    code = main([command, *rest])
    said = capsys.readouterr()
    assert code == 0 or (code == 1 and NO_RUN in said.err), said.err


def check_names(given):
    if given.get("variants") is True:  # `lion bench op` has a flag of that name
        return
    for option, names in NAMES.items():
        values = given.get(option) or []
        assert {values} if isinstance(values, str) else {*values} <= names, option


def python(words, capsys):
    if words[1] == "-m" and words[2] == "pytest":
        pytest_(words[2:], capsys)
    elif words[1] == "-m":
        assert words[2] == "venv" or (ROOT / words[2].replace(".", "/")).with_suffix(".py").exists()
    else:
        assert (ROOT / words[1]).exists()


def pytest_(words, capsys):
    for path in (x for x in words if x.startswith("tests")):
        assert (ROOT / path).exists() or path == "tests/tasks/test_brackets.py"  # which contributing.md writes


def make(words, capsys):
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)


def pip(words, capsys):
    wanted = re.findall(r"\[([\w,]+)\]", " ".join(words))
    assert {x for extra in wanted for x in extra.split(",")} <= {*extras_of_the_project()}


CHECKS = {"lion": lion, "python": python, "pytest": pytest_, "make": make, "pip": pip}


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_of_a_page(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        CHECKS[words[0]](words, capsys)


@pytest.mark.parametrize("page", [page for page in PAGES if mentions(page)])
def test_commands_in_running_text(page, tmp_path, monkeypatch, capsys):
    """Arguments may be left out there: without options, commands are asked for their help."""
    monkeypatch.chdir(tmp_path)
    for words in mentions(page):
        if words[1] == "train":
            lion([*words, "--help"], capsys)
        elif any(word.startswith("--") for word in words):
            lion(words, capsys)
        else:
            with pytest.raises(SystemExit) as end:
                main([*words[1:], "--help"])
            assert end.value.code == 0, words

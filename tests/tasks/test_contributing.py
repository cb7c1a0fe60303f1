"""The task of docs/contributing.md, done as it says: one file, found by its name, and its test."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from lion import recipes, tasks
from lion.cli import main
from lion.tasks import _base

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"


@pytest.fixture
def test_file(tmp_path, monkeypatch):
    """The page's test, once its task is in a folder that lion.tasks looks into."""
    section = PAGE.read_text().split("## Add a task with its data")[1].split("\n## ")[0]
    task, test = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    (tmp_path / "brackets.py").write_text(task)
    recipes.listing()  # imports all others
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    monkeypatch.setattr(_base, "TASKS", dict(_base.TASKS))
    monkeypatch.setattr(recipes, "_recipes", dict(recipes._recipes))
    monkeypatch.setattr(recipes, "_entries", list(recipes._entries))
    yield test
    sys.modules.pop("lion.tasks.brackets", None)


def test_the_page(test_file, tmp_path, capsys):
    namespace = {}
    exec(test_file, namespace)
    tests = [x for name, x in namespace.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test(*([tmp_path] if inspect.signature(test).parameters else []))
    run = str(tmp_path / "run")
    assert main(["train", "brackets", "--resume", "--steps", "4", "--out", run, "--accept", "model,length"]) == 1
    assert "is of the recipe None; expected 'brackets'" in capsys.readouterr().err
    assert main(["train", "--resume", "--steps", "4", "--out", run]) == 0
    assert f"use it: lion predict {run} '(" in capsys.readouterr().out
    assert main(["predict", run, "(())(())"]) == 0
    assert main(["train", "--list", "brackets"]) == 0
    assert "brackets  brackets.lion_s  brackets.lion_d  brackets.softmax" in capsys.readouterr().out


def test_every_module_is_a_kind():
    for kind in tasks.kinds():
        assert tasks.task_class(kind).kind == kind

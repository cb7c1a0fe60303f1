"""The description of every field, and which field is meant by a wrong name."""

import dataclasses

import pytest

from lion import configs, fields, recipes, tasks
from lion.tasks import Task


def every_config():
    """The configs of all recipes and kinds of tasks, by class."""
    found = {type(run): run for run in (make() for make in recipes.RECIPES.values())}
    todo = [*found.values(), *(make().task for make in recipes.RECIPES.values())]
    todo += [tasks.task_class(kind)() for kind in tasks.kinds()]
    while todo:
        config = todo.pop()
        found[type(config)] = config
        inner = (getattr(config, field.name) for field in dataclasses.fields(config))
        todo += [x for x in inner if dataclasses.is_dataclass(x) and type(x) not in found]
    return found


def test_every_field_has_a_line_about_it():
    found = every_config()
    assert len(found) >= 14
    for kind, config in found.items():
        about = fields.comments(kind)
        for name in configs.fields_of(kind):
            if dataclasses.is_dataclass(getattr(config, name)):
                continue
            assert about.get(name), f"{kind.__name__}.{name} has no comment behind it"
            assert len(about[name]) <= 100, f"{kind.__name__}.{name}"


def test_what_is_decided_is_a_field_that_nobody_is_offered():
    for kind in tasks.kinds():
        run = recipes.recipe("images")
        task = tasks.task_class(kind)()
        known = {field.path: field for field in fields.every(dataclasses.replace(run, task=task))}
        table = fields.described(dataclasses.replace(run, task=task))
        for path in task.decided.keys() & known.keys():
            assert f"--{path} " not in table
            with pytest.raises(ValueError, match=f"--{path} is '1'; expected none: .* decides it"):
                dataclasses.replace(run, task=task).changed({path: "1"})
        assert task.decided.keys() <= known.keys() | {"model.pad_token"}  # which causal models have not


class Base(Task):
    size: int  # of it all


@dataclasses.dataclass(frozen=True)
class Example(Base):
    size: int = 1
    name: str = "# no comment"  # with a # inside
    plain: bool = False
    long: tuple[str, ...] = (
        "first",
        "second",
    )  # behind the last line

    inner = 3  # not a field


def test_comments_of_the_source():
    about = fields.comments(Example)
    assert about["size"] == "of it all"
    assert about["name"] == "with a # inside"
    assert about["long"] == "behind the last line"
    assert "plain" not in about
    assert "inner" not in about


def test_a_class_without_source_has_no_comments():
    namespace = {"dataclass": dataclasses.dataclass}
    exec("@dataclass\nclass Typed:\n    x: int = 1  # seen by nobody", namespace)
    assert fields.comments(namespace["Typed"]) == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [((), '""'), ("", '""'), (True, "true"), (None, "none"), ((0.9, 0.5), "0.9,0.5"), (1e-8, "1e-08")],
)
def test_values_as_the_command_line_takes_them(value, text):
    assert fields.as_text(value) == text


def test_a_long_value_does_not_push_descriptions_away(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run = recipes.recipe("images").changed({"data": "/a/folder/with/a/very/long/name/" * 3})
    lines = fields.described(run).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  --data "))
    assert lines[at].endswith("/name/")
    assert lines[at + 1].startswith(" " * 20)
    assert all(len(line) <= 80 for n, line in enumerate(lines) if n != at)

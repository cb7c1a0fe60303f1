"""Recipes: functions that return a run. `lion train NAME` runs one; any field can be changed on the way.

A task's own recipe, for data of your own, stands in the task's file in lion/tasks. The modules of this folder have
those of the paper and of public data sets.
"""

import functools
import importlib
import itertools
import pkgutil
import string
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lion import legacy
from lion.ops.checks import one_of

if TYPE_CHECKING:
    from lion.train.config import Run

    RECIPES: dict[str, Callable[[], Run]]

WIDTH = 110  # of the listing
Make = TypeVar("Make", bound="Callable[..., Run]")


class Entry(NamedTuple):
    """A row of the listing."""

    about: str
    names: list[str]  # patterns, with the choices filled in


_recipes: "dict[str, Callable[[], Run]]" = {}
_entries: list[Entry] = []


def register_recipe(*patterns: str, **choices: Iterable[str]) -> Callable[[Make], Make]:
    """A decorator: `lion train` knows the function by these names.

    Args:
        patterns: names, as "mlm"; or many at once, as "mlm.{variant}", where `variant` is an argument of the function.
        choices: values of these arguments.
    """

    def register(make: Make) -> Make:
        for pattern in patterns:
            fields = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
            for values in itertools.product(*(choices[name] for name in fields)):
                given = dict(zip(fields, values, strict=True))
                _recipes[pattern.format(**given)] = functools.partial(make, **given)
        shown = {name: f"{{{', '.join(values)}}}" for name, values in choices.items()}
        _entries.append(Entry(" ".join((make.__doc__ or "").split()), [x.format(**shown) for x in patterns]))
        return make

    return register


def recipe(name: str) -> "Run":
    """The run that `lion train NAME` begins with."""
    if name not in _recipes:
        _load(name.split(".")[0])
    if name not in _recipes:
        _load()
    if name in legacy.RECIPES:
        legacy.tell(name, legacy.RECIPES[name])
        name = legacy.RECIPES[name]
    one_of("recipe", name, _recipes)
    return _recipes[name]()


def listing() -> str:
    """All recipes, with a sentence about each."""
    _load()
    lines = []
    for about, names in sorted(_entries, key=lambda entry: entry.names):
        lines += textwrap.wrap(about, WIDTH)
        lines += textwrap.wrap(", ".join(names), WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def _load(only: str = "") -> None:
    """Import the modules that register recipes: all, or those of one name."""
    from lion import tasks

    for package, path in (("lion.recipes", __path__), ("lion.tasks", tasks.__path__)):
        for module in pkgutil.iter_modules(path):
            if only in ("", module.name):
                importlib.import_module(f"{package}.{module.name}")


def __getattr__(name: str) -> object:
    if name == "RECIPES":  # all of them, by name
        _load()
        return _recipes
    raise AttributeError(f"module 'lion.recipes' has no attribute {name!r}")

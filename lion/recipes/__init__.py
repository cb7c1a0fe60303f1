"""Recipes: functions that return a run. `lion train NAME` runs one; any field can be changed on the way.

A task's own recipe, for data of your own, stands in the task's file in lion/tasks. The modules of this folder have
those of the paper and of public data sets.
"""

import difflib
import functools
import importlib
import itertools
import pkgutil
import re
import string
import textwrap
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lion import legacy
from lion.terminal import width

if TYPE_CHECKING:
    from lion.train.config import Run

    RECIPES: dict[str, Callable[[], Run]]

COMMAND = re.compile(r"[:,]? `(lion [^`]* --data [^`]*)`")  # in the docstring of a recipe for data of one's own
FIRST = ("images", "text", "series", "dna.classify", "dna")  # of the listing; others follow by name
Make = TypeVar("Make", bound="Callable[..., Run]")


class Entry(NamedTuple):
    """What one function makes."""

    about: str
    patterns: tuple[str, ...]
    names: list[str]

    @property
    def command(self) -> str:
        """With a person's own data; "" if the recipe has its own."""
        found = COMMAND.search(self.about)
        return found[1] if found else ""

    @property
    def sentence(self) -> str:
        return COMMAND.sub("", self.about)

    @property
    def family(self) -> str:
        """What is common to the names: "digits.*"."""
        return f"{self.patterns[-1].partition('{')[0]}*" if len(self.others) > 1 else self.others[0]

    @property
    def others(self) -> list[str]:
        """All names, but for that of the command."""
        return self.names[1:] if self.command else self.names


_recipes: "dict[str, Callable[[], Run]]" = {}
_entries: list[Entry] = []


def register_recipe(*patterns: str, **choices: Iterable[str]) -> Callable[[Make], Make]:
    """A decorator: `lion train` knows the function by these names.

    Args:
        patterns: names, as "mlm"; or many at once, as "mlm.{variant}", where `variant` is an argument of the function.
        choices: values of these arguments.
    """

    def register(make: Make) -> Make:
        names = []
        for pattern in patterns:
            fields = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
            for values in itertools.product(*(choices[name] for name in fields)):
                given = dict(zip(fields, values, strict=True))
                names.append(pattern.format(**given))
                _recipes[names[-1]] = functools.partial(make, **given)
        _entries.append(Entry(" ".join((make.__doc__ or "").split()), patterns, names))
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
    if name not in _recipes:
        raise ValueError(f"recipe is {name!r}; {_meant(name, _recipes)}")
    return _recipes[name]()


def listing(family: str = "") -> str:
    """The recipes for data of one's own, and the families of all others with their counts; or the names of a family."""
    _load()
    if family:
        return _members(family)
    lines = ["For your own data:"]
    for entry in sorted((x for x in _entries if x.command), key=lambda entry: _place(entry.names[0])):
        lines += _row(f"  {entry.names[0]:12}  ", entry.sentence)
        lines += [" " * 16 + entry.command]
    lines += ["", "For public data and the paper's experiments, with the number of recipes:"]
    for entry in sorted((x for x in _entries if x.others), key=lambda entry: entry.names):
        same = f"`{entry.names[0]}` with this variant." if entry.command else entry.sentence
        lines += _row(f"  {entry.family:20}  {len(entry.others):3}  ", same)
    lines += [
        "",
        "lion train --list digits    the recipes of a family",
        "lion train images --help    the fields of a recipe",
    ]
    return "\n".join(lines)


def _place(name: str) -> tuple[int, str]:
    return FIRST.index(name) if name in FIRST else len(FIRST), name


def _members(family: str) -> str:
    start = family.rstrip(".*")
    lines = []
    for entry in _entries:
        names = [name for name in entry.names if name == start or name.startswith((f"{start}.", f"{start}_"))]
        if names:
            lines += textwrap.wrap(entry.sentence, width())
            lines += textwrap.wrap("  ".join(names), width(), initial_indent="  ", subsequent_indent="  ")
    if not lines:
        raise ValueError(f"--list is {family!r}; {_meant(start, {name.split('.')[0] for name in _recipes})}")
    return "\n".join(lines)


def _row(begin: str, text: str) -> list[str]:
    return textwrap.wrap(text, width(), initial_indent=begin, subsequent_indent=" " * len(begin))


def _meant(name: str, known: Collection[str]) -> str:
    """What to do about an unknown name."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}`lion train --list` has them all."


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

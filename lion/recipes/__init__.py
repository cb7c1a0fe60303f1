"""Recipes: functions that return a run. `lion train NAME` runs one; any field can be changed on the way."""

import textwrap
from collections.abc import Callable

from lion.ops.checks import one_of
from lion.recipes import text, vision
from lion.train.config import Run

WIDTH = 110  # of the listing
RECIPES: dict[str, Callable[[], Run]] = {**vision.RECIPES, **text.RECIPES}
ABOUT = {**vision.ABOUT, **text.ABOUT}


def recipe(name: str) -> Run:
    one_of("recipe", name, RECIPES)
    return RECIPES[name]()


def listing() -> str:
    """Families of recipes, and what there is of each."""
    families: dict[str, list[str]] = {}
    for name in RECIPES:
        family, _, member = name.partition(".")
        families.setdefault(family, []).append(member)
    lines = []
    for family, members in families.items():
        lines += textwrap.wrap(f"{family}: {ABOUT[family]}", WIDTH)
        if members != [""]:
            names = f"{family}.{{{', '.join(members)}}}"
            lines += textwrap.wrap(names, WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)

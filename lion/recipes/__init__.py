"""Recipes: functions that return a run. `lion train NAME` runs one; any field can be changed on the way."""

import textwrap
from collections.abc import Callable

from lion.ops.checks import one_of
from lion.recipes import long_range, text, vision
from lion.train.config import Run

WIDTH = 110  # of the listing
RECIPES: dict[str, Callable[[], Run]] = {**vision.RECIPES, **text.RECIPES, **long_range.RECIPES}
ABOUT = {**vision.ABOUT, **text.ABOUT, **long_range.ABOUT}


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
            names = f"{family}.{_choices(members)}"
            lines += textwrap.wrap(names, WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def _choices(members: list[str]) -> str:
    """Names in braces; of two parts that go together in all ways, each part by itself."""
    firsts, seconds = (
        list(dict.fromkeys(part)) for part in zip(*(x.partition(".")[::2] for x in members), strict=True)
    )
    if "" in seconds or len(firsts) * len(seconds) != len(members):
        return f"{{{', '.join(members)}}}"
    return f"{{{', '.join(firsts)}}}.{{{', '.join(seconds)}}}"

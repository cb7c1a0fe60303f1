"""Fields of configs that come from files: their types and sizes, before a model is made of them."""

import math
import types
import typing
from collections.abc import Mapping
from typing import Any

LONGEST = 600  # characters of what is wrong with a file


def check_fields(content: Mapping[str, Any], wanted: Mapping[str, Any], sizes: Mapping[str, tuple[int, int]]) -> None:
    """That fields are of the types that they should have, and not smaller or larger than they can be."""
    for name, hint in wanted.items():
        if name in content and not _is(content[name], hint):
            words = str(hint).removeprefix("<class '").removesuffix("'>")
            raise ValueError(f"{name} is {short(repr(content[name]))}; expected {words}.")
    for name, (least, most) in sizes.items():
        if isinstance(x := content.get(name), int | float) and not least <= x <= most:
            raise ValueError(f"{name} is {x}; expected {least:,} to {most:,}.")


def short(text: str) -> str:
    """In one line, and not a long one."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def _is(x: Any, hint: Any) -> bool:
    """Whether JSON's value is one for a field of this type."""
    inner = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(_is(x, one) for one in inner)
    if typing.get_origin(hint) is tuple and inner[-1] is not ...:
        return isinstance(x, list) and len(x) == len(inner) and all(map(_is, x, inner))
    if typing.get_origin(hint) in (list, tuple):
        return isinstance(x, list) and all(_is(one, inner[0]) for one in x)
    if hint is float:
        return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)
    if hint is int:
        return isinstance(x, int) and not isinstance(x, bool) and abs(x) < 2**63
    return not isinstance(hint, type) or isinstance(x, hint)

"""Configs are frozen dataclasses: here they become JSON, come back from it, and are changed field by field.

A field is a number, a string, a bool, None, a tuple of these, or another config.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from lion.ops.checks import one_of

C = TypeVar("C")


def to_json(config: Any) -> Any:
    """Plain dicts and lists."""
    if dataclasses.is_dataclass(config):
        return {field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, tuple | list):
        return [to_json(x) for x in config]
    return config


def from_json(kind: type[C], plain: Mapping[str, Any], where: str = "") -> C:
    """What `to_json` made. An unknown field is refused by name; one that is missing keeps its default."""
    hints = typing.get_type_hints(kind)
    for name in plain:
        one_of(f"field of {where or kind.__name__}", name, hints)
    return kind(**{name: _value(hints[name], x, f"{where}.{name}".lstrip(".")) for name, x in plain.items()})


def changed(config: C, path: str, text: str, whole_path: str | None = None) -> C:
    """A copy with one field, "optim.lr", set to what a text, "1e-3", means for a field of its type."""
    whole_path = whole_path or path
    name, _, rest = path.partition(".")
    hints = typing.get_type_hints(type(config))
    fields = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    if name not in fields:
        one_of(f"--{whole_path}: the field", name, fields)
    if rest:
        inner = getattr(config, name)
        if not dataclasses.is_dataclass(inner):
            raise ValueError(f"--{whole_path}: {name} has no fields of its own; expected --{name}.")
        return dataclasses.replace(config, **{name: changed(inner, rest, text, whole_path)})  # type: ignore[type-var]
    try:
        value = _parse(hints[name], text)
    except ValueError:
        wanted = str(hints[name]).removeprefix("<class '").removesuffix("'>")
        raise ValueError(f"--{whole_path} is {text!r}; expected {wanted}.") from None
    return dataclasses.replace(config, **{name: value})  # type: ignore[type-var]


def _value(hint: Any, x: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_json(hint, x, where)  # type: ignore[arg-type]
    if isinstance(x, list):
        return tuple(x)
    if hint is float and isinstance(x, int):
        return float(x)
    return x


def _parse(hint: Any, text: str) -> Any:
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_parse(inner[0], part) for part in parts)
        if len(parts) == 1:  # one number for all
            parts *= len(inner)
        if len(parts) != len(inner):
            raise ValueError
        return tuple(_parse(kind, part) for kind, part in zip(inner, parts, strict=True))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return None if text.lower() == "none" else _parse(kinds[0], text)
    if hint is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[_known(text.lower())]
    if hint in (int, float, str):
        return hint(text)
    raise ValueError


def _known(text: str) -> str:
    if text not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError
    return text

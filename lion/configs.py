"""Configs, which are frozen dataclasses: to JSON and back, and changed field by field.

A field is a number, a string, a bool, None, a tuple of these, or another config. Its type defines its valid values
(lion.limits). `checked` validates values from JSON, `parsed` text of the command line, `check` a constructor's fields.
"""

import contextlib
import dataclasses
import functools
import math
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from lion import legacy
from lion.limits import OneOf

C = TypeVar("C")
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def to_json(config: Any) -> Any:
    """The config as plain dicts and lists."""
    if dataclasses.is_dataclass(config):
        return {field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, tuple | list):
        return [to_json(x) for x in config]
    return config


def from_json(kind: type[C], plain: Any, where: str = "", names: Mapping[str, str] | None = None) -> C:
    """The config from plain dicts and lists. An unknown field is an error; a missing one keeps its default.

    Args:
        where: the object's name in errors: "optim", or with its file "runs/a/run.json: run.optim".
        names: names of fields in errors, where they differ from the class.
    """
    from lion.ops.checks import one_of

    hints, names = fields_of(kind), names or {}
    plain = legacy.current(an_object(plain, where or kind.__name__), hints)
    for name in plain:
        one_of(f"{where or kind.__name__}: the field", name, hints)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.name not in plain:
            raise ValueError(f"{inside(where, field.name)} is missing; expected {expected(hints[field.name])}.")
    values = {name: checked(hints[name], x, inside(where, names.get(name, name))) for name, x in plain.items()}
    try:
        return kind(**values)
    except ValueError as problem:  # fields that do not go together
        raise ValueError(f"{where.removesuffix(': ')}: {problem}" if where else str(problem)) from None


def changed(config: C, changes: Mapping[str, str], where: str = "--") -> C:
    """A copy with some fields set from text, {"optim.lr": "1e-3"}, all at once: fields may depend on each other."""
    from lion.ops.checks import one_of

    hints, values = fields_of(type(config)), {}
    inner: dict[str, dict[str, str]] = {}
    for path, text in changes.items():
        name, _, rest = path.partition(".")
        if not rest:
            [(name, text)] = legacy.current({name: text}, hints, warn=True).items()
        one_of(f"{where}{path}: the field", name, hints)
        nested = dataclasses.is_dataclass(getattr(config, name))
        if nested and not rest:
            first = next(iter(fields_of(type(getattr(config, name)))))
            raise ValueError(f"{where}{path} is {shown(text)}; expected one of its fields, as {where}{path}.{first}.")
        if rest and not nested:
            raise ValueError(f"{where}{path}: {name} has no fields of its own; expected {where}{name}.")
        if nested:
            inner.setdefault(name, {})[rest] = text
        else:
            values[name] = parsed(hints[name], text, f"{where}{path}")
    values |= {name: changed(getattr(config, name), given, f"{where}{name}.") for name, given in inner.items()}
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def check(config: Any) -> None:
    """Validate all fields, for `__post_init__`."""
    for name, hint in fields_of(type(config)).items():
        checked(hint, getattr(config, name), name)


def fields_of(kind: type) -> dict[str, Any]:
    """The types of a config's fields."""
    return _fields_of(kind)


@functools.cache
def _fields_of(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def an_object(plain: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        raise ValueError(f"{where.removesuffix(': ')} is {shown(plain)}; expected an object.")
    return plain


def entry(plain: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """An object within an object."""
    if name not in plain:
        raise ValueError(f"{inside(where, name)} is missing; expected an object.")
    return an_object(plain[name], inside(where, name))


def inside(where: str, name: str) -> str:
    """A field's name, after its object's or file's."""
    return f"{where}{name}" if not where or where.endswith(": ") else f"{where}.{name}"


def shown(x: Any) -> str:
    """A value in a short line."""
    return SHORT.repr(x)


SHORT = reprlib.Repr()
SHORT.maxlevel, SHORT.maxstring, SHORT.maxother, SHORT.maxlong = 3, 80, 80, 40


def expected(hint: Any, none: str = "null") -> str:
    """The valid values of a field of this type, in words."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return args[1].words(expected(args[0]))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(none if x is type(None) else expected(x, none) for x in args)
    if origin is Literal:
        return OneOf(args).words("")
    if origin is tuple and args[-1] is Ellipsis:
        return f"a list, each of them {expected(args[0])}"
    if origin is tuple:
        return f"{len(args)} values, each {expected(args[0])}"
    return WORDS.get(hint, "an object")


def checked(hint: Any, x: Any, where: str) -> Any:
    """The value of a field of this type from JSON; or an error with the field, the value and the valid values."""
    if dataclasses.is_dataclass(hint) and not isinstance(x, hint):  # type: ignore[arg-type]
        return from_json(hint, x, where)  # type: ignore[arg-type]
    return _fitting(hint, x, lambda known: f"{where} is {shown(x)}; expected {expected(hint)}.{known}")


def parsed(hint: Any, text: str, where: str) -> Any:
    """The same from a text of the command line."""
    value = _read(hint, text)
    return _fitting(hint, value, lambda known: f"{where} is {shown(text)}; expected {expected(hint, 'none')}.{known}")


def _fitting(hint: Any, x: Any, message: Callable[[str], str]) -> Any:
    """A value converted to its type: lists to tuples, whole numbers to floats."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        found = _fitting(args[0], x, message)
        if not args[1].has(found):
            raise ValueError(message(args[1].hint(found) if isinstance(args[1], OneOf) else ""))
        return found
    if origin in (typing.Union, types.UnionType):
        if x is None and type(None) in args:
            return None
        *others, last = (kind for kind in args if kind is not type(None))
        for kind in others:
            with contextlib.suppress(ValueError):
                return _fitting(kind, x, message)
        return _fitting(last, x, message)
    if origin is tuple and isinstance(x, tuple | list) and len(args) in (len(x), 2 if args[-1] is Ellipsis else -1):
        kinds = (args[0],) * len(x) if args[-1] is Ellipsis else args
        return tuple(_fitting(kind, part, message) for kind, part in zip(kinds, x, strict=True))
    if (origin is Literal and isinstance(x, str) and x in args) or (origin is None and _is(hint, x)):
        return float(x) if hint is float else x
    raise ValueError(message(""))


def _is(kind: type, x: Any) -> bool:
    if isinstance(x, bool) or kind is bool:  # a bool is an int in Python
        return isinstance(x, bool) and kind is bool
    if kind is float:
        return isinstance(x, numbers.Real) and _finite(x)
    return isinstance(x, numbers.Integral if kind is int else kind)


def _finite(x: Any) -> bool:
    try:
        return math.isfinite(x)
    except OverflowError:  # an int that is too large for a float
        return False


def _read(hint: Any, text: str) -> Any:
    """The value of JSON that a text stands for; the text itself if there is none."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _read(args[0], text)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in args if kind is not type(None)]
        return None if text.lower() == "none" and type(None) in args else _read(kinds[0], text)
    if origin is tuple:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if args[-1] is not Ellipsis and len(parts) == 1:  # one value for all
            parts *= len(args)
        return [_read(args[0], part) for part in parts]
    if hint is bool:
        return TRUTH.get(text.lower(), text)
    if hint in (int, float):
        with contextlib.suppress(ValueError):
            return hint(text)
    return text

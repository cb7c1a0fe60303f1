"""The fields of a run: their names on the command line, their values, and a line about each.

That line is the comment behind the field in the source, so that readers of the code and users of `lion train NAME
--show` read the same.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import io
import textwrap
import tokenize
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from lion import configs
from lion.limits import OneOf
from lion.terminal import width

CHOICES = 60  # characters of all valid names together, where they are listed
VALUE = 12  # the widest value that has its description beside it


class Field(NamedTuple):
    path: str  # as on the command line: "optim.lr"
    hint: Any  # its type
    value: Any
    about: str
    by: str = ""  # what decides it, if it is not to be set

    @property
    def group(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def words(self) -> str:
        """What it is, with the valid names if they are few."""
        names = _names(self.hint)
        known = all(name in self.about for name in names) or sum(map(len, names)) > CHOICES
        return self.about if known else f"{self.about} ({', '.join(names)})"


def every(run: Any) -> list[Field]:
    """The fields of a run, its task's first; fields of the task have no prefix."""
    own = [field for field in _inside(run, "", {}) if field.group or field.path != "task"]
    return [*_inside(run.task, "", run.task.decided), *own]


def _inside(config: Any, prefix: str, decided: typing.Mapping[str, str]) -> Iterator[Field]:
    about = comments(type(config))
    for name, hint in configs.fields_of(type(config)).items():
        path, value = f"{prefix}{name}", getattr(config, name)
        if path == "task":
            continue
        if dataclasses.is_dataclass(value):
            yield from _inside(value, f"{path}.", decided)
        else:
            yield Field(path, hint, value, about.get(name, ""), decided.get(path, ""))


def comments(kind: type) -> dict[str, str]:
    """The comments behind the fields of a config; a field that is declared anew may go without."""
    return _comments(kind)


@functools.cache
def _comments(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if "__annotations__" in vars(base):
            found |= _comments_in(base)
    return found


def _comments_in(kind: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):  # a class of an interpreter's prompt, or an installation without sources
        return {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    declared = {ast.unparse(x.target): lines.get(x.end_lineno or 0) for x in body if isinstance(x, ast.AnnAssign)}
    return {name: text.lstrip("# ") for name, text in declared.items() if text}


def suggestion(path: str, paths: Iterable[str]) -> str:
    """The field that was probably meant by an unknown one: of the same name elsewhere, or with a similar name."""
    known = list(paths)
    last = path.rpartition(".")[2]
    same = [x for x in known if x.rpartition(".")[2] == last]
    if same:
        return min(same, key=lambda x: x.count("."))
    near = difflib.get_close_matches(path, known, n=1)
    names = {x.rpartition(".")[2]: x for x in reversed(known)}
    inner = difflib.get_close_matches(last, names, n=1)
    best = [*near, *(names[x] for x in inner)]
    return max(best, key=lambda x: difflib.SequenceMatcher(None, path, x).ratio(), default="")


def described(run: Any) -> str:
    """A table of the fields that can be set, with their values and what they are."""
    shown = [field for field in every(run) if not field.by]
    groups: dict[str, list[Field]] = {}
    for field in shown:
        groups.setdefault(field.group, []).append(field)
    return "\n\n".join(_group(fields) for fields in groups.values())


def _group(fields: list[Field]) -> str:
    names = max(len(field.path) for field in fields) + 4
    values = max((n for field in fields if (n := len(as_text(field.value))) <= VALUE), default=0)
    indent = " " * (names + values + 4)
    lines = []
    for field in fields:
        value = as_text(field.value)
        begin = f"  --{field.path.ljust(names - 4)}  {value.ljust(values)}  "
        if len(value) > values:
            lines.append(begin.rstrip())
            begin = indent
        lines += textwrap.wrap(field.words, width(), initial_indent=begin, subsequent_indent=indent) or [begin.rstrip()]
    return "\n".join(lines)


def as_text(x: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(x, tuple):
        return ",".join(map(as_text, x)) or '""'
    if isinstance(x, bool) or x is None:
        return str(x).lower()
    return f"{x:g}" if isinstance(x, float) else str(x) or '""'


def _names(hint: Any) -> list[str]:
    """The valid values, if they are names."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and isinstance(args[1], OneOf):
        return [x or repr(x) for x in args[1].known]
    return list(args) if origin is typing.Literal else []

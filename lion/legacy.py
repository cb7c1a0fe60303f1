"""Names that earlier versions used, and what they are called now: the one place that knows both.

Saved files are read by their old names without a word (`current`, `current_everywhere`). Python code and the command
line that use an old name get a FutureWarning with the new one. A renamed field or value is one row of these tables.
"""

import argparse
import functools
import inspect
import warnings
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

FIELDS: dict[str, str] = {"mixer": "variant"}  # of configs, wherever they are
VALUES: dict[str, dict[str, str]] = {  # by the field's new name
    "direction": {"backward": "reverse"},
    "features": {"silu": "unit_silu", "elu": "elu_plus_one"},
}
TASKS: dict[str, str] = {  # kinds of tasks in run.json
    "text": "text_classification",
    "text_distill": "text_distillation",
    "dna_classes": "dna_classification",
}
# Fields that run.json did not have, and what they were: by kind of task.
MISSING: dict[str, dict[str, Any]] = {
    "images": {"by_content": False},
    "dna_classification": {"aligned": False},
    "series": {"aligned": False},
}
RECIPES: dict[str, str] = {
    f"ablation.{model}_backward{data}": f"ablation.{model}_reverse{data}"
    for model in ("lion_s", "lion_s_2scan")
    for data in ("", "_cifar10")
}

C = TypeVar("C")


def current(given: Mapping[str, Any], known: Collection[str], *, warn: bool = False) -> dict[str, Any]:
    """The fields of one config under their new names, with new values.

    Args:
        given: fields by old or new names. Where there are both, the old name was set last: by `dataclasses.replace`,
            which gives all other fields too.
        known: fields that the config has.
        warn: for callers who can change what they wrote.
    """
    found = {name: x for name, x in given.items() if not _is_old(name, known)}
    for name in given.keys() - found.keys():
        found[FIELDS[name]] = given[name]
        if warn:
            tell(name, FIELDS[name])
    for name, x in found.items():
        new = VALUES.get(name, {}).get(x) if isinstance(x, str) and name in known else None
        if new is not None:
            found[name] = new
            if warn:
                tell(f"{name}={x!r}", f"{name}={new!r}")
    return found


def value(name: str, x: Any) -> Any:
    """The value of a field or argument under its new name, with a warning if it is an old one."""
    new = VALUES[name].get(x) if isinstance(x, str) else None
    if new is None:
        return x
    tell(f"{name}={x!r}", f"{name}={new!r}")
    return new


def current_everywhere(plain: Any) -> Any:
    """The same for JSON whose configs are not known, with all that is inside."""
    if isinstance(plain, list):
        return [current_everywhere(x) for x in plain]
    if not isinstance(plain, dict):
        return plain
    known = {FIELDS.get(str(name), str(name)) for name in plain}
    return {name: current_everywhere(x) for name, x in current(plain, known).items()}


def current_run(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a run as JSON, with the kind of its task."""
    run = current_everywhere(dict(plain))
    if isinstance(run.get("task"), dict) and "kind" in run["task"]:
        run["task"]["kind"] = task_kind(run["task"]["kind"])
    return run


def task_kind(kind: Any) -> Any:
    return TASKS.get(kind, kind) if isinstance(kind, str) else kind


def takes_old_names(config: type[C]) -> type[C]:
    """A class decorator: the constructor takes fields by their old names, and old names can still be read."""
    construct = config.__init__
    known = inspect.signature(construct).parameters

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **fields: Any) -> None:
        construct(self, *args, **current(fields, known, warn=True))

    config.__init__ = init  # type: ignore[method-assign]
    for old, new in FIELDS.items():
        if _is_old(old, known):
            setattr(config, old, _alias(old, new))
    return config


def add_old_option(parser: argparse.ArgumentParser, old: str, new: str, **options: Any) -> None:
    """An option of the command line under the name that it had; its values become those of the new one."""

    def read(text: str) -> str:
        tell(old, new)
        return text

    parser.add_argument(old, dest=new.lstrip("-"), type=read, help=argparse.SUPPRESS, **options)


def tell(old: str, new: str) -> None:
    warnings.warn(f"{old} is called {new} now; the old name will go.", FutureWarning, stacklevel=4)


def _is_old(name: str, known: Collection[str]) -> bool:
    return name in FIELDS and name not in known and FIELDS[name] in known


def _alias(old: str, new: str) -> property:
    def read(self: Any) -> Any:
        tell(old, new)
        return getattr(self, new)

    def write(self: Any, value: Any) -> None:
        tell(old, new)
        setattr(self, new, value)

    return property(read, write)

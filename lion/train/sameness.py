"""Whether a run that goes on is the one that stopped: by its fields, and by the content of what it learns from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lion.legacy import current_everywhere
from lion.ops.checks import one_of
from lion.train.config import Run
from lion.train.task import Examples, Task

Contents = dict[str, dict[str, Any]]  # by "training", "held out", "tokenizer", "teacher"
DATA = "data"
PARTS = {"training": DATA, "held out": DATA}  # what a user calls it; the others have that name


class Change(NamedTuple):
    what: str  # as --accept has it
    words: str


def contents(task: Task, train_set: Examples, eval_set: Examples) -> Contents:
    """Digests of all that a run learns from."""
    sets = {"training": train_set, "held out": eval_set}
    found = {name: {"examples": len(x), "digest": x.digest()} for name, x in sets.items()}
    return found | {name: {"digest": x} for name, x in task.digests().items()}


def changed_contents(now: Contents, before: Mapping[str, Any]) -> list[Change]:
    found = []
    for name, new in now.items():
        old = before.get(name)
        if not isinstance(old, dict) or old == new:
            continue
        count, was = new.get("examples", 0), old.get("examples", 0)
        words = f"{name} has {count:,} examples, had {was:,}" if count != was else f"{name} has another content"
        found.append(Change(PARTS.get(name, name), words))
    return found


def changed_fields(now: Run, before: Mapping[str, Any]) -> list[Change]:
    """As the command line names them; `before` is a run as JSON."""
    new, old = dict(_leaves(now.to_json())), dict(_leaves(current_everywhere(before)))
    return [
        Change(path, f"{path} is {_shown(x)}, was {_shown(old[path])}")
        for path, x in new.items()
        if path in old and old[path] != x
    ]


def makes_another_run(change: Change, task: Task) -> bool:
    """A field of the task does, but those that only say how it is trained; and the seed, with all that is drawn."""
    first = change.what.split(".")[0]
    return first == "seed" or (first not in Run.__dataclass_fields__ and first not in task.tunable)


def refuse(changes: Sequence[Change], accept: Sequence[str], folder: object) -> None:
    """Unless each has been accepted, by its name or by that of what it is a part of."""
    left = [x for x in changes if not any(x.what == name or x.what.startswith(f"{name}.") for name in accept)]
    if not left:
        return
    names = ",".join(dict.fromkeys(x.what for x in left))
    raise ValueError(
        f"the run in {folder} would become another one: {'; '.join(x.words for x in left)}. Put that back, begin a new "
        f"run with --out, or go on nevertheless with --accept {names}"
    )


def check_accepted(accept: Sequence[str], run: Run) -> None:
    """That there is such a thing: a field, a group of fields, or a content."""
    known = {DATA, "tokenizer", "teacher"}
    for path, _ in _leaves(run.to_json()):
        parts = path.split(".")
        known |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    for name in accept:
        one_of("accept", name, known)


def _leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(plain, dict):
        for name, x in plain.items():
            # A task's own fields are named without it, as in --model.dim.
            yield from _leaves(x, name if path in ("", "task") else f"{path}.{name}")
    else:
        yield path, plain


def _shown(x: Any) -> str:
    return repr(x) if isinstance(x, str) else ", ".join(map(str, x)) if isinstance(x, list) else str(x)

"""Changes of a run between its checkpoint and `--resume`: of its fields, and of the content of its data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lion.legacy import current_run
from lion.ops.checks import one_of
from lion.tasks import Examples, Task
from lion.train.config import Run

Contents = dict[str, dict[str, Any]]  # by "training", "held out", "tokenizer", "teacher"
DATA = "data"
SETS = {"training": "the training set", "held out": "the eval set"}  # --accept calls both `DATA`


class Change(NamedTuple):
    what: str  # as --accept has it
    words: str


def contents(task: Task, train_set: Examples, eval_set: Examples) -> Contents:
    """Digests of all that a run learns from."""
    sets = zip(SETS, (train_set, eval_set), strict=True)
    found = {name: {"examples": len(x), "digest": x.digest()} for name, x in sets}
    return found | {name: {"digest": x} for name, x in task.digests().items()}


def of_contents(now: Contents, before: Mapping[str, Any]) -> list[Change]:
    found = []
    for name, new in now.items():
        old = before.get(name)
        if not isinstance(old, dict) or old == new:
            continue
        count, was = new.get("examples", 0), old.get("examples", 0)
        words = f"has {count:,} examples, had {was:,}" if count != was else "has another content"
        found.append(Change(DATA if name in SETS else name, f"{SETS.get(name, f'the {name}')} {words}"))
    return found


def of_fields(now: Run, before: Mapping[str, Any]) -> list[Change]:
    """Changed fields, by their names on the command line; `before` is a run as JSON."""
    new, old = dict(_leaves(now.to_json())), dict(_leaves(current_run(before)))
    return [
        Change(path, f"{path} is {_shown(x)}, was {_shown(old[path])}")
        for path, x in new.items()
        if path in old and old[path] != x
    ]


def makes_another_run(change: Change, task: Task) -> bool:
    """The seed does, and fields of the task, but for those that it calls tunable."""
    first = change.what.split(".")[0]
    return first == "seed" or (first not in Run.__dataclass_fields__ and first not in task.tunable)


def refuse(changes: Sequence[Change], accept: Sequence[str], folder: object) -> None:
    """Refuse changes that are not accepted, by their own name or by that of a group of fields."""
    left = [x for x in changes if not any(x.what == name or x.what.startswith(f"{name}.") for name in accept)]
    if not left:
        return
    names = ",".join(dict.fromkeys(x.what for x in left))
    raise ValueError(
        f"the run in {folder} would become another one: {'; '.join(x.words for x in left)}. Put that back, begin a new "
        f"run with --out, or go on nevertheless with --accept {names}"
    )


def check_accepted(accept: Sequence[str], run: Run) -> None:
    """Refuse names that are neither a field, nor a group of fields, nor a content."""
    known = {DATA, "tokenizer", "teacher"}
    for path, _ in _leaves(run.to_json()):
        parts = path.split(".")
        known |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    for name in accept:
        one_of("accept", name, known)


def _leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(plain, dict):
        for name, x in plain.items():
            # A task's own fields have no prefix, as in --model.dim.
            yield from _leaves(x, name if path in ("", "task") else f"{path}.{name}")
    else:
        yield path, plain


def _shown(x: Any) -> str:
    return repr(x) if isinstance(x, str) else ", ".join(map(str, x)) if isinstance(x, list) else str(x)

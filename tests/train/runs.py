"""Small runs on the digits."""

from dataclasses import replace

from lion import recipes
from lion.train.config import Run

SMALL = {
    "steps": "12",
    "batch": "32",
    "log_every": "1",
    "eval_every": "6",
    "save_every": "4",
    "model.dim": "16",
    "model.heads": "2",
    "model.depth": "1",
    "model.patch_size": "2",
    "model.dropout": "0.1",
}


def small(name: str = "digits.lion_s", **changes: str) -> Run:
    run = replace(recipes.recipe(name), epochs=0.0, steps=1)
    return run.changed({path.replace("__", "."): text for path, text in {**SMALL, **changes}.items()})


def as_options(**changes: str) -> list[str]:
    fields = {**SMALL, "epochs": "0", **{path.replace("__", "."): text for path, text in changes.items()}}
    return [part for path, text in fields.items() for part in (f"--{path}", text)]

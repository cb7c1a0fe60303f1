"""Recipes for GLUE. docs/results.md has what those reached that were run, with the command."""

from dataclasses import replace
from typing import NamedTuple

from lion.models.encoder import ENCODERS
from lion.recipes import register_recipe
from lion.recipes.pretraining import BERT
from lion.tasks.text_classification import TextClassificationTask
from lion.train.config import Run


class Tuned(NamedTuple):
    """A recipe of the paper's table of GLUE, with a value for each task of `ORDER`."""

    lr: tuple[float, ...]
    weight_decay: tuple[float, ...]
    epochs: tuple[int, ...]
    plain_adamw: tuple[str, ...] = ()  # tasks with ordinary AdamW; the others have decoupled weight decay
    max_length: int = 128


BATCH = {"mnli": 48, "rte": 16, "qqp": 16, "qnli": 16, "sst2": 16}  # of the cited files' jobs; the others have 32
ORDER = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
M2_LARGE = Tuned(
    lr=(5e-5, 5e-5, 3e-5, 5e-5, 3e-5, 8e-5, 5e-5, 8e-5),
    weight_decay=(5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 1e-6, 3e-5),
    epochs=(3, 10, 5, 2, 3, 10, 10, 8),
    plain_adamw=("rte",),
)
TUNED = {
    "bert24": Tuned(
        lr=(5e-5, 1e-5, 3e-5, 1e-5, 3e-5, 8e-5, 5e-5, 3e-5),
        weight_decay=(5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        epochs=(3, 10, 5, 3, 3, 10, 10, 10),
        max_length=256,
    ),
    "m2_base": Tuned(
        lr=(5e-5, 5e-5, 3e-5, 1e-5, 3e-5, 8e-5, 8e-5, 8e-5),
        weight_decay=(5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        epochs=(3, 10, 5, 3, 3, 10, 10, 10),
        plain_adamw=("stsb",),
    ),
    "m2_large": M2_LARGE,
    "hydra": Tuned(
        lr=(1e-4, 5e-5, 5e-5, 1e-5, 5e-5, 8e-5, 1e-4, 3e-5),
        weight_decay=(5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 8e-6, 3e-6),
        epochs=(2, 7, 3, 3, 2, 10, 10, 8),
        plain_adamw=("rte",),
        max_length=256,
    ),
    "modified": M2_LARGE._replace(lr=(1e-5,) * 8),
}


@register_recipe("glue.{recipe}_{name}", recipe=TUNED, name=ORDER)
def glue(recipe: str, name: str) -> Run:
    """GLUE's tasks by the paper's five recipes, from a pretrained model: --start RUN (for rte, stsb and mrpc one that
    was trained on mnli); --data FOLDER."""
    tuned, at = TUNED[recipe], ORDER.index(name)
    task = TextClassificationTask(dataset=name, max_length=tuned.max_length, model=ENCODERS["base"])
    decoupled = name not in tuned.plain_adamw
    optim = replace(BERT, lr=tuned.lr[at], weight_decay=tuned.weight_decay[at], decoupled=decoupled, clip=0.0)
    return Run(task, optim, epochs=tuned.epochs[at], batch=BATCH.get(name, 32))

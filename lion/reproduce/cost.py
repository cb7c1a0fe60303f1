"""What a training of the paper's size would cost on a GPU: an estimate from its FLOPs, for people who plan."""

import itertools
from typing import Any

from lion import recipes
from lion.models.baselines import BASELINES
from lion.models.flops import model_flops
from lion.models.vision import VisionConfig
from lion.reproduce.steps import Step
from lion.train.config import Run

PEAK, SHARE = 312e12, 0.4  # FLOP/s of an A100 in bfloat16, and the share of it that a well-tuned training reaches
EXAMPLES = {  # in the training sets
    "imagenet": 1_281_167,
    "cifar100": 50_000,
    "mnli": 392_702,
    "qnli": 104_743,
    "qqp": 363_846,
    "sst2": 67_349,
    "cola": 8_551,
    "stsb": 5_749,
    "mrpc": 3_668,
    "rte": 2_490,
    "listops": 96_000,
    "text": 25_000,
    "retrieval": 147_086,
    "image": 45_000,
    "pathfinder": 160_000,
    "pathx": 160_000,
}
TOKENS = {"listops": 2048, "text": 4096, "retrieval": 8000, "image": 1024, "pathfinder": 1024, "pathx": 16384}
TEACHERS = {"lion.integrations.timm:deit_teacher": 2 * 15.91e9}  # FLOPs of a forward pass, 224 pixels
WORDS = "A100, from FLOPs alone at 40% of its peak; data on the hub and the eval sets not counted"


def gpu_hours(step: Step) -> float:
    """Hours of an A100; 0 where it cannot be told."""
    if not step.trains:
        return 0.0
    run = recipes.recipe(str(step.words[1]))
    examples = run.steps * run.batch or run.epochs * EXAMPLES.get(_data(run.task), 0)
    return examples * _flops_of_example(run, _model(step)) / (PEAK * SHARE) / 3600


def _model(step: Step) -> Any:
    """The config of its model, which is that of the run that it starts from, if there is one."""
    for name, start in itertools.pairwise(step.words):
        if name == "--start" and isinstance(start, Step):
            return _model(start)
    task: Any = recipes.recipe(str(step.words[1])).task
    return task.model


def _data(task: Any) -> str:
    return getattr(task, "dataset", "") or getattr(task, "name", "")


def _flops_of_example(run: Run, model: Any) -> float:
    """Of a forward and a backward pass, which is twice as much again."""
    task: Any = run.task
    if isinstance(model, VisionConfig):
        own = 3.0 * sum(model_flops(model, task.image_size or None, "full").values())
        return own + TEACHERS.get(task.distill.teacher, 0.0)
    hidden = getattr(model, "mlp_dim", None)
    hidden = int(model.dim * getattr(model, "mlp_ratio", 4.0)) if hidden is None else hidden
    mixing = 6 if model.variant in BASELINES else 4  # matrices of dim x dim; Hydra is twice as wide inside
    weights = model.depth * (mixing * model.dim**2 + 2 * model.dim * hidden)
    tokens = TOKENS.get(_data(task)) or getattr(task, "length", 0) or task.max_length or 0
    return 6.0 * weights * tokens

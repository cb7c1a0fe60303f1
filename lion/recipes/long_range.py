"""Recipes for the Long Range Arena. docs/results.md has what those reached that were run."""

from dataclasses import replace
from typing import Any, NamedTuple

from lion.models.long_range import LONG_MODELS, LongConfig
from lion.nn.decay import DECAYS
from lion.nn.variants import VARIANTS
from lion.recipes import register_recipe
from lion.tasks.long_range import LongRangeTask
from lion.train.config import Optim, Run

# The models that the paper compares, as fields of their configs.
MODELS: dict[str, dict[str, Any]] = {
    "lion_s": {"variant": "lion_s_diag"},
    "lion_d": {"variant": "lion_d_diag"},
    "lion_s_random": {"variant": "lion_s_diag", "decay": "selective_random"},
    "lion_d_random": {"variant": "lion_d_diag", "decay": "fixed_random"},
    "lion_lit": {"variant": "lion_lit"},
    "softmax": {"variant": "softmax"},
    # And its ablations of LION-S, by their numbers there.
    "ablation_1": {"variant": "lion_s_diag", "features": "sigmoid", "norm": "none"},
    "ablation_2": {"variant": "lion_s_diag", "features": "relu"},
    "ablation_3": {"variant": "lion_s_diag", "decay": "selective_hippo_scalar"},
    "ablation_4": {"variant": "lion_s_diag", "norm": "none"},
    "ablation_5": {"variant": "lion_s_diag", "norm": "unmasked"},
    "ablation_6": {"variant": "lion_s_diag", "decay": "fixed_hippo"},
    "ablation_7": {"variant": "lion_s_diag", "decay": "softplus_hippo"},
    # Beyond the paper: slow heads begin with values as large as those of fast ones.
    "lion_s_plain_values": {"variant": "lion_s_diag", "zero_order_hold": False},
    "lion_d_plain_values": {"variant": "lion_d_diag", "zero_order_hold": False},
}


class Training(NamedTuple):
    """S5's settings for a task, which the paper follows but for the learning rate."""

    batch: int
    epochs: int
    weight_decay: float
    warmup: int = 1  # epochs


TRAINING = {
    "listops": Training(50, 40, 0.04),
    "text": Training(50, 35, 0.07, warmup=0),
    "retrieval": Training(32, 20, 0.05),
    "image": Training(50, 250, 0.07),
    "pathfinder": Training(64, 200, 0.03),
    "pathx": Training(32, 75, 0.06),
}


@register_recipe("lra.{name}.{model}", name=TRAINING, model=MODELS)
def lra(name: str, model: str) -> Run:
    """The Long Range Arena at the paper's sizes: `lra.listops.lion_s`. Decays begin as HIPPO's, or at random."""
    training = TRAINING[name]
    config = replace(LONG_MODELS[name], **MODELS[model])
    slow = f"{config.decay or VARIANTS[config.variant].decay}_slow"
    if name == "pathx" and slow in DECAYS:  # 16,384 tokens: S5's steps begin at 0.0001 there, not at 0.001
        config = replace(config, decay=slow)
    task = LongRangeTask(name, model=config)
    warmup = training.warmup / training.epochs
    optim = Optim(lr=5e-4, weight_decay=training.weight_decay, warmup=warmup, final=0.0)
    return Run(task, optim, epochs=training.epochs, batch=training.batch, precision="bfloat16", workers=4)


SMALL = LongConfig(dim=64, depth=4, heads=2)


class Laptop(NamedTuple):
    steps: int
    batch: int
    data: dict[str, Any]


SHORT_LISTS = {"min_length": 10, "max_length": 64, "max_depth": 3, "max_args": 4, "counts": (50000, 2000, 2000)}
LAPTOP = {
    "listops": Laptop(6000, 32, SHORT_LISTS),
    "text": Laptop(1200, 16, {"max_length": 512}),
    "image": Laptop(1200, 32, {"size": 16}),
}


@register_recipe("lra_laptop.{name}.{model}", name=LAPTOP, model=MODELS)
def laptop(name: str, model: str) -> Run:
    """The Long Range Arena at laptop scale: short ListOps, IMDB's first 512 bytes, CIFAR-10 in 16 x 16."""
    steps, batch, data = LAPTOP[name]
    task = LongRangeTask(name, model=replace(SMALL, **MODELS[model]), **data)
    optim = Optim(lr=3e-3, weight_decay=0.05, warmup=0.1)
    return Run(task, optim, steps=steps, batch=batch, eval_every=steps // 2)

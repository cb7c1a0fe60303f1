"""Recipes for the Long Range Arena and for DNA. docs/results.md has what those reached that were run."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from lion.models.long_range import LONG_MODELS, LongConfig
from lion.train.config import Optim, Run
from lion.train.dna import DnaClassesTask, DnaTask
from lion.train.long_range import LongRangeTask

# What the paper compares: fields of the model.
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
}


class Training(NamedTuple):
    """S5's of a task, which the paper follows but for the learning rate."""

    batch: int
    epochs: int
    weight_decay: float


TRAINING = {
    "listops": Training(50, 40, 0.04),
    "text": Training(50, 35, 0.07),
    "retrieval": Training(32, 20, 0.05),
    "image": Training(50, 250, 0.07),
    "pathfinder": Training(64, 200, 0.03),
    "pathx": Training(32, 75, 0.06),
}


def lra(name: str, model: str) -> Run:
    """The Long Range Arena at the paper's sizes: `lra.listops.lion_s`. With HIPPO's decays; `_random`: without."""
    training = TRAINING[name]
    task = LongRangeTask(name, model=replace(LONG_MODELS[name], **MODELS[model]))
    optim = Optim(lr=5e-4, weight_decay=training.weight_decay, warmup=0.01)
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


def laptop(name: str, model: str) -> Run:
    """The same in little, for two cores: short ListOps, IMDB's first 512 bytes, CIFAR-10 in 16 x 16."""
    steps, batch, data = LAPTOP[name]
    task = LongRangeTask(name, model=replace(SMALL, **MODELS[model]), **data)
    optim = Optim(lr=3e-3, weight_decay=0.05, warmup=0.1)
    return Run(task, optim, steps=steps, batch=batch, eval_every=steps // 2)


def dna(variant: str = "lion_s") -> Run:
    """Hidden nucleotides of a genome: `lion train dna --data genome.fa`, by default a chromosome of C. elegans."""
    task = DnaTask(model=LongConfig(variant=variant, dim=128, depth=4, heads=4, stem=9))
    optim = Optim(lr=3e-3, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(task, optim, epochs=2, batch=1)


def dna_classes(variant: str = "lion_s") -> Run:
    task = DnaClassesTask(model=LongConfig(variant=variant, dim=128, depth=3, heads=4, stem=9, dropout=0.1))
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=10, batch=32)


def splice(variant: str = "lion_s") -> Run:
    """All of one length, and asked of their middle: with learned positions."""
    run = dna_classes(variant)
    assert isinstance(run.task, DnaClassesTask)
    model = replace(run.task.model, positions="learned")
    return replace(run, task=replace(run.task, dataset="splice", model=model))


ABOUT = {
    "lra": lra.__doc__ or "",
    "lra_laptop": laptop.__doc__ or "",
    "dna": f"{dna.__doc__} Classes of sequences: `lion train dna.classify --data FILE`, `dna.splice`.",
}


def _recipes() -> dict[str, Callable[[], Run]]:
    found: dict[str, Callable[[], Run]] = {}
    for name in TRAINING:
        found |= {f"lra.{name}.{model}": functools.partial(lra, name, model) for model in MODELS}
    for name in LAPTOP:
        found |= {f"lra_laptop.{name}.{model}": functools.partial(laptop, name, model) for model in MODELS}
    found |= {"dna": dna, "dna.classify": dna_classes, "dna.splice": splice}
    for variant in ("lion_lit", "lion_d", "lion_s", "softmax"):
        found[f"dna.{variant}"] = functools.partial(dna, variant)
        found[f"dna.splice_{variant}"] = functools.partial(splice, variant)
    return found


RECIPES = _recipes()

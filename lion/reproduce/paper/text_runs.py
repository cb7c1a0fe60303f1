"""The runs of text that several tables share: pretraining, and what is trained on top of it."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from lion.reproduce.exhibits import Cell, Missing, Numbers, ScaleName, Value
from lion.reproduce.readings import SEEDS
from lion.reproduce.steps import Step, seeds, training

MLM, GLUE, IMDB = "MLM accuracy", "GLUE", "IMDB in place of GLUE"
MODELS = {"BERT": "softmax", "Hydra": "hydra", "LION-LIT": "lion_lit", "LION-D": "lion_d", "LION-S": "lion_s"}
LIONS = ("LION-LIT", "LION-D", "LION-S")
LAPTOP = (
    "MLM: models of two layers of 128 channels (Hydra: three without MLPs, for as many parameters), on 12 MB of "
    "English speeches in place of C4, four epochs, 128 tokens (`mlm.*`)."
)
ON_IMDB = (
    "No package registry has GLUE's training sets: in their place the same models are fine-tuned to tell good from bad "
    "film reviews, IMDB's first 128 tokens, one epoch."
)
PAPER = (
    "MLM on C4, 128 tokens, 70,000 steps of 4,096 texts; GLUE's tasks from there, and RTE, STS-B and MRPC from MNLI, "
    "by the recipes that the paper names, with as many seeds as the cited jobs: five for those three, four for CoLA, "
    "three for SST-2, one for the others. GLUE as the cited code counts it: the mean of accuracy and F1 for QQP, F1 "
    "for MRPC, Spearman's correlation for STS-B, Matthews' for CoLA, accuracy else; MNLI on its matched part."
)
NO_GLUE = "GLUE, task by task: no package registry has its training sets. From the hub: --scale paper."
MINUTES = {"hydra": (16.0, 4.0)}  # pretraining and fine-tuning on one core; others:
USUAL = (8.0, 2.0)


def pretraining(variant: str, size: str, scale: ScaleName, *fields: str) -> tuple[Step, ...]:
    if scale == "paper":
        return seeds(1, f"mlm.c4_{variant}_{size}", *fields)
    return seeds(SEEDS, f"mlm.{variant}", *fields, minutes=MINUTES.get(variant, USUAL)[0])


def on_imdb(variant: str, starts: Sequence[Step]) -> tuple[Step, ...]:
    """Each run fine-tuned, whole: without the linear model of `lion train text`, windows and left-out tokens."""
    fields = "--dataset imdb --max_length 128 --epochs 1 --token_weights false --crop 0 --drop_tokens 0 --start"
    minutes = MINUTES.get(variant, USUAL)[1]
    return tuple(training("text", fields, start, seed=seed, minutes=minutes) for seed, start in enumerate(starts))


# GLUE, in the order of the paper's columns; metrics as the code that the paper builds on takes their mean.
METRICS: dict[str, tuple[str, ...]] = {
    "mnli": ("accuracy",),
    "rte": ("accuracy",),
    "qqp": ("accuracy", "f1"),
    "qnli": ("accuracy",),
    "sst2": ("accuracy",),
    "stsb": ("spearman",),
    "mrpc": ("f1",),
    "cola": ("matthews",),
}
FROM_MNLI = ("rte", "stsb", "mrpc")
HUB = "--data hf://nyu-mll/glue"
GLUE_SEEDS = {"rte": 5, "stsb": 5, "mrpc": 5, "cola": 4, "sst2": 3}  # of the cited jobs; the others have one


def glue_steps(recipe: str, start: Step) -> dict[str, tuple[Step, ...]]:
    """The seeds of all tasks by a recipe (`lion.recipes.glue.TUNED`), from a pretrained model."""

    def tuned(task: str, begin: Step) -> tuple[Step, ...]:
        return seeds(GLUE_SEEDS.get(task, 1), f"glue.{recipe}_{task}", HUB, "--start", begin)

    (mnli,) = tuned("mnli", start)
    return {task: tuned(task, mnli if task in FROM_MNLI else start) for task in METRICS}


def score(task: str, result: Any) -> float:
    """In percent, as GLUE's tables have it."""
    return 100 * sum(result[name] for name in METRICS[task]) / len(METRICS[task])


def task_cell(printed: float | None, task: str, steps: Mapping[str, tuple[Step, ...]]) -> Cell:
    return Cell(printed, steps[task] if steps else (), functools.partial(score, task))


def average_cell(printed: float, steps: Mapping[str, tuple[Step, ...]]) -> Cell:
    """The mean over the tasks."""
    return Cell(printed, parts=tuple(task_cell(None, task, steps) for task in METRICS) if steps else ())


def fine_tuned(numbers: Numbers, row: str, column: str) -> Value:
    """The mean over GLUE; where that was not run, the accuracy on IMDB."""
    try:
        return numbers(row, column)
    except Missing:
        return numbers(row, IMDB)


def stand_in(scale: ScaleName) -> str:
    """What a claim about GLUE is put to, at this scale."""
    return " (ours: IMDB in place of GLUE)" if scale == "laptop" else ""

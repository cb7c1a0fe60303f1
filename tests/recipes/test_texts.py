"""The recipes for text, number by number, beside what the paper prints and the files that it cites have."""

from dataclasses import replace

import pytest
import torch

from lion import recipes
from lion.models.encoder import Encoder

TASKS = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
# The table glue_hyperparams, as printed: learning rate, weight decay, epochs; "A" is AdamW, "D" the decoupled one.
GLUE = {
    "bert24": (
        "5e-5 1e-5 3e-5 1e-5 3e-5 8e-5 5e-5 3e-5",
        "5e-6 1e-5 3e-6 1e-6 3e-6 8e-5 5e-6 3e-6",
        "3 10 5 3 3 10 10 10",
        "D D D D D D D D",
    ),
    "m2_base": (
        "5e-5 5e-5 3e-5 1e-5 3e-5 8e-5 8e-5 8e-5",
        "5e-6 1e-5 3e-6 1e-6 3e-6 8e-5 5e-6 3e-6",
        "3 10 5 3 3 10 10 10",
        "D D D D D D D A",
    ),
    "m2_large": (
        "5e-5 5e-5 3e-5 5e-5 3e-5 8e-5 5e-5 8e-5",
        "5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 1e-6 3e-5",
        "3 10 5 2 3 10 10 8",
        "D D D A D D D D",
    ),
    "hydra": (
        "1e-4 5e-5 5e-5 1e-5 5e-5 8e-5 1e-4 3e-5",
        "5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 8e-6 3e-6",
        "2 7 3 3 2 10 10 8",
        "D D D A D D D D",
    ),
    "modified": (
        "1e-5 1e-5 1e-5 1e-5 1e-5 1e-5 1e-5 1e-5",
        "5e-6 1e-6 3e-6 1e-6 3e-6 8e-6 1e-6 3e-5",
        "3 10 5 2 3 10 10 8",
        "D D D A D D D D",
    ),
}
BATCH = dict(zip(TASKS, (48, 16, 16, 16, 16, 32, 32, 32), strict=True))  # the cited files' jobs


@pytest.mark.parametrize("name", GLUE)
def test_every_cell_of_the_table_of_glue(name):
    cells = zip(TASKS, *(row.split() for row in GLUE[name]), strict=True)
    for task, lr, weight_decay, epochs, optimizer in cells:
        run = recipes.recipe(f"glue.{name}_{task}")
        found = run.optim.lr, run.optim.weight_decay, run.epochs, run.optim.decoupled, run.batch
        assert found == (float(lr), float(weight_decay), int(epochs), optimizer == "D", BATCH[task]), task
        assert (run.optim.schedule, run.optim.warmup, run.optim.final) == ("linear", 0.06, 0.0)
        assert run.task.max_length == (256 if name in ("bert24", "hydra") else 128)


@pytest.mark.parametrize(("size", "lr"), [("base", 8e-4), ("large", 2e-4)])
@pytest.mark.parametrize("variant", ["lion_lit", "lion_d", "lion_s", "softmax", "hydra"])
def test_pretraining(variant, size, lr):
    run = recipes.recipe(f"mlm.c4_{variant}_{size}")
    task, optim = run.task, run.optim
    depth = {"base": (12, 23), "large": (24, 45)}[size][variant == "hydra"]
    assert (task.model.variant, task.model.depth) == (variant, depth)
    assert (task.length, task.mask, task.eval_mask) == (128, 0.3, 0.15)
    assert (run.steps, run.batch, optim.lr, optim.weight_decay) == (70_000, 4096, lr, 1e-5)
    assert (optim.betas, optim.eps, optim.decoupled) == ((0.9, 0.98), 1e-6, True)
    assert (optim.schedule, optim.warmup, optim.final) == ("linear", 0.06, 0.2)
    assert (task.test, task.test_limit, task.tokenizer) == ("hf://allenai/c4/en", 10_000, "minilm")


def test_a_small_hydra_has_as_many_parameters_as_the_others():
    counts = []
    for variant in ("softmax", "hydra"):
        with torch.device("meta"):
            model = Encoder(replace(recipes.recipe(f"mlm.{variant}").task.model, vocab_size=8192))
        counts.append(sum(x.numel() for x in model.layers.parameters()))
    assert counts[1] == pytest.approx(counts[0], rel=0.05)


def test_the_pretraining_of_bert():
    run = recipes.recipe("mlm.c4_bert_base")
    assert (run.task.model.variant, run.task.model.dim, run.task.model.depth) == ("softmax", 768, 12)
    assert (run.optim.lr, run.optim.final, run.task.mask, run.task.eval_mask) == (5e-4, 0.02, 0.15, 0.15)
    assert (run.steps, run.batch) == (70_000, 4096)


@pytest.mark.parametrize(
    ("variant", "positions"), [("lion_s", "none"), ("linatt_scaled", "learned"), ("softmax", "learned")]
)
def test_openwebtext(variant, positions):
    run = recipes.recipe(f"causal.openwebtext_{variant}")
    model = run.task.model
    assert (model.positions, model.dim, model.depth, model.heads) == (positions, 768, 12, 12)
    assert (run.task.tokenizer, run.task.length, run.task.metric) == ("gpt2", 1024, "perplexity")
    assert (run.steps, run.batch, run.optim.lr, run.optim.weight_decay) == (600_000, 480, 6e-4, 0.1)

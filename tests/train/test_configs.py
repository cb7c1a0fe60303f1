"""Configs as JSON, and changed from the command line."""

from dataclasses import replace

import pytest
import torch

from lion import recipes
from lion.tasks.images import ImageTask
from lion.train.config import Optim, Run
from lion.train.optim import make_optimizer


def run() -> Run:
    return recipes.recipe("digits.lion_s")


def test_every_recipe_survives_json():
    for name in recipes.RECIPES:
        made = recipes.recipe(name)
        assert Run.from_json(made.to_json()) == made, name


def test_fields_are_changed_by_their_types():
    changes = {
        "optim.lr": ("1e-4", lambda x: x.optim.lr, 1e-4),
        "optim.betas": ("0.9,0.95", lambda x: x.optim.betas, (0.9, 0.95)),
        "epochs": ("3", lambda x: x.epochs, 3.0),
        "batch": ("32", lambda x: x.batch, 32),
        "shard": ("true", lambda x: x.shard, True),
        "model.dim": ("48", lambda x: x.task.model.dim, 48),
        "image_size": ("16", lambda x: x.task.image_size, 16),
        "model.orders": ("snake,rows", lambda x: x.task.model.orders, ("snake", "rows")),
        "model.features": ("none", lambda x: x.task.model.features, None),
        "data": ("some/where", lambda x: x.task.data, "some/where"),
        "augment.flip": ("yes", lambda x: x.task.augment.flip, True),
    }
    for path, (text, field, want) in changes.items():
        got = field(run().changed({path: text}))
        assert got == want, path
        assert type(got) is type(want), path


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("optim.warm", "1", r"'--optim.warm' is no field of this run; did you mean --optim.warmup\?"),
        ("modle.dim", "1", r"did you mean --model.dim\?"),
        ("epoch", "1", r"did you mean --epochs\?"),
        ("lr", "1", r"did you mean --optim.lr\?"),
        ("depth", "1", r"did you mean --model.depth\?"),
        ("model.batch", "1", r"did you mean --batch\?"),
        ("weight_dekay", "1", r"did you mean --optim.weight_decay\?"),
        ("xyzzy", "1", r"'--xyzzy' is no field of this run; --show lists them all\."),
        ("model.image_size", "16", r"--model.image_size is '16'; expected none: --image_size decides it\."),
        ("model.num_classes", "2", r"--model.num_classes is '2'; expected none: the data decides it\."),
        (
            "num_classes",
            "2",
            r"'--num_classes' is no field of this run; --show",
        ),  # nor is what is not offered suggested
        ("batch", "many", "--batch is 'many'; expected a whole number from 1 to 1,048,576\\."),
        ("shard", "maybe", "--shard is 'maybe'; expected true or false\\."),
        ("optim.betas", "1,2,3", "--optim.betas is '1,2,3'; expected 2 values, each a number from 0 to below 1\\."),
        ("batch.size", "3", "--batch.size: batch has no fields of its own; expected --batch."),
        ("optim.schedule", "cosin", "optim.schedule is 'cosin'; expected one of .* Did you mean 'cosine'?"),
        ("optim.lr", "0", "--optim.lr is '0'; expected a number above 0\\."),
        ("precision", "fp8", "precision is 'fp8'"),
        ("ema", "1", "--ema is '1'; expected a number from 0 to below 1\\."),
    ],
)
def test_what_is_refused(path, text, message):
    with pytest.raises(ValueError, match=message):
        run().changed({path: text})


def test_fields_that_go_together_in_any_order():
    together = {"distill.kind": "soft", "distill.teacher": "resnet18"}
    for changes in (together, dict(reversed(together.items()))):
        assert run().changed(changes).task.distill.kind == "soft"
    with pytest.raises(ValueError, match="teacher"):
        run().changed({"distill.kind": "soft"})


def test_a_run_wants_steps_or_epochs():
    with pytest.raises(ValueError, match="steps is 0 and epochs 0; expected one of them above 0"):
        Run(ImageTask(), Optim())


def test_epochs_that_are_asked_for_count():
    """More steps for few examples are a default, and no more."""
    own = replace(run(), steps=0, epochs=20.0, min_steps=800)
    assert own.steps_for(64) == 800
    assert own.changed({"epochs": "2"}).steps_for(own.batch * 10) == 20
    assert own.changed({"epochs": "2", "min_steps": "50"}).steps_for(own.batch * 10) == 50
    assert own.changed({"optim.lr": "0.1"}).min_steps == 800


def test_the_classifier_has_a_learning_rate_of_its_own():
    model = torch.nn.Module()
    model.body, model.classifier = torch.nn.Linear(2, 2), torch.nn.Linear(2, 3)
    groups = make_optimizer(model, Optim(head=10.0, weight_decay=0.1)).param_groups
    factors = {id(p): (group["factor"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert [factors[id(p)] for p in model.parameters()] == [(1, 0.1), (1, 0), (10, 0.1), (10, 0)]
    same = make_optimizer(model, Optim(weight_decay=0.1)).param_groups
    assert [len(group["params"]) for group in same] == [2, 2]


def test_evaluations_take_a_tenth_of_the_time_at_most():
    assert replace(run(), batch=32, eval_every=7).eval_every_for(1000, 10**6) == 7
    plain = replace(run(), batch=32, eval_every=0)
    assert [plain.eval_every_for(1000, examples) for examples in (1, 900, 1500, 10**6)] == [100, 100, 167, 500]


def test_an_unknown_field_in_a_file_is_named():
    plain = run().to_json()
    plain["optim"]["momentum"] = 0.9
    with pytest.raises(ValueError, match="optim: the field is 'momentum'; expected one of"):
        Run.from_json(plain)

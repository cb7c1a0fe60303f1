"""First decays that know how long the sequences of a task are."""

import math

import pytest
import torch

from lion import recipes
from lion.models.vision import VisionConfig, VisionModel
from lion.nn.layers import LionAttention
from lion.tasks._base import forget
from tests.data import write_cifar
from tests.tasks.texts import write_texts

ALL = {"model.half_lives": "1,0"}  # from one token to all of them
LENGTHS = {
    "digits.lion_s": ({}, 16),
    "cifar10.lion_d": ({}, 64),
    "cifar10.lion_s": ({"tokens": "256"}, 256),
    "lra_laptop.image.lion_s": ({}, 256),
    "lra_laptop.listops.lion_d": ({"counts": "6,4,4"}, 64),
    "mlm.lion_s": ({"data": "{texts}", "per": "line", "vocab_size": "300"}, 128),
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    write_cifar("cifar10", tmp_path / "cifar10")
    write_texts(tmp_path / "texts")
    forget()
    yield {"texts": f"{tmp_path}/texts/*.txt"}
    forget()


@pytest.mark.parametrize("name", LENGTHS)
def test_half_lives_up_to_the_length(name, data):
    fields, length = LENGTHS[name]
    fields = {field: value.format(**data) for field, value in fields.items()}
    model = recipes.recipe(name).changed({**fields, **ALL}).task.resolved().make_model()
    assert recipes.recipe(name).changed(fields).task.resolved().model.half_lives is None
    for layer in (x for x in model.modules() if isinstance(x, LionAttention)):
        log_decay = layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay.reshape(layer.heads, -1)
        lives = -math.log(2) / log_decay[:, 0]  # of the slowest channels
        assert lives[[0, -1]].tolist() == pytest.approx([1, length], rel=1e-3)


def test_a_model_alone_does_not_know_the_length():
    with pytest.raises(ValueError, match=r"half_lives are 1.0, 0.0; expected two numbers of tokens above 0\. \(Tasks"):
        VisionModel(VisionConfig(dim=32, depth=1, heads=4, half_lives=(1.0, 0.0)))

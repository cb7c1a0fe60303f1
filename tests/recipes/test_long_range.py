"""The recipes for the Long Range Arena. (`printed.py` has their numbers.)"""

import pytest
import torch

from lion import recipes
from lion.models.long_range import LongModel


def test_random_decays_stay_random():
    assert recipes.recipe("lra.pathx.lion_s_random").task.model.decay == "selective_random"
    assert recipes.recipe("lra.pathx.softmax").task.model.decay is None


def test_a_model_with_slow_decays():
    config = recipes.recipe("lra.pathx.lion_s").task.model
    model = LongModel(config)
    rates = torch.cat([x.flatten() for name, x in model.named_parameters() if name.endswith("log_rate")])
    assert rates.min().exp().item() == pytest.approx(1e-4)

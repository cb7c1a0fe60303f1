"""The recipes for the Long Range Arena beside what the paper prints, and S5's settings, which it follows."""

import pytest
import torch

from lion import recipes
from lion.models.long_range import LongModel
from lion.nn.decay import DECAYS

# S5's table of its settings (appendix G): depth, width, dropout, batch, epochs, weight decay.
S5 = {
    "listops": (8, 128, 0.0, 50, 40, 0.04),
    "text": (6, 256, 0.1, 50, 35, 0.07),
    "retrieval": (6, 128, 0.0, 32, 20, 0.05),
    "image": (6, 512, 0.1, 50, 250, 0.07),
    "pathfinder": (6, 192, 0.05, 64, 200, 0.03),
    "pathx": (6, 128, 0.0, 32, 75, 0.06),
}


@pytest.mark.parametrize("name", S5)
def test_sizes_and_training(name):
    run = recipes.recipe(f"lra.{name}.lion_s")
    model = run.task.model
    found = model.depth, model.dim, model.dropout, run.batch, run.epochs, run.optim.weight_decay
    assert found == S5[name]
    assert run.optim.lr == 5e-4  # the paper's own


@pytest.mark.parametrize("model", ["lion_s", "lion_d", "ablation_3", "ablation_6", "ablation_7"])
def test_path_x_begins_with_slower_decays(model):
    """Steps from 0.0001 to 0.1, where the other tasks begin at 0.001."""
    pathx, other = (recipes.recipe(f"lra.{name}.{model}").task.model for name in ("pathx", "pathfinder"))
    assert pathx.decay.endswith("_slow")
    slow, usual = (DECAYS[x](4, 8).log_rate for x in (pathx.decay, pathx.decay.removesuffix("_slow")))
    assert slow.min().exp().item() == pytest.approx(1e-4)
    assert usual.min().exp().item() == pytest.approx(1e-3)
    assert slow.max().item() == pytest.approx(usual.max().item())
    assert other.decay is None or not other.decay.endswith("_slow")


def test_random_decays_stay_random():
    assert recipes.recipe("lra.pathx.lion_s_random").task.model.decay == "selective_random"
    assert recipes.recipe("lra.pathx.softmax").task.model.decay is None


def test_a_model_with_slow_decays():
    config = recipes.recipe("lra.pathx.lion_s").task.model
    model = LongModel(config)
    rates = torch.cat([x.flatten() for name, x in model.named_parameters() if name.endswith("log_rate")])
    assert rates.min().exp().item() == pytest.approx(1e-4)

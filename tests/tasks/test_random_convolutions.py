"""The linear model of random convolutions that answers together with a network for series."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("accelerate")

import torch

import lion
from lion import recipes
from lion.cli import main
from lion.data.labelled_series import Scale, SeriesExamples
from lion.models.long_range import LongConfig, LongModel
from lion.models.random_convolutions import LEVELS, RandomConvolutions, groups
from lion.tasks import _random_convolutions
from lion.tasks._random_convolutions import LEAST, MOST, fit, kernels_for, ridge
from tests.tasks.test_series import TINY, waves, write_wide


def series(values, labels):
    values = [x[:, None] if x.ndim == 1 else x for x in values]
    return SeriesExamples(values, labels, Scale.of(values))


def drawn(count=80, classes=2, channels=1, reach=24):
    values = waves(count)
    if channels > 1:
        noise = np.random.default_rng(0).normal(size=(*values.shape, channels - 1))
        values = np.concatenate([values[..., None], noise], 2)
    labels = np.arange(count) % 2 if classes else np.arange(count) % 2 - 0.5
    module = RandomConvolutions(60, reach, channels, classes or 1)
    return module, fit(module, series(values, labels), labels, classes)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_ridge_is_scikit_learns_and_leaves_rows_out(shape, monkeypatch):
    from sklearn.linear_model import Ridge

    generator = np.random.default_rng(0)
    x, y = generator.normal(size=shape) * [1 + i for i in range(shape[1])] + 3, generator.normal(size=(shape[0], 2))
    monkeypatch.setattr(_random_convolutions, "STRENGTHS", [2.0])
    found = ridge(x, y)
    scaled = (x - x.mean(0)) / x.std(0)
    want = Ridge(2.0).fit(scaled, y)
    np.testing.assert_allclose(x @ found.weight + found.bias, want.predict(scaled), rtol=1e-8)
    for row in (0, shape[0] - 1):  # the columns' scale is that of all rows, as it is in the fit
        rest = np.arange(shape[0]) != row
        alone = Ridge(2.0).fit(scaled[rest] - scaled.mean(0), y[rest])
        np.testing.assert_allclose(found.unseen[row], alone.predict(scaled[row : row + 1])[0], rtol=1e-6)


def test_the_penalty_is_the_best_on_what_was_left_out():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(50, 80))
    noise, told = generator.normal(size=(50, 1)), x[:, :1]
    assert np.abs(ridge(x, noise).weight).max() < 0.05  # nothing to be learned
    assert np.corrcoef(ridge(x, told).unseen[:, 0], told[:, 0])[0, 1] > 0.5


def test_shapes_of_kernels():
    found = groups(300, 427)
    assert {x.width for x in found} == {7, 9, 11}
    for width in (7, 9, 11):
        widest = max(x.dilation for x in found if x.width == width) * (width - 1)
        assert widest < 427 <= 2 * widest + 1
    assert {x.dilation for x in groups(300, 5)} == {1}
    assert (kernels_for(1), kernels_for(10**12)) == (MOST, LEAST)


@pytest.mark.parametrize("channels", [1, 3])
def test_padding_and_other_series_change_nothing(channels):
    module, score = drawn(channels=channels)
    assert score > 0.95
    x = torch.randn(3, 20, channels)
    alone = torch.cat([module(x[i : i + 1, : 20 - 4 * i]) for i in range(3)])
    mask = torch.arange(20) < torch.tensor([20, 16, 12])[:, None]
    torch.testing.assert_close(module(x.masked_fill(~mask[..., None], 99.0), mask), alone, atol=1e-4, rtol=1e-4)
    if channels == 1:
        torch.testing.assert_close(module(x[..., 0], mask), alone, atol=1e-4, rtol=1e-4)


def test_a_constant_is_like_no_kernel():
    module, _ = drawn()
    x = torch.randn(2, 200)
    inner = slice(100, 101)  # far from the ends, where the padding shows
    for one, other in zip(module.convolved(x), module.convolved(x + 5), strict=True):
        torch.testing.assert_close(one[..., inner], other[..., inner], atol=1e-4, rtol=0)


def test_many_at_once_are_done_in_pieces(monkeypatch):
    module, _ = drawn()
    x = torch.randn(9, 24)
    whole = module(x)
    monkeypatch.setattr("lion.models.random_convolutions.PIECE", 24 * 4 * max(group.kernels for group in module.groups))
    torch.testing.assert_close(module(x), whole)
    assert module.weight.shape[1] == sum(group.kernels for group in module.groups) * (LEVELS + 1)


def test_labels_that_tell_nothing_get_cautious_logits():
    labels = np.random.default_rng(0).integers(0, 2, 80)
    module = RandomConvolutions(60, 24, 1, 2)
    examples = series(waves(80)[:, ::-1], labels)
    assert fit(module, examples, labels, 2) < 0.75
    gaps = module(examples.__getitems__([(0, i) for i in range(80)])["values"]).diff(dim=1).abs()
    assert gaps.mean() < 1.0


@pytest.mark.parametrize("numbers", [False, True])
def test_network_and_linear_model_answer_together(numbers):
    random = {"random_kernels": 60, "random_reach": 24}
    config = LongConfig("lion_s", dim=16, depth=1, heads=2, stem=3, classes=1 if numbers else 2, **random)
    model = LongModel(config)
    fitted, _ = drawn(classes=0 if numbers else 2)
    model.random_convolutions.load_state_dict(fitted.state_dict())
    x = torch.randn(4, 24)
    with torch.no_grad():
        network, both = model.train()(x), model.eval()(x)
        wanted = network + fitted(x)
    torch.testing.assert_close(both, wanted / 2 if numbers else wanted)


def test_tokens_have_none():
    with pytest.raises(ValueError, match="random_kernels is 8; expected 0, or inputs that are numbers"):
        LongConfig("lion_s", vocab_size=5, random_kernels=8)


def test_a_run_saves_it_and_uses_it(tmp_path, capsys):
    data = write_wide(tmp_path / "waves.csv", waves(60), ["fast", "slow"] * 30)
    assert recipes.recipe("series").task.random_convolutions
    assert main(["train", "series", "--data", str(data), *TINY, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "beside a linear model of 504 random convolutions, fitted to the same series (" in said
    model = lion.load_model(tmp_path / "run" / "model").eval()
    assert model.random_convolutions.weight.abs().sum() > 0
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"]
    assert accuracy >= 0.9  # after two steps, when the network knows nothing yet
    alone = [*TINY, "--random_convolutions", "false", "--out", str(tmp_path / "alone")]
    assert main(["train", "series", "--data", str(data), *alone]) == 0
    assert "beside" not in capsys.readouterr().out
    assert lion.load_model(tmp_path / "alone" / "model").random_convolutions is None


def test_the_data_decides_their_number(tmp_path):
    data = write_wide(tmp_path / "waves.csv", waves(60), ["fast", "slow"] * 30)
    task = replace(recipes.recipe("series").task, data=str(data)).resolved()
    assert (task.model.random_kernels, task.model.random_reach) == (MOST, 24)
    wrong = ["--model.random_kernels", "8", "--out", str(tmp_path / "run")]
    assert main(["train", "series", "--data", str(data), *wrong]) == 1

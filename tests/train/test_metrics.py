"""Metrics, beside scikit-learn's and scipy's."""

import functools
import math
import warnings

import pytest
import torch
from scipy import stats
from sklearn import metrics as sklearn

from lion.train.evaluate import means, summed
from lion.train.metrics import METRICS
from tests import SEED

CLASSES = {
    "two classes": (2, 200),
    "five classes": (5, 200),
    "few examples": (4, 3),
    "one example": (2, 1),
}
PEERS = {
    "accuracy": sklearn.accuracy_score,
    "f1": functools.partial(sklearn.f1_score, zero_division=0),
    "macro_f1": functools.partial(sklearn.f1_score, average="macro", zero_division=0),
    "matthews": sklearn.matthews_corrcoef,
    "pearson": lambda right, x: stats.pearsonr(right, x).statistic,
    "spearman": lambda right, x: stats.spearmanr(right, x).statistic,
    "rmse": lambda right, x: sklearn.mean_squared_error(right, x) ** 0.5,
}


def agrees(name, predicted, right):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is not defined
        want = PEERS[name](*(x.double().numpy() if x.is_floating_point() else x.numpy() for x in (right, predicted)))
    want = 0.0 if math.isnan(want) else want
    assert METRICS[name](predicted, right) == pytest.approx(want, abs=1e-9)


def test_every_metric_has_a_peer():
    assert PEERS.keys() == METRICS.keys()


@pytest.mark.parametrize("case", CLASSES)
def test_classes(case):
    classes, count = CLASSES[case]
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        right = torch.randint(classes, (count,), generator=generator)
        other = torch.randint(classes, (count,), generator=generator)
        mostly = right.where(torch.rand(count, generator=generator) < 0.7, other)
        for predicted in (mostly, other, right, torch.zeros_like(right), torch.full_like(right, classes - 1)):
            for name in ("accuracy", "macro_f1", "matthews", *(["f1"] if classes == 2 else [])):
                agrees(name, predicted, right)
                agrees(name, predicted, torch.zeros_like(right))


@pytest.mark.parametrize("name", ["pearson", "spearman", "rmse"])
def test_numbers(name):
    generator = torch.Generator().manual_seed(SEED)
    right = torch.rand(300, generator=generator) * 5
    noisy = right + torch.randn(300, generator=generator)
    for predicted in (noisy, -noisy, noisy.exp(), right, noisy.round(), 1e6 + noisy, noisy.bfloat16().float()):
        agrees(name, predicted, right)
        agrees(name, predicted, right.round())  # many are equal
    if name == "rmse":  # which is defined for constants, too
        return
    for constant in (0.0, 0.1, 2.5):
        assert METRICS[name](torch.full((300,), constant), right) == 0
        assert METRICS[name](noisy, torch.full((300,), constant)) == 0
    assert METRICS[name](noisy[:1], right[:1]) == 0


def test_sums_and_values_of_batches():
    """In any order, and from a process that had none."""
    predicted, right = torch.rand(10), torch.rand(10)
    batches = [
        {"loss": (predicted[part] - right[part]).square().sum(), "examples": torch.tensor(float(len(predicted[part])))}
        | {"predicted": predicted[part], "right": right[part]}
        for part in (slice(4, 10), slice(0, 4))
    ]
    found = means(functools.reduce(summed, [{}, batches[0], {}, batches[1]]))
    assert "examples" not in found
    assert found["loss"] == pytest.approx((predicted - right).square().mean().item())
    assert sorted(found["predicted"].tolist()) == sorted(predicted.tolist())
    want = METRICS["spearman"](predicted, right)
    assert METRICS["spearman"](found["predicted"], found["right"]) == pytest.approx(want)

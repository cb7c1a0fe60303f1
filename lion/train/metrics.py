"""Metrics: a number from predictions and right answers, [examples] each.

Where a metric is not defined, as the correlation with a constant, it is 0.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def accuracy(predicted: Tensor, right: Tensor) -> float:
    return float((predicted == right).double().mean())


def f1(predicted: Tensor, right: Tensor) -> float:
    """F1 of class 1, of two classes."""
    found, taken, true = counts_of(predicted, right, 2)
    return (2 * found / (taken + true).clamp(min=1))[1].item()


def macro_f1(predicted: Tensor, right: Tensor) -> float:
    """The mean over all classes that were predicted or right."""
    found, taken, true = counts_of(predicted, right)
    there = taken + true > 0
    return (2 * found / (taken + true))[there].mean().item()


def matthews(predicted: Tensor, right: Tensor) -> float:
    """Matthews' correlation, for any number of classes."""
    found, taken, true = counts_of(predicted, right)
    total = len(right)
    spread = ((total**2 - taken @ taken) * (total**2 - true @ true)).sqrt()
    return ((found.sum() * total - taken @ true) / spread).item() if spread > 0 else 0.0


def pearson(predicted: Tensor, right: Tensor) -> float:
    x, y = predicted.double(), right.double()
    if (x == x[0]).all() or (y == y[0]).all():  # or rounding errors would be correlated
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return (x @ y / (x.norm() * y.norm())).clamp(-1, 1).item()


def spearman(predicted: Tensor, right: Tensor) -> float:
    return pearson(_ranks(predicted), _ranks(right))


def rmse(predicted: Tensor, right: Tensor) -> float:
    """The root of the mean squared error, in the units of the labels."""
    return (predicted.double() - right.double()).square().mean().sqrt().item()


def perplexity(loss: float) -> float:
    """Of tokens, by their mean cross entropy."""
    return math.exp(min(loss, 700.0))  # a higher one overflows


METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    function.__name__: function for function in (accuracy, f1, macro_f1, matthews, pearson, spearman, rmse)
}
SHARES = ("accuracy", "f1", "macro_f1")  # shown in percent


def counts_of(predicted: Tensor, right: Tensor, classes: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """[classes]: how often each class was predicted rightly, predicted, and right."""
    classes = max(classes, int(torch.maximum(predicted, right).max()) + 1)
    found, taken, true = (x.bincount(minlength=classes).double() for x in (right[predicted == right], predicted, right))
    return found, taken, true


def _ranks(x: Tensor) -> Tensor:
    """Ranks from 1; equal values share their mean rank."""
    _, which, counts = x.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[which]

"""Random convolutions of series and a linear model of what they find, fitted in seconds, which answers together with a
network. Both learn by themselves: a network that learns what the linear model leaves learns its chance errors.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lion.data.labelled_series import SeriesExamples
from lion.models.random_convolutions import LEVELS, RandomConvolutions
from lion.tasks._calibration import calibration

MOST, LEAST = 504, 84  # kernels
WORK = 4e8  # kernels times steps of all series: about 20 seconds on one core
FITTED = 10_000  # series, at most
BATCH = 64
SHOWN = 64  # series that levels are chosen by
STRENGTHS = np.logspace(-1, 5, 13)  # of the ridge's penalty


class Ridge(NamedTuple):
    weight: np.ndarray  # [features, outputs]
    bias: np.ndarray  # [outputs]
    unseen: np.ndarray  # [N, outputs], each row predicted without it


def kernels_for(steps: int) -> int:
    """How many kernels are affordable for so many steps of all series."""
    return int(min(MOST, max(LEAST, WORK // max(1, steps))))


def fit(module: RandomConvolutions, series: SeriesExamples, labels: np.ndarray, classes: int) -> float:
    """Draw the kernels and fit the linear model. Returns how good it is on each series when it has not seen that one:
    accuracy, or r2 of numbers.

    Args:
        labels: [N], classes; or numbers, as the network learns them.
        classes: 0 for numbers.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator).numpy()
    _draw(module, series, order[:SHOWN], generator)
    some = np.sort(order[:FITTED])
    some = some[np.argsort(np.diff(series.ends, prepend=0)[some], kind="stable")]  # in batches of similar lengths
    parts = [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
    features = torch.cat([module.features(*_batch(series, rows)) for rows in parts])
    right = labels[some]
    targets = np.where(right[:, None] == np.arange(classes), 1.0, -1.0) if classes else right[:, None].astype(float)
    found = ridge(features.numpy().astype(np.float64), targets)
    factor = calibration(found.unseen, right) if classes else 1.0
    module.weight.copy_(torch.from_numpy(factor * found.weight.T))
    module.bias.copy_(torch.from_numpy(factor * found.bias))
    if classes:
        return float((found.unseen.argmax(1) == right).mean())
    return 1 - float(((found.unseen - targets) ** 2).mean() / max(targets.var(), 1e-12))


def _batch(series: SeriesExamples, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
    batch = series.__getitems__([(0, int(row)) for row in rows])
    return batch["values"], None if batch["mask"].all() else batch["mask"]


@torch.no_grad()
def _draw(module: RandomConvolutions, series: SeriesExamples, rows: np.ndarray, generator: torch.Generator) -> None:
    """Kernels of random weights, each of some of the channels, that are blind to a constant; and levels that some of
    the series are above for a fifth of their steps, two fifths, ..."""
    for i, group in enumerate(module.groups):
        kernels = getattr(module, f"kernels_{i}")
        kernels.normal_(generator=generator)
        channels = kernels.shape[1]
        ranks = torch.rand(group.kernels, channels, generator=generator).argsort(1).argsort(1)
        wanted = channels ** torch.rand(group.kernels, 1, generator=generator)
        kernels *= (ranks < wanted)[..., None]
        kernels -= kernels.mean(-1, keepdim=True) * (ranks < wanted)[..., None]
    values, mask = _batch(series, np.sort(rows))
    shares = torch.linspace(0, 1, LEVELS + 2)[1:-1]
    for i, y in enumerate(module.convolved(values, mask)):
        y = y.transpose(1, 2)[torch.ones(y.shape[0], y.shape[2], dtype=torch.bool) if mask is None else mask]
        places = torch.randint(len(y), (min(len(y), 1 << 14),), generator=generator)
        getattr(module, f"levels_{i}").copy_(torch.quantile(y[places], shares, dim=0).T)


def ridge(x: np.ndarray, y: np.ndarray) -> Ridge:
    """Of standardised columns x [N, features], with the penalty of the least error on rows left out one by one."""
    mean, deviation = x.mean(0), x.std(0)
    deviation[deviation < 1e-9] = np.inf  # tells nothing
    x, centre = (x - mean) / deviation, y.mean(0)
    wide = x.shape[1] > x.shape[0]
    values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    there = values > 1e-9 * max(values[-1], 1e-300)
    values, vectors = values[there], vectors[:, there]
    left = vectors if wide else x @ vectors / np.sqrt(values)  # [N, rank], orthonormal
    along = left.T @ (y - centre)
    best = None
    for strength in STRENGTHS:
        kept = values / (values + strength)
        own = (left**2) @ kept + 1 / len(x)  # how much of its own prediction each row is
        unseen = y - (y - centre - left @ (kept[:, None] * along)) / np.maximum(1 - own, 1e-6)[:, None]
        error = ((unseen - y) ** 2).mean()
        if best is None or error < best[0]:
            best = error, strength, unseen
    assert best is not None
    _, strength, unseen = best
    right = x.T @ left / np.sqrt(values) if wide else vectors
    weight = right @ ((np.sqrt(values) / (values + strength))[:, None] * along) / deviation[:, None]
    return Ridge(weight, centre - mean @ weight, unseen)

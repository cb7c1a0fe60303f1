"""Whether series of one length are aligned."""

import numpy as np
import pytest

from lion.data.alignment import aligned
from tests import SEED

GENERATOR = np.random.default_rng(SEED)


def bumps(count: int, shift: bool) -> tuple[np.ndarray, np.ndarray]:
    """[count, 512, 2] with a narrow or a wide bump, in the middle or anywhere; and which."""
    labels = GENERATOR.integers(0, 2, count)
    x = np.exp(-(((np.arange(512) - 256) / (2.0 + 2 * labels[:, None])) ** 2))
    if shift:
        x = np.stack([np.roll(row, GENERATOR.integers(512)) for row in x])
    x = x + 0.05 * GENERATOR.normal(size=x.shape)
    return np.stack([x, -1000 * x], -1), labels


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
def test_of_bumps(shift, numbers):
    values, labels = bumps(150, shift)
    labels = labels + 0.01 * GENERATOR.normal(size=150) if numbers else labels
    assert aligned(list(values), labels) is not shift


def test_of_steps_that_mean_something():
    """The same values in another order have other labels: a spectrum cannot tell them apart."""
    labels = GENERATOR.integers(0, 2, 150)
    x = np.zeros((150, 512))
    x[np.arange(150), np.where(labels, 400, 200)] = 1
    assert aligned(list((x + 0.05 * GENERATOR.normal(size=x.shape))[..., None]), labels)


def test_of_few_series_gaps_and_constants():
    assert aligned([np.ones((5, 1))], np.array([0]))
    assert aligned([np.full((5, 1), np.nan), np.ones((5, 1)), np.zeros((5, 1))], np.array([0, 1, 0]))

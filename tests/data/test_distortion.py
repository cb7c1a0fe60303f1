"""Distortion of series."""

import numpy as np
import pytest

from lion.data.distortion import Distortion
from lion.data.labelled_series import Scale, SeriesExamples
from tests import SEED

STEPS = np.arange(50.0)
X = np.stack([STEPS / 50, np.sin(STEPS)], 1).astype(np.float32)


def generator(seed: int = SEED) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_nothing_is_nothing():
    assert not Distortion()
    np.testing.assert_array_equal(Distortion()(X, 2, generator()), X)


def test_a_warp_moves_steps_and_keeps_the_ends():
    ramp = np.stack([STEPS, 2 * STEPS], 1).astype(np.float32)  # a value tells the step that it is from
    found = np.stack([Distortion(warp=0.05)(ramp, 2, generator(seed)) for seed in range(100)])
    np.testing.assert_allclose(found[:, :, 1], 2 * found[:, :, 0], rtol=1e-6)  # all channels alike
    np.testing.assert_array_equal(found[:, [0, -1], 0], [[0, 49]] * 100)
    moved = (found[:, 24, 0] - 24).std()  # near the middle knot
    assert 0.03 * 50 < moved < 0.07 * 50


def test_jitter_and_scale():
    found = np.stack([Distortion(jitter=0.1)(X, 2, generator(seed)) for seed in range(50)])
    assert (found - X).std() == pytest.approx(0.1, rel=0.1)
    found = Distortion(scale=0.5)(X, 2, generator())
    factors = found[1:] / X[1:]
    np.testing.assert_allclose(factors, np.broadcast_to(factors[0], factors.shape), rtol=1e-4)
    assert factors[0, 0] != factors[0, 1]  # one for each channel


def test_missing_values_stay_missing():
    gaps = np.zeros_like(X)
    gaps[10:14, 0] = 1
    x = np.concatenate([np.where(gaps, 0, X), gaps], 1)
    found = Distortion(jitter=0.2, scale=0.2)(x, 2, generator())
    np.testing.assert_array_equal(found[:, 2:], gaps)
    np.testing.assert_array_equal(found[:, :2] == 0, gaps == 1)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_series(length):
    found = Distortion(warp=0.5, jitter=0.1, scale=0.1)(X[:length], 2, generator())
    assert found.shape == (length, 2)
    assert np.isfinite(found).all()


def test_batches_depend_on_seed_epoch_and_index_alone():
    values, labels = [X.astype(float), X[:20].astype(float)], np.array([0, 1])
    scale = Scale.of(values)
    examples = SeriesExamples(values, labels, scale, distortion=Distortion(warp=0.03, jitter=0.05), seed=SEED)
    both, one = examples.__getitems__([(3, 0), (3, 1)]), examples.__getitems__([(3, 1)])
    assert both["values"].equal(examples.__getitems__([(3, 0), (3, 1)])["values"])
    assert both["values"][1, :20].equal(one["values"][0, :20])
    assert not both["values"][1, 20:].any()  # padding
    assert not one["values"].equal(examples.__getitems__([(4, 1)])["values"])
    plain = SeriesExamples(values, labels, scale)
    assert plain.digest() == examples.digest()  # the data is the same

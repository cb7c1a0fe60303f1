"""Pathfinder: contours are found again from where the paddles are, not knowing their order; the pixels show them."""

import dataclasses
import re

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from lion.data.long_range.pathfinder import (
    AT_ONCE,
    RULES,
    PathfinderRules,
    draw_pathfinder,
    draw_scenes,
    make_scenes,
    pathfinder_rules,
    write_pathfinder,
)
from lion.data.long_range.sequences import Counts

COUNT = 40


def scenes_of(rules, seed=0, count=COUNT):
    return make_scenes(np.random.default_rng(seed), rules, count)


@pytest.fixture(scope="module", params=[32, 128])
def drawn(request):
    rules = RULES[request.param]
    scenes = scenes_of(rules)
    return rules, scenes, draw_scenes(scenes, rules)


def groups(close):
    """Numbers of the connected groups, from which are close to which [N, N]."""
    return connected_components(close)[1]


def from_points(points, paddles):
    """The distances of points [N] from paddles [M, 2]: [N, M]."""
    tails, heads = paddles.T
    share = ((points[:, None] - tails) / (heads - tails)).real.clip(0, 1)
    return np.abs(points[:, None] - tails - share * (heads - tails))


def distances(paddles):
    """From each to each, by 21 points of them [N, N]."""
    points = paddles[:, :1] + np.linspace(0, 1, 21) * (paddles[:, 1:] - paddles[:, :1])
    return from_points(points.ravel(), paddles).reshape(*points.shape, -1).min(1)


def test_markers_are_on_one_contour_or_on_two(drawn):
    rules, scenes, _ = drawn
    for paddles, markers, label, margin in zip(*scenes, strict=True):
        there = paddles[~np.isnan(paddles[:, 0])]
        # Paddles of a contour are two margins apart, others further.
        group = groups(distances(there) < 2 * margin + 0.5 * rules.thickness)
        ends = [np.abs(there - marker).min(1).argmin() for marker in markers]
        assert (group[ends[0]] == group[ends[1]]) == label
        sizes = np.bincount(group)
        assert sorted(sizes[sizes > 0])[-2:] == [rules.contour_length] * 2
        assert {*sizes[sizes > 0]} <= {rules.contour_length, rules.short}
        assert sizes[group[ends[0]]] == sizes[group[ends[1]]] == rules.contour_length


def test_paddles_keep_to_the_rules(drawn):
    rules, scenes, _ = drawn
    n = rules.contour_length
    assert ((scenes.paddles.real >= rules.padding) | np.isnan(scenes.paddles.real)).all()
    assert np.nanmax(scenes.paddles.imag) <= rules.size - 1 - rules.padding
    steps = scenes.paddles[..., 1] - scenes.paddles[..., 0]
    there = ~np.isnan(steps)
    np.testing.assert_allclose(np.abs(steps[there]), rules.paddle_length)
    for contour in (scenes.paddles[:, :n], scenes.paddles[:, n : 2 * n]):
        turns = np.angle((steps := contour[..., 1] - contour[..., 0])[:, 1:] / steps[:, :-1])
        assert np.abs(turns).max() <= np.pi / 2 / rules.continuity + 1e-9
        gaps = np.abs(contour[:, 1:, 0] - contour[:, :-1, 1])
        np.testing.assert_allclose(gaps, 2 * scenes.margins[:, None] * np.cos(turns / 2))
    begins = scenes.paddles[:, [0, n], 0]
    np.testing.assert_allclose(np.abs(begins[:, 0] - begins[:, 1]), rules.seed_distance)
    assert {*scenes.margins} == {*map(float, rules.margins)}
    assert there.sum(1).min() >= 2 * n
    assert there.sum(1).mean() > 2 * n + 0.3 * rules.distractors
    assert scenes.labels.sum() == COUNT // 2


def test_pixels_show_the_paddles(drawn):
    rules, scenes, images = drawn
    assert images.shape == (COUNT, rules.size, rules.size)
    assert images.dtype == np.uint8
    y, x = np.mgrid[: rules.size, : rules.size]
    for image, paddles, markers in zip(images, scenes.paddles, scenes.markers, strict=True):
        pixels = (x + 1j * y).ravel()
        nearest = from_points(pixels, paddles[~np.isnan(paddles[:, 0])]).min(1)
        from_marker = np.abs(pixels[:, None] - markers).min(1)
        bright = image.ravel() / 255
        np.testing.assert_allclose(bright[from_marker <= rules.marker_radius - 0.5], 1)
        away = from_marker > rules.marker_radius + 0.5
        assert (bright[away & (nearest < 0.2)] > 0.2 * rules.contrast).all()
        long = from_points(pixels, paddles[: 2 * rules.contour_length]).min(1) < rules.thickness / 2 + 1.2
        for where, contrast in ((long, rules.contrast), (~long, rules.short_contrast)):
            assert 0.8 * contrast < bright[away & where].max() <= contrast + 0.01
        assert (bright[away & (nearest > rules.thickness / 2 + 1.2)] == 0).all()


def test_turns_are_as_likely_as_they_should_be():
    rules = RULES[256]  # where there is room
    scenes = scenes_of(rules, count=200)
    steps = scenes.paddles[:, :14, 1] - scenes.paddles[:, :14, 0]
    turns = np.angle(steps[:, 1:4] / steps[:, :3]).ravel() * rules.continuity
    assert abs(turns.std() - np.sqrt(np.pi**2 / 12 - 0.5)) < 0.08
    assert abs(turns.mean()) < 0.1


def test_the_same_bytes_from_one_process_or_two(tmp_path):
    rules = dataclasses.replace(RULES[32], contour_length=6, distractors=4)
    counts = Counts(AT_ONCE, 30, AT_ONCE)
    for processes in (1, 2):
        (tmp_path / str(processes)).mkdir()
        write_pathfinder(tmp_path / str(processes), rules, counts, 0, processes)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / x).iterdir()} for x in ("1", "2"))
    assert one == two
    assert np.load(tmp_path / "1" / "test.labels.npy").mean() == 0.5
    assert one["test.tokens"] == draw_pathfinder(rules, 0, 0).tokens.tobytes()  # the part for testing comes first
    assert one["test.tokens"] != draw_pathfinder(rules, 1, 0).tokens.tobytes()


def test_rules_that_are_wrong():
    for message, options in {
        "size is 20; expected more than 4 times seed_distance, 7.0.": {"size": 20},
        "size is 16; expected more than 4 times seed_distance, 4.0.": {"size": 16, "seed_distance": 4.0},
        "contour_length is 2; expected a whole number from 3 to 128.": {"contour_length": 2},
        "margins is (); expected all at least a quarter of paddle_length.": {"margins": ()},
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            PathfinderRules(**options)
    with pytest.raises(ValueError, match="no two contours of so many paddles have found room in 32 x 32 pixels"):
        scenes_of(PathfinderRules(contour_length=60), count=4)
    with pytest.raises(ValueError, match=r"^size is 33; expected one of 32, 64, 128, 256.$"):
        pathfinder_rules(33)

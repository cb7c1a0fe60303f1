"""Pathfinder: two long dashed contours among shorter ones, and two markers: are they the ends of one contour?

The rules are those of the Pathfinder challenge (Linsley and others), with the Long Range Arena's numbers. Many images
are drawn at once. Points are complex numbers x + iy in pixels; 0 is the middle of the first pixel.
"""

import math
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from lion.configs import checked
from lion.data.long_range.sequences import Counts, Rows, in_order, write_drawn
from lion.limits import Between

COUNTS = Counts(160_000, 20_000, 20_000)
AT_ONCE = 200  # images drawn together; half of them have one contour marked at both ends
TRIES = 8  # directions tried for a paddle
BACK = 2.5  # paddles that are taken back at a dead end, on average
AFRESH = 0.002  # share of dead ends where both contours begin again
RETRIES = 16  # places tried for a short contour
GIVE_UP = 20_000  # rounds of tries in which no image is finished
ANGLES = np.linspace(-math.pi / 2, math.pi / 2, 181)
BELOW = 0.5 + (ANGLES + np.sin(2 * ANGLES) / 2) / math.pi  # distribution function of the density cos ** 2


@dataclass(frozen=True)
class PathfinderRules:
    """Contours are rows of paddles. The margins around two contours never overlap."""

    size: int = 32  # height and width
    contour_length: int = 14  # paddles of a long contour: 6, 9 or 14 are easy, intermediate and hard
    paddle_length: float = 2.0
    thickness: float = 0.5
    margins: tuple[int, ...] = (1,)  # half the gap between paddles; a random one of these for each image
    distractors: int = 20  # paddles of all short contours together; each contour is a third as long as a long one
    seed_distance: float = 7.0  # between the beginnings of the long contours; the border is twice as far
    marker_radius: float = 1.5
    continuity: float = 1.0  # a contour turns by at most 90 degrees divided by this
    padding: int = 1  # pixels around everything
    contrast: float = 0.75  # of the long contours; markers have 1
    short_contrast: float = 1.0  # of the short contours

    def __post_init__(self) -> None:
        checked(Annotated[int, Between(3, 4 * self.size)], self.contour_length, "contour_length")  # 14 is the arena's
        if self.size - 1 < 4 * self.seed_distance:  # pixels are numbered from 0 to size - 1
            raise ValueError(f"size is {self.size}; expected more than 4 times seed_distance, {self.seed_distance}.")
        if not self.margins or min(self.margins) * 4 < self.paddle_length - 2 * self.thickness:
            # Only distances from paddles' ends are checked: crossing paddles have one within half a paddle.
            raise ValueError(f"margins is {self.margins}; expected all at least a quarter of paddle_length.")

    @property
    def short(self) -> int:
        """Paddles of a short contour."""
        return self.contour_length // 3


RULES = {  # the arena's, by size
    32: PathfinderRules(),
    64: PathfinderRules(64, 14, 5, 1.0, (1,), 22, 12, 2.5, 1.8, 1, 0.8, 0.8),
    128: PathfinderRules(128, 14, 5, 1.5, (2, 3), 35, 20, 3.0, 1.8, 1, 0.9, 0.9),
    256: PathfinderRules(256, 14, 5, 2.0, (3,), 30, 27, 5.0, 1.8, 22, 1.0, 1.0),
}


def pathfinder_rules(size: int, contour_length: int = 14) -> PathfinderRules:
    if size not in RULES:
        raise ValueError(f"size is {size}; expected one of {', '.join(map(str, RULES))}.")
    return replace(RULES[size], contour_length=contour_length)


class Scenes(NamedTuple):
    """B images of N paddles: the first long contour, the second one, then the short ones."""

    paddles: np.ndarray  # complex [B, N, 2 ends]; NaN where there was no room
    markers: np.ndarray  # complex [B, 2]
    labels: np.ndarray  # [B]: 1 if the markers are the ends of one contour
    margins: np.ndarray  # [B]


def make_scenes(generator: np.random.Generator, rules: PathfinderRules, count: int) -> Scenes:
    contours = _Contours(generator, rules, 2 * count)
    contours.grow_long(count)
    contours.grow_short()
    # Every image has one marker at the beginning of a long contour and one at the end of a long contour.
    labels = generator.permutation(np.arange(count) % 2)
    begins = generator.integers(0, 2, count)
    ends = np.where(labels == 1, begins, 1 - begins)
    rows, n = np.arange(count), rules.contour_length
    markers = [contours.paddles[rows, begins * n, 0], contours.paddles[rows, ends * n + n - 1, 1]]
    return Scenes(contours.paddles, np.stack(markers, 1), labels, contours.margins)


class _Contours:
    """The paddles of many images, grown in all of them at once."""

    def __init__(self, generator: np.random.Generator, rules: PathfinderRules, count: int):
        self.generator, self.rules = generator, rules
        self.paddles = np.full((count, 2 * rules.contour_length, 2), np.nan, np.complex128)
        self.margins = generator.choice(np.array(rules.margins, float), count)

    def grow_long(self, enough: int) -> None:
        """Grow both contours in turns, paddle by paddle. At a dead end, some paddles are taken back.

        Some images take very long, so the first `enough` that are done are kept.
        """
        n, count = self.rules.contour_length, len(self.paddles)
        lengths, failures = np.zeros((count, 2), np.int64), np.zeros(count, np.int64)
        left, in_vain = count, 0
        while len(todo := np.flatnonzero(lengths.min(1) < n)) > count - enough:
            left, in_vain = len(todo), in_vain + 1 if len(todo) == left else 0
            if in_vain == GIVE_UP:
                raise ValueError(
                    f"contour_length is {n}: no two contours of so many paddles have found room in {self.rules.size} x "
                    f"{self.rules.size} pixels; expected fewer, 14 is the arena's."
                )
            which = lengths[todo].argmin(1)  # the shorter contour
            at = lengths[todo, which]
            seeds = np.flatnonzero(at == 0)
            tails, angles = self._ahead(todo, which * n + at)
            tails[seeds], angles[seeds] = self._seeds(todo[seeds], which[seeds])
            there = self._place(todo, which * n + at, tails, angles, at > 0)
            lengths[todo, which] += there
            failures[todo] = np.where(there, 0, failures[todo] + 1)
            stuck = np.flatnonzero(failures[todo] == TRIES)
            images = todo[stuck]
            failures[images] = 0
            lengths[images, which[stuck]] -= self.generator.geometric(1 / BACK, len(images))
            lengths[images[self.generator.random(len(images)) < AFRESH]] = 0
            lengths = np.maximum(lengths, 0)
            lengths[lengths[:, 0] == 0] = 0  # the second contour begins beside the first
            image, contour, place = np.nonzero(np.arange(n) >= lengths[images, :, None])
            self.paddles[images[image], contour * n + place] = np.nan
        done = np.flatnonzero(lengths.min(1) == n)[:enough]
        self.paddles, self.margins = self.paddles[done], self.margins[done]

    def grow_short(self) -> None:
        """Add short contours where there is room."""
        short, count, long = self.rules.short, *self.paddles.shape[:2]
        room = np.full((count, self.rules.distractors // short * short, 2), np.nan, np.complex128)
        self.paddles = np.concatenate([self.paddles, room], 1)
        for begin in range(long, self.paddles.shape[1], short):
            todo = np.arange(count)
            for _ in range(RETRIES):
                tails = self._anywhere(len(todo), self.rules.padding)
                there = self._place(todo, begin, tails, self._any_angle(len(todo)))
                for column in range(begin + 1, begin + short):
                    there[there] = self._extend(todo[there], column)
                todo = todo[~there]
                self.paddles[todo, begin : begin + short] = np.nan

    def _extend(self, images: np.ndarray, column: int) -> np.ndarray:
        """Add a paddle after the last one; whether there was room, for each image."""
        there = np.zeros(len(images), bool)
        for _ in range(TRIES):
            todo = np.flatnonzero(~there)
            if not len(todo):
                break
            tails, angles = self._ahead(images[todo], column)
            there[todo] = self._place(images[todo], column, tails, angles, follows=True)
        return there

    def _seeds(self, images: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tails and angles for the beginning of the first or second long contour of each image."""
        distance = self.rules.seed_distance
        beside = self.paddles[images, 0, 0] + distance * np.exp(1j * self._any_angle(len(images)))
        anywhere = self._anywhere(len(images), 2 * distance)
        return np.where(second == 1, beside, anywhere), self._any_angle(len(images))

    def _ahead(self, images: np.ndarray, column: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Tails and angles for the next paddle of a contour, which turns in the middle of the gap."""
        last = self.paddles[images, np.asarray(column) - 1]
        ahead = (last[:, 1] - last[:, 0]) / self.rules.paddle_length
        angles = np.angle(ahead) + self._turns(len(images))
        return last[:, 1] + self.margins[images] * (ahead + np.exp(1j * angles)), angles

    def _place(
        self,
        images: np.ndarray,
        column: np.ndarray | int,
        tails: np.ndarray,
        angles: np.ndarray,
        follows: np.ndarray | bool = False,
    ) -> np.ndarray:
        """Add a paddle where it is inside of the image and far from all others but the one it follows."""
        rules = self.rules
        new = np.stack([tails, tails + rules.paddle_length * np.exp(1j * angles)], 1)  # [B, 2]
        there = np.ones(len(images), bool)
        for x in (new.real, new.imag):
            there &= (x.min(1) >= rules.padding) & (x.max(1) <= rules.size - 1 - rules.padding)
        apart = 2 * self.margins[images, None] + rules.thickness
        close = _any_end_within(apart, self.paddles[images], new[:, None], rules.paddle_length)
        close[np.arange(len(images)), np.asarray(column) - 1] &= ~np.asarray(follows)
        there &= ~close.any(1)
        self.paddles[images[there], np.broadcast_to(column, there.shape)[there]] = new[there]
        return there

    def _anywhere(self, count: int, border: float) -> np.ndarray:
        x, y = self.generator.uniform(border, self.rules.size - 1 - border, (2, count))
        return x + 1j * y

    def _any_angle(self, count: int) -> np.ndarray:
        return self.generator.uniform(-math.pi, math.pi, count)

    def _turns(self, count: int) -> np.ndarray:
        """Random angles with the density cos(continuity * angle) ** 2, within 90 degrees over continuity."""
        return np.interp(self.generator.random(count), BELOW, ANGLES) / self.rules.continuity


def _any_end_within(distance: np.ndarray, a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    """Whether an end of one paddle is within a distance of the other paddle; never for NaN."""
    close = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), bool)
    for ends, other in ((a, b), (b, a)):
        start = other[..., 0]
        turn = (other[..., 1] - start).conj() / length  # so that the paddle lies along the real axis
        for end in (ends[..., 0], ends[..., 1]):
            away = (end - start) * turn
            along, across = away.real, away.imag
            beyond = along - np.clip(along, 0, length)
            close |= beyond**2 + across**2 < distance**2
    return close


# Drawing.


def draw_scenes(scenes: Scenes, rules: PathfinderRules) -> np.ndarray:
    """The images, uint8 [B, size, size]."""
    reach = math.ceil(max(rules.paddle_length / 2 + rules.thickness / 2 + 1, rules.marker_radius + 1))
    side = rules.size + 2 * reach
    canvas = np.zeros((len(scenes.labels), side, side), np.float32)
    image, paddle = np.nonzero(~np.isnan(scenes.paddles[:, :, 0]))
    tails, heads = scenes.paddles[image, paddle].T
    middles = (tails + heads) / 2
    pixels, away = _around(middles, reach)
    away = away * ((heads - tails).conj() / rules.paddle_length)[:, None]
    shade = _covered(away.real, rules.paddle_length) * _covered(away.imag, rules.thickness)
    contrast = np.where(paddle < 2 * rules.contour_length, rules.contrast, rules.short_contrast).astype(np.float32)
    np.maximum.at(canvas, (image[:, None], *pixels), contrast[:, None] * shade)
    for marker in scenes.markers.T:
        pixels, away = _around(marker, reach)
        shade = np.clip(rules.marker_radius + 0.5 - np.abs(away), 0, 1).astype(np.float32)
        np.maximum.at(canvas, (np.arange(len(marker))[:, None], *pixels), shade)
    return np.rint(255 * canvas[:, reach:-reach, reach:-reach]).astype(np.uint8)


def _covered(distance: np.ndarray, width: float) -> np.ndarray:
    """The share of a pixel that a strip covers, at a distance from the strip's middle; 1 is the most possible."""
    most = min(width, 1.0)
    return (np.clip(width / 2 + 0.5 - np.abs(distance), 0, most) / most).astype(np.float32)


def _around(points: np.ndarray, reach: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """The rows and columns of the pixels around each point [M, P], on a canvas with a border; and their offsets."""
    x, y = (a.ravel() for a in np.meshgrid(*[np.arange(-reach, reach + 1)] * 2))
    nearest = np.rint(points)
    away = (nearest - points)[:, None] + (x + 1j * y)
    left, top = (a.astype(np.int64)[:, None] + reach for a in (nearest.real, nearest.imag))
    return (top + y, left + x), away


def draw_pathfinder(rules: PathfinderRules, seed: int, draw: int) -> Rows:
    """`AT_ONCE` images as sequences of pixels, half of each label."""
    scenes = make_scenes(np.random.default_rng((seed % 2**64, draw)), rules, AT_ONCE)
    lengths = np.full(AT_ONCE, rules.size**2)
    return Rows(draw_scenes(scenes, rules).ravel(), lengths, scenes.labels.astype(np.uint8))


def write_pathfinder(
    folder: Path, rules: PathfinderRules, counts: Counts, seed: int, processes: int | None = None
) -> None:
    """Write all splits. The bytes are the same for any number of processes."""
    jobs = range(-(-sum(counts) // AT_ONCE))
    with closing(in_order(partial(draw_pathfinder, rules, seed), jobs, processes)) as draws:
        write_drawn(folder, f"pathfinder {rules.size} x {rules.size}", draws, rules, counts, seed)

"""Distortion of series in training: another one in every epoch, with the same class."""

from dataclasses import dataclass

import numpy as np

from lion.configs import check
from lion.limits import Share

KNOTS = 5  # of a warp: steps between them are moved by what lies between theirs


@dataclass(frozen=True)
class Distortion:
    warp: Share = 0.0  # deviation by which steps are moved in time, as a share of the length
    jitter: Share = 0.0  # deviation of what is added to each value, as a share of the values' own
    scale: Share = 0.0  # deviation of the factor of each channel from 1

    def __post_init__(self):
        check(self)

    def __bool__(self) -> bool:
        return bool(self.warp or self.jitter or self.scale)

    def __call__(self, x: np.ndarray, channels: int, generator: np.random.Generator) -> np.ndarray:
        """x: standardised values [T, channels]; where some are missing, 1 in as many channels behind them."""
        if self.warp:
            x = _warped(x, self.warp * len(x) * generator.normal(size=KNOTS))
        factor = 1 + self.scale * generator.normal(size=channels)
        values = factor * x[:, :channels] + self.jitter * generator.normal(size=(len(x), channels))
        gaps = x[:, channels:]
        return np.concatenate([values * (1 - gaps) if gaps.size else values, gaps], 1, dtype=np.float32)


def _warped(x: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """x [T, C], read at times that are moved by so many steps [KNOTS]; both ends stay."""
    steps, last = np.arange(len(x)), len(x) - 1
    moves[[0, -1]] = 0
    at = np.clip(steps + np.interp(steps, np.linspace(0, last, KNOTS), moves), 0, last)
    low = at.astype(np.int64)
    part = (at - low)[:, None]
    return (1 - part) * x[low] + part * x[np.minimum(low + 1, last)]

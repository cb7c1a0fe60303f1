"""Whether series of one length are aligned: whether the same step means the same in all of them.

Recordings that begin with an event are; outlines and vibrations, which may begin anywhere, are not.
"""

from collections.abc import Sequence

import numpy as np

MOST = 1000  # series that are compared
CLEARLY = 2.0  # standard deviations of a sign test


def aligned(values: Sequence[np.ndarray], labels: np.ndarray) -> bool:
    """A series' spectrum does not depend on where it begins. So series are not aligned if the nearest neighbour by
    spectra tells a series' label clearly better than the nearest neighbour by values.

    Args:
        values: [T, C] each, of one length; NaN where one is missing.
        labels: classes, or numbers.
    """
    some = np.random.default_rng(0).permutation(len(values))[:MOST]
    x, y = np.nan_to_num(np.stack([values[i] for i in some])), labels[some]  # [N, T, C], [N]
    x = (x - x.mean((0, 1))) / np.maximum(x.std((0, 1)), 1e-12)
    by_values, by_spectra = (_errors(rows, y) for rows in (x, np.abs(np.fft.rfft(x, axis=1))))
    better, worse = int((by_spectra < by_values).sum()), int((by_spectra > by_values).sum())
    return bool(better - worse <= CLEARLY * np.sqrt(better + worse))


def _errors(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N]: how far each label is from that of the nearest other row; of classes, 0 if it is the same."""
    flat = rows.reshape(len(rows), -1)
    squares = (flat**2).sum(1)
    distances = squares[:, None] + squares - 2 * flat @ flat.T
    np.fill_diagonal(distances, np.inf)
    found = labels[distances.argmin(1)]
    return found != labels if labels.dtype.kind == "i" else np.abs(found - labels)

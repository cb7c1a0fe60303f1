"""Whether examples of one length are aligned: whether the same place means the same in all of them.

Recordings that begin with an event are, and sequences around a site; outlines and vibrations, which may begin anywhere,
and pieces of genes and genomes are not.
"""

from collections.abc import Sequence

import numpy as np
import torch

from lion.models.kmers import BASES, FIRST, kmers, vocabulary

MOST = 1000  # examples that are compared
CLEARLY = 2.0  # standard deviations of a sign test
WORDS = 4  # bases of the k-mers that sequences are compared by


def aligned(values: Sequence[np.ndarray], labels: np.ndarray) -> bool:
    """A series' spectrum does not depend on where it begins. So series are not aligned if the nearest neighbour by
    spectra tells a series' label clearly better than the nearest neighbour by values.

    Args:
        values: [T, C] each, of one length; NaN where one is missing.
        labels: classes, or numbers.
    """
    some = _some(len(values))
    x = np.nan_to_num(np.stack([values[i] for i in some]))  # [N, T, C]
    x = (x - x.mean((0, 1))) / np.maximum(x.std((0, 1)), 1e-12)
    return not _clearly_better(np.abs(np.fft.rfft(x, axis=1)), x, labels[some])


def aligned_sequences(tokens: Sequence[np.ndarray], labels: np.ndarray) -> bool:
    """Likewise for DNA: how often which k-mer stands in a sequence does not depend on where it begins.

    Args:
        tokens: [T] each, of one length: those of lion.data.fasta.
    """
    some = _some(len(tokens))
    rows = torch.from_numpy(np.stack([tokens[i] for i in some]))  # [N, T]
    letters = (rows[..., None] == torch.arange(FIRST, FIRST + BASES)).float().numpy()
    words = kmers(rows, WORDS)[..., -1]
    counts = torch.zeros(len(rows), vocabulary(WORDS)).scatter_add(1, words, (words > 0).float())
    return not _clearly_better(counts.sqrt().numpy(), letters, labels[some])


def _some(count: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(count)[:MOST]


def _clearly_better(one: np.ndarray, other: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the nearest neighbours by one description tell the labels clearly better than those by the other."""
    errors, others = _errors(one, labels), _errors(other, labels)
    better, worse = int((errors < others).sum()), int((errors > others).sum())
    return bool(better - worse > CLEARLY * np.sqrt(better + worse))


def _errors(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N]: how far each label is from that of the nearest other row; of classes, 0 if it is the same."""
    flat = rows.reshape(len(rows), -1)
    squares = (flat**2).sum(1)
    distances = squares[:, None] + squares - 2 * flat @ flat.T
    np.fill_diagonal(distances, np.inf)
    found = labels[distances.argmin(1)]
    return found != labels if labels.dtype.kind == "i" else np.abs(found - labels)

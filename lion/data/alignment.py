"""What the labels of examples depend on, as their nearest neighbours tell.

Recordings that begin with an event are aligned, and sequences around a site: the same place means the same in all of
them. Outlines and vibrations, which may begin anywhere, and pieces of genes and genomes are not. And pieces of genomes
may be from either strand, where genes have one.
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
    return not _clearly_better(_words([tokens[i] for i in some]), letters, labels[some])


def either_strand(tokens: Sequence[np.ndarray], labels: np.ndarray) -> bool:
    """Whether the strand that a sequence was read from makes no difference: nearest neighbours tell labels clearly
    better if a k-mer and its reverse complement are the same.

    Args:
        tokens: of any lengths.
    """
    some = _some(len(tokens))
    one, both = (_words([tokens[i] for i in some], both_strands=both) for both in (False, True))
    return _clearly_better(both, one, labels[some])


def _words(tokens: Sequence[np.ndarray], *, both_strands: bool = False) -> np.ndarray:
    """The square roots of how often which k-mer stands in each sequence: the frequent ones are not all that counts."""
    counts = np.zeros((len(tokens), vocabulary(WORDS)), np.float32)
    for row, x in zip(counts, tokens, strict=True):
        found = kmers(torch.tensor(x)[None], WORDS, both_strands=both_strands)[..., -1]
        row += np.bincount(found.flatten().numpy(), minlength=len(row))
    counts[:, 0] = 0
    return np.sqrt(counts)


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

"""A linear model of the tokens of texts, or of the k-mers of DNA, fitted before a network is trained beside it.

The network learns what the linear model leaves. On the examples that it was fitted to, that model is better than on any
others; in training, each example therefore gets the logits of a model that has not seen it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.data.batches import LabelledRows
from lion.models.heads import TokenWeights
from lion.models.kmers import kmers, vocabulary
from lion.optional import need
from lion.tasks._calibration import calibration

FOLDS = 5
STRENGTH = 10.0  # scikit-learn's C of the logistic regression
WORK = 40_000_000  # different tokens of all examples, times classes, that a fit reads: about 20 seconds
LONGEST = 7  # bases of a k-mer
COUNTS = 100_000_000  # different k-mers of all sequences, at most: they are kept in memory
AT_ONCE = 1 << 24  # k-mers that are counted at a time


class Fitted(NamedTuple):
    idf: np.ndarray  # [vocab_size]
    weight: np.ndarray  # [classes, vocab_size]; [1, vocab_size] for numbers
    bias: np.ndarray  # [classes]

    def fill(self, module: TokenWeights) -> None:
        for name, x in self._asdict().items():
            getattr(module, name).copy_(torch.from_numpy(x))


class TokenModel(NamedTuple):
    whole: Fitted  # to all examples
    others: np.ndarray  # [N, classes], the logits of each example by a model that has not seen it
    score: float  # how good those are: accuracy, or r2 of numbers


def fit(counts: Any, labels: np.ndarray, classes: int) -> TokenModel:
    """
    Args:
        counts: how often each example has each token, sparse [N, vocab_size].
        labels: [N], classes; or numbers, as the network learns them.
        classes: 0 for numbers.
    """
    others = np.zeros((len(labels), classes or 1), np.float32)
    for fold in _folds(labels, classes):
        rest = np.setdiff1d(np.arange(len(labels)), fold)
        others[fold] = _logits(_fitted(counts[rest], labels[rest], classes), counts[fold])
    whole = _fitted(counts, labels, classes)
    if not classes:
        score = 1 - float(((others[:, 0] - labels) ** 2).mean() / max(labels.var(), 1e-12))
        return TokenModel(whole, others, score)
    factor = np.float32(calibration(others, labels))
    whole = Fitted(whole.idf, factor * whole.weight, factor * whole.bias)
    return TokenModel(whole, factor * others, float((others.argmax(1) == labels).mean()))


def count_tokens(texts: LabelledRows, vocab_size: int, specials: list[int]) -> Any:
    """How often each text has each token, sparse [N, vocab_size]; `specials` do not count, as [CLS]."""
    sparse = need("scipy.sparse", "scikit-learn", "train")
    kept = ~np.isin(texts.ids, specials)
    rows = np.repeat(np.arange(len(texts)), np.diff(texts.ends, prepend=0))
    there = (np.ones(int(kept.sum()), np.float32), (rows[kept], texts.ids[kept]))
    return sparse.csr_matrix(there, shape=(len(texts), vocab_size))  # the same token again is added up


def longest_kmers(lengths: np.ndarray) -> int:
    """The longest k-mers that can be counted in sequences of these lengths; 0: not even single bases."""
    different = np.cumsum([np.minimum(lengths, 4**k).sum() for k in range(1, LONGEST + 1)])
    return int((different <= COUNTS).sum())


def count_kmers(sequences: Sequence[np.ndarray], longest: int, *, both_strands: bool = False) -> Any:
    """How often each sequence of tokens has each k-mer, sparse [N, vocabulary]."""
    sparse = need("scipy.sparse", "scikit-learn", "train")
    size = vocabulary(longest)
    ends = np.cumsum([longest * len(x) for x in sequences])
    parts = np.split(np.arange(len(sequences)), np.flatnonzero(np.diff(ends // AT_ONCE)) + 1)
    found = []
    for part in parts:
        words = [kmers(torch.tensor(sequences[i])[None], longest, both_strands=both_strands) for i in part]
        columns = torch.cat([x.flatten() for x in words]).numpy()
        rows = np.repeat(np.arange(len(part)), [x.numel() for x in words])
        kept = columns > 0
        there = (np.ones(int(kept.sum()), np.float32), (rows[kept], columns[kept]))
        found.append(sparse.csr_matrix(there, shape=(len(part), size)))
    return sparse.vstack(found, format="csr")


def _folds(labels: np.ndarray, classes: int) -> list[np.ndarray]:
    """The indices in random parts; of every class, as many are in each."""
    order = np.random.default_rng(0).permutation(len(labels))
    if classes:
        order = order[np.argsort(labels[order], kind="stable")]
    return [part for part in (np.sort(order[i::FOLDS]) for i in range(FOLDS)) if 0 < len(part) < len(labels)]


def _fitted(counts: Any, labels: np.ndarray, classes: int) -> Fitted:
    from sklearn.linear_model import LogisticRegression, Ridge

    most = int(WORK / max(1, classes if classes > 2 else 1) / max(1.0, counts.nnz / counts.shape[0]))
    if most < counts.shape[0]:
        some = np.sort(np.random.default_rng(0).permutation(counts.shape[0])[:most])
        counts, labels = counts[some], labels[some]
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.where(documents, np.log((1 + counts.shape[0]) / (1 + documents)) + 1, 0).astype(np.float32)
    inputs = _weighted(counts, idf)
    there = np.unique(labels) if classes else np.zeros(1, int)
    weight = np.zeros((classes or 1, counts.shape[1]), np.float32)
    bias = np.zeros(classes or 1, np.float32)
    if not classes:
        model = Ridge().fit(inputs, labels)
        weight[0], bias[0] = model.coef_, model.intercept_
    elif len(there) == 1:
        bias[there] = 1
    else:
        model = LogisticRegression(C=STRENGTH, max_iter=300).fit(inputs, labels)
        binary = len(there) == 2  # which has one row, for the second class
        weight[there] = np.concatenate([-model.coef_, model.coef_]) / 2 if binary else model.coef_
        found = np.concatenate([-model.intercept_, model.intercept_]) / 2 if binary else model.intercept_
        bias[:] = found.min()  # of classes that are not there
        bias[there] = found
    return Fitted(idf, weight, bias)


def _weighted(counts: Any, idf: np.ndarray) -> Any:
    """TF-IDF with rows of norm 1, as TokenWeights has it."""
    from sklearn.preprocessing import normalize

    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return normalize(weighted)


def _logits(fitted: Fitted, counts: Any) -> np.ndarray:
    return _weighted(counts, fitted.idf) @ fitted.weight.T + fitted.bias

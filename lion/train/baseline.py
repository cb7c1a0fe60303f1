"""A simple model of scikit-learn beside a run, fitted in seconds: was the run worth its time?

It reads the same training examples, and is asked about the same eval set.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from lion.optional import need
from lion.tasks._labelled import SIMPLE, LabelledTask
from lion.train.metrics import METRICS

POINTS = 100  # of a series, for each channel
FIXED = 500  # longest sequences that are compared letter by letter
Ways = dict[str, Any]  # scikit-learn's pipelines


class Fitted(NamedTuple):
    """A simple model's scores: baseline.json."""

    name: str
    metric: str
    score: float
    metrics: dict[str, float]  # all that the run shows, too
    examples: int  # it has learned from
    seconds: float


def baseline(task: LabelledTask) -> Fitted | None:
    """The baseline of a task whose data is the user's own; None without scikit-learn."""
    plain = task.plain()
    if plain is None:
        return None
    with contextlib.suppress(ImportError):
        need("sklearn", "scikit-learn", "train")
        began = time.perf_counter()
        (inputs, labels), (asked, right) = plain.train, plain.eval
        if len(labels) > SIMPLE:
            kept = np.random.default_rng(0).permutation(len(labels))[:SIMPLE]
            inputs, labels = [inputs[i] for i in kept], labels[kept]
        ways = KINDS[plain.kind](inputs, task.numbers)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a solver has not converged: it is near enough to compare with
            name, pipeline = _best(ways, inputs, labels)
            answers = pipeline.fit(inputs, labels).predict(asked)
        pair = torch.from_numpy(np.asarray(answers)), torch.from_numpy(np.asarray(right))
        metrics = {metric: METRICS[metric](*pair) for metric in task.metrics}
        seconds = time.perf_counter() - began
        return Fitted(name, task.metric, metrics[task.metric], metrics, len(labels), round(seconds, 2))
    return None


def _best(ways: Ways, inputs: Sequence[Any] | np.ndarray, labels: np.ndarray) -> tuple[str, Any]:
    """The pipeline that is best on a fifth of the training examples, when it has learned from the others."""
    order = np.random.default_rng(0).permutation(len(labels))
    held, rest = np.sort(order[::5]), np.sort(np.delete(order, np.s_[::5]))
    if len(ways) == 1 or len(np.unique(labels[rest])) < 2:
        return next(iter(ways.items()))
    (some, some_labels), (asked, right) = ([[inputs[i] for i in part], labels[part]] for part in (rest, held))
    return max(ways.items(), key=lambda x: x[1].fit(some, some_labels).score(asked, right))


# Pipelines by their names, from the training inputs: the best of them is taken.


def _of_texts(texts: Sequence[str], numbers: bool) -> Ways:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    name, model = _linear(numbers)
    return {f"{name} on TF-IDF of words": make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), model)}


def _of_sequences(sequences: Sequence[str], numbers: bool) -> Ways:
    """Counts of k-mers; and where all sequences are of one length, which letter stands where."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    name, model = _linear(numbers)
    counts = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 6), sublinear_tf=True)
    ways = {f"{name} on k-mers": make_pipeline(counts, model)}
    if len(set(map(len, sequences))) == 1 and len(sequences[0]) <= FIXED:
        name, model = _linear(numbers, weak=True)  # letters are many, and each of them counts 1
        letters = FunctionTransformer(_letters), OneHotEncoder(handle_unknown="ignore")
        ways[f"{name} on letters"] = make_pipeline(*letters, model)
    return ways


def _letters(sequences: Sequence[str]) -> np.ndarray:
    longest = max(map(len, sequences))
    return np.array([list(x.ljust(longest)) for x in sequences])


def _of_images(images: Sequence[np.ndarray], numbers: bool) -> Ways:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegression(C=0.01, max_iter=100)  # pixels are many, and alike
    return {"logistic regression on pixels": make_pipeline(StandardScaler(), model)}


def _of_series(series: Sequence[np.ndarray], numbers: bool) -> Ways:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    kind = RandomForestRegressor if numbers else RandomForestClassifier
    forest = kind(n_estimators=200, random_state=0)
    return {"a random forest on values, means and spreads": make_pipeline(FunctionTransformer(_summaries), forest)}


def _summaries(series: Sequence[np.ndarray]) -> np.ndarray:
    """Of series [T, C]: values at evenly spaced points, then mean, spread, least and most of each channel, and T."""
    rows = []
    for x in series:
        values = np.nan_to_num(np.asarray(x, np.float64))
        at, known = np.linspace(0, len(values) - 1, POINTS), np.arange(len(values))
        points = [np.interp(at, known, channel) for channel in values.T]
        rows.append([*points, values.mean(0), values.std(0), values.min(0), values.max(0), [len(values)]])
    return np.array([np.concatenate(row) for row in rows])


def _linear(numbers: bool, *, weak: bool = False) -> tuple[str, Any]:
    from sklearn.linear_model import LogisticRegression, Ridge

    if numbers:
        return "ridge regression", Ridge(10.0 if weak else 1.0)
    return "logistic regression", LogisticRegression(C=0.1 if weak else 10, max_iter=300)


KINDS: dict[str, Callable[[Sequence[Any], bool], Ways]] = {
    "texts": _of_texts,
    "sequences": _of_sequences,
    "images": _of_images,
    "series": _of_series,
}

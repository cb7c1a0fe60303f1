"""Predictions of a run, batch by batch. An input that cannot be read has its error, and the others are predicted."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lion.configs import checked
from lion.limits import Batch as BatchSize
from lion.limits import Count
from lion.nn.layers import set_form
from lion.ops.checks import BackendName, Form
from lion.tasks import Input, Prediction, Trained, WrongRun
from lion.train.folder import CONFIG, load_run
from lion.train.inputs import plain


class Guess(NamedTuple):
    label: str
    probability: float


class Result(NamedTuple):
    """Of one input: classes, or a number, or an error."""

    input: Input
    guesses: tuple[Guess, ...] = ()  # the most likely classes, best first
    value: float | None = None
    error: Exception | None = None


def predict(
    folder: Path,
    inputs: Iterable[Any],
    *,
    form: Form = "auto",
    backend: BackendName = "auto",
    best: int = 3,
    batch: int | None = None,
    device: str = "",
) -> Iterator[Result]:
    """A result for each input, in order, while they are read: `inputs` may be endless.

    Args:
        inputs: what the run's task reads: texts, texts with a [MASK], pairs of texts, sequences, or paths.
        form, backend: the algorithm; the result is the same.
        best: the k most likely classes.
        batch: inputs at once, by default as in training.
    """
    trained = load_run(folder, device=device)
    set_form(trained.model, form, backend=backend)
    return predictions(trained, plain(trained, inputs), best=best, batch=batch)


def most_likely(results: Iterable[Result]) -> list[list[Guess]]:
    """The most likely classes of each input, best first; an error among them is raised."""
    found = []
    for result in results:
        if result.error is not None:
            raise result.error
        if result.value is not None:
            raise ValueError(f"{result.input.name} has the value {result.value:.6g}, and no classes.")
        found.append(list(result.guesses))
    return found


def predictions(
    trained: Trained, inputs: Iterable[Input], *, best: int = 3, batch: int | None = None
) -> Iterator[Result]:
    checked(Count, best, "best")
    size = trained.batch if batch is None else checked(BatchSize, batch, "batch")
    left = iter(inputs)
    while part := list(itertools.islice(left, size)):
        examples = [_example(trained, x.given) for x in part]
        outcomes = iter(_outcomes(trained, [x for x in examples if not isinstance(x, Exception)]))
        for given, example in zip(part, examples, strict=True):
            yield _result(trained, given, example if isinstance(example, Exception) else next(outcomes), best)


def predicts_numbers(trained: Trained) -> bool:
    return not trained.known.classes and getattr(trained.task, "numbers", False)


def _example(trained: Trained, given: Any) -> Any:
    """The example, or what is wrong with it."""
    if isinstance(given, Exception):
        return given
    try:
        return trained.task.example(trained, given)
    except WrongRun:
        raise
    except (ValueError, OSError) as problem:
        return problem


def _outcomes(trained: Trained, examples: list[Any]) -> list[Prediction | Exception]:
    """The predictions of a batch; if one of them is refused, each by itself."""
    if not examples:
        return []
    try:
        with torch.no_grad():
            return list(trained.task.predict_batch(trained, examples))
    except WrongRun:
        raise
    except (ValueError, OSError) as problem:
        if len(examples) == 1:
            return [problem]
        return [x for example in examples for x in _outcomes(trained, [example])]


def _result(trained: Trained, given: Input, outcome: Prediction | Exception, best: int) -> Result:
    if isinstance(outcome, Exception):
        return Result(given, error=outcome)
    logits, name = outcome
    classes, number = trained.known.classes, predicts_numbers(trained)
    if number and len(logits) == 1:
        return Result(given, value=float(trained.task.in_units(logits)))
    if (classes or name is None) and len(classes) != len(logits):
        raise WrongRun(
            f"{trained.folder / CONFIG}: to_predict.classes has {len(classes)} names; expected {len(logits)}, as many "
            "as the model has classes."
        )
    top = logits.float().softmax(-1).topk(min(best, len(logits)))
    name = name or classes.__getitem__
    return Result(given, tuple(Guess(name(i), p) for p, i in zip(*(x.tolist() for x in top), strict=True)))

"""Predictions, batch by batch, of a task that is nothing but these."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from lion.tasks import Input, Known, Prediction, Task, Trained, WrongRun
from lion.train.inputs import plain
from lion.train.predictions import Guess, predictions


class Lengths(Task):
    """The class of a text is its length, up to 2."""

    def __init__(self, numbers=False):
        self.numbers, self.batches = numbers, []

    def example(self, trained, given):
        if not given:
            raise ValueError("it is empty")
        return given

    def predict_batch(self, trained, examples):
        self.batches.append(examples)
        if "refused" in examples:
            raise ValueError("it is refused")
        if "wrong" in examples:
            raise WrongRun("nothing can be predicted")
        if self.numbers:
            return [Prediction(torch.tensor([len(x) / 4])) for x in examples]
        return [Prediction(torch.eye(3)[min(len(x), 3) - 1].log()) for x in examples]


class Single(Task):
    """As tasks were before there were batches."""

    def predict(self, trained, given):
        if given == "bad":
            raise ValueError("it is bad")
        return Prediction(torch.tensor([0.0, 1.0]), "ab".__getitem__)


def run(task, classes=("one", "two", "more"), batch=2):
    return Trained(Path("run"), task, nn.Linear(1, 1), Known(classes), batch)


def results(task, given, classes=("one", "two", "more"), **options):
    trained = run(task, classes)
    return list(predictions(trained, plain(trained, given), **options))


def test_batches_and_their_order():
    task = Lengths()
    found = results(task, ["a", "bb", "ccc"], best=1)
    assert [x.guesses for x in found] == [(Guess(name, 1.0),) for name in ("one", "two", "more")]
    assert [x.input.name for x in found] == ["a", "bb", "ccc"]
    assert task.batches == [["a", "bb"], ["ccc"]]
    assert [len(x) for x in (results(task, ["a"])[0].guesses, results(task, ["a"], best=99)[0].guesses)] == [3, 3]


def test_errors_stand_in_their_places():
    task = Lengths()
    given = [Input("1", "a"), Input("2", ""), Input("3", OSError("lost")), Input("4", "refused"), Input("5", "bb")]
    found = results(task, given, batch=5)
    assert [x.guesses[0].label if x.guesses else str(x.error) for x in found] == [
        "one",
        "it is empty",
        "lost",
        "it is refused",
        "two",
    ]
    assert task.batches == [["a", "refused", "bb"], ["a"], ["refused"], ["bb"]]  # then each by itself


def test_nothing_but_errors():
    task = Lengths()
    assert all(x.error for x in results(task, ["", "", ""]))
    assert not task.batches


def test_endless_inputs():
    read = itertools.count()
    trained = run(Lengths())
    found = predictions(trained, plain(trained, ("x" * (n % 3 + 1) for n in read)), batch=4)
    assert len(list(itertools.islice(found, 9))) == 9
    assert next(read) == 12  # three batches, and no more


def test_numbers():
    (found,) = results(Lengths(numbers=True), ["abc"], classes=())
    assert (found.value, found.guesses, found.error) == (0.75, (), None)


def test_runs_that_predict_nothing():
    for task, given in ((Lengths(), "wrong"), (Task(), "x")):
        with pytest.raises(WrongRun):
            results(task, [given])
    for classes in (("one", "two"), ()):
        with pytest.raises(WrongRun, match=f"to_predict.classes has {len(classes)} names; expected 3"):
            results(Lengths(), ["a"], classes=classes)


def test_a_task_that_predicts_one_by_one():
    found = results(Single(), ["good", "bad", "fine"], classes=(), batch=3)
    assert [x.guesses[0].label if x.guesses else str(x.error) for x in found] == ["b", "it is bad", "b"]
    assert Lengths().predict(run(Lengths()), "bb").logits.argmax() == 1  # and one by one from batches


@pytest.mark.parametrize("options", [{"best": 0}, {"batch": 0}])
def test_nonsense(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is 0; expected a whole number from 1"):
        results(Lengths(), ["a"], **options)

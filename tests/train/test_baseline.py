"""The simple models of scikit-learn that a run is compared with."""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")
from lion.cli import main
from lion.tasks._labelled import LabelledTask, Plain
from lion.train import baseline as module
from lion.train import beside
from lion.train.baseline import baseline

DRAWS = np.random.default_rng(0)


class Task(LabelledTask):
    def __init__(self, plain, numbers=False):
        self.given, self.numbers = plain, numbers

    def plain(self):
        return self.given


def halves(kind, inputs, labels):
    """Odd examples to learn from, even ones to be asked about."""
    return Plain(kind, (inputs[1::2], labels[1::2]), (inputs[::2], labels[::2]))


LABELS = np.arange(200) // 2 % 2


def texts():
    return [f"{DRAWS.choice(['dull', 'poor'] if x else ['great', 'fine'])} film {n % 7}" for n, x in enumerate(LABELS)]


def sequences(lengths):
    return [
        "".join(DRAWS.choice(list("ACGT"), n)) + ("TTTT" if x else "GCGC") for n, x in zip(lengths, LABELS, strict=True)
    ]


INPUTS = {
    "texts": ("texts", texts()),
    "sequences": ("sequences", sequences(DRAWS.integers(5, 30, 200))),
    "sequences of one length": ("sequences", sequences(np.full(200, 20))),
    "images": ("images", DRAWS.normal(size=(200, 48)) + LABELS[:, None]),
    "series": ("series", [DRAWS.normal(size=(DRAWS.integers(3, 20), 2)) + 3 * x for x in LABELS]),
}


@pytest.mark.parametrize("name", INPUTS)
def test_classes(name):
    kind, inputs = INPUTS[name]
    found = baseline(Task(halves(kind, inputs, LABELS)))
    assert found.metrics["accuracy"] > 0.9
    assert found.score == found.metrics[found.metric]
    assert found.examples == 100


@pytest.mark.parametrize("name", ["texts", "sequences", "series"])
def test_numbers(name):
    kind, inputs = INPUTS[name]
    found = baseline(Task(halves(kind, inputs, LABELS + 0.5), numbers=True))
    assert found.metric == "spearman"
    assert found.score > 0.7


def test_series_with_gaps():
    series = [x.copy() for x in INPUTS["series"][1]]
    for x in series:
        x[0] = np.nan
    assert baseline(Task(halves("series", series, LABELS))).score > 0.9


def test_of_many_examples_it_takes_some(monkeypatch):
    monkeypatch.setattr(module, "SIMPLE", 60)
    kind, inputs = INPUTS["images"]
    assert baseline(Task(halves(kind, inputs, LABELS))).examples == 60


def test_none_for_public_sets_or_without_scikit_learn(monkeypatch):
    assert baseline(Task(None)) is None

    def lacks(*_):
        raise ImportError

    monkeypatch.setattr(module, "need", lacks)
    assert baseline(Task(halves(*INPUTS["texts"], LABELS))) is None


TINY = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--batch", "8", "--steps", "2"]


def write_series(path):
    rows = [[*DRAWS.normal(size=6) + 3 * (n % 2), "ab"[n % 2]] for n in range(40)]
    path.write_text("\n".join([",".join("uvwxyz") + ",label", *(",".join(map(str, row)) for row in rows)]))
    return ["train", "series", "--data", str(path), *TINY]


def test_a_run_ends_with_both_scores(tmp_path, capsys):
    command = write_series(tmp_path / "x.csv")
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "baseline a random forest on values, means and spreads: accuracy 100.0% in 1 s" in said
    assert "a random forest on values, means and spreads reaches 100.0%" in said
    found = json.loads((tmp_path / "run" / "baseline.json").read_text())
    assert found["score"] == found["metrics"]["accuracy"] == 1
    assert main([*command, "--out", str(tmp_path / "other"), "--baseline", "false"]) == 0
    assert "random forest" not in capsys.readouterr().out
    assert not (tmp_path / "other" / "baseline.json").exists()


def test_a_baseline_that_fails_stops_nothing(tmp_path, capsys, monkeypatch):
    def fail(task):
        raise RuntimeError("no forest")

    monkeypatch.setattr(beside, "baseline", fail)
    assert main([*write_series(tmp_path / "x.csv"), "--out", str(tmp_path / "run")]) == 0
    assert "the simple model could not be fitted (RuntimeError('no forest'))" in capsys.readouterr().out
    assert (tmp_path / "run" / "model").exists()

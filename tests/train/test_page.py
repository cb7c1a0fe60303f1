"""The page of a run: what it says of classes and of numbers, and that it never costs a run."""

import base64
import dataclasses
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from lion.cli import main
from lion.pages.charts import matrix, sparkline
from lion.pages.run import PAGE, write_page
from lion.tasks import Shown, Task
from lion.train import beside
from lion.train.evaluate import Examined, answers
from lion.train.loop import train
from lion.train.sampler import eval_parts
from tests import SEED
from tests.bench.test_report import Words
from tests.tasks.texts import shrunk
from tests.train.runs import as_options, small

ODD = '<script>alert("x")</script> & co'
BASELINE = {"name": "logistic regression on pixels", "metric": "accuracy", "score": 0.5, "seconds": 3.1}


class Stub(Task):
    """A task that shows its examples as it is told."""

    kind, unit, usage, data = "stub", "text", "lion predict {run} 'a text'", "mine.csv"

    def __init__(self, shown, metric="accuracy"):
        self.shown, self.metric = shown, metric


def finished(folder, classes, predicted, right, shown=lambda index, examples: None, **changes):
    """A run with these predictions; that of example i is the one with the probability i / 1000."""
    folder.mkdir(exist_ok=True)
    names = {"recipe": "text", "command": "lion train text --data mine.csv"}
    run = {**names, "run": small(epochs="3", steps="0").to_json(), "to_predict": {"classes": list(classes)}}
    (folder / "run.json").write_text(json.dumps(run))
    rows = [{"step": i, "kind": "train", "loss": 2 / i, "seconds": 1.6 * i} for i in range(1, 31)]
    rows += [{"step": i, "kind": "eval", "loss": 2 / i, "accuracy": i / 40} for i in (10, 20, 30)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    right, predicted = torch.tensor(right), torch.tensor(predicted)
    kept = {"predicted": predicted, "right": right}
    if classes:
        kept["probability"] = torch.arange(len(right)) / 1000
        metrics = {"loss": 0.1, "accuracy": float((predicted == right).double().mean()), "macro_f1": 0.4321}
        task = Stub(shown)
    else:
        metrics, task = {"loss": 0.1, "spearman": 0.7654}, Stub(shown, "spearman")
    model = torch.nn.Linear(3, 4)
    return Examined(folder, task, classes, model, metrics, None, kept)._replace(**changes)


def page(run):
    markup = write_page(run).read_text(encoding="utf-8")
    assert len(markup) < 2e6
    words = Words.of(markup)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in words.links)
    assert len(set(words.ids)) == len(words.ids)
    return markup, words


def two_hundred(folder, **more):
    """Of 100 dogs 80 are found, of 100 cats 60; 5 are birds in the eyes of the model."""
    right = [0] * 100 + [1] * 100
    predicted = [0] * 80 + [1] * 20 + [1] * 60 + [0] * 35 + [2] * 5
    return finished(folder, ("dog", "cat", "bird"), predicted, right, **more)


def test_classes(tmp_path):
    markup, words = page(two_hundred(tmp_path))
    assert "70.0% of 200 texts are classified correctly." in words
    assert "The recipe 'text', on mine.csv. Trained on" in words
    assert "140 of 200 right" in words
    assert "by always saying the same50.0%'dog', the most frequent class" in words
    rows = [re.sub("<[^>]*>", " ", row).split() for row in re.findall("<tr>.*?</tr>", markup)]
    assert ["dog", "100", "69.6%", "80.0%", "74.4%"] in rows  # 80 of 115, 80 of 100
    assert ["cat", "100", "75.0%", "60.0%", "66.7%"] in rows
    assert ["bird", "0", "0.0%", "-", "0.0%"] in rows
    assert "The mean F1 over all is 43.2%." in words
    assert "<title>cat, predicted dog: 35</title>" in markup
    assert "60 of 200 texts are misclassified." in words
    # The most confident ones are the last, by their probability.
    assert "example 199predicted: bird (19.9%) true: cat" in words
    assert markup.count('class="verdict"') == 12
    assert "parameters16Linear" in words
    assert "lion train text --data mine.csvmade this run" in words
    assert f"lion predict {tmp_path} 'a text'use the model" in words
    assert "training time48s30 steps of 32 texts" in words
    assert "still falling at the end: train longer, --epochs 6." in words
    assert "1 of 3 classes have fewer than 10 examples in the eval set" in words
    assert "docs/start.md" in words
    assert "What was read" not in words
    assert "worth it" not in words


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (0.5, "It was worth it: logistic regression on pixels reaches 50.0% in 3 s, this model 70.0%."),
        (0.68, "It made little difference: logistic regression on pixels reaches 68.0% in 3 s, this model 70.0%."),
        (0.72, "chance explains with 200 examples. The simple model is enough."),
        (0.9, "It was not worth it yet: logistic regression on pixels reaches 90.0% in 3 s, this model 70.0%."),
    ],
)
def test_beside_the_baseline(tmp_path, score, said):
    run = two_hundred(tmp_path)
    (tmp_path / "baseline.json").write_text(json.dumps(BASELINE | {"score": score}))
    (tmp_path / "data.json").write_text(json.dumps({"read": "1,000 texts", "<i>": ODD}))
    markup, words = page(run)
    assert said in words
    assert f"{abs(70 - 100 * score):.1f} points {'above' if score < 0.7 else 'below'} logistic regression" in words
    assert f"accuracy of logistic regression on pixels{score:.1%}trained in 3 s" in words
    assert "What was read" in words
    assert "1,000 texts" in words
    assert ODD in words
    assert "<i>" not in markup
    (tmp_path / "baseline.json").write_text(json.dumps(BASELINE | {"score": 0.6999}))
    assert "are classified correctly, as many as by logistic regression on pixels." in page(run)[1]
    # It says nothing of another eval set.
    _, words = page(run._replace(test="other.csv"))
    assert "logistic" not in words
    assert "tested on other.csv" in words


def test_everything_is_escaped(tmp_path):
    texts = {i: Shown("text", f"{ODD} {i}", ODD) for i in range(20)}
    run = finished(tmp_path, (ODD, "<img src=x>"), [0, 1] * 10, [1, 0] * 10, texts.get)
    markup, words = page(run)
    assert "<script" not in markup
    assert "<img" not in markup
    assert f"{ODD} 19" in words
    assert "predicted: <img src=x>" in words
    assert f"predicted: {ODD}" in words


def test_many_classes(tmp_path):
    names = [f"class {i}" for i in range(700)]
    right = np.arange(3500) % 700
    predicted = np.where(np.arange(3500) < 7, 5, right)
    markup, words = page(finished(tmp_path, names, predicted.tolist(), right.tolist()))
    assert "confusion matrix of all 700 classes" in words
    assert "The pairs that are confused most." in words
    assert "class 3 predicted as class 51" in words
    assert 'class="cell"' not in markup
    assert 'width="700" height="700"' in markup
    assert "The 500 worst of 700 classes, worst first." in words
    # Thousands are listed only.
    names = [f"class {i}" for i in range(5000)]
    _, words = page(finished(tmp_path, names, [4999, 3], [3, 3]))
    assert "class 3 predicted as class 49991" in words
    assert "confusion matrix" not in words


def test_no_mistake(tmp_path):
    _, words = page(finished(tmp_path, ("a", "b"), [0, 1, 1], [0, 1, 1]))
    assert "There are none: all 3 texts of the eval set are classified correctly." in words


def test_numbers(tmp_path):
    right = [float(i) for i in range(3000)]
    predicted = [x + 2.0 for x in right[:-1]] + [-1.5]
    markup, words = page(finished(tmp_path, (), predicted, right, lambda i, _: Shown("text", f"the text {i}")))
    assert "Rank correlation 0.77 on 3,000 texts." in words
    assert "mean absolute error2.999" in words
    assert "mean absolute error of always saying the mean750" in words
    assert "correlation (Pearson's)0.998" in words
    assert "explained share of the variance0.996" in words
    assert "the text 2999predicted: -1.5 true: 2999" in words
    assert markup.count('class="speck"') == 1500
    assert markup.count('class="bar"') == 25
    assert "Worst misses" in words
    (tmp_path / "baseline.json").write_text(json.dumps({"name": "ridge", "metric": "spearman", "score": 0.9}))
    _, words = page(finished(tmp_path, (), predicted, right))
    assert "Rank correlation 0.77 on 3,000 texts, against 0.90 of ridge." in words
    assert "It was not worth it yet: ridge reaches 0.90, this model 0.77." in words


def test_numbers_that_are_all_the_same(tmp_path):
    _, words = page(finished(tmp_path, (), [1.0, 1.0], [1.0, 1.0]))
    assert "explained share of the variance-" in words


def test_a_model_that_learns_by_heart(tmp_path):
    run = two_hundred(tmp_path)
    rows = [{"step": i, "kind": "eval", "loss": x, "accuracy": 0.5} for i, x in ((10, 0.5), (20, 0.7), (30, 0.9))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, words = page(run)
    assert "was lowest at step 10 of 30 and has risen since: the model learns its examples by heart" in words
    assert "training time" not in words
    (tmp_path / "metrics.jsonl").unlink()
    page(run)


def test_examples_of_all_kinds(tmp_path):
    photo = np.random.default_rng(SEED).integers(0, 256, (120, 480, 3), np.uint8)
    wave = np.stack([np.sin(np.arange(5000) / 50), np.arange(5000)], 1)
    wave[40:80, 0] = np.nan
    for shown, found in (
        (Shown("image", photo, "a/b c.png"), 'width="96" height="24"'),
        (Shown("image", photo[:8, :8]), 'class="pixels"'),
        (Shown("text", "word " * 500), "word word…</blockquote>"),
        (Shown("text", "ACGT" * 500), "ACG… (2,000)</blockquote>"),
        (Shown("series", wave), 'class="line thin"'),
    ):
        markup, words = page(finished(tmp_path, ("a", "b"), [0, 1], [1, 1], lambda index, examples, shown=shown: shown))
        assert found in markup
        assert not shown.name or shown.name in words
    assert sparkline(wave).count("M") == 3  # two lines, one of them in two parts
    assert sparkline(np.full((9, 1), np.nan)).count("<path") == 0
    assert len(sparkline(np.zeros(100_000))) < 5000


def test_the_matrix_has_a_cell_for_every_pair():
    drawn = matrix(np.array([[3, 1], [0, 4]]), ["a", "b" * 40])
    assert drawn.count("<rect") == 4
    assert drawn.count('class="cell"') == 3
    assert "b" * 40 + ", predicted a: 0" in drawn


def test_answers_of_several_processes_come_in_order():
    for lengths in (None, np.array([3, 1, 9, 9, 2, 5, 1])):
        parts = eval_parts(7, 3, lengths)
        met = torch.from_numpy(np.concatenate(parts))
        assert answers({"loss": 0.5, "right": met}, parts)["right"].tolist() == list(range(7))
    assert answers({"loss": 0.5}, parts) == {}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A run on a folder of pictures; one of its classes has a name that could do harm."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(SEED)
    for label, brightness in (("dark", 90), ("<b>light", 130)):
        (folder / "mine" / label).mkdir(parents=True)
        for n in range(20):
            pixels = random.normal(brightness, 60, (24, 30, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "mine" / label / f"{n}.png")
    options = ["--image_size", "16", "--batch", "8", *as_options(steps="3")]
    assert main(["train", "images", "--data", str(folder / "mine"), "--out", str(folder / "run"), *options]) == 0
    return folder / "run"


def test_after_training_on_pictures(pictures, capsys):
    markup = (pictures / PAGE).read_text()
    words = Words.of(markup)
    wrong = int(re.search(r"(\d+) of 8 images are misclassified", markup)[1])
    thumbnails = re.findall(r'<div class="pixels"><img src="data:image/png;base64,([\w+/=]+)"', markup)
    assert len(thumbnails) == wrong
    assert Image.open(io.BytesIO(base64.b64decode(thumbnails[0]))).size == (16, 16)
    assert f"{pictures.parent / 'mine' / 'dark'}/" in words or f"{pictures.parent / 'mine' / '<b>light'}/" in words
    assert "<b>" not in markup
    assert f"lion train images --data {pictures.parent / 'mine'}" in words
    assert "processor" in words

    before = re.sub("Trained on .*?\\.", "", markup)
    assert main(["report", str(pictures), "--batch", "3"]) == 0
    assert capsys.readouterr().out == f"page: {pictures / PAGE}\n"
    assert re.sub("Trained on .*?\\.", "", (pictures / PAGE).read_text()) == before
    assert main(["report", str(pictures), "--out", str(pictures / "new" / "other.html")]) == 0
    assert (pictures / "new" / "other.html").exists()


def test_the_name_of_the_page_is_printed(tmp_path, capsys):
    assert main(["train", "digits.lion_s", "--out", str(tmp_path / "run"), *as_options(steps="2")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"see how it went: {tmp_path / 'run' / PAGE}"
    # The command that began the run stays when it is resumed.
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--steps", "3"]) == 0
    assert "--resume" not in (tmp_path / "run" / PAGE).read_text()
    assert "lion train digits.lion_s" in (tmp_path / "run" / PAGE).read_text()


def test_a_page_that_fails_loses_nothing(tmp_path, capsys, monkeypatch):
    def fail(run):
        raise RuntimeError("no pencil")

    monkeypatch.setattr(beside, "write_page", fail)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / PAGE).write_text("of a run before")
    assert main(["train", "digits.lion_s", "--out", str(tmp_path / "run"), *as_options(steps="2")]) == 0
    said = capsys.readouterr().out
    assert (
        f"report.html could not be written; once more: lion report {tmp_path / 'run'} (RuntimeError('no pencil'))"
        in said
    )
    assert "see how it went" not in said
    assert (tmp_path / "run" / "model").exists()
    assert (tmp_path / "run" / "result.json").exists()
    monkeypatch.undo()
    (tmp_path / "run" / "baseline.json").write_text("{")
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "baseline.json is damaged" in capsys.readouterr().err


def test_no_page_without_labels(tmp_path, data, texts, capsys):
    run = shrunk("mlm", data=f"{texts}/*.txt", tokenizer="bytes")
    train(dataclasses.replace(run, epochs=0.0, steps=1), tmp_path / "run")
    assert not (tmp_path / "run" / PAGE).exists()
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "has no labels to compare with; expected a run on labelled data." in capsys.readouterr().err

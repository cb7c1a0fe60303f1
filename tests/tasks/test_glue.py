"""GLUE: what each task is measured by, and what a model goes on from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion.cli import main
from lion.data.glue import GLUE
from lion.models.saving import load_model
from lion.tasks.text_classification import TEXT_SETS, TextClassificationTask
from lion.train.evaluate import examine
from lion.train.loop import train
from lion.train.report import read_metrics
from tests.tasks.texts import shrunk, write_glue

pytestmark = pytest.mark.usefixtures("data")
METRICS = {
    "cola": ["matthews", "accuracy"],
    "mrpc": ["f1", "accuracy"],
    "qqp": ["f1", "accuracy"],
    "stsb": ["spearman", "pearson", "rmse"],
    "mnli": ["accuracy"],
    "qnli": ["accuracy"],
    "rte": ["accuracy"],
    "sst2": ["accuracy"],
}


def glue_run(name, folder, **task):
    run = shrunk(f"glue.m2_base_{name}", data=write_glue(folder, name), **task)
    return replace(run, steps=2, epochs=0, batch=4, log_every=1)


def test_every_set_has_its_metrics():
    assert METRICS.keys() == GLUE.keys()
    assert METRICS.keys() | {"file", "imdb"} == TEXT_SETS.keys()
    assert TextClassificationTask().metrics == ("accuracy", "macro_f1")
    assert TextClassificationTask(numbers=True).metric == "spearman"
    assert TextClassificationTask(dataset="imdb").metrics == ("accuracy",)


@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb", "rte"])
def test_metrics(name, tmp_path):
    run = glue_run(name, tmp_path)
    metrics = train(run, tmp_path / "run")
    assert list(metrics) == ["loss", *METRICS[name]]
    assert run.task.metric == METRICS[name][0]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == {"step": 2, **metrics}
    assert metrics.items() <= read_metrics(tmp_path / "run" / "metrics.jsonl")[-1].items()
    for batch in (3, 64):  # however they are cut
        assert examine(tmp_path / "run", batch=batch).metrics == pytest.approx(metrics, rel=1e-3, abs=1e-6)


def test_mnli_first(tmp_path):
    """Tasks with other labels go on from a model of MNLI: its encoder, and a classifier of their own."""
    train(glue_run("mnli", tmp_path), tmp_path / "mnli")
    old = load_model(tmp_path / "mnli" / "model")
    for name, labels in {"rte": 2, "mrpc": 2, "stsb": 1}.items():
        run = glue_run(name, tmp_path, start=str(tmp_path / "mnli"))
        task = run.task.resolved()
        new = task.make_model()
        assert new.classifier.weight.shape == (labels, 16)
        assert new.classifier.weight.std() < 0.1
        assert not new.classifier.bias.any()
        assert new.config.problem_type == ("regression" if name == "stsb" else "single_label_classification")
        for parameter, x in old.lion.named_parameters():
            assert torch.equal(new.lion.get_parameter(parameter), x)
        metrics = train(run, tmp_path / f"{name} run")
        assert examine(tmp_path / f"{name} run").metrics[task.metric] == pytest.approx(metrics[task.metric])


def test_the_same_classes_keep_their_classifier(tmp_path):
    train(glue_run("qnli", tmp_path), tmp_path / "qnli")
    old = load_model(tmp_path / "qnli" / "model").classifier.weight
    same = glue_run("rte", tmp_path, start=str(tmp_path / "qnli")).task.resolved().make_model()
    assert torch.equal(same.classifier.weight, old)
    others = glue_run("mrpc", tmp_path, start=str(tmp_path / "qnli")).task.resolved().make_model()
    assert others.classifier.weight.shape == old.shape
    assert not torch.equal(others.classifier.weight, old)


def test_matched_and_mismatched(tmp_path, capsys):
    run = glue_run("mnli", tmp_path)
    path = Path(run.task.data) / "dev_mismatched.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4]) + "\n")  # so that they are told apart by their number
    metrics = train(run, tmp_path / "run")
    assert len(run.task.eval_set()) == 8
    assert len(replace(run.task, test="mismatched").eval_set()) == 3
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run")]) == 0
    assert f"accuracy {metrics['accuracy']:.4g}" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run"), "--test", "mismatched"]) == 0
    (accuracy,) = capsys.readouterr().out.strip().split("accuracy ")[1:]
    assert float(accuracy) * 3 == pytest.approx(round(float(accuracy) * 3), abs=1e-2)


def test_a_file_of_ones_own_to_test_on(texts, tmp_path, capsys):
    """By the classes of training; neither the training data nor the model it began with are needed any more."""
    shutil.copy(texts / "reviews.csv", tmp_path / "reviews.csv")
    run = replace(shrunk("mlm", data=str(texts / "*.txt")), steps=1, epochs=0)
    train(run, tmp_path / "mlm")
    run = shrunk("text", data=str(tmp_path / "reviews.csv"), start=str(tmp_path / "mlm"), skip_bad=True)
    metrics = train(replace(run, steps=2, epochs=0), tmp_path / "run")
    assert list(metrics) == ["loss", "accuracy", "macro_f1"]
    (tmp_path / "reviews.csv").unlink()
    shutil.rmtree(tmp_path / "mlm")
    other = tmp_path / "other.csv"
    other.write_text("review,sentiment\na lovely film,pos\n")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--test", str(other)]) == 0
    assert "macro_f1" in capsys.readouterr().out
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("review,sentiment\na lovely film,fine\n")
    assert main(["eval", str(tmp_path / "run"), "--test", str(wrong)]) == 1
    # Bad rows count unless they are asked to be left out here, though the run left out its own.
    assert f"{wrong}, line 2 has 'fine' in 'sentiment'; expected one of 'neg', 'pos'." in capsys.readouterr().err
    wrong.write_text("review,sentiment\na lovely film,fine\na lovely film,pos\n")
    assert main(["eval", str(tmp_path / "run"), "--test", str(wrong), "--skip-bad"]) == 0
    assert "evaluated 1 text\n" in capsys.readouterr().err
    others = ["--text-column", "words", "--label_column", "kind"]
    wrong.write_text("n,words,kind\n1,a lovely film,pos\n2,dull,neg\n")
    assert main(["eval", str(tmp_path / "run"), "--test", str(wrong), *others]) == 0
    assert "evaluated 2 texts\n" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "run"), "--test", str(wrong), "--id_column", "n"]) == 1
    assert "is 'id_column'; expected one of 'text_column', 'label_column'" in capsys.readouterr().err
    for option in (["--skip-bad"], others[:2]):
        assert main(["eval", str(tmp_path / "run"), *option]) == 1
        said = f"{option[0].replace('-c', '_c')} is given without --test; expected both"
        assert said in capsys.readouterr().err


def test_numbers_to_test_on(tmp_path):
    """They are numbers, too, where all of them are whole."""
    path, test = tmp_path / "scores.csv", tmp_path / "test.csv"
    path.write_text("text,score\n" + "".join(f"{'great ' * n}film,{n / 4}\n" for n in range(1, 20)))
    test.write_text("text,score\ngreat film,4\nfilm,0\n")
    task = shrunk("text", data=str(path), test=str(test)).task.resolved()
    assert task.numbers
    assert task.eval_set().labels.tolist() == [4.0, 0.0]
    assert len(task.train_set(0)) == 19

"""lion train, eval and predict, as a person uses them."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from lion.cli import main
from tests import SEED
from tests.train.runs import as_options


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    assert main(["train", "digits.lion_s", "--out", str(folder), *as_options(steps="40")]) == 0
    return folder


def test_forms_predict_the_same(finished, capsys):
    found = set()
    for form in ("auto", "full", "rnn", "chunk", "scan"):
        assert main(["eval", str(finished), "--form", form]) == 0
        found.add(capsys.readouterr().out)
    assert len(found) == 1
    result = json.loads((finished / "result.json").read_text())
    assert f"accuracy {result['accuracy']:.4g}" in found.pop()


def test_predict(finished, capsys, tmp_path):
    from sklearn.datasets import load_digits

    paths = []
    for n in range(2):
        pixels = (load_digits().images[n] / 16 * 255).astype(np.uint8)
        paths.append(str(tmp_path / f"digit{n}.png"))
        Image.fromarray(pixels).save(paths[-1])
    assert main(["predict", str(finished), *paths, "--best", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 2
    assert "digit0.png" in lines[2]
    assert lines[2].rstrip().endswith("%")


def test_a_folder_of_images_needs_nothing_else(tmp_path, capsys):
    random = np.random.default_rng(SEED)
    for label, brightness in (("dark", 60), ("light", 200)):
        (tmp_path / "mine" / label).mkdir(parents=True)
        for n in range(20):
            pixels = random.normal(brightness, 20, (24 + n, 30, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / label / f"{n}.png")
    folder = tmp_path / "run"
    options = ["--epochs", "8", "--batch", "16", "--image_size", "32", "--model.depth", "1", "--model.dim", "24"]
    assert main(["train", "images", "--data", str(tmp_path / "mine"), "--out", str(folder), *options]) == 0
    assert json.loads((folder / "result.json").read_text())["accuracy"] == 1
    picture = tmp_path / "mine" / "light" / "3.png"
    capsys.readouterr()
    assert main(["predict", str(folder), str(picture)]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[1] == "light"
    evaluate_elsewhere(folder, tmp_path, capsys)


def evaluate_elsewhere(folder, tmp_path, capsys):
    """On other images than the run's own, which are not needed then."""
    (tmp_path / "mine").rename(tmp_path / "moved")
    assert main(["eval", str(folder), "--test", str(tmp_path / "moved"), "--batch", "7"]) == 0
    assert "accuracy 1" in capsys.readouterr().out
    (tmp_path / "moved" / "dark").rename(tmp_path / "dark")
    assert main(["eval", str(folder), "--test", str(tmp_path / "moved")]) == 0  # not all classes have to be there
    (tmp_path / "dark").rename(tmp_path / "moved" / "grey")
    for path, said in {
        "moved": "moved/grey is a class without training images; expected one of dark, light.",
        "none": "none is not a folder; expected one with a subfolder per class.",
        "moved/light": "light has no images; expected a subfolder per class",
    }.items():
        assert main(["eval", str(folder), "--test", str(tmp_path / path)]) == 1
        assert said in capsys.readouterr().err


def test_listing_and_showing(capsys):
    assert main(["train", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "digits.{" in listed
    assert "lion train images --data PATH" in listed
    assert main(["train", "digits.lion_s", "--optim.lr", "0.5", "--model.depth=2", "--show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["optim"]["lr"] == 0.5
    assert shown["task"]["model"]["depth"] == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train", "there is no RECIPE; `lion train --list` has them all"),
        ("train digit.lion_s", "recipe is 'digit.lion_s'; expected one of"),
        ("train digits.lion_s --optim.lr", "--optim.lr has no value; expected --optim.lr VALUE."),
        ("train digits.lion_s stray", "'stray' is neither an option nor its value; expected --field value."),
        ("train images --data {tmp}/none --out {tmp}/run", "{tmp}/none"),
        ("train --resume --out {tmp}/none", "there is no run in {tmp}/none to resume."),
        ("eval {tmp}", "there is no run in {tmp}; expected a folder that `lion train` has made."),
        ("predict {tmp} a.png", "there is no run in {tmp}"),
    ],
)
def test_mistakes(command, message, tmp_path, capsys):
    assert main(command.format(tmp=tmp_path).split()) == 1
    assert message.format(tmp=tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_picture_that_is_none(finished, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert main(["predict", str(finished), str(tmp_path / "broken.png")]) == 1
    assert "broken.png" in capsys.readouterr().err


def test_a_run_without_a_checkpoint_is_not_evaluated(finished, tmp_path, capsys):
    (tmp_path / "run.json").write_text((finished / "run.json").read_text())
    assert main(["eval", str(tmp_path)]) == 1
    said = f"the run in {tmp_path} is not finished, and has no checkpoint yet: lion train --resume --out {tmp_path}"
    assert said in capsys.readouterr().err


@pytest.fixture
def stopped(finished, tmp_path):
    """As a run that was stopped after step 36 of 40."""
    folder = tmp_path / "stopped"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "checkpoints" / "step-00000040")
    return folder


def test_a_stopped_run_is_used_from_its_last_checkpoint(stopped, capsys, caplog):
    assert main(["eval", str(stopped)]) == 0
    said = f"the run in {stopped} is not finished: step 36 of 40, from its last checkpoint"
    assert caplog.text.count(said) == 1
    run = json.loads((stopped / "run.json").read_text())
    run["run"] |= {"steps": 0, "epochs": 1.0, "batch": 32}  # 1,438 examples
    (stopped / "run.json").write_text(json.dumps(run))
    capsys.readouterr()
    assert main(["eval", str(stopped)]) == 0
    assert "step 36 of 45, from" in caplog.text
    again = capsys.readouterr().out
    row = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    (loss,) = (x["loss"] for x in row if x["kind"] == "eval" and x["step"] == 36)
    assert f"loss {loss:.4g}," in again


def test_checkpoints_that_cannot_be_used(stopped, capsys):
    run = json.loads((stopped / "run.json").read_text())
    run["run"]["task"]["model"]["dim"] = 32
    (stopped / "run.json").write_text(json.dumps(run))
    assert main(["eval", str(stopped)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "step-00000036 is of another model than its run" in line
    (stopped / "checkpoints" / "step-00000036" / "model.safetensors").write_bytes(b"x")
    assert main(["eval", str(stopped)]) == 1
    assert "step-00000036 cannot be used" in capsys.readouterr().err

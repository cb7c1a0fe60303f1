"""lion train, eval and predict, as a person uses them."""

import json
import re
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
    assert re.search(r"digits\.\* +38  1,797 handwritten digits", listed)
    own, others = listed.split("For public data")
    for name in ("images", "text", "dna.classify", "dna", "mlm", "causal", "distill.text"):
        assert re.search(rf"^  {name} +\w", own, re.MULTILINE), name
    assert "lion train images --data FOLDER\n" in own
    assert "--data" not in re.sub(r"glue\.\*(.|\n)*?FOLDER", "", others)
    assert max(map(len, listed.splitlines())) <= 80
    options = ["digits.lion_s", "--optim.lr", "0.5", "--model.depth=2", "--recompute", "--show"]
    assert main(["train", *options, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["optim"]["lr"] == 0.5
    assert shown["task"]["model"]["depth"] == 2
    assert shown["recompute"] is True
    assert main(["train", *options]) == 0
    table = capsys.readouterr().out
    assert re.search(r"--optim\.lr +0\.5 +the largest learning rate", table)
    assert re.search(r"--recompute +true ", table)
    assert "--image_size" in table
    assert "model.image_size" not in table
    assert max(map(len, table.splitlines())) <= 80
    assert main(["train", *options[:-1], "--help"]) == 0
    helped = capsys.readouterr().out
    assert helped.startswith("usage: lion train")
    assert helped.endswith(table)


@pytest.mark.parametrize("family", ["digits", "digits.", "digits.*"])
def test_the_members_of_a_family(family, capsys):
    assert main(["train", "--list", family]) == 0
    listed = capsys.readouterr().out
    assert {"digits.lion_s", "digits.lion_s_2scan"} <= set(listed.split())
    assert "mnist" not in listed
    assert main(["train", family, "--list"]) == 0
    assert capsys.readouterr().out == listed


def test_help_without_a_recipe(capsys):
    assert main(["train", "-h"]) == 0
    assert "`lion train RECIPE --help` has them all." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train", "there is no RECIPE; `lion train --list` has them all"),
        ("train digit.lion_s", "recipe is 'digit.lion_s'; did you mean 'digits.lion_s'? `lion train --list` has them"),
        ("train img", "recipe is 'img'; did you mean 'images'?"),
        ("train --list digit", "--list is 'digit'; did you mean 'digits'?"),
        ("train images --epoch 1", "'--epoch' is no field of this run; did you mean --epochs?"),
        ("train images --out {tmp}/run", "as pets/cat/1.jpg and pets/dog/2.jpg: lion train images --data pets"),
        ("train text --out {tmp}/run", "a column `label`, a row for each text: lion train text --data reviews.csv"),
        ("train dna.classify --out {tmp}/run", "lion train dna.classify --data genes.csv"),
        ("train digits.lion_s --optim.lr", "--optim.lr has no value; expected --optim.lr VALUE."),
        ("train digits.lion_s stray", "'stray' is neither an option nor its value; expected --field value."),
        ("train images --data {tmp}/none --out {tmp}/run", "{tmp}/none"),
        ("train --resume --out {tmp}/none", "there is no run in {tmp}/none to resume."),
        ("eval {tmp}", "there is no run in {tmp}; expected a folder that `lion train` has made."),
        ("predict {tmp} a.png", "there is no run in {tmp}"),
    ],
)
def test_mistakes(command, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
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

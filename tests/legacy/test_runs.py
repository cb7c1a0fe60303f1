"""Runs that lion 0.1.0 has written, in runs/: they are evaluated, used and resumed. expected.json has its numbers."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion.cli import main

HOME = Path(__file__).parent
EXPECTED = json.loads((HOME / "expected.json").read_text())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A copy of the runs and their data, as the current directory: their paths are relative."""
    for name in ("data", "runs"):
        shutil.copytree(HOME / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LION_DATA", str(tmp_path / "cache"))
    return tmp_path


def numbers(line):
    """ "loss 0.5, cosine of tokens 0.9" -> {"loss": 0.5, ...}"""
    return {name: float(x) for name, _, x in (part.rpartition(" ") for part in line.split(", "))}


def test_every_run_is_tested():
    assert {path.name for path in (HOME / "runs").iterdir()} == set(EXPECTED)


def assert_same(found, wanted):
    """The metrics that there were before; there may be new ones beside them."""
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("kind", EXPECTED)
def test_eval(kind, home, capsys):
    assert main(["eval", f"runs/{kind}"]) == 0
    assert_same(numbers(capsys.readouterr().out.strip()), EXPECTED[kind]["eval"])


@pytest.mark.parametrize("kind", EXPECTED)
def test_eval_of_the_last_checkpoint(kind, home, capsys, caplog):
    """As of a run that was stopped. That of the images has the average of the weights, too."""
    shutil.rmtree(home / "runs" / kind / "model")
    assert main(["eval", f"runs/{kind}"]) == 0
    assert_same(numbers(capsys.readouterr().out.strip()), EXPECTED[kind]["eval"])
    assert f"the run in runs/{kind} is not finished: step 4 of 4, from its last checkpoint" in caplog.text


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("kind", [kind for kind, x in EXPECTED.items() if "predict" in x])
def test_predict(kind, stopped, home, capsys):
    if stopped:
        shutil.rmtree(home / "runs" / kind / "model")
    wanted = EXPECTED[kind]["predict"]
    assert main(["predict", f"runs/{kind}", *wanted]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    guesses = [(label, chance) for best in wanted.values() for label, chance in best.items()]
    for row, (label, chance) in zip(rows, guesses, strict=True):
        assert label in row
        assert float(row.split()[-1].removesuffix("%")) / 100 == pytest.approx(chance, abs=1e-3)


@pytest.mark.parametrize("stopped", [False, True])
def test_generate(stopped, home, capsys):
    if stopped:
        shutil.rmtree(home / "runs" / "causal" / "model")
    assert main(["generate", "runs/causal", "--prompt", "the film", "--tokens", "8", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.strip() == EXPECTED["causal"]["generate"]


@pytest.mark.parametrize("kind", EXPECTED)
def test_resume(kind, home, capsys):
    """From the checkpoint of step 4, with the optimizer and the order of the data as they were."""
    assert main(["train", "--resume", "--out", f"runs/{kind}", "--steps", "7"]) == 0
    out = capsys.readouterr().out
    assert "going on from step 4 of 7" in out
    assert out.count("changed:") == 1  # the steps, and no name that is new
    folder, wanted = home / "runs" / kind, EXPECTED[kind]
    assert_same(json.loads((folder / "result.json").read_text()), wanted["resumed"])
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert losses == pytest.approx(wanted["losses"], rel=1e-3)

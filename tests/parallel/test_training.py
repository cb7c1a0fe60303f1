"""Training with sequence parallelism: the run of one process."""

import json
import sys

import pytest
import torch

from lion import recipes
from lion.parallel.training import Sharing
from lion.train.loop import train
from tests import SEED
from tests.train.test_loop import losses, run_ranks, weights

SMALL = {
    "length": "301",
    "block": "400",
    "steps": "6",
    "batch": "2",
    "log_every": "1",
    "eval_every": "3",
    "save_every": "3",
    "model.dim": "16",
    "model.heads": "2",
    "model.depth": "2",
}


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    path = tmp_path_factory.mktemp("genome") / "genome.fa"
    bases = torch.randint(0, 4, (6000,), generator=torch.Generator().manual_seed(SEED))
    path.write_text(">one\n" + "".join("ACGT"[x] for x in bases.tolist()) + "\n")
    return path


def test_two_processes_train_the_same_model(tmp_path, genome, monkeypatch):
    """Four digits of the losses after each of the steps; and a resumed run is the same to the last bit."""
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    fields = {**SMALL, "data": str(genome)}
    train(recipes.recipe("dna").changed(fields), tmp_path / "one")
    two = tmp_path / "two"
    command = [sys.executable, "-m", "lion.cli", "train", "dna", "--out", str(two), "--sequence-parallel", "2"]
    command += [part for name, x in fields.items() for part in (f"--{name}", x)]
    run_ranks(command)
    torch.testing.assert_close(losses(two), losses(tmp_path / "one"), rtol=1e-4, atol=1e-5)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert results[1]["loss"] == pytest.approx(results[0]["loss"], rel=1e-4)
    names = [{x.name for x in (tmp_path / name / "checkpoints" / "step-00000006").iterdir()} for name in ("one", "two")]
    assert names[0] == names[1]
    before = weights(two)
    for path in sorted((two / "checkpoints" / "step-00000006").iterdir()):
        path.unlink()
    (two / "checkpoints" / "step-00000006").rmdir()
    run_ranks([*command, "--resume"])
    assert weights(two) == before


def test_what_is_refused():
    with pytest.raises(
        ValueError, match=r"sequence_parallel is 2, and there are 3 processes; expected a multiple of 2"
    ):
        Sharing(2, 3, 0, "cpu", {"input_ids": 1}, "dna")
    with pytest.raises(ValueError, match="a task of kind 'images' has no sequences to cut"):
        Sharing(2, 2, 0, "cpu", {}, "images")

"""`lion embed`: vectors of whole records and texts, whatever the block is."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lion.cli import main
from lion.streaming import embedding
from lion.train.folder import load_run

RUNS = Path(__file__).parents[1] / "legacy" / "runs"


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))


@pytest.fixture
def genome(tmp_path):
    path = tmp_path / "genome.fa"
    path.write_text(f">one of them\n{'ACGTTGCANN' * 13}\n>other\nACGT\n")
    return path


@pytest.mark.parametrize(("every", "block", "memory"), [(1, 50, 0), (7, 20, 1), (7, 1000, 0)])
def test_records_of_fasta(tmp_path, genome, every, block, memory, capsys):
    out = tmp_path / "out"
    options = ["--every", str(every), "--block", str(block), "--memory", str(memory), "--out", str(out)]
    assert main(["embed", str(RUNS / "dna"), str(genome), *options]) == 0
    assert f"one.npy: {-(-130 // every)} x " in capsys.readouterr().out
    model = load_run(RUNS / "dna").model
    tokens = torch.tensor([[1, 2, 3, 4, 4, 3, 2, 1, 5, 5] * 13])
    with torch.no_grad():
        want = model.features(tokens)[0][0]
    want = torch.stack([x.mean(0) for x in want.split(every)])
    torch.testing.assert_close(torch.from_numpy(np.load(out / "one.npy")), want, rtol=1e-5, atol=1e-5)
    assert np.load(out / "other.npy").shape == (-(-4 // every), want.shape[1])
    assert sorted(path.name for path in out.iterdir()) == ["one.json", "one.npy", "other.json", "other.npy"]


def test_a_text(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("It is a long text, and there is more of it. " * 20)
    trained = load_run(RUNS / "mlm")
    (found,) = embedding.embed(trained, book, tmp_path / "out", block=16)
    ids = embedding.sequences(trained, book).__next__().tokens
    with torch.no_grad():
        want = embedding.backbone_of(trained.model)(torch.from_numpy(ids)[None])[0]
    assert found.tokens == len(ids)
    torch.testing.assert_close(torch.from_numpy(np.load(found.path)), want, rtol=1e-5, atol=1e-5)


def test_what_is_done_is_not_done_again(tmp_path, genome, monkeypatch):
    trained, out = load_run(RUNS / "dna"), tmp_path / "out"
    embedding.embed(trained, genome, out, block=50)
    monkeypatch.setattr(embedding, "stream", None)
    embedding.embed(trained, genome, out, block=50)
    with pytest.raises(TypeError):
        embedding.embed(trained, genome, out, block=49)


def test_a_stopped_call_goes_on(tmp_path, genome):
    trained, out = load_run(RUNS / "dna"), tmp_path / "out"
    (want, _) = embedding.embed(trained, genome, tmp_path / "whole", block=50)
    shares = []

    def stop(name, share):
        shares.append(share)
        if len(shares) == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedding.embed(trained, genome, out, block=50, memory=0, progress=stop)
    left = shares[-1]
    shares.clear()
    embedding.embed(trained, genome, out, block=50, memory=0, progress=lambda name, share: shares.append(share))
    assert 0.2 < shares[0] <= left
    np.testing.assert_array_equal(np.load(out / "one.npy"), np.load(want.path))


def test_what_is_refused(tmp_path, genome, capsys):
    assert main(["embed", str(RUNS / "images"), str(genome)]) == 1
    assert "expected a model of DNA or of text" in capsys.readouterr().err

"""`lion bench stream`, small; and that memory is that of a block."""

import torch

from lion.bench import stream
from lion.bench.peak_memory import peak_memory
from lion.models.long_range import LongConfig, LongModel


def test_a_small_genome(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    genome = tmp_path / "genome.fa"
    genome.write_text(f">one\n{'ACGTTGCAGT' * 200}\n")
    found = stream.run(data=str(genome), blocks=(64, 500), tokens=1500, json_path=tmp_path / "result.json")
    assert [x["tokens"] for x in found if "seconds" in x] == [1500, 1500]
    (between,) = [x["difference"] for x in found if "difference" in x]
    assert between < 1e-5
    for x in found:
        assert "error" not in x or x["error"] <= 2 * x["error_at_once"] + 1e-6
    assert "bases per second" in capsys.readouterr().out


def test_memory_is_that_of_a_block():
    length, dim = 1 << 17, 64
    model = LongModel(LongConfig("lion_s", dim=dim, depth=1, heads=2, vocab_size=8, classes=4, answer="token")).eval()
    ids = torch.randint(0, 8, (1, length), dtype=torch.int32)

    def work():
        for _ in model.stream(ids.split(2048, 1), memory=0):
            pass

    work()
    assert peak_memory(work) < 4 * dim * length  # one layer's output; the whole at once takes several of them

"""The measuring itself."""

import json
import time

import torch

from lion.bench import kernel, layer, op_variants, tune
from lion.bench import peak_memory as memory
from lion.bench.op import Shape, growth
from lion.bench.peak_memory import peak_memory
from lion.bench.timing import interleaved
from lion.ops.cpu import library

MEBIBYTE = 2**20


def take(size):
    return torch.ones(size * MEBIBYTE // 4).sum()


def test_peak_memory_sees_what_was_freed_again():
    for size in (64, 128):
        found = peak_memory(lambda size=size: take(size)) / MEBIBYTE
        assert 0.9 * size <= found <= 1.1 * size + 8


def test_peak_memory_where_there_is_no_high_water_mark(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CLEAR", tmp_path / "missing" / "clear_refs")
    found = peak_memory(lambda: (take(64), time.sleep(0.05))) / MEBIBYTE
    assert found <= 64 * 1.1 + 8


def test_interleaved_gives_all_the_same_number_of_tries():
    calls = {"quick": 0, "slow": 0}

    def work(name, pause):
        calls[name] += 1
        time.sleep(pause)

    works = {"quick": lambda: work("quick", 0.001), "slow": lambda: work("slow", 0.05)}
    best, rounds = interleaved(works, rounds=8, patience=0.24)
    assert rounds == 4  # as many as the slow one can have
    assert calls == {"quick": 5, "slow": 5}  # one to warm up
    assert 0.001 <= best["quick"] < best["slow"]
    assert [interleaved(works, rounds=8, patience=0.0, least=n)[1] for n in (1, 3)] == [1, 3]


def test_growth_is_the_slope_in_a_log_log_plot():
    records = [{"shape": [1, 2, T, 4], "name": "a", "seconds": (T / 100) ** 1.5} for T in (100, 400)]
    records.append({"shape": [1, 2, 800, 4], "name": "b", "seconds": None})
    ((name, first, last, power),) = growth(records)
    assert (name, first, last) == ("a", 100, 400)
    assert abs(power - 1.5) < 1e-12


def test_bench_kernel_prints_what_it_measured(monkeypatch, capsys, tmp_path):
    for name, shapes in {"THREADED": ("1,1,64,8",), "LENGTHS": ("1,1,64,8",), "DECAYED": ("1,2,64,8",)}.items():
        monkeypatch.setattr(kernel, name, shapes)
    threads = torch.get_num_threads()
    kernel.run(rounds=1, json_path=tmp_path / "kernel.json")
    printed = capsys.readouterr().out
    assert "ns per token" in printed
    assert "more than the work itself" in printed
    found = json.loads((tmp_path / "kernel.json").read_text())["seconds"]
    assert all(seconds > 0 for times in found.values() for seconds in times.values())
    assert torch.get_num_threads() == threads


def test_bench_kernel_tunes_the_sizes_of_chunks(monkeypatch, capsys, tmp_path):
    for name, values in {"TOKENS": 128, "LENGTHS": (70,), "CHANNELS": (4, 24), "KINDS": ("per-token",)}.items():
        monkeypatch.setattr(tune, name, values)
    kernel.run(rounds=1, tune=True, json_path=tmp_path / "tune.json")
    found = json.loads((tmp_path / "tune.json").read_text())["results"]
    assert [x["chunk"] for x in found] == [library.chunk_tokens(70, D, D) for D in (4, 24)]
    assert [sorted(map(int, x["training"])) for x in found] == [[14, 24, 35], [14, 24, 35, 70]]
    assert all(str(x["choice"]) in x["training"] for x in found)
    assert "would choose" in capsys.readouterr().out
    assert tune.choice(24, {24: 1.02, 35: 1.0}) == 24
    assert tune.choice(24, {24: 1.1, 35: 1.0}) == 35


def test_bench_layer_and_variants(capsys, tmp_path):
    path = tmp_path / "layer.json"
    seconds = layer.run(batch=1, tokens=(5, 7), dim=12, heads=3, all=True, rounds=1, json_path=path)
    assert list(seconds) == [5, 7]
    assert set(seconds[7]) >= {"softmax", "lion_s, 2 orders", "mamba"}
    op_variants.run(Shape(1, 2, 70, 8), rounds=1, json_path=tmp_path / "kinds.json")
    printed = capsys.readouterr().out
    assert "of softmax's time" in printed
    assert "as fast as delta rule, token by token" in printed
    assert "T=5, dim=12" in printed
    assert "T=7, dim=12" in printed
    assert json.loads(path.read_text())["seconds"]["7"].keys() == seconds[7].keys()

"""`lion bench long`, with short sequences."""

import json

import pytest

pytest.importorskip("transformers")

from lion.bench import long
from lion.bench.by_length import Case
from lion.cli import main


def test_the_command(tmp_path, capsys):
    where = tmp_path / "long.json"
    arguments = ["--lengths", "32", "64", "--models", "lion_s", "lion_lit", "--rounds", "1", "--json", str(where)]
    assert main(["bench", "long", *arguments]) == 0
    assert "of softmax's time" in capsys.readouterr().out
    results = json.loads(where.read_text())["results"]
    assert [x["name"] for x in results[:4]] == ["softmax", "Mamba-2", "lion_s", "lion_lit"]
    assert len(results) == 2 * 2 * 4  # passes, lengths, models
    assert all(x["seconds"] > 0 for x in results)


def test_very_long_ones_are_trained_with_checkpointing(monkeypatch):
    cases: list[Case] = []
    monkeypatch.setattr(long.by_length, "run", lambda contest, found, rounds, path: cases.extend(found))
    long.run(lengths=(1 << 14, 1 << 15))
    assert [(x.length, x.training, x.recomputed) for x in cases] == [
        (1 << 14, True, False),
        (1 << 15, True, True),
        (1 << 14, False, False),
        (1 << 15, False, False),
    ]
    for case in cases[:2]:
        assert long.make_model("lion_s", case).grad_checkpointing is case.recomputed
        mamba = long.make_model("Mamba-2", case)
        assert any(getattr(part, "gradient_checkpointing", False) for part in mamba.modules()) is case.recomputed


def test_memory_with_checkpointing_is_not_told_from_memory_without():
    """Or what just fits is left out."""
    short, longer = Case("pathx", 1 << 14, 1, True), Case("pathx", 1 << 16, 1, True, recomputed=True)
    contest = long.by_length.Contest(("Mamba-2",), None, None, (), 150.0, notes=[])
    known = [{**short._asdict(), "name": "Mamba-2", "seconds": 7.0, "peak_bytes": 1 << 60, "left_out": None}]
    assert long.by_length.too_much(contest, "Mamba-2", longer, known) == ""
    assert long.by_length.too_much(contest, "Mamba-2", longer._replace(recomputed=False), known) != ""


def test_what_is_refused(capsys):
    assert main(["bench", "long", "--models", "lion_x"]) == 1
    assert "expected one of 'softmax', 'lion_lit'" in capsys.readouterr().err

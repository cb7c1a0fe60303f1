"""`lion bench text`, at the smallest size."""

import json

import pytest

pytest.importorskip("transformers")

from lion.bench import by_length, text
from lion.cli import main
from tests import THOROUGH


@pytest.mark.skipif(not THOROUGH, reason="it trains and measures twenty models: make thorough")
def test_the_command(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    where = tmp_path / "deep" / "text.json"
    arguments = ["--sizes", "tiny", "--lengths", "16", "64", "--rounds", "1", "--json", str(where)]
    assert main(["bench", "text", *arguments]) == 0
    out = capsys.readouterr().out
    assert "of BERT's time" in out
    results = json.loads(where.read_text())["results"]
    assert len(results) == 2 * 2 * 5  # passes, lengths, models
    assert all((x["seconds"] is None) == (x["name"] == text.MATERIALISED) for x in results)
    assert all(x["peak_bytes"] >= 0 for x in results)
    assert {x["batch"] for x in results if x["length"] == 16} == {64}
    assert where.with_suffix(".png").stat().st_size > 1000


def test_the_picture_is_of_one_sequence(monkeypatch, tmp_path):
    known = {"size": "tiny", "name": "lion_s", "seconds": 2.0, "peak_bytes": 2**20}
    records = [
        {**known, "training": True, "length": 16, "batch": 1},
        {**known, "training": False, "length": 16, "batch": 4},
        {**known, "training": False, "length": 64, "batch": 1, "seconds": None, "peak_bytes": None},
    ]
    drawn = []
    monkeypatch.setattr(by_length, "draw_lines", lambda rows, path: drawn.extend(rows))
    by_length.draw(records, tmp_path / "text.png")
    (trained, _), (memory, time) = drawn
    assert (trained.title, memory.title) == ("tiny, training", "tiny, inference")
    assert trained.lines == {"lion_s": [(16, 1)]}
    assert memory.lines == {"lion_s": [(16, 0.25)]}  # of one sequence
    assert time.lines == {"lion_s": [(16, 0.5)]}


def test_memory_only(tmp_path, capsys):
    arguments = ["--sizes", "tiny", "--lengths", "16", "--models", "lion_s", "hydra", "--memory-only", "--no-training"]
    assert main(["bench", "text", *arguments, "--json", str(tmp_path / "memory.json")]) == 0
    out = capsys.readouterr().out
    assert "threads, memory only" in out
    assert "hydra: blocks without MLPs, for as many parameters" in out
    results = json.loads((tmp_path / "memory.json").read_text())["results"]
    assert [x["name"] for x in results] == ["BERT", "BERT, materialised", "lion_s", "hydra"]
    assert all(x["seconds"] is None and x["peak_bytes"] is not None for x in results)


def test_what_does_not_fit_is_left_out(monkeypatch):
    """Matrices grow with the square of the length, the rest does not."""
    before = {"size": "tiny", "training": False, "recomputed": False, "length": 64, "batch": 1}
    before |= {"seconds": None, "peak_bytes": 100}
    contest = by_length.Contest(("a", "b"), None, None, (), 240.0, notes=[], materialised=("a",))
    monkeypatch.setattr(by_length, "available_memory", lambda device: 1000)
    for name, reason in (("a", "would not fit into memory"), ("b", "")):
        known = [{**before, "name": name, "left_out": None}]
        assert by_length.too_much(contest, name, by_length.Case("tiny", 256, 1, False), known) == reason


def test_the_models_are_of_one_size():
    bert, ours = (text.make_model(name, "tiny", 64).parameters() for name in ("BERT", "softmax"))
    assert sum(p.numel() for p in bert) == sum(p.numel() for p in ours)


def test_what_takes_too_long_is_left_out():
    """BERT's time grows with the square of the length, the others' does not."""
    before = {"size": "tiny", "training": False, "recomputed": False, "length": 64, "batch": 1}
    before |= {"seconds": 50.0, "peak_bytes": 1}
    known = [{**before, "name": name, "left_out": None} for name in ("BERT", "lion_s")]
    contest = by_length.Contest(("BERT", "lion_s"), None, None, quadratic=("BERT",), patience=240.0, notes=[])
    case = by_length.Case("tiny", 2048, 1, False)
    assert by_length.too_much(contest, "BERT", case, known) == "expected to take too long"
    assert by_length.too_much(contest, "lion_s", case._replace(length=128, batch=8), [{**known[1], "batch": 8}]) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "huge"], "expected one of 'tiny', 'small'"),
        (["--models", "lion_x"], "expected one of 'softmax', 'lion_lit'"),
        (["--models", "vim"], "models is 'vim'; expected one of"),
        (["--sizes", "hydra_base"], "expected one of 'tiny', 'small'"),
        (["--rounds", "0"], "--rounds is '0'; expected a whole number from 1 to"),
        (["--no-training", "--no-inference"], "training or inference"),
    ],
)
def test_what_is_refused(arguments, message, capsys):
    assert main(["bench", "text", *arguments]) == 1
    assert message in capsys.readouterr().err

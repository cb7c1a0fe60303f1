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


def test_very_long_ones_are_trained_with_checkpointing():
    for training, again in ((True, True), (False, False)):
        case = Case("pathx", 1 << 15, 1, training)
        assert long.make_model("lion_s", case).checkpointed is again
        assert long.make_model("Mamba-2", case).is_gradient_checkpointing is again


def test_what_is_refused(capsys):
    assert main(["bench", "long", "--models", "lion_x"]) == 1
    assert "expected one of 'softmax', 'lion_lit'" in capsys.readouterr().err

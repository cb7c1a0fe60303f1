"""`lion bench generate`, at the smallest size."""

import json

import pytest
import torch

from lion.bench import generate
from lion.bench.generate import Contender, contenders, kept_bytes, make_model, prepare
from lion.cli import main
from tests import SEED


def test_the_command(tmp_path, capsys):
    pytest.importorskip("transformers")
    pytest.importorskip("matplotlib")
    where = tmp_path / "deep" / "generate.json"
    arguments = ["--size", "tiny", "--variants", "lion_s", "--positions", "48", "8", "--rounds", "1"]
    modes = ["--modes", "recurrence", "cache", "attention"]
    assert main(["bench", "generate", *arguments, *modes, "--json", str(where)]) == 0
    out = capsys.readouterr().out
    content = json.loads(where.read_text())
    results = {(x["variant"], x["mode"], x["position"]): x for x in content["results"]}
    names = [("lion_s", "recurrence"), ("lion_s", "cache"), ("lion_s", "attention")]
    names += [("softmax", "cache"), ("softmax", "attention")]
    assert list(results) == [(*name, position) for name in names for position in (8, 48)]
    assert all(x["seconds"] > 0 and x["peak_bytes"] >= 0 for x in results.values())
    assert all(x["of_first"] == 1 for x in results.values() if x["position"] == 8)
    kept = {name: [results[(*name, position)]["kept_bytes"] for position in (8, 48)] for name in names}
    assert kept["lion_s", "recurrence"][0] == kept["lion_s", "recurrence"][1]
    assert kept["lion_s", "cache"][1] > 5 * kept["lion_s", "cache"][0]
    assert kept["lion_s", "attention"] == [0, 0]
    assert [x["same"] for x in content["agreement"]] == [True, True]
    assert "are the same in the modes recurrence, cache, attention" in out
    assert "of that at 8" in out
    assert where.with_suffix(".png").stat().st_size > 1000


def test_every_mode_goes_on_with_the_same_token():
    model = make_model("lion_d", "tiny")
    ids = torch.randint(256, (1, 20), generator=torch.Generator().manual_seed(SEED + 3))
    pieces = [prepare(model, mode, ids) for mode in generate.MODES]
    tokens = [piece.run.func(1).item() for piece in pieces[:2]] + [pieces[2].run().item()]
    assert len(set(tokens)) == 1
    assert [piece.steps for piece in pieces] == [generate.STEPS, generate.STEPS, 1]


def test_a_piece_of_work_changes_nothing_that_it_starts_from():
    piece = prepare(make_model("lion_s", "tiny"), "recurrence", torch.arange(12)[None])
    assert piece.run().tolist() == piece.run().tolist()


def test_slow_steps_are_timed_one_by_one(monkeypatch):
    monkeypatch.setattr(generate, "SLOW_STEP", 0.0)
    assert prepare(make_model("lion_s", "tiny"), "cache", torch.arange(12)[None]).steps == 1


def test_what_is_kept_is_counted():
    model = make_model("lion_s", "tiny")  # 2 layers of 2 heads of 16
    with torch.no_grad():
        _, states = model.prefill(torch.arange(10)[None], memory="recurrence")
    assert kept_bytes(states) == 4 * 2 * 2 * (16 * 16 + 16 + 1)


def test_softmax_has_no_recurrence():
    found = contenders(("lion_s", "softmax"), ("recurrence",), softmax=True)
    assert found == [Contender("lion_s", "recurrence"), Contender("softmax", "cache")]
    assert contenders(("softmax",), ("cache",), softmax=True) == [Contender("softmax", "cache")]


def test_what_would_not_fit_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(generate, "available_memory", lambda: 100_000)
    records = generate.run(sizes=("tiny",), variants=("lion_s",), positions=(4, 400), rounds=1)
    left_out = {(x["variant"], x["mode"], x["position"]) for x in records if x["left_out"]}
    assert left_out == {("lion_s", "cache", 400), ("softmax", "cache", 400)}
    assert f"-: left out, {generate.LARGE}" in capsys.readouterr().out


def test_without_transformers(monkeypatch, capsys):
    def missing(variant, size):
        raise ImportError("transformers is needed for this")

    monkeypatch.setattr(generate, "agreement", missing)
    generate.run(sizes=("tiny",), variants=("lion_s",), positions=(4,), modes=("recurrence",), softmax=False, rounds=1)
    assert "tokens of the modes not compared: transformers is needed for this" in capsys.readouterr().out


def test_modes_that_differ_are_called_so():
    found = generate.agreement_words([generate.Agreement("lion_s", False, 16, 12)])
    assert "(12 of them different) are NOT THE SAME in the modes" in found


REFUSED = {
    "sizes is 'huge'; expected one of 'tiny', 'small', 'base'": {"sizes": ("huge",)},
    "variants is 'lion_x'; expected one of 'softmax'": {"variants": ("lion_x",)},
    "modes is 'rnn'; expected one of 'recurrence', 'cache', 'attention'": {"modes": ("rnn",)},
    "modes is 'cache'; expected a list of some of": {"modes": "cache"},
    r"positions is \[2\], rounds 20; expected positions of 3 tokens or more": {"positions": (2,)},
    "rounds 0; expected positions of 3 tokens or more, and at least 1 round": {"rounds": 0},
    "softmax has no recurrence; expected the modes 'cache' or 'attention'": {
        "variants": ("softmax",),
        "modes": ("recurrence",),
        "softmax": False,
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises(ValueError, match=message):
        generate.run(**REFUSED[message])

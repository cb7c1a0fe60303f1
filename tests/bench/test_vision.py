"""A run in miniature."""

import gc
import importlib.util
import json
from dataclasses import replace

import pytest

from lion.bench import vision
from lion.bench.vision import Case, Contender, contenders, expected_bytes, expected_seconds, has_form, measure
from lion.models.registry import names_without_size

real_config_for = vision.config_for


@pytest.fixture(autouse=True, scope="module")
def little_garbage():
    """Measuring memory collects garbage first, for which all that torch has loaded need not be looked through."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    def config_for(model, size, pixels):
        config = real_config_for(model, size, pixels)
        return replace(config, dim=24, heads=3, depth=1 if size == "tiny" else 2, num_classes=5, patch_size=8)

    monkeypatch.setattr(vision, "config_for", config_for)


def test_prints_writes_and_draws(capsys, tmp_path):
    path = tmp_path / "new" / "vision.json"
    models = ("softmax", "lion_lit", "lion_s_2scan")
    records = vision.run(sizes=("small",), pixels=(32, 16), models=models, rounds=1, json_path=path)
    printed = capsys.readouterr().out
    for text in ("training images/s", "inference vs softmax", "softmax, materialised", "best of 1", "written to"):
        assert text in printed
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(path.read_text())
    assert found["results"] == records
    assert found["setting"]["threads"] == 1
    assert [x["pixels"] for x in records] == 8 * [16] + 8 * [32]  # two passes of three models and the materialised one
    for x in records:
        assert x["peak_bytes"] >= 0
        assert x["tokens"] == (x["pixels"] // 8) ** 2 + 1
        if x["name"] == vision.MATERIALISED:
            assert x["seconds"] is None
        else:
            assert x["images_per_second"] == pytest.approx(x["batch"] / x["seconds"])
            assert x["times_faster_than_softmax"] > 0


def test_every_model_trains_and_every_form_runs(capsys):
    assert {"softmax", "deit_distilled", "hydra", "vim", "mamba_2scan", "deltanet"} <= set(names_without_size())
    names = [name for name in names_without_size() if "2scan" not in name]
    records = vision.run(sizes=("tiny",), pixels=(16,), models=names, rounds=1, inference=False)
    assert {x["name"] for x in records if x["seconds"]} == set(names)
    forms = ("auto", "full", "chunk", "rnn", "scan")
    records = vision.run(
        sizes=("tiny",), pixels=(16,), models=("lion_s", "deltanet"), forms=forms, rounds=1, batch=2, training=False
    )
    assert {x["form"] for x in records if x["model"] == "lion_s"} == set(forms)
    assert {x["form"] for x in records if x["model"] == "deltanet"} == set(forms) - {"chunk"}
    assert {x["batch"] for x in records} == {2}
    assert "vs softmax" not in capsys.readouterr().out.split("\n\n")[-2]


def test_contenders():
    assert [x.name for x in contenders(("softmax", "lion_s", "lion_s"), ("full", "rnn"), training=False)] == [
        "softmax",
        "softmax, materialised",
        "lion_s, full",
        "lion_s, rnn",
    ]
    assert contenders(("lion_s",), ("full", "rnn"), training=True) == [Contender("lion_s")]
    assert has_form("hydra", "rnn")
    assert not has_form("deit_distilled", "rnn")
    assert [vision.usual_batch(pixels) for pixels in (32, 224, 512, 1024, 2048)] == [8, 8, 2, 1, 1]


def record(x, case, **measured):
    return case._asdict() | {"name": x.name, "seconds": None, "peak_bytes": None} | measured


def test_expectations_grow_as_they_should():
    near, far = Case("tiny", 128, 1, False), Case("tiny", 512, 1, False)
    for x, time, memory in (
        (Contender("lion_s"), (15, 17), (15, 17)),
        (Contender("lion_s", "full"), (60, 256), (220, 256)),
        (Contender("softmax"), (60, 256), (15, 17)),
    ):
        known = [record(x, near, seconds=1.0, peak_bytes=1000)]
        assert time[0] < expected_seconds(x, far, known) < time[1]
        assert memory[0] * 1000 < expected_bytes(x, far, known) < memory[1] * 1000
        assert expected_seconds(x, far._replace(training=True), known) == 0  # nothing is known of that
    matrices = Contender("softmax", materialised=True)
    assert expected_bytes(matrices, far, []) == 16 * 3 * (64 * 64 + 1) ** 2
    assert expected_seconds(matrices, far, [record(Contender("softmax"), near, seconds=1.0)]) > 60


def test_too_slow_or_too_large_is_left_out(monkeypatch, capsys):
    case = Case("tiny", 32, 1, False)
    slow, large = Contender("lion_s", "rnn"), Contender("softmax", materialised=True)
    what = [Contender("softmax"), large, Contender("lion_s"), slow]
    known = [record(slow, case._replace(pixels=16), seconds=29.0)]
    known.append(record(large, case._replace(pixels=16), peak_bytes=1 << 50))
    records = measure(case, what, known, rounds=1)
    found = {x["name"]: x["left_out"] for x in records}
    assert found == {"softmax": None, large.name: vision.LARGE, "lion_s": None, slow.name: vision.SLOW}
    printed = vision.report(records, {"dtype": "float32", "threads": 1})
    assert f"-: left out, {vision.SLOW} or {vision.LARGE}" in printed
    monkeypatch.setattr(vision, "PATIENCE", -1.0)
    assert all(x["left_out"] == vision.SLOW for x in measure(case, what, [], rounds=1))


REFUSED = {
    "sizes is 'huge'; expected one of 'tiny', 'small', 'base'": {"sizes": ("huge",)},
    "sizes is 'tiny'; expected a list of some of": {"sizes": "tiny"},
    "models is 'lion_z'; expected one of 'softmax', .* Did you mean 'lion_": {"models": ("lion_z",)},
    r"forms is \(\); expected a list of some of 'auto', 'full'": {"forms": ()},
    r"pixels is \[0\]; expected the sides of images": {"pixels": (0,)},
    "rounds is 0; expected at least 1": {"rounds": 0},
    "batch is 0; expected at least 1, or None": {"batch": 0},
    "neither training nor inference is to be measured": {"training": False, "inference": False},
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    with pytest.raises(ValueError, match=text):
        vision.run(**REFUSED[text])


def test_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    vision.run(
        sizes=("tiny",), pixels=(16,), models=("lion_d",), rounds=1, training=False, json_path=tmp_path / "a.json"
    )
    assert "no picture: matplotlib is not installed" in capsys.readouterr().out

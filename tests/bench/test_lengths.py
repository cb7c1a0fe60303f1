"""`lion bench lengths`, on models that have hardly learned anything: two masked ones and two causal ones."""

import json
import math
import random
from dataclasses import replace

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

import torch
import torch.nn.functional as F

from lion import recipes
from lion.bench import lengths
from lion.cli import main
from lion.tasks._base import forget
from lion.tasks.long_range import LongRangeTask
from lion.train.evaluate import examine
from lion.train.folder import load_run
from lion.train.loop import train
from tests import SEED

LENGTH = 16
HELD_OUT = 16 * LENGTH  # tokens, at least


@pytest.fixture(autouse=True, scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LION_DATA", str(tmp_path_factory.mktemp("data")))
        forget()
        yield
    forget()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A pattern of files."""
    folder = tmp_path_factory.mktemp("texts")
    generator = random.Random(SEED)
    words = ["the", "a", "film", "actor", "scene", "was", "very", "great", "dull"]
    for n in range(30):
        (folder / f"{n}.txt").write_text(" ".join(generator.choices(words, k=60)) + ".")
    return str(folder / "*.txt")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, texts):
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for variant in ("lion_s", "softmax"):
        run = recipes.recipe(f"mlm.{variant}")
        model = replace(run.task.model, dim=16, depth=1, heads=2, mlp_dim=32, max_tokens=2 * LENGTH)
        task = replace(run.task, data=texts, length=LENGTH, holdout=0.3, vocab_size=200, model=model)
        found[variant] = folder / variant
        train(replace(run, task=task, steps=2, epochs=0, batch=4, eval_every=2, workers=0), found[variant])
    return found


@pytest.fixture(scope="module")
def causal_runs(tmp_path_factory, texts):
    folder, found = tmp_path_factory.mktemp("causal"), {}
    for variant in ("lion_s", "softmax"):
        run = recipes.recipe(f"causal.{variant}")
        model = replace(run.task.model, dim=16, depth=1, heads=2, max_tokens=4 * LENGTH)
        task = replace(run.task, data=texts, length=LENGTH, holdout=0.3, vocab_size=300, model=model)
        found[variant] = folder / variant
        train(replace(run, task=task, steps=2, epochs=0, batch=4, eval_every=2), found[variant])
    return found


def test_the_command(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    where = tmp_path / "deep" / "lengths.json"
    folders = [str(folder) for folder in runs.values()]
    arguments = ["--times", "4", "1", "2", "--tokens", str(HELD_OUT), "--json", str(where)]
    assert main(["bench", "lengths", *folders, *arguments]) == 0
    out = capsys.readouterr().out
    results = {(x["variant"], x["times"]): x for x in json.loads(where.read_text())["results"]}
    assert list(results) == [(variant, n) for variant in runs for n in (1, 2, 4)]
    for (variant, n), x in results.items():
        assert x["length"] == n * LENGTH
        if (variant, n) == ("softmax", 4):
            assert (x["accuracy"], x["texts"]) == (None, 0)
            assert x["left_out"] == "it has learned positions for 32 tokens only"
        else:
            assert 0 <= x["accuracy"] <= 1
            assert x["loss"] > 0
            assert 0 <= x["commonest"] < 0.5
            assert HELD_OUT * 0.9 <= x["texts"] * x["length"] <= HELD_OUT * 1.1
    assert f"-: {runs['softmax']}: it has learned positions for 32 tokens only" in out
    assert f"{runs['softmax']}: positions beyond 16 were never trained" in out
    assert where.with_suffix(".png").stat().st_size > 1000


def test_the_commonest_token(runs):
    task = lengths._task(runs["lion_s"])
    text = task.text_tokenizer().decode(task.packed("train").tokens.tolist()).replace(".", " ").split()
    most = max(map(text.count, set(text)))  # which several may be
    assert text.count(task.text_tokenizer().decode([lengths.commonest(task)])) == most
    labels = task.eval_set().__getitems__([(0, 0), (0, 1)])["labels"]
    share = float((labels == lengths.commonest(task)).sum() / (labels != -100).sum())
    part = lengths.Part(1, LENGTH, 2, "")
    found = lengths.measure(load_run(runs["lion_s"]), task, part, lengths.commonest(task))
    assert found["commonest"] == pytest.approx(share)


def test_at_the_training_length_it_is_the_evaluation(runs):
    (record,) = lengths.run([runs["lion_s"]], times=(1,), tokens=10**9)
    metrics = examine(runs["lion_s"]).metrics
    assert record["accuracy"] == pytest.approx(metrics["accuracy"], rel=1e-6)
    assert record["loss"] == pytest.approx(metrics["loss"], rel=1e-5)


def test_causal_models(causal_runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    where = tmp_path / "lengths.json"
    folders = [str(folder) for folder in causal_runs.values()]
    assert main(["bench", "lengths", *folders, "--times", "1", "2", "8", "--json", str(where)]) == 0
    out = capsys.readouterr().out
    results = {(x["variant"], x["times"]): x for x in json.loads(where.read_text())["results"]}
    assert len({x["targets"] for (variant, _), x in results.items() if variant == "lion_s"}) == 1  # the same tokens
    assert len({x["perplexity"] for x in results.values()}) == 5  # the context differs
    for (variant, n), x in results.items():
        if variant == "softmax" and n > 1:  # there are positions for 4 times the length
            assert (x["perplexity"], x["targets"]) == (None, None)
            assert x["left_out"] == "its learned positions beyond 16 tokens were never trained"
        else:
            assert x["perplexity"] == pytest.approx(math.exp(x["loss"]))
            assert f"{x['perplexity']:,.2f}" in out
    assert f"-: {causal_runs['softmax']}: its learned positions beyond 16 tokens were never trained" in out
    assert "perplexity" in out
    assert "masked" not in out
    assert where.with_suffix(".png").stat().st_size > 1000


def test_at_the_training_length_a_causal_model_has_its_perplexity(causal_runs):
    (record,) = lengths.run([causal_runs["softmax"]], times=(1,), tokens=10**9)
    assert record["perplexity"] == pytest.approx(examine(causal_runs["softmax"]).metrics["perplexity"], rel=1e-5)


def test_what_a_causal_model_predicts_further_on_is_of_the_whole_text(causal_runs):
    """By the model itself, on one text of four times the length."""
    trained = load_run(causal_runs["lion_s"])
    (record,) = lengths.run([causal_runs["lion_s"]], times=(4,), tokens=4 * LENGTH)
    ids = torch.from_numpy(trained.task.using(trained.beside).packed("validation").tokens[: 4 * LENGTH + 1].astype(int))
    with torch.no_grad():
        logits = trained.model(ids[None, :-1]).logits[0]
    assert record["loss"] == pytest.approx(F.cross_entropy(logits, ids[1:]).item(), rel=1e-5)


def test_both_kinds_at_once(runs, causal_runs, tmp_path, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(lengths, "draw_lines", lambda rows, path: drawn.extend(rows))
    lengths.run([causal_runs["lion_s"], runs["lion_s"]], times=(1,), json_path=tmp_path / "both.json")
    assert [panel.y for panel in drawn[0]] == ["accuracy, %", "perplexity"]
    masked, following = capsys.readouterr().out.split("accuracy: on the next tokens")[0].split("accuracy: on masked")
    assert str(runs["lion_s"]) in masked
    assert "perplexity" not in masked
    assert str(causal_runs["lion_s"]) in following


def test_longer_than_all_that_is_held_out(runs, capsys):
    records = lengths.run([runs["lion_s"]], times=(1, 1024))
    assert records[0]["accuracy"] is not None
    assert records[1]["accuracy"] is None
    assert "the held-out text has" in records[1]["left_out"]
    assert records[1]["left_out"] in capsys.readouterr().out


def test_all_lengths_have_the_same_text(runs):
    task = load_run(runs["lion_s"]).task
    parts = lengths.plan(task, (1, 2, 4, 8))
    covered = [part.texts * (part.length - 1) for part in parts]  # without [CLS]
    for part, tokens in zip(parts, covered, strict=True):
        assert max(covered) - tokens < part.length  # no whole block more
    assert max(covered) <= task.packed("validation").token_count


def test_runs_of_one_name_are_two_lines(monkeypatch, tmp_path):
    known = {"kind": "mlm", "variant": "lion_s", "length": 16, "trained_length": 16, "accuracy": 0.5}
    drawn = []
    monkeypatch.setattr(lengths, "draw_lines", lambda rows, path: drawn.append(rows[0][0].lines))
    lengths.draw([{**known, "run": "a/mlm"}, {**known, "run": "b/mlm"}], tmp_path / "a.png")
    lengths.draw([{**known, "run": "a/mlm"}, {**known, "run": "a/other"}], tmp_path / "a.png")
    lengths.draw([{**known, "run": "a/mlm"}, {**known, "run": "b/mlm", "variant": "lion_d"}], tmp_path / "a.png")
    assert [list(lines) for lines in drawn] == [
        ["lion_s, a/mlm", "lion_s, b/mlm"],
        ["lion_s, mlm", "lion_s, other"],
        ["lion_s", "lion_d"],
    ]


def test_batches_have_about_as_many_tokens():
    sizes = [lengths.Part(1, length, 1, "").batch * length for length in (128, 1024, 4096, 8192)]
    assert sizes == [lengths.BATCH_TOKENS] * 4
    assert lengths.Part(1, 10**6, 1, "").batch == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "20"], "tokens is 20; expected at least 512, for one text of the greatest length"),
        (["--times", "0"], "--times is '0'; expected a whole number from 1 to"),
    ],
)
def test_what_is_refused(arguments, message, runs, capsys):
    assert main(["bench", "lengths", str(runs["lion_s"]), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_no_such_run(runs, tmp_path, capsys):
    assert main(["bench", "lengths", str(tmp_path / "nothing")]) == 1
    assert "there is no run in" in capsys.readouterr().err
    with pytest.raises(ValueError, match="there is no run; expected folders"):
        lengths.run([])


def test_a_run_of_another_kind(runs, monkeypatch):
    trained = load_run(runs["lion_s"])
    other = trained._replace(task=LongRangeTask())
    monkeypatch.setattr(lengths, "load_run", lambda folder: other)
    with pytest.raises(ValueError, match="is no language model; expected one of `lion train mlm` or"):
        lengths.run([runs["lion_s"]])

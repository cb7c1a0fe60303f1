"""Series as runs: trained, stopped and resumed, evaluated, used for prediction; and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("accelerate")

import torch
import torch.nn.functional as F

from lion import recipes
from lion.cli import main
from lion.models.long_range import LongConfig
from lion.tasks.dna_classification import DnaClassificationTask
from lion.tasks.series import SeriesTask
from lion.train.evaluate import examine, most_likely, predict
from lion.train.folder import load_run
from tests import SEED

MODEL = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--workers", "0", "--precision", "float32"]
TINY = [*MODEL, "--batch", "8", "--steps", "2"]
SMALL = LongConfig(variant="lion_s", dim=16, depth=1, heads=2, stem=3)


def waves(count: int, length: int = 24, seed: int = SEED) -> np.ndarray:
    """[count, length]: every second one is slow, the others are fast."""
    generator = np.random.default_rng(seed)
    rate = np.where(np.arange(count) % 2, 0.3, 1.2)[:, None]
    x = np.sin(rate * np.arange(length) + generator.uniform(0, 6, (count, 1)))
    return 100 + 5 * (x + 0.1 * generator.normal(size=x.shape))


def write_wide(path, values, labels):
    rows = [f"{label},{','.join(f'{x:.4f}' for x in row)}" for row, label in zip(values, labels, strict=True)]
    names = ",".join(f"s{i}" for i in range(values.shape[1]))
    path.write_text("\n".join([f"label,{names}", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("series") / "waves.csv"
    return write_wide(path, waves(60), ["fast", "slow"] * 30)


def test_classes_are_smoothed_in_training_alone(wide):
    plain = SeriesTask(data=str(wide), model=SMALL).resolved()
    task, model = replace(plain, smoothing=0.2), plain.make_model().eval()
    examples = task.train_set(0)
    batch = examples.__getitems__([(0, i) for i in range(8)])
    wanted = F.cross_entropy(task.outputs(model, batch), batch["label"], label_smoothing=0.2)
    got, shown = task.loss(model, batch, seed=0, step=0)
    torch.testing.assert_close(got, wanted)
    assert shown["accuracy"] == plain.loss(model, batch, seed=0, step=0)[1]["accuracy"]
    assert torch.equal(task.measure(model, batch)["loss"], plain.measure(model, batch)["loss"])


@pytest.mark.parametrize(("aligned", "learned"), [(None, True), (False, False)])
def test_places_of_series_of_one_length_are_learned(wide, aligned, learned):
    task = recipes.recipe("series").task
    found = replace(task, data=str(wide), aligned=aligned).resolved()
    assert (found.aligned, found.model.positions) == (learned, "learned" if learned else "none")
    assert (found.model.max_tokens, found.model.stride) == (24 if learned else task.model.max_tokens, 1)
    assert bool(found.model.summaries) == learned
    assert replace(task, data=str(wide), tokens=10).resolved().model.stride == 3


def test_classes_are_learned(wide, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--data", str(wide), *MODEL, "--batch", "16", "--steps", "40", "--optim.lr", "0.01"]
    assert main(["train", "series", *arguments, "--out", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["accuracy"] > 0.9
    again = examine(out).metrics
    assert set(again) == {"loss", "accuracy", "macro_f1"}
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-4)
    other = write_wide(tmp_path / "other.csv", waves(10, seed=SEED + 1), ["fast", "slow"] * 5)
    capsys.readouterr()
    assert main(["eval", str(out), "--test", str(other), "--form", "rnn"]) == 0
    assert "accuracy" in capsys.readouterr().out
    # One series, with and without its label, in three formats.
    row = waves(2, seed=SEED + 2)[1]
    fields = ",".join(map(str, row))
    names = ",".join(f"s{i}" for i in range(len(row)))
    (tmp_path / "one.csv").write_text(f"{names}\n{fields}\n")
    (tmp_path / "same.csv").write_text(f"label,{names}\nslow,{fields}\n")
    (tmp_path / "bare.csv").write_text(f"{fields}\n")
    (tmp_path / "one.ts").write_text(f"@classLabel false\n@data\n{fields}\n")
    np.savez(tmp_path / "one.npz", X=row[None])
    inputs = [str(tmp_path / name) for name in ("one.csv", "same.csv", "bare.csv", "one.ts", "one.npz")]
    guesses = most_likely(predict(out, inputs))
    assert guesses[0][0].label == "slow"
    assert all(guess == guesses[0] for guess in guesses)
    assert main(["predict", str(out), inputs[0]]) == 0
    assert "slow" in capsys.readouterr().out
    assert main(["predict", str(out), str(other), "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 11
    assert rows[1].startswith(f'"{other}, line 2",')
    assert main(["predict", str(out), str(tmp_path / "none.csv"), str(other)]) == 1
    said, _ = capsys.readouterr()
    assert "none.csv" in said
    assert said.count(", line ") == 10


def test_several_channels_unequal_lengths_and_gaps(tmp_path, capsys):
    """A long table with a time, whose channels another file has in another order."""
    generator = np.random.default_rng(SEED)
    rows = ["series,step,x,y,label"]
    for n in range(24):
        for step in generator.permutation(6 + n % 5):
            y = "" if (n + step) % 7 == 0 else f"{generator.normal():.3f}"
            rows.append(f"{n},{step},{step + n % 2},{y},{'ab'[n % 2]}")
    table, out = tmp_path / "long.csv", tmp_path / "run"
    table.write_text("\n".join(rows) + "\n")
    assert main(["train", "series", "--data", str(table), *TINY, "--out", str(out)]) == 0
    saved = json.loads((out / "run.json").read_text())
    assert saved["run"]["task"]["model"]["channels"] == 4  # two, and where they are missing
    known = saved["to_predict"]
    assert (known["channels"], known["columns"]) == (["x", "y"], ["label", "series", "step"])
    assert (known["missing"], known["length"]) == (True, 0)
    (tmp_path / "one.csv").write_text("step,x,y\n0,1,2\n1,3,\n2,5,6\n")
    (tmp_path / "turned.csv").write_text("y,step,x\n6,2,5\n2,0,1\n,1,3\n")
    (tmp_path / "ts.ts").write_text("@data\n1,3,5:2,?,6\n")
    one, turned, ts = most_likely(predict(out, [str(tmp_path / name) for name in ("one.csv", "turned.csv", "ts.ts")]))
    assert one == turned == ts
    (tmp_path / "wrong.csv").write_text("step,x\n0,1\n")
    (tmp_path / "other.csv").write_text("step,x,z\n0,1,2\n")
    capsys.readouterr()
    for name, message in (("wrong.csv", "has 1 channels; expected 2"), ("other.csv", "expected 'x', 'y', as the")):
        assert main(["predict", str(out), str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
        with pytest.raises(ValueError, match="has no column with a usual name for its labels"):
            examine(out, test=str(tmp_path / name))


def test_a_value_is_not_taken_for_a_label(tmp_path):
    """Series of unequal lengths without a header: the label is where the training data has it, or it is missing."""
    rows = [f"{1 + n % 2}\t" + "\t".join(f"{x:.3f}" for x in waves(24)[n, : 8 + n % 3]) for n in range(24)]
    (tmp_path / "x.tsv").write_text("\n".join(rows) + "\n")
    assert main(["train", "series", "--data", str(tmp_path / "x.tsv"), *TINY, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "one.tsv").write_text(rows[0] + "\n")
    (tmp_path / "bare.tsv").write_text(rows[0].partition("\t")[2] + "\n")
    assert len(most_likely(predict(tmp_path / "run", [str(tmp_path / "one.tsv")]))[0]) == 2
    with pytest.raises(ValueError, match="in 'its first column'; expected one of '1', '2'"):
        most_likely(predict(tmp_path / "run", [str(tmp_path / "bare.tsv")]))


def test_npz_with_a_part_for_evaluation(tmp_path):
    x, y = waves(20)[..., None].repeat(3, -1), np.arange(20) % 2
    np.savez(tmp_path / "x.npz", X=x[:12], y=y[:12], X_test=x[12:], y_test=y[12:])
    task = SeriesTask(data=str(tmp_path / "x.npz"), model=SMALL).resolved()
    assert (len(task.train_set(0)), len(task.eval_set()), task.model.channels) == (12, 8, 3)
    assert task.classes == ("0", "1")
    np.savez(tmp_path / "y.npz", X=x[:5], y=y[:5])
    task = replace(task, test=str(tmp_path / "y.npz"))
    assert (len(task.train_set(0)), len(task.eval_set())) == (12, 5)


def test_the_scale_is_of_the_training_set(wide, tmp_path):
    """And so is that of what is evaluated."""
    other = write_wide(tmp_path / "other.csv", 10 * waves(4), ["fast", "slow"] * 2)
    task = SeriesTask(data=str(wide), test=str(other), model=SMALL).resolved()
    train = task.train_set(0).__getitems__([(0, i) for i in range(60)])["values"]
    assert abs(float(train.mean())) < 1e-4
    assert float(train.std()) == pytest.approx(1, abs=0.01)
    assert float(task.eval_set().__getitems__([(0, 0)])["values"].mean()) > 100
    known = task.to_predict()
    assert (known.length, len(known.mean)) == (24, 1)
    cut = replace(task, max_length=5)
    assert cut.train_set(0).__getitems__([(0, 0)])["values"].shape == (1, 5, 1)


def test_numbers(tmp_path, capsys):
    """The mean of a series, in thousands: learned standardised, and measured in its own units."""
    values = waves(40) + np.linspace(0, 40, 40)[np.random.default_rng(SEED).permutation(40), None]
    table = write_wide(tmp_path / "means.csv", values, [f"{1000 * x:.1f}" for x in values.mean(1)])
    out = tmp_path / "run"
    arguments = ["--data", str(table), *MODEL, "--batch", "16", "--steps", "60", "--optim.lr", "0.01"]
    assert main(["train", "series", *arguments, "--out", str(out)]) == 0
    found = examine(out).metrics
    assert set(found) == {"loss", "spearman", "pearson", "rmse"}
    task = load_run(out).task
    mean, std = task.label_scale
    assert 100_000 < mean < 140_000
    assert 8_000 < std < 16_000
    assert found["loss"] < 0.2  # 1: always the mean
    assert found["rmse"] == pytest.approx(found["loss"] ** 0.5 * std, rel=1e-3)
    capsys.readouterr()
    assert main(["predict", str(out), str(table), "--format", "jsonl"]) == 0
    values = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
    assert 90_000 < min(values) < max(values) < 150_000


def test_labels_of_other_tasks_are_standardised_by_their_recipes(tmp_path):
    sequences = ["ACGT" * (2 + n % 5) for n in range(20)]
    rows = [f"{x},{1000.5 + len(x) + n}" for n, x in enumerate(sequences)]
    (tmp_path / "x.csv").write_text("\n".join(["sequence,label", *rows]) + "\n")
    task = replace(recipes.recipe("dna.classify").task, data=str(tmp_path / "x.csv"))
    mean, std = task.resolved().label_scale
    assert 1000 < mean < 1100
    assert 1 < std < 20
    assert task.resolved().resolved().label_scale == (mean, std)
    old = DnaClassificationTask(data=str(tmp_path / "x.csv")).resolved()  # as runs before that have it
    assert old.label_scale == (0, 1)
    output, right = torch.tensor([[0.5], [2.0]]), torch.tensor([1010.0, 1030.0])
    for one in (task.resolved(), old):
        found = replace_outputs(one, output).measure(torch.nn.Identity(), {"label": right})
        mean, std = one.label_scale
        torch.testing.assert_close(found["predicted"], output[:, 0] * std + mean)
        torch.testing.assert_close(found["loss"], ((found["predicted"] - right) / std).square().sum())


def replace_outputs(task, output):
    class Fixed(type(task)):
        def outputs(self, model, batch):
            return output

    return Fixed(**{name: getattr(task, name) for name in task.__dataclass_fields__})


def test_resumed(wide, tmp_path, capsys):
    """As if it had not been stopped; other data is refused."""
    table = tmp_path / "waves.csv"
    table.write_text(wide.read_text())
    arguments = ["series", "--data", str(table), *MODEL, "--batch", "8"]
    options = ["--optim.schedule", "constant", "--optim.warmup", "0", "--save_every", "2"]
    assert main(["train", *arguments, *options, "--steps", "2", "--out", str(tmp_path / "a")]) == 0
    assert main(["train", "--resume", "--out", str(tmp_path / "a"), "--steps", "4"]) == 0
    assert main(["train", *arguments, *options, "--steps", "4", "--out", str(tmp_path / "b")]) == 0
    results = [json.loads((tmp_path / x / "result.json").read_text()) for x in "ab"]
    assert results[0] == results[1]
    table.write_text(wide.read_text().replace("slow,1", "slow,2", 1))
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(tmp_path / "a"), "--steps", "6"]) == 1
    assert "would become another one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label,a,b\n" + "up,1,2\n" * 9, "'up' in every row of 'label'; expected two classes or more"),
        ("label,a,b\nup,1,2\ndown,3,x\n", "line 3 has 'x' in 'b'; expected a number"),
        ("a,b\n1,2\n3,4\n", "say which: --label_column NAME"),
        ("", "has no series"),
    ],
)
def test_what_is_refused_leaves_no_folder(tmp_path, capsys, content, message):
    (tmp_path / "x.csv").write_text(content)
    assert main(["train", "series", "--data", str(tmp_path / "x.csv"), *TINY, "--out", str(tmp_path / "run")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_bad_rows_are_skipped(wide, tmp_path, capsys):
    data, test = tmp_path / "x.csv", tmp_path / "test.csv"
    lines = wide.read_text().splitlines()
    data.write_text("\n".join([*lines, "fast,1,2", lines[1].replace("fast", ""), lines[2] + "e999"]))
    test.write_text("\n".join([*lines[:5], lines[1].replace("fast", "")]))
    arguments = ["train", "series", "--data", str(data), "--test", str(test), *TINY, "--out", str(tmp_path / "run")]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert f"{data} has 3 bad rows (" in error
    assert [line.split(" has ")[0] for line in error.splitlines()[1:]] == ["  - line 62", "  - line 63", "  - line 64"]
    assert main([*arguments, "--skip-bad"]) == 0
    facts = json.loads((tmp_path / "run" / "data.json").read_text())
    first = "1 with too many or too few fields, 1 without a label, 1 with a value that is not finite"
    assert facts["skipped"] == f"3 rows: {first}; to evaluate on: 1 row: 1 without a label"
    assert facts["examples"] == f"60 series from {data}, 4 from {test}"
    assert facts["columns"] == "labels from 'label'"
    assert set(examine(tmp_path / "run").metrics) == {"loss", "accuracy", "macro_f1"}


def test_bad_series_of_a_file_do_not_lose_the_others(wide, tmp_path, capsys):
    run, path = tmp_path / "run", tmp_path / "x.csv"
    assert main(["train", "series", "--data", str(wide), *TINY, "--out", str(run)]) == 0
    lines = wide.read_text().splitlines()
    bad = [lines[1] + ",1", lines[2].replace(".", ".x", 1), '"slow" 1,2', "slow" + "," * 24]
    path.write_text("\n".join([*lines[:3], *bad, lines[3]]))
    capsys.readouterr()
    assert main(["predict", str(run), str(path), "--format", "jsonl"]) == 1
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [x["input"] for x in found] == [f"{path}, line {n}" for n in range(2, 9)]
    assert ["class" in x for x in found] == [True, True, False, False, False, False, True]
    assert "4 of 7 inputs have an error" in err
    for number, content in enumerate(bad, 3):  # nothing else in the file
        path.write_text(f"{lines[0]}\n{content}\n")
        (found,) = predict(run, [str(path)])
        assert found.error is not None, number
        assert found.input.name == str(path)


def test_one_series_with_a_bad_step_is_not_predicted(tmp_path):
    """Without that step it would be another one."""
    rows = [f"{n},{step},{step + n},{'ab'[n % 2]}" for n in range(24) for step in range(6)]
    table, run = tmp_path / "long.csv", tmp_path / "run"
    table.write_text("\n".join(["series,step,x,label", *rows]) + "\n")
    assert main(["train", "series", "--data", str(table), *TINY, "--out", str(run)]) == 0
    (tmp_path / "one.csv").write_text("step,x\n0,1\n1,one\n2,1\n3\n")
    first, second = predict(run, [str(tmp_path / "one.csv")])
    assert "line 3 has 'one' in 'x'" in str(first.error)
    assert "line 5 has 1 fields" in str(second.error)
    (tmp_path / "two.csv").write_text("series,step,x\na,0,1\nb,0,1\na,1,one\nb,1,2\n")
    first, second = predict(run, [str(tmp_path / "two.csv")])
    assert (first.input.name, first.error) == (f"{tmp_path}/two.csv, b", None)  # by its id
    assert "line 4 has 'one'" in str(second.error)


def test_one_bad_row_tells_the_option(wide, tmp_path, capsys):
    (tmp_path / "x.csv").write_text(wide.read_text() + "fast,1\n")
    assert main(["train", "series", "--data", str(tmp_path / "x.csv"), *TINY, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.endswith("as in line 1. With --skip-bad it is left out.\n")


def test_channels_of_the_eval_set(tmp_path, capsys):
    (tmp_path / "a.ts").write_text("@classLabel true a b\n@data\n" + "1,2:3,4:a\n3,4:1,2:b\n" * 4)
    (tmp_path / "b.ts").write_text("@classLabel true a b\n@data\n1,2:a\n")
    files = ["--data", str(tmp_path / "a.ts"), "--test", str(tmp_path / "b.ts")]
    assert main(["train", "series", *files, *TINY, "--out", str(tmp_path / "run")]) == 1
    assert "b.ts has 1 channels; expected 2, as the training data" in capsys.readouterr().err


def test_no_data(tmp_path, capsys):
    assert main(["train", "series", "--out", str(tmp_path / "run")]) == 1
    assert "expected a table with a row for each series" in capsys.readouterr().err


def test_a_long_series(tmp_path):
    """100,000 steps, trained on."""
    generator = np.random.default_rng(SEED)
    np.savez(tmp_path / "x.npz", X=generator.normal(size=(4, 100_000)), y=[0, 1, 0, 1])
    small = replace(SMALL, dim=8)
    task = SeriesTask(data=str(tmp_path / "x.npz"), test=str(tmp_path / "x.npz"), model=small).resolved()
    torch.manual_seed(SEED)
    loss, _ = task.loss(task.make_model(), task.train_set(0).__getitems__([(0, 0)]), seed=0, step=0)
    loss.backward()
    assert loss.isfinite()


def test_every_parameter_learns(wide):
    task = replace(recipes.recipe("series").task, data=str(wide)).resolved()
    torch.manual_seed(SEED)
    model = task.make_model()
    loss, _ = task.loss(model, task.train_set(0).__getitems__([(0, i) for i in range(8)]), seed=0, step=0)
    loss.backward()
    for name, x in model.named_parameters():
        assert x.grad is not None, name
        assert x.grad.abs().sum() > 0, name


def test_what_was_read_and_whether_it_is_aligned(wide, tmp_path):
    task = SeriesTask(data=str(wide), model=SMALL).resolved()
    found = task.facts(task.train_set(0), task.eval_set())
    assert found["values"] == "1 channel, 24 steps each"
    assert found["places"].startswith("a step means the same in all series")
    generator = np.random.default_rng(SEED)
    rows = np.zeros((120, 200))
    for row, width in zip(rows, (2, 6) * 60, strict=True):  # bumps, anywhere
        first = generator.integers(190)
        row[first : first + width] = width**-0.5
    path = write_wide(tmp_path / "bumps.csv", rows, ["narrow", "wide"] * 60)
    task = SeriesTask(data=str(path), model=SMALL).resolved()
    assert not task.aligned
    assert "--aligned true" in task.facts(task.train_set(0), task.eval_set())["places"]
    path = tmp_path / "long.csv"
    path.write_text("id,x,y,label\n1,1,,a\n1,2,5,a\n2,3,6,b\n2,4,7,b\n2,4,7,b\n3,1,2,a\n4,1,1,b\n3,1,2,a\n4,1,1,b\n")
    task = SeriesTask(data=str(path), model=SMALL).resolved()
    found = task.facts(task.train_set(0), task.eval_set())
    assert found["values"].startswith("2 channels (x, y), steps: median 2, 95 % have up to 2, the longest 3; 5.6% of")
    assert "places" not in found


def test_classes_are_distorted_in_training_alone(wide, tmp_path, monkeypatch):
    task = replace(recipes.recipe("series").task, data=str(wide), model=SMALL).resolved()
    training, held_out = task.train_set(0), task.eval_set()
    assert task.aligned
    assert task.distortion.warp
    assert training.distortion == task.distortion
    monkeypatch.setattr("lion.tasks.series.MANY", 5)
    assert task.train_set(0).distortion == replace(task.distortion, warp=0.0)
    assert replace(task, aligned=False).train_set(0).distortion == task.distortion
    assert held_out.distortion is None
    path = write_wide(tmp_path / "numbers.csv", waves(30), [f"{i / 7:.3f}" for i in range(30)])
    assert replace(task, data=str(path), classes=(), aligned=None).resolved().train_set(0).distortion is None

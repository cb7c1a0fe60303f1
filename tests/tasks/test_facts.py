"""What was read is said before training, and kept in data.json; what is bad is listed, or skipped."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion import recipes
from lion.cli import main
from lion.models.positions import placed
from lion.tasks._base import Task
from lion.train.config import Run
from lion.train.evaluate import examine
from tests import SEED
from tests.tasks.texts import shrunk

pytestmark = pytest.mark.usefixtures("data")
TINY = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--steps", "1", "--batch", "4"]


def trained(recipe, out, *options):
    return main(["train", recipe, *map(str, options), *TINY, "--out", str(out)])


def facts_of(out):
    return json.loads((out / "data.json").read_text())


def write_reviews(path, count=60, long=0, bad=0):
    generator = random.Random(SEED)
    words = ["the", "film", "was", "a", "lovely", "dull", "fine", "poor", "scene", "of"]
    rows = [f"{' '.join(generator.choices(words, k=9))} {i};{'pos' if i % 3 else 'neg'}" for i in range(count)]
    rows += [f"{' '.join(generator.choices(words, k=3000))};pos"] * long
    path.write_text("\n".join([*rows, *["alone;"] * bad]) + "\n")
    return path


def test_texts(tmp_path, capsys):
    data, out = write_reviews(tmp_path / "x.csv", long=1, bad=3), tmp_path / "run"
    assert trained("text", out, "--data", data, "--vocab_size", 300) == 1
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 4
    assert "has 3 bad rows (3 without a label); expected none: repair them, or leave them out with --skip-bad" in error
    assert not out.exists()
    assert trained("text", out, "--skip-bad", "--data", data, "--vocab_size", 300) == 0
    said = capsys.readouterr().out
    facts = facts_of(out)
    assert facts["examples"] == f"61 texts from {data}"
    assert facts["skipped"] == "3 rows: 3 without a label"
    assert facts["format"] == "semicolons between fields, no header"
    assert facts["classes"] == "2: pos 41, neg 20"
    assert facts["split"] == "55 to train on, 6 to evaluate on: a tenth of every class, chosen by content"
    assert facts["tokens"].startswith("median ")
    assert facts["cut"] == "1 text (1.6%), after 256 tokens; --max-length 0 keeps all whole"
    assert list(facts)[:2] == ["examples", "skipped"]
    lines = said.split("\nstep ")[0].splitlines()
    assert all(len(line) <= 80 for line in lines if " " in line.strip() and str(tmp_path) not in line)
    assert "split       55 to train on, 6 to evaluate on: a tenth of every class, chosen by" in lines
    assert "            content" in lines
    run = json.loads((out / "run.json").read_text())["run"]
    assert run["task"]["max_length"] == 256


def test_one_bad_row_tells_the_option(tmp_path, capsys):
    data = write_reviews(tmp_path / "x.csv", bad=1)
    assert trained("text", tmp_path / "run", "--data", data) == 1
    error = capsys.readouterr().err
    assert error.endswith("expected one in every row: add it, or leave it out. With --skip-bad it is left out.\n")
    assert trained("text", tmp_path / "run", "--data", data, "--skip-bad", "maybe") == 1
    assert "--skip_bad is 'maybe'; expected true or false" in capsys.readouterr().err
    assert trained("text", tmp_path / "run", "--data", data, "--vocab_size") == 1
    assert "--vocab_size has no value" in capsys.readouterr().err


@pytest.mark.parametrize("variant", ["lion_s", "lion_lit"])  # without positions, and with learned ones
def test_whole_texts(tmp_path, variant):
    data = write_reviews(tmp_path / "x.csv", long=1)
    task = shrunk("text", data=str(data), max_length=0).task
    task = replace(task, model=placed(replace(task.model, variant=variant)))
    whole = task.resolved()
    lengths = np.concatenate([x.lengths for x in (whole.train_set(0), whole.eval_set())])
    learned = whole.model.positions == "learned"
    assert learned == (variant == "lion_lit")
    assert whole.max_length == (lengths.max() if learned else 0)
    assert not learned or whole.model.max_tokens >= lengths.max()
    assert "cut" not in whole.facts(whole.train_set(0), whole.eval_set())
    assert whole.resolved() == whole
    assert replace(task, max_length=None).resolved().max_length == 256
    assert replace(task, max_length=40).resolved().max_length == 40


def test_numbers_and_a_test_file(tmp_path):
    rows = [f"words of number {i},{i / 10}" for i in range(40)]
    data, test = tmp_path / "x.csv", tmp_path / "test.csv"
    data.write_text("\n".join(["text,score", *rows]))
    test.write_text("\n".join(["text,score", *rows[:5], "none,"]))
    task = shrunk("text", data=str(data), test=str(test), skip_bad=True).task.resolved()
    facts = task.facts(task.train_set(0), task.eval_set())
    assert facts["examples"] == f"40 texts from {data}, 5 from {test}"
    assert facts["numbers"].startswith("0 to 3.9, median ")
    assert facts["split"] == f"40 to train on, 5 to evaluate on: all of {test}"
    assert facts["skipped"] == "to evaluate on: 1 row: 1 without a label"


def test_many_classes(tmp_path):
    rows = [f"words {i} {k},class {k}" for k in range(30) for i in range(k % 5 + 2)] + ["alone,rare"]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *rows]))
    task = shrunk("text", data=str(tmp_path / "x.csv")).task.resolved()
    classes = task.facts(task.train_set(0), task.eval_set())["classes"]
    assert classes.startswith("31: class 14 6, class 19 6, class 24 6, ..., ")
    assert classes.endswith("rare 1; 1 without an example to evaluate on")


def write_pictures(folder, count=6, broken=0):
    generator = np.random.default_rng(SEED)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(folder / name / f"{i}.png")
        for i in range(broken):
            (folder / name / f"broken {i}.png").write_bytes(b"no picture")
    return folder


def test_pictures(tmp_path, capsys):
    data, out = write_pictures(tmp_path / "pictures", broken=2), tmp_path / "run"
    assert trained("images", out, "--data", data) == 1
    assert f"{data} has 4 bad pictures (4 that cannot be decoded); expected none" in capsys.readouterr().err
    assert not out.exists()
    size = ["--image_size", 16, "--model.patch_size", 8, "--augment.pad_crop", 0]
    assert trained("images", out, "--data", data, "--skip-bad", *size) == 0
    facts = facts_of(out)
    assert facts["examples"] == f"12 images from {data}"
    assert facts["skipped"] == "4 pictures: 4 that cannot be decoded"
    assert facts["sizes"] == "9 x 9 pixels; resized to 16 x 16"
    assert facts["classes"] == "2: cat 6, dog 6"
    assert facts["split"] == "10 to train on, 2 to evaluate on: a fifth of every class, chosen by content"
    assert set(examine(out).metrics) == {"loss", "accuracy", "macro_f1"}


def test_old_runs_keep_their_split(tmp_path):
    plain = recipes.recipe("images").to_json()
    assert Run.from_json(plain).task.by_content
    del plain["task"]["by_content"]
    assert not Run.from_json(plain).task.by_content


def test_public_pictures_have_the_accuracy_alone():
    task = recipes.recipe("digits.lion_s").task.resolved()
    assert task.metrics == ("accuracy",)
    facts = task.facts(task.train_set(0), task.eval_set())
    assert facts["split"] == "1,438 to train on, 359 to evaluate on: its test set"
    assert facts["classes"].startswith("10: 3 183, ")


def test_sequences(tmp_path):
    generator, path = random.Random(SEED), tmp_path / "x.csv"
    rows = [f"{''.join(generator.choices('ACGT', k=20 + i))},{'gene' if i % 2 else 'other'}" for i in range(40)]
    path.write_text("\n".join(["sequence,label", *rows, "PROTEIN,gene"]))
    assert trained("dna.classify", tmp_path / "run", "--data", path) == 1
    assert trained("dna.classify", tmp_path / "run", "--data", path, "--skip-bad", "--max-length", 40) == 0
    facts = facts_of(tmp_path / "run")
    assert facts["skipped"] == "1 row: 1 with letters that are no nucleotides"
    assert facts["tokens"] == "median 40, 95 % have up to 58, the longest 60"
    assert facts["cut"] == "20 sequences (50.0%), after 40 tokens; --max-length 0 keeps all whole"
    assert facts["split"].endswith("a fifth of every class, chosen by content")


@pytest.mark.parametrize("count", [400, 5000, 100_000])
def test_a_small_genome(tmp_path, count):
    bases = "".join(random.Random(SEED).choices("ACGT", k=count))
    (tmp_path / "x.fa").write_text(f">one\n{bases[: count // 3]}\n>two\n{bases[count // 3 :]}\n")
    task = recipes.recipe("dna").task
    task = replace(task, data=str(tmp_path / "x.fa")).resolved()
    assert count / 64 < task.length == task.block < count / 10
    train, held = task.train_set(0), task.eval_set()
    assert 0.04 < held.windows.nucleotides / count < 0.2
    assert len(train) > 2 * len(held) > 0
    facts = task.facts(train, held)
    assert facts["genome"] == f"{count:,} nucleotides in 2 records of {tmp_path / 'x.fa'}"
    sizes = f"of {task.length:,} nucleotides, held out in blocks of {task.block:,}"
    assert facts["windows"] == f"{sizes}; usual are 16,384 and 262,144, for larger genomes"
    assert task.resolved() == task


def test_many_short_records(tmp_path):
    generator = random.Random(SEED)
    records = "".join(f">{i}\n{''.join(generator.choices('ACGT', k=1500))}\n" for i in range(200))
    (tmp_path / "x.fa").write_text(records)
    task = replace(recipes.recipe("dna").task, data=str(tmp_path / "x.fa")).resolved()
    assert task.length == 1024
    assert len(task.eval_set()) >= 10


def test_other_tasks_say_nothing():
    assert Task().facts(None, None) == {}

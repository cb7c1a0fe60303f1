"""The Long Range Arena and DNA as runs: each trains, is evaluated again and predicts; and what is refused."""

from dataclasses import replace

import pytest

pytest.importorskip("accelerate")

import json
import random

import torch

from lion import recipes
from lion.cli import main
from lion.models.long_range import LongConfig
from lion.nn.variants import VARIANTS
from lion.recipes import long_range as long_recipes
from lion.tasks.long_range import LongRangeTask
from lion.train.evaluate import examine
from lion.train.sampler import Sampler
from tests import SEED
from tests.data import write_cifar

TINY = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--workers", "0", "--precision", "float32"]
SHORT = ["--min_length", "10", "--max_length", "40", "--max_depth", "3", "--counts", "64,16,16"]


@pytest.fixture(autouse=True)
def data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path_factory.getbasetemp() / "long data"))


def bases(count: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=count))


def test_listops_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["lra.listops.lion_s", *TINY, *SHORT, "--steps", "2", "--batch", "8"]
    assert main(["train", *arguments, "--out", str(out)]) == 0
    run = json.loads((out / "run.json").read_text())["run"]
    assert run["task"]["model"]["vocab_size"] > 10
    assert run["task"]["model"]["classes"] == 10
    capsys.readouterr()
    assert main(["eval", str(out), "--test", "test", "--form", "rnn"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert examine(out, test="test").metrics["loss"] == pytest.approx(
        examine(out, form="full", test="test").metrics["loss"], rel=1e-4
    )
    assert main(["predict", str(out), "[MAX 1 2 ]"]) == 1
    assert "lion eval" in capsys.readouterr().err


def test_what_tells_no_order_gets_positions():
    short = {"min_length": 10, "max_length": 40, "max_depth": 3, "counts": (64, 16, 16)}
    for variant, positions in (("lion_lit", "learned"), ("softmax", "learned"), ("lion_d_diag", "none")):
        model = LongRangeTask(**short, model=LongConfig(variant=variant)).resolved().model
        assert (model.positions, model.max_tokens) == (positions, 40 if positions == "learned" else 1024)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "image", "data": "nowhere", "max_depth": 3}, "option of image is 'max_depth'"),
        ({"name": "retrieval"}, "new_aan_pairs"),
        ({"name": "chess"}, "name is 'chess'; expected one of 'listops'"),
        ({"test": "train"}, "test is 'train'; expected one of '', 'validation', 'test'"),
    ],
)
def test_what_is_refused_of_the_arena(changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        LongRangeTask(**changes).resolved()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of each kind of data that is not made."""
    home = tmp_path_factory.mktemp("files")
    write_cifar("cifar10", home / "image")
    for part in ("train", "test"):
        for name in ("neg", "pos"):
            (home / "text" / "aclImdb" / part / name).mkdir(parents=True)
            for i in range(4):
                (home / "text" / "aclImdb" / part / name / f"{i}_7.txt").write_text(f"{name} {part} {i}")
    (home / "retrieval").mkdir()
    for part in ("train", "eval", "test"):
        rows = [f"{i % 2}\tP{i}\tQ{i}\tone {i}\ttwo {i}\n" for i in range(6)]
        (home / "retrieval" / f"new_aan_pairs.{part}.tsv").write_text("".join(rows))
    (home / "genome.fa").write_text(f">one\n{bases(6000, 0)}\n")
    splice = [f"{', '.join(bases(60, n))}, {('EI', 'IE', 'N')[n % 3]}" for n in range(30)]
    (home / "splice.dat").write_text("\n".join(["@relation splice", "@data", *splice]) + "\n")
    genes = [f"{bases(30, n)},{n % 2}" for n in range(40)]
    (home / "genes.csv").write_text("\n".join(["sequence,label", *genes]) + "\n")
    return home


def shrunk(name: str, files):
    """The recipe's task with little data, and a small model of the same kind."""
    family, _, member = name.partition(".")
    task = recipes.recipe(name).task
    task = replace(task, model=replace(task.model, dim=16, depth=1, heads=2))
    if family == "dna":
        where = "splice.dat" if "splice" in member else "genes.csv" if member == "classify" else "genome.fa"
        task = replace(task, data=str(files / where))
        return task if member == "classify" or "splice" in member else replace(task, length=64, block=500)
    if task.name in ("listops", "pathfinder", "pathx"):
        few = {"min_length": 10, "max_length": 40, "max_depth": 3} if task.name == "listops" else {}
        return replace(task, counts=(6, 4, 4), **few)
    return replace(task, data=str(files / task.name))


def different(name: str) -> bool:
    """Not the same as another but for the data's kind or the variant: every model is tried with lists."""
    last = name.startswith("lra") and name.endswith(".lion_s")
    return last or name.startswith(("dna", "lra.listops."))


@pytest.mark.parametrize("name", list(filter(different, recipes.RECIPES)))
def test_a_step_of_every_recipe(name, files):
    task = shrunk(name, files).resolved()
    examples = task.train_set(0)
    (keys,) = Sampler(len(examples), 4, 0, range(1))
    torch.manual_seed(SEED)
    network = task.make_model()
    loss, _ = task.loss(network, examples.__getitems__(keys), seed=0, step=0)
    loss.backward()
    assert loss.isfinite()
    for parameter, x in network.named_parameters():
        assert x.grad is not None, parameter
        assert x.grad.isfinite().all(), parameter
    assert task.measure(network.eval(), task.eval_set().__getitems__([(0, 0)]))["examples"] > 0


def test_the_arenas_recipes_are_the_papers():
    for name in long_recipes.TRAINING:
        models = [recipes.recipe(f"lra.{name}.{model}").task.model for model in long_recipes.MODELS]
        assert len({*models}) == len(models) == 15
        run = recipes.recipe(f"lra.{name}.lion_s")
        decay = "selective_hippo_slow" if name == "pathx" else None
        assert (run.optim.lr, run.optim.schedule, run.task.model.decay) == (5e-4, "cosine", decay)
        assert VARIANTS[run.task.model.variant].decay == "selective_hippo"


def test_a_genome(tmp_path, capsys):
    genome, out = tmp_path / "genome.fa", tmp_path / "run"
    genome.write_text(f">one\n{bases(3000, 0)}\n>two\n{bases(3000, 1)}\n")
    arguments = ["--data", str(genome), "--length", "128", "--block", "500", *TINY, "--steps", "3"]
    assert main(["train", "dna", *arguments, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["predict", str(out), "ACGTT[MASK]ACCAT", "--best", "4"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {base} " in shown for base in "ACGT")
    assert main(["predict", str(out), "ACGTT"]) == 1
    assert "has 0 [MASK]; expected one" in capsys.readouterr().err
    assert examine(out).metrics["loss"] == pytest.approx(examine(out, form="full").metrics["loss"], rel=1e-4)
    where = tmp_path / "dna.json"
    assert main(["bench", "dna", str(out), "--orders", "2", "--json", str(where)]) == 0
    names = [x["name"] for x in json.loads(where.read_text())["results"]]
    assert names[:2] == [str(out), "2 neighbours before it, as they are"]
    assert len(names) == 5
    assert main(["bench", "dna", str(out), "--orders", "9"]) == 1
    assert "expected from 0 to 6 neighbours" in capsys.readouterr().err
    capsys.readouterr()
    genome.write_text(">one\nACGTACGTACGT\n")
    assert main(["train", "dna", *arguments[:2], *TINY, "--out", str(tmp_path / "other")]) == 1
    assert "of 12): take a smaller" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_classes_of_sequences(tmp_path, capsys):
    table, out = tmp_path / "genes.csv", tmp_path / "run"
    rows = [f"{bases(20 + n % 9, n)},{'gene' if n % 2 else 'other'}" for n in range(60)]
    table.write_text("\n".join(["sequence,label", *rows]) + "\n")
    arguments = ["dna.classify", "--data", str(table), *TINY, "--steps", "2", "--out", str(out)]
    assert main(["train", *arguments]) == 0
    capsys.readouterr()
    assert main(["predict", str(out), "ACGTNNACGT"]) == 0
    shown = capsys.readouterr().out
    assert "gene" in shown
    assert "other" in shown
    other = tmp_path / "test.fa"
    other.write_text(">a label=gene\nACGTACGT\n>b label=other\nTTTTACGT\n")
    assert set(examine(out, test=str(other)).metrics) == {"loss", "accuracy", "macro_f1"}
    other = tmp_path / "unknown.fa"
    other.write_text(">a label=exon\nACGTACGT\n")
    assert main(["eval", str(out), "--test", str(other)]) == 1
    assert "exon" in capsys.readouterr().err
    assert main(["predict", str(out), "ACGT!"]) == 1
    assert "'!'" in capsys.readouterr().err


def test_numbers_of_sequences(tmp_path, capsys):
    table = tmp_path / "activity.csv"
    rows = [f"{x},{x.count('G') / 20}" for x in (bases(20, n) for n in range(40))]
    table.write_text("\n".join(["sequence,value", *rows]) + "\n")
    arguments = ["--data", str(table), "--label_column", "value", *TINY, "--steps", "2"]
    assert main(["train", "dna.classify", *arguments, "--out", str(tmp_path / "run")]) == 0
    assert set(examine(tmp_path / "run").metrics) == {"loss", "spearman", "pearson", "rmse"}
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "--file", str(table), "ACGT", "--format", "jsonl"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == 41
    assert all(isinstance(x["value"], float) for x in found)


def test_no_data(capsys, tmp_path):
    assert main(["train", "dna.classify", "--out", str(tmp_path / "run")]) == 1
    assert "lion train dna.classify --data genes.csv" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="not there"):
        replace(recipes.recipe("dna").task, data=str(tmp_path / "none.fa")).windows("train")

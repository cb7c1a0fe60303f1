"""A run that goes on is the one that stopped: what has changed is noticed, and nobody else is in its folder."""

import errno
import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lion import files, recipes
from lion.cli import main
from lion.tasks._base import forget
from lion.train.loop import train
from lion.train.report import read_metrics
from tests import SEED
from tests.tasks.texts import shrunk
from tests.train.runs import as_options, small

BRIEF = {"steps": "2", "save_every": "1", "eval_every": "1000", "log_every": "1", "batch": "4"}


def brief(run, **changes):
    return run.changed({path.replace("__", "."): value for path, value in {**BRIEF, **changes}.items()})


def snapshot(folder):
    """All that is in it, but for the lock."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


# Data.


def of_pictures(folder):
    generator = np.random.default_rng(SEED)
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for i in range(6):
            pixels = generator.integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    fields = {"data": str(folder), "image_size": "8", "model__patch_size": "4", "model__dim": "16"}
    return brief(recipes.recipe("images"), **fields, model__heads="2", model__depth="1", augment__timm="none")


def of_reviews(folder):
    folder.mkdir()
    rows = [f"a {'good' if i % 2 else 'bad'} film number {i},{'pos' if i % 2 else 'neg'}" for i in range(60)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return brief(shrunk("text", data=str(folder / "reviews.csv")))


def of_corpus(name, folder):
    folder.mkdir()
    words = ["the", "film", "was", "very", "good", "bad", "long", "short", "and", "a"]
    generator = random.Random(SEED)
    lines = [" ".join(generator.choices(words, k=30)) for _ in range(60)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    return brief(shrunk(name, data=str(folder / "corpus.txt"), per="line"))


def of_genome(folder):
    folder.mkdir()
    bases = "".join(random.Random(SEED).choices("ACGT", k=4000))
    (folder / "genome.fa").write_text(f">one\n{bases}\n")
    fields = {"data": str(folder / "genome.fa"), "length": "32", "block": "128", "model__dim": "16"}
    return brief(recipes.recipe("dna"), **fields, model__heads="2", model__depth="1")


def of_sequences(folder):
    folder.mkdir()
    generator = random.Random(SEED)
    rows = [f"{''.join(generator.choices('ACGT', k=20))},{'EI' if i % 2 else 'IE'}" for i in range(40)]
    (folder / "dna.csv").write_text("\n".join(["sequence,label", *rows]) + "\n")
    fields = {"data": str(folder / "dna.csv"), "model__dim": "16", "model__heads": "2", "model__depth": "1"}
    return brief(recipes.recipe("dna.classify"), **fields)


def rewritten(name, change):
    def apply(folder):
        path = folder / name
        path.write_text(change(path.read_text()))

    return apply


def swap_classes(folder):
    (folder / "cats").rename(folder / "other")
    (folder / "dogs").rename(folder / "cats")
    (folder / "other").rename(folder / "dogs")


def redraw(folder):
    """The same names and sizes of pictures, another content."""
    path = folder / "cats" / "0.png"
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def swapped_labels(text):
    return text.replace("pos\n", "?\n").replace("neg\n", "pos\n").replace("?\n", "neg\n")


CHANGES = {
    "pictures of swapped classes": (of_pictures, swap_classes, "has another content"),
    "one picture": (of_pictures, redraw, "has another content"),
    "a picture less": (of_pictures, lambda folder: (folder / "dogs" / "3.png").unlink(), "has"),
    "swapped labels": (of_reviews, rewritten("reviews.csv", swapped_labels), "has another content"),
    "one label": (of_reviews, rewritten("reviews.csv", lambda x: x.replace("neg", "pos", 1)), "has"),
    "lines appended": (
        lambda folder: of_corpus("mlm", folder),
        rewritten("corpus.txt", lambda x: x + 20 * "and some new words of another kind\n"),
        "examples, had",
    ),
    "one word": (
        lambda folder: of_corpus("causal", folder),
        rewritten("corpus.txt", lambda x: x.replace("film", "movi")),
        "has",
    ),
    "half a genome": (of_genome, rewritten("genome.fa", lambda x: x[: len(x) // 2] + "\n"), "examples, had"),
    "one base": (
        of_genome,
        rewritten("genome.fa", lambda x: x[:2000] + "ACGT"["ACGT".index(x[2000]) - 1] + x[2001:]),
        "has another content",
    ),
    "labels of sequences": (
        of_sequences,
        rewritten("dna.csv", lambda x: x.replace("EI", "?").replace("IE", "EI").replace("?", "IE")),
        "has another content",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_data_is_refused(name, tmp_path, data):
    make, change, words = CHANGES[name]
    run, folder = make(tmp_path / "data"), tmp_path / "run"
    forget()
    train(run, folder)
    before = snapshot(folder)
    change(tmp_path / "data")
    forget()
    with pytest.raises(ValueError, match=rf"would become another one: .*{words}.*--accept data$"):
        train(run.changed({"steps": "3"}), folder, resume=True)
    assert snapshot(folder) == before
    train(run.changed({"steps": "3"}), folder, resume=True, accept=["data"])
    assert json.loads((folder / "result.json").read_text())["step"] == 3


def test_the_same_data_in_another_place(tmp_path, data):
    """Times and places of files do not matter."""
    run, folder = of_reviews(tmp_path / "data"), tmp_path / "run"
    forget()
    train(run, folder)
    os.utime(tmp_path / "data" / "reviews.csv", ns=(1, 1))
    forget()
    train(run.changed({"steps": "3"}), folder, resume=True)
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    moved = run.changed({"data": str(tmp_path / "moved" / "reviews.csv"), "steps": "4"})
    with pytest.raises(ValueError, match=r"data is '.*moved/reviews.csv', was '.*--accept data$"):
        train(moved, folder, resume=True)
    train(moved, folder, resume=True, accept=["data"])


def test_a_vocabulary_is_not_made_again(tmp_path, data):
    """Even where other data is accepted: ids are what they were."""
    run, folder = of_corpus("mlm", tmp_path / "data"), tmp_path / "run"
    forget()
    train(run, folder)
    own = (folder / "tokenizer" / "tokenizer.json").read_text()
    rewritten("corpus.txt", lambda x: x + 60 * "quite another vocabulary has come\n")(tmp_path / "data")
    shutil.rmtree(Path(os.environ["LION_DATA"]) / "tokenizers")
    forget()
    train(run.changed({"steps": "3"}), folder, resume=True, accept=["data"])
    assert (folder / "model" / "tokenizer.json").read_text() == own
    assert not (Path(os.environ["LION_DATA"]) / "tokenizers").exists()


# Fields.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """After 4 of 12 steps."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    train(small(steps="4"), folder, recipe="digits.lion_s")
    return folder


@pytest.fixture
def run_folder(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


def resume(folder, *options):
    return main(["train", "digits.lion_s", "--out", str(folder), "--resume", *options])


@pytest.mark.parametrize(
    "field", ["seed 1", "model.dim 32", "model.dropout 0.5", "model.variant lion_d", "image_size 16"]
)
def test_fields_that_make_another_run(field, run_folder, capsys):
    before = snapshot(run_folder)
    name, value = field.split()
    assert resume(run_folder, "--steps", "12", f"--{name}", value) == 1
    said = capsys.readouterr().err
    assert f"{name} is " in said
    assert f"--accept {name}" in said or f",{name}" in said
    assert snapshot(run_folder) == before


def test_fields_that_only_say_how(run_folder, capsys):
    options = "--steps 6 --optim.lr 0.002 --batch 16 --smoothing 0.05 --keep 3"
    assert resume(run_folder, *options.split()) == 0
    said = capsys.readouterr().out
    for words in ("steps is 6, was 4", "optim.lr is 0.002, was", "batch is 16, was 32", "smoothing is 0.05, was"):
        assert f"changed: {words}" in said
    assert json.loads((run_folder / "run.json").read_text())["run"]["batch"] == 16


def test_without_a_recipe(run_folder, capsys):
    """Values of fields are not taken for one; which it was is not forgotten."""
    assert main(["train", "--resume", "--out", str(run_folder), "--steps", "5", "--optim.lr=0.001"]) == 0
    assert "changed: steps is 5, was 4" in capsys.readouterr().out
    assert json.loads((run_folder / "run.json").read_text())["recipe"] == "digits.lion_s"


def test_what_is_accepted(run_folder, capsys):
    assert resume(run_folder, "--steps", "6", "--seed", "1", "--model.dropout", "0", "--accept", "seed") == 1
    assert "another one: model.dropout is 0.0, was 0.1." in capsys.readouterr().err
    assert resume(run_folder, "--steps", "6", "--seed", "1", "--accept", "sed") == 1
    assert "accept is 'sed'; expected one of" in capsys.readouterr().err
    assert resume(run_folder, "--steps", "6", "--seed", "1", "--model.dropout", "0", "--accept", "seed,model") == 0


def test_fewer_steps_than_are_done(run_folder, capsys):
    before = snapshot(run_folder)
    assert resume(run_folder, "--steps", "3") == 1
    assert "is at step 4 already, and has 3 in all; expected --steps 4 or more." in capsys.readouterr().err
    assert snapshot(run_folder) == before


def test_a_checkpoint_of_another_seed(run_folder, tmp_path, capsys):
    train(small(seed="1", steps="4"), tmp_path / "other")
    shutil.rmtree(run_folder / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run_folder / "checkpoints")
    assert resume(run_folder, "--steps", "12") == 1
    assert "another one: seed is 0, was 1." in capsys.readouterr().err


def test_a_checkpoint_of_before(run_folder, capsys):
    """It goes on, and says what cannot be known."""
    (path,) = run_folder.glob("checkpoints/*/state.json")
    state = json.loads(path.read_text())
    path.write_text(json.dumps({"version": 1, **{name: state[name] for name in ("step", "fingerprint", "files")}}))
    assert resume(run_folder, "--steps", "6") == 0
    assert "of an older lion, and does not tell whether its data is the same" in capsys.readouterr().out


@pytest.mark.parametrize("line", ['{"step": "four"}', "\udcff", "[" * 100_000])
def test_a_foreign_line_among_the_metrics(line, run_folder):
    with (run_folder / "metrics.jsonl").open("a", errors="surrogateescape") as file:
        file.write(f"{line}\n")
    assert resume(run_folder, "--steps", "6") == 0


def test_the_training_time_goes_on(run_folder):
    path = run_folder / "metrics.jsonl"
    rows = read_metrics(path)
    path.write_text("".join(json.dumps(row | {"seconds": 1000.0}) + "\n" for row in rows))
    assert resume(run_folder, "--steps", "6") == 0
    times = [row["seconds"] for row in read_metrics(path)[len(rows) :] if row["kind"] == "train"]
    assert times
    assert 1000 < min(times) < max(times) < 1100


@pytest.mark.parametrize("field", ["step", "fingerprint", "files", "run", "contents"])
@pytest.mark.parametrize("value", [None, {}, "?", {"training": {"examples": []}}])
def test_a_state_that_is_none(field, value, run_folder, capsys):
    """Whatever state.json says, there is a message or a resumed run."""
    (path,) = run_folder.glob("checkpoints/*/state.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    harmless = (value == {} and field in ("run", "contents")) or (field == "run" and isinstance(value, dict))
    assert resume(run_folder, "--steps", "5") == (0 if harmless else 1)
    if not harmless:
        assert str(run_folder) in capsys.readouterr().err


# The folder.


def start(folder, *options, **how):
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(folder), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **how)


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def test_one_process_at_a_time(run_folder):
    endless = as_options(steps="1000000", eval_every="1000000", save_every="2")
    first = start(run_folder, "--resume", *endless, stdout=subprocess.DEVNULL)
    wait_for(run_folder / "checkpoints" / "step-00000006", first)
    second = start(run_folder, "--resume", *endless, stdout=subprocess.DEVNULL)
    said = second.communicate()[1]
    assert second.returncode == 1
    assert f"{run_folder} is in use by process {first.pid} on " in said
    assert "--out" in said
    assert first.poll() is None
    first.kill()  # the lock ends with it
    first.communicate()
    steps = int(max(run_folder.glob("checkpoints/step-*")).name[5:]) + 1
    assert resume(run_folder, "--steps", str(steps), "--eval-every", "1000") == 0


def test_twice_in_one_process(run_folder, monkeypatch):
    from lion.train import loop

    ordinary = loop.Trainer.evaluate

    def again(self):
        with pytest.raises(ValueError, match="is in use: this process trains in it already"):
            train(small(steps="6"), run_folder, resume=True)
        return ordinary(self)

    monkeypatch.setattr(loop.Trainer, "evaluate", again)
    train(small(steps="6"), run_folder, resume=True)


def test_a_closed_terminal_saves(tmp_path):
    folder = tmp_path / "run"
    leader, terminal = pty.openpty()
    options = as_options(save_every="1000000", eval_every="1000000", steps="1000000")
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(folder), *options]
    how = {"stdin": terminal, "stdout": terminal, "stderr": terminal, "start_new_session": True}
    session = (  # with a signal that nohup would have it ignore
        "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen([sys.executable, "-c", session, *command], **how)
    os.close(terminal)
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        if select.select([leader], [], [], 0.05)[0]:
            os.read(leader, 1 << 16)
    os.close(leader)  # which the system tells with SIGHUP, and then the terminal takes no more
    assert process.wait(timeout=60) == 128 + signal.SIGHUP
    assert list(folder.glob("checkpoints/step-*"))


def test_what_was_left_is_cleaned(run_folder):
    for name in (".run.json.123", ".curves.png.77", ".metrics.jsonl.4"):
        (run_folder / name).write_text("half")
    for name in (".model.123", "checkpoints/.step-00000006.99"):
        (run_folder / name).mkdir()
    (run_folder / "model").rename(run_folder / ".model.old")  # killed between two renamings
    (run_folder / ".notes").write_text("mine")
    assert resume(run_folder) == 0
    left = {path.name for path in [*run_folder.iterdir(), *(run_folder / "checkpoints").iterdir()]}
    assert {name for name in left if name.startswith(".")} == {".lock", ".notes"}
    assert (run_folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("run.json", errno.EROFS),
        ("metrics.jsonl", errno.ENOSPC),
        ("result.json", errno.EACCES),
        ("environment.json", errno.EIO),
    ],
)
def test_what_the_file_system_refuses(name, number, run_folder, monkeypatch, capsys):
    ordinary = files.replace

    def refuse(path, write):
        if path.name == name:
            raise OSError(number, os.strerror(number), str(path))
        ordinary(path, write)

    before = (run_folder / "run.json").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", refuse)
        assert resume(run_folder, "--steps", "5") == 1
    said = capsys.readouterr().err
    words, remedy = files.TROUBLE[number]
    assert f"{name} could not be written to {run_folder}: {words}. Remedy: {remedy}." in said
    assert name == "result.json" or name == "metrics.jsonl" or (run_folder / "run.json").read_text() == before
    assert resume(run_folder, "--steps", "5") == 0


def test_a_process_that_loads_data_dies(run_folder, monkeypatch, capsys):
    from lion.data.images import MemorySet

    monkeypatch.setattr(MemorySet, "__getitems__", lambda self, keys: os.kill(os.getpid(), signal.SIGKILL))
    assert resume(run_folder, "--steps", "6", "--workers", "1") == 1
    assert "a process that loads data has died" in capsys.readouterr().err


def test_a_process_that_loads_data_finds_something_wrong(run_folder, monkeypatch, capsys):
    from lion.data.images import MemorySet

    def broken(self, keys):
        raise ValueError("cat.png cannot be read (it is a dog): remove it or replace it.")

    monkeypatch.setattr(MemorySet, "__getitems__", broken)
    assert resume(run_folder, "--steps", "6", "--workers", "1") == 1
    assert capsys.readouterr().err.endswith(
        "lion train: cat.png cannot be read (it is a dog): remove it or replace it.\n"
    )

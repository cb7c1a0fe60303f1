"""The training loop: it learns, goes on exactly where it stopped, and stops with a reason."""

import errno
import itertools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch

from lion import files
from lion.data.images import MemorySet
from lion.train import loop
from lion.train.checkpoint import Checkpoint
from lion.train.ending import Diverged
from lion.train.loop import train
from lion.train.optim import learning_rate
from lion.train.report import read_metrics
from tests import THOROUGH
from tests.train.runs import as_options, small

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def losses(folder):
    return [row["loss"] for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "train"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    torch.set_num_threads(1)  # as in the other tests: torch's sums depend on it
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(small(), folder)
    return folder


def test_it_learns_and_leaves_everything(tmp_path):
    longer = {"steps": "150", "eval_every": "50", "save_every": "50", "ema": "0.9", "augment__shift": "0"}
    metrics = train(
        small(
            **longer,
            model__dim="32",
            model__patch_size="4",
            model__positions="learned",
            model__dropout="0",
            optim__lr="5e-3",
        ),
        tmp_path / "run",
    )
    assert metrics["accuracy"] > 0.7
    assert losses(tmp_path / "run")[0] > 2.2
    found = {path.name for path in (tmp_path / "run").iterdir()}
    wanted = {"run.json", "environment.json", "metrics.jsonl", "curves.png", "checkpoints", "model", "result.json"}
    assert wanted <= found
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result == {"step": 150, **metrics}
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"accuracy {metrics['accuracy']:.4g}" in card
    assert "| steps | 150 of " in card


def test_the_same_in_another_form(whole, tmp_path):
    train(small(form="full"), tmp_path / "run")
    assert losses(tmp_path / "run") == pytest.approx(losses(whole), rel=1e-4)


def test_it_repeats_itself(whole, tmp_path):
    train(small(), tmp_path / "again")
    assert weights(tmp_path / "again") == weights(whole)
    train(small(seed="1"), tmp_path / "other")
    assert weights(tmp_path / "other") != weights(whole)


def test_processes_that_load_data_change_nothing(whole, tmp_path, recwarn):
    train(small(workers="99"), tmp_path / "run")
    assert weights(tmp_path / "run") == weights(whole)
    assert not [x for x in recwarn if "worker processes" in str(x.message)]  # of more than there are cores


@pytest.mark.parametrize("step", [4, 8])
def test_resuming_changes_nothing(whole, tmp_path, step, monkeypatch):
    """Stopped in the middle of a step, after some that no checkpoint has."""
    ordinary = loop.Trainer._step

    def stop(self, n, batches):
        if n == step + 2:
            raise KeyboardInterrupt
        return ordinary(self, n, batches)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(small(), tmp_path / "run")
    train(small(), tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(whole)
    assert losses(tmp_path / "run") == losses(whole)


def test_the_classifier_keeps_its_learning_rate(whole, tmp_path):
    """Also in a run that goes on: the rates of groups are not in checkpoints."""
    train(small(optim__head="3"), tmp_path / "whole")
    train(small(optim__head="3", steps="8", optim__schedule="constant"), tmp_path / "parts")
    train(small(optim__head="3", optim__schedule="constant"), tmp_path / "parts", resume=True, accept=["steps"])
    train(small(optim__head="3", optim__schedule="constant"), tmp_path / "once")
    assert weights(tmp_path / "parts") == weights(tmp_path / "once")
    assert weights(tmp_path / "whole") != weights(whole)


def test_resuming_a_finished_run_does_nothing(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    metrics = train(small(), tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(whole)
    assert metrics["accuracy"] == json.loads((whole / "result.json").read_text())["accuracy"]


@pytest.mark.skipif(not THOROUGH, reason="tests/torture/lost_runs.py kills at chosen moments: make thorough")
def test_killed_again_and_again(whole, tmp_path):
    """SIGKILL at moments of no choice of ours; it saves after every step, so most of them hit a save."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(folder), "--resume"]
    command += as_options(save_every="1")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ONE_THREAD}
    kills = 0
    for wait in itertools.chain((0.05, 0.15), itertools.repeat(None)):
        process = subprocess.Popen(command, **quiet)
        if wait is not None:
            newest = max((folder / "checkpoints").glob("step-*"), default=None)
            while process.poll() is None:  # until it has saved once more, then a little longer
                if max((folder / "checkpoints").glob("step-*"), default=None) != newest:
                    break
                time.sleep(0.002)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
            continue
        assert process.wait() == 0
        break
    assert kills >= 1
    assert weights(folder) == weights(whole)
    assert not list((folder / "checkpoints").glob(".*"))


def test_a_term_signal_saves_and_ends(whole, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(folder)]
    options = as_options(save_every="1000", steps="100000")
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (folder / "metrics.jsonl").exists() or len(losses(folder)) < 5:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "which is saved; go on: lion train --resume --out" in errors
    (saved,) = (folder / "checkpoints").iterdir()
    assert int(saved.name.removeprefix("step-")) == len(losses(folder))


def test_parts_of_a_batch_add_up(tmp_path):
    quiet = {"model__dropout": "0", "model__drop_path": "0", "steps": "6"}
    train(small(**quiet), tmp_path / "whole")
    train(small(**quiet, accumulate="4"), tmp_path / "parts")
    torch.testing.assert_close(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_bfloat16(tmp_path, capability, monkeypatch, capsys):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    train(small(precision="bfloat16"), tmp_path / "run")
    assert all(map(math.isfinite, losses(tmp_path / "run")))
    assert ("--precision float32 is several times as fast" in capsys.readouterr().out) == (capability == "AVX2")


def run_ranks(command, ranks=2):
    """As torchrun starts them, without a process of its own that imports torch."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    every = {**ONE_THREAD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    running = [subprocess.Popen(command, env={**every, **x}, stdout=subprocess.DEVNULL) for x in own]
    assert [process.wait() for process in running] == [0] * ranks


@pytest.mark.parametrize("shard", ["false", "true"] if THOROUGH else ["true"])
def test_two_processes_train_the_same_model(tmp_path, shard):
    quiet = {"model__dropout": "0", "model__drop_path": "0", "save_every": "6", "ema": "0.9"}
    train(small(**quiet), tmp_path / "one")
    two = tmp_path / "two"
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(two)]
    command += as_options(**quiet, shard=shard)
    run_ranks(command)
    torch.testing.assert_close(losses(two), losses(tmp_path / "one"), rtol=1e-4, atol=1e-5)
    metrics = [json.loads((folder / "result.json").read_text()) for folder in (tmp_path / "one", two)]
    assert metrics[1]["loss"] == pytest.approx(metrics[0]["loss"], rel=1e-4)
    if shard == "false":
        return
    before = weights(two)
    shutil.rmtree(two / "checkpoints" / "step-00000012")
    run_ranks([*command, "--resume"])
    assert weights(two) == before


def test_a_nan_in_the_data_is_found(tmp_path, monkeypatch):
    ordinary = MemorySet.__getitems__

    def broken(self, keys):
        batch = ordinary(self, keys)
        if keys[0] == broken.first or broken.calls >= 9:
            batch["image"][0, 0, 0, 0] = torch.nan
        broken.calls += 1
        return batch

    broken.first, broken.calls = None, 0
    monkeypatch.setattr(MemorySet, "__getitems__", broken)
    with pytest.raises(Diverged) as caught:
        train(small(eval_every="1000"), tmp_path / "run")
    message = str(caught.value)
    assert message.startswith("log_decay is NaN at [")
    assert "That was at step 10. The data are the cause: image has values that are not finite." in message
    assert "The last good checkpoint is" in message
    assert message.endswith("step-00000008.")


def test_a_learning_rate_that_is_too_high_is_named(tmp_path):
    with pytest.raises(Diverged, match=r"probably too high: try a smaller --optim.lr, or --optim.clip 1"):
        train(small(optim__lr="1e30", optim__clip="0", optim__warmup="0", steps="50"), tmp_path / "run")


def test_no_run_is_overwritten(whole):
    before = weights(whole)
    with pytest.raises(ValueError, match="has a run already: --resume continues it, --out names another folder"):
        train(small(), whole)
    assert weights(whole) == before


def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def test_a_damaged_checkpoint_is_named_and_kept(whole, tmp_path):
    folder = copy(whole, tmp_path)
    path = folder / "checkpoints" / "step-00000012" / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2)
    with pytest.raises(ValueError, match="cannot be used") as caught:
        train(small(), folder, resume=True)
    assert f"model.safetensors is damaged: it has {size // 2:,} bytes; expected {size:,}." in str(caught.value)
    assert "Remove that folder to go on from step-00000008." in str(caught.value)
    shutil.rmtree(path.parent)
    train(small(), folder, resume=True)
    assert weights(folder) == weights(whole)


def test_a_flipped_bit_is_found(whole, tmp_path):
    folder = copy(whole, tmp_path)
    path = folder / "checkpoints" / "step-00000012" / "optimizer.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"optimizer.safetensors is damaged: its checksum is wrong"):
        train(small(), folder, resume=True)


def test_a_checkpoint_of_another_model_is_refused(whole, tmp_path):
    folder = copy(whole, tmp_path)
    with pytest.raises(ValueError, match=r"another one: model.depth is 2, was 1\. .*--accept model.depth"):
        train(small(model__depth="2"), folder, resume=True)
    with pytest.raises(ValueError, match="is of another model than this run's"):
        train(small(model__depth="2"), folder, resume=True, accept=["model"])


def test_a_full_disk_loses_nothing(whole, tmp_path, monkeypatch):
    ordinary = files.write_tensors

    def full(path, tensors):
        if "step-00000008" in str(path):
            path.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        ordinary(path, tensors)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_tensors", full)
        with pytest.raises(OSError, match=r"the checkpoint of step 8 .*: the disk is full. .*step-00000004, is whole"):
            train(small(), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000004"]
    train(small(), tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(whole)


def test_checkpoints_are_found_by_their_names_only(tmp_path):
    for name in ("step-00000004", ".step-00000008.123", "step-8", "notes"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert Checkpoint(tmp_path).last().name == "step-00000004"


def test_schedules():
    optim = small(optim__warmup="0.1", optim__final="0.1", optim__lr="1").optim
    rates = [learning_rate(optim, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1
    assert rates[55] == pytest.approx(0.55)
    assert 0.1 < rates[99] < 0.102
    linear = small(optim__schedule="linear", optim__warmup="0", optim__final="0", optim__lr="1").optim
    assert [learning_rate(linear, step, 4) for step in range(4)] == [1, 0.75, 0.5, 0.25]

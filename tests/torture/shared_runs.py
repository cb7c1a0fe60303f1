"""Two processes in one folder, and runs of several processes of which one is killed."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.torture import Campaign
from tests.torture.lost_runs import same
from tests.train.runs import as_options

SECONDS = 120  # after which a run hangs
LEFT = 60  # in which a process has to end if another one has been lost
DIGITS = ["digits.lion_s", *as_options(steps="40", save_every="2", eval_every="20")]


def run(numbers: range, seed: int) -> list[Campaign]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        genome = home / "genome.fa"
        bases = random.Random(seed).choices("ACGT", k=6000)
        genome.write_text(f">one\n{''.join(bases)}\n")
        shared = ["dna", "--data", str(genome), "--sequence-parallel", "2", "--length", "301", "--block", "400"]
        shared += ["--steps", "40", "--save_every", "2", "--eval_every", "20", "--batch", "2", "--ema", "0.9"]
        shared += ["--model.dim", "16", "--model.heads", "2", "--model.depth", "2"]
        return [
            _two_in_a_folder(home / "two", numbers, seed),
            _ranks("killed ranks", DIGITS, home / "ranks", numbers, seed),
            _ranks("killed ranks, one sequence", shared, home / "pieces", numbers, seed),
        ]


def _start(folder: Path, recipe: list[str] = DIGITS, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lion.cli", "train", *recipe, "--out", str(folder), "--resume"]
    every = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=every)


def _two_in_a_folder(home: Path, numbers: range, seed: int) -> Campaign:
    campaign = Campaign("two processes in one folder")
    whole = home / "whole"
    assert _ended(_start(whole))[0] == 0
    for number in numbers:
        generator = random.Random(f"{seed} {number}")
        wait, kill = generator.uniform(0, 2), generator.random() < 0.5
        with campaign.attempt(
            f"number {number}: the second {wait:.2f} s after the first, {'killed' if kill else 'left'}"
        ):
            folder = home / "run"
            shutil.rmtree(folder, ignore_errors=True)
            first = _start(folder)
            time.sleep(wait)
            second = _start(folder)
            if kill:
                time.sleep(generator.uniform(1, 6))
                first.kill()
            codes = []
            for process in (first, second):
                code, said = _ended(process)
                codes.append(code)
                assert code in (0, 1, -signal.SIGKILL), said
                refused = f"{folder} is in use by " in said or f"has just begun a run in {folder}" in said
                assert code != 1 or refused, said
            assert kill or 0 in codes, codes
            code, said = _ended(_start(folder))
            assert code == 0, said
            same(folder, whole)
    return campaign


def _ranks(name: str, recipe: list[str], home: Path, numbers: range, seed: int) -> Campaign:
    campaign = Campaign(name)
    whole = home / "whole"
    done = [_ended(x) for x in _start_ranks(whole, recipe)]
    assert [code for code, _ in done] == [0, 0], done
    for number in numbers:
        generator = random.Random(f"{seed} {number}")
        victim, wait = generator.randrange(2), generator.uniform(0.5, 8)
        with campaign.attempt(f"number {number}: rank {victim} killed after {wait:.2f} s"):
            folder = home / "run"
            shutil.rmtree(folder, ignore_errors=True)
            ranks = _start_ranks(folder, recipe)
            time.sleep(wait)
            together = (folder / "run.json").exists()
            ranks[victim].kill()
            if not together:  # the other one would wait for it to come, a long time: torchrun ends it
                ranks[1 - victim].terminate()
            code, said = _ended(ranks[1 - victim], LEFT)
            _ended(ranks[victim])
            if together:
                assert code in (0, 1), said
                assert code == 0 or said.strip().splitlines()[-1].startswith("lion train: another process"), said
            done = [_ended(x) for x in _start_ranks(folder, recipe)]
            assert [code for code, _ in done] == [0, 0], done
            same(folder, whole)
    return campaign


def _start_ranks(folder: Path, recipe: list[str]) -> list[subprocess.Popen[str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [_start(folder, recipe, **every, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]


def _ended(process: subprocess.Popen[str], seconds: float = SECONDS) -> tuple[int, str]:
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(Exception):
            process.communicate(timeout=5)
        raise AssertionError(f"it did not end in {seconds} seconds") from None
    return process.returncode, said

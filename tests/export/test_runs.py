"""`lion export`: from a finished run to a folder, and to a server that answers."""

import concurrent.futures
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion.cli import main
from lion.train.evaluate import most_likely, predict
from lion.train.loop import train
from tests import THOROUGH
from tests.tasks.texts import shrunk, write_texts
from tests.train.runs import small

REQUESTS = 200
DOCS = Path(__file__).parents[2] / "docs/deploy.md"


@pytest.fixture(scope="module")
def texts_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    run = shrunk("text", data=str(write_texts(folder / "data", 20) / "reviews.csv"))
    run = replace(run, task=replace(run.task, max_length=0), epochs=0, steps=4, min_steps=0, batch=16, eval_every=4)
    train(run, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    train(small(), folder)
    return folder


@pytest.fixture(scope="module")
def exported(texts_run):
    assert main(["export", str(texts_run)]) == 0
    return texts_run / "onnx"


def test_folder(exported):
    """What is needed to use the model, and nothing else; described to people and to programs."""
    names = {path.name for path in exported.iterdir()}
    assert names == {"model.onnx", "README.md", "model.json", "tokenizer.json", "tokenizer_config.json"}
    about = json.loads((exported / "model.json").read_text())
    assert [x["name"] for x in about["inputs"]] == ["input_ids", "attention_mask"]
    assert about["outputs"][0]["shape"] == ["batch", 2]
    assert about["data"]["classes"] == ["neg", "pos"]
    card = (exported / "README.md").read_text()
    assert re.search(r"\| `input_ids` \| \[batch, length\] \| int64 \| numbers of tokens, 0 to \d+ \|", card)
    assert "sizes compared with torch, the largest difference" in card


def test_server(exported, texts_run, tmp_path):
    """The server of the docs: many requests at once, texts of all lengths, and nonsense in between."""
    [code] = re.findall(r"```python\n(import json, sys\n.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "serve.py").write_text(code)
    assert len(code.splitlines()) <= 40
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "serve.py", exported, str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    words = ["the", "film", "was", "superb", "and", "dull", "of", "actor", "[MASK]"]
    texts = [" ".join(words[(n + i) % len(words)] for i in range(1 + 37 * n % 400)) for n in range(REQUESTS)]
    try:
        wait_for(port, server)
        with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
            answers = list(pool.map(lambda text: ask(port, {"text": text}), texts))
        for nonsense in ({}, {"text": 7}, ["text"]):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                ask(port, nonsense)
    finally:
        server.kill()
        server.wait()
    for answer, guesses in zip(answers, most_likely(predict(texts_run, texts, best=2)), strict=True):
        assert answer == pytest.approx({guess.label: guess.probability for guess in guesses}, abs=1e-5)


def wait_for(port, server, patience=120):
    end = time.monotonic() + patience
    while server.poll() is None and time.monotonic() < end:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server has not started")


def ask(port, content):
    request = urllib.request.Request(f"http://127.0.0.1:{port}", json.dumps(content).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


def test_weights_of_8_bits(digits_run, tmp_path, capsys):
    out = tmp_path / "small"
    assert main(["export", str(digits_run), "--int8", "--out", str(out)]) == 0
    metrics = json.loads((out / "model.json").read_text())["metrics"]
    assert abs(metrics["float32"]["accuracy"] - metrics["int8"]["accuracy"]) < 0.05
    assert metrics["float32"]["loss"] != metrics["int8"]["loss"]
    assert "int8: loss" in capsys.readouterr().out
    assert b"MatMulInteger" in (out / "model.onnx").read_bytes()
    assert "scaled by (pixel - mean) / std" in (out / "README.md").read_text()


@pytest.mark.parametrize("to", ["pt2", *(["aoti"] if THOROUGH else [])])
def test_without_lion(digits_run, to, capsys):
    """The command itself runs the file in a process that has no lion, and compares."""
    assert main(["export", str(digits_run), "--to", to]) == 0
    assert "sizes compared with torch" in capsys.readouterr().out
    assert {path.name for path in (digits_run / to).iterdir()} == {"model.pt2", "README.md", "model.json"}


def test_what_is_refused(digits_run, tmp_path, capsys):
    """In words, and nothing is left behind."""
    unfinished, there = tmp_path / "unfinished", tmp_path / "there"
    unfinished.mkdir()
    there.mkdir()
    (unfinished / "run.json").write_text((digits_run / "run.json").read_text())
    for options, message in {
        (str(tmp_path),): f"there is no run in {tmp_path}",
        (str(unfinished),): f"the run in {unfinished} is not finished; expected a finished one: lion train --resume",
        (str(digits_run), "--out", str(there)): f"{there} exists; expected a new folder: remove it, or choose another",
        (str(digits_run), "--to", "tflite"): "to is 'tflite'; expected one of 'onnx', 'aoti', 'pt2'",
        (str(digits_run), "--to", "pt2", "--int8"): "int8 is asked for, and to is 'pt2'; expected 'onnx'",
    }.items():
        assert main(["export", *options]) == 1
        assert message in capsys.readouterr().err
    assert {x.name for x in tmp_path.iterdir()} == {"unfinished", "there"}


def test_a_file_that_differs_is_not_written(digits_run, tmp_path, monkeypatch, capsys):
    from lion.export import trials

    monkeypatch.setattr(trials, "TOLERANCE", -1.0)  # as if every answer were wrong
    assert main(["export", str(digits_run), "--to", "pt2", "--out", str(tmp_path / "out")]) == 1
    assert "the pt2 file in a new process differs from torch at" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

"""Recipes whose data is not here: a message that says what to give, and no folder of a run."""

import re
import sys

import pytest

from lion.cli import main
from lion.tasks._base import forget

HUB = r"is on the Hugging Face hub; .*lion-attention\[hub\]'; or give files of your own as data"
MESSAGES = {
    "mlm.c4_lion_s_base": HUB,
    "mlm.c4_bert_base": HUB,
    "causal.openwebtext_lion_s": HUB,
    "glue.m2_base_mnli": r"MNLI is not in .*; expected train\.tsv.*: give that as data, or hf://nyu-mll/glue",
    "imagenet.lion_s_tiny": r"is not a folder; expected one with a subfolder per class: give it as data",
    "cifar100.lion_s": r"cifar100 is not in .*: give its folder as data",
    "cifar10.lion_s": r"cifar10 is not in .*: give its folder as data, or lion\.data\.fetch\('cifar10'\)",
    "lra.retrieval.lion_s": r"has no new_aan_pairs\.\w+\.tsv; expected it there",
    "lra.text.lion_s": r"imdb is not in .*, and LION_OFFLINE is set; expected 0 to fetch it",
    "mlm.lion_s": r"english is not in .*, and LION_OFFLINE is set; expected 0 to fetch it",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_to_give(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    forget()  # what other tests have read
    monkeypatch.setitem(sys.modules, "datasets", None)
    # The tokenizers that are fetched with others are not what this is about.
    extra = ["--tokenizer", "bytes"] if MESSAGES[name] == HUB else []
    assert main(["train", name, *extra]) == 1
    said = capsys.readouterr().err
    assert re.search(MESSAGES[name], said), said
    assert not (tmp_path / "runs").exists()

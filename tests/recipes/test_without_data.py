"""Recipes whose data is not here: a message that says what to give, and no folder of a run."""

import re
import sys

import pytest

from lion import recipes
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


# All recipes whose data no package registry has, by the beginnings of their names, and one of MESSAGES.
HERE_NOT = {
    ("mlm.c4_", "causal.openwebtext_"): HUB,
    ("glue.",): r"is not in .*; expected train\.tsv.*: give that as data, or hf://nyu-mll/glue",
    ("imagenet.", "distill.imagenet_"): MESSAGES["imagenet.lion_s_tiny"],
    ("cifar100.", "ablation."): MESSAGES["cifar100.lion_s"],
    ("lra.retrieval.",): MESSAGES["lra.retrieval.lion_s"],
}


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    forget()  # what other tests have read
    monkeypatch.setitem(sys.modules, "datasets", None)


def check(name, message, capsys, tmp_path):
    # The tokenizers that are fetched with others are not what this is about.
    extra = ["--tokenizer", "bytes"] if message == HUB else []
    assert main(["train", name, *extra]) == 1
    said = capsys.readouterr().err
    assert re.search(message, said), (name, said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", MESSAGES)
def test_what_to_give(name, nothing_here, capsys, tmp_path):
    check(name, MESSAGES[name], capsys, tmp_path)


@pytest.mark.parametrize("beginnings", HERE_NOT)
def test_every_recipe_whose_data_is_elsewhere_says_what_to_give(beginnings, nothing_here, capsys, tmp_path):
    names = [x for x in recipes.RECIPES if x.startswith(beginnings) and not x.endswith("_cifar10")]
    assert len(names) >= 10
    for name in names:
        check(name, HERE_NOT[beginnings], capsys, tmp_path)

"""Recipes whose data is not here: a message that says what to give, and no folder of a run."""

import re
import sys

import pytest

from lion import recipes
from lion.cli import main
from lion.tasks._base import forget

OFFLINE = r"is not in .*, and LION_OFFLINE is set; expected 0 to fetch it, or its files there"
HUB = r"is on the Hugging Face hub; .*lion-attention\[hub\]'; or give files of your own as data \(--data\)"
GLUE = r"is not in .*; expected train\.tsv.*: give that as data \(--data FOLDER, or --data hf://nyu-mll/glue\)"
MESSAGES = {  # by the beginnings of recipes' names; the first that fits
    ("mlm.c4_", "causal.openwebtext_"): HUB,
    ("glue.",): GLUE,
    ("imagenet.", "distill.imagenet_"): r"is not a folder; expected one with train and val, .* \(--data FOLDER\)",
    (
        "lra.retrieval.",
    ): r"has no new_aan_pairs\.\w+\.tsv; expected it there.*: give the folder as data \(--data FOLDER\)",
    ("cifar10.", "mnist.", "distill."): OFFLINE,
    ("cifar100.", "ablation."): r"cifar100 is not in .*: give its folder as data \(--data FOLDER\)",
    ("lra.text.", "lra.image.", "lra_laptop.text.", "lra_laptop.image.", "text.imdb_", "mlm", "causal"): OFFLINE,
    ("images", "text", "series", "dna.classify"): r"there is no data; expected .*: lion train \S+ --data \S+",
    ("dna",): OFFLINE,
}
NEEDS_NONE = ("digits.", "lra.listops.", "lra.pathfinder.", "lra.pathx.", "lra_laptop.listops.")


def beginnings(name):
    return next((x for x in MESSAGES if name.startswith(x)), None)


# Without ablations at laptop scale, whose data is that of cifar10.*
CASES = [x for x in recipes.RECIPES if not (x.startswith("ablation.") and x.endswith("_cifar10"))]


@pytest.mark.parametrize("known", MESSAGES)
def test_every_recipe_says_what_to_give(known, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    forget()  # what other tests have read
    monkeypatch.setitem(sys.modules, "datasets", None)
    # The tokenizers that are fetched with others are not what this is about.
    extra = ["--tokenizer", "bytes"] if MESSAGES[known] == HUB else []
    names = [x for x in CASES if beginnings(x) == known]
    if MESSAGES[known] == OFFLINE:  # data that can be had by one call: a recipe of each kind is enough
        names = [next(x for x in names if x.startswith(beginning)) for beginning in known]
    for name in names:
        assert main(["train", name, *extra]) == 1
        said = capsys.readouterr().err
        assert re.search(MESSAGES[known], said), (name, said)
        assert not (tmp_path / "runs").exists()


def test_all_others_need_no_data():
    assert {x for x in CASES if beginnings(x) is None} == {x for x in CASES if x.startswith(NEEDS_NONE)}

"""Sizes that no machine has room for are refused before anything is tried."""

import re

import numpy as np
import pytest

from lion.cli import main
from lion.data.corpora import documents
from lion.data.fasta import Genome
from lion.data.genomes import Windows
from lion.data.images import load_images, read_image
from lion.data.labelled_dna import LabelledDna, LabelledSequences
from lion.data.long_range.listops import ListOpsRules
from lion.data.long_range.pathfinder import pathfinder_rules
from lion.data.long_range.sequences import Counts, in_order
from lion.data.packed import PackedTokens
from lion.data.tokenizers import ByteTokenizer, train_byte_bpe, train_wordpiece

HUGE = 10**11
DNA = LabelledDna([np.ones(3, np.uint8)], np.zeros(1, np.int64), ["a", "b"])
TEXTS = ["some words"]
CASES = {
    "vocab_size is 100000000000; expected a whole number from 1 to 4,194,304.": [
        lambda: train_wordpiece(TEXTS, HUGE),
        lambda: train_byte_bpe(TEXTS, HUGE),
    ],
    "vocab_size is 5; expected at least 6, for the special tokens and a character.": [
        lambda: train_wordpiece(TEXTS, 5),
    ],
    "vocab_size is 256; expected at least 257, for every byte and the end of a text.": [
        lambda: train_byte_bpe(TEXTS, 256),
    ],
    "alphabet is 100000000000; expected a whole number from 1 to 4,194,304.": [
        lambda: train_wordpiece(TEXTS, 100, alphabet=HUGE),
    ],
    "size is 100000000000; expected a whole number from 1 to 16,384.": [
        lambda: load_images("digits", "train", size=HUGE),
    ],
    "size is (100000000000, 8); expected 2 values, each a whole number from 1 to 16,384.": [
        lambda: read_image("x.png", size=(HUGE, 8)),
    ],
    "length is 100000000000; expected a whole number from 2 to 1,073,741,824.": [
        lambda: PackedTokens(TEXTS, ByteTokenizer(), HUGE),
    ],
    "limit is 100000000000000000000000; expected a whole number from 1 to 1,000,000,000,000.": [
        lambda: documents("x", limit=HUGE * 10**12),
    ],
    "max_length is 100000000000; expected a whole number from 2 to 1,073,741,824.": [
        lambda: LabelledSequences(DNA, HUGE),
    ],
    "max_depth is 100000000000; expected a whole number from 2 to 100.": [lambda: ListOpsRules(max_depth=HUGE)],
    "max_args is 100000000000; expected a whole number from 2 to 100.": [lambda: ListOpsRules(max_args=HUGE)],
    "contour_length is 100000000000; expected a whole number from 3 to 128.": [lambda: pathfinder_rules(32, HUGE)],
    "the count of train is 100000000000000; expected a whole number from 1 to 1,000,000,000,000.": [
        lambda: Counts(HUGE * 1000, 1, 1).check()
    ],
    "processes is 100000000000; expected a whole number from 1 to 1,024.": [lambda: next(in_order(len, [], HUGE))],
}


@pytest.mark.parametrize("message", CASES)
def test_sizes_that_are_refused(message):
    for make in CASES[message]:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            make()


def test_windows(tmp_path, monkeypatch):
    (tmp_path / "x.fa").write_text(">x\n" + "ACGT" * 100)
    genome = Genome(tmp_path / "x.fa", folder=tmp_path)
    for name in ("length", "block"):
        with pytest.raises(
            ValueError, match=f"^{name} is 100000000000000; expected a whole number from 1 to 1,073,741,824.$"
        ):
            Windows(genome, **{"length": 4, "block": 40, name: 10**14})
    monkeypatch.setattr("lion.data.genomes.MOST_BLOCKS", 100)
    with pytest.raises(ValueError, match=r"^block is 3; expected at least 5 nucleotides\.$"):
        Windows(genome, 2, block=3)


@pytest.mark.parametrize("recipe", ["mlm", "causal", "text"])
def test_a_run_says_so(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    ending, content = (".csv", "text,label\n" + "a b,1\nc d,2\n" * 9) if recipe == "text" else (".txt", "a b\n\n" * 99)
    (tmp_path / f"x{ending}").write_text(content)
    options = ["--data", str(tmp_path / f"x{ending}"), "--out", str(tmp_path / "run"), "--vocab_size", str(HUGE)]
    assert main(["train", recipe, *options]) == 1
    assert "--vocab_size is '100000000000'; expected a whole number from 1 to" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

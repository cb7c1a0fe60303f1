"""A line may be as long as a file: what reads it takes time in proportion to its length."""

import json
import math
import re
import time

import pytest

from lion.data import tables
from lion.data.corpora import corpus
from lion.data.fasta import read_fasta
from lion.data.labelled import labelled
from lion.data.labelled_dna import labelled_sequences
from lion.data.tokenizers import LONGEST_RUN, _cut, train_byte_bpe


def reading(name, content, read):
    """How long it takes to read a file whose content depends on a size."""

    def seconds(folder, size):
        (folder / name).write_text(content(size))
        began = time.process_time()
        read(folder / name)
        return time.process_time() - began

    return seconds


def training(folder, size):
    texts = ["ab" * (size // 8)]
    began = time.process_time()
    train_byte_bpe(texts, 270)
    return time.process_time() - began


def words(size):
    return "ab " * (size // 3)


CASES = {
    "lines": reading("x.txt", words, lambda path: list(corpus(path, per="line"))),
    "paragraphs": reading("x.txt", words, lambda path: list(corpus(path, per="paragraph"))),
    "files": reading("x.txt", lambda size: "ab" * (size // 2), lambda path: list(corpus(path))),
    "csv": reading("x.csv", lambda size: f"text,label\n{words(size)},1\nx,2\n", labelled),
    "jsonl": reading("x.jsonl", lambda size: json.dumps({"text": words(size)}), lambda path: list(corpus(path))),
    "fasta": reading("x.fa", lambda size: f">x\n{'ACGT' * (size // 4)}", lambda path: list(read_fasta(path))),
    "headers": reading("x.fa", lambda size: f">{'x' * size}\nACGT", lambda path: list(read_fasta(path))),
    "labels": reading("x.fa", lambda n: f">{'x' * n} 1\nA\n>{'y' * n} 2\nA", labelled_sequences),
    "labels after a bar": reading("x.fa", lambda n: f">{'x' * n}|1\nA\n>{' y' * n}|2\nA", labelled_sequences),
    "byte-level BPE": training,
}


@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_length(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 1 << 7)  # small, so that all of it stays in the processor's cache
    best = {1: math.inf, 4: math.inf}
    for _ in range(5):
        for times in best:
            best[times] = min(best[times], CASES[name](tmp_path, times << 17))
        if best[4] < 8 * best[1]:
            return
    raise AssertionError(f"4 times the length takes {best[4] / best[1]:.1f} times as long; expected less than 8")


def test_long_lines_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 7)
    line = "".join(f"{i} " for i in range(1000))
    (tmp_path / "x.txt").write_text(f"\n{line}\n\n\n{line}")
    assert list(tables.text_lines(tmp_path / "x.txt")) == ["\n", f"{line}\n", "\n", "\n", line]
    (tmp_path / "x.fa").write_text(f">{line}|a\nACGT\n>b {line}|c\nA")
    assert [record.header for record in read_fasta(tmp_path / "x.fa")] == [f"{line}|a", f"b {line}|c"]
    assert labelled_sequences(tmp_path / "x.fa").classes == ["a", "c"]


def test_words_are_cut_only_if_one_is_very_long():
    texts = ["one two three " * 500, "two  three\n\n" * 200, "x" * LONGEST_RUN, " " * LONGEST_RUN, ""]
    assert list(_cut(texts)) == texts
    text = f"some words {'q' * 2000}, and{' ' * 2000}more"
    parts = list(_cut([text]))
    assert "".join(parts) == text
    assert max(len(run) for part in parts for run in re.findall(r"\S+|\s+", part)) == LONGEST_RUN

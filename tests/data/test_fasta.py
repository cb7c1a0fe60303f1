"""FASTA files: every nucleotide once, however they are written; what is wrong is said with its line."""

import gzip
import json
import multiprocessing
import os
import pickle
import re

import numpy as np
import pytest

from lion.data import FETCHED, fasta, lion_data_folder, tables
from lion.data.fasta import COMPLEMENT, VOCABULARY, A, Genome, N, decode, encode, read_fasta, reverse_complement
from lion.files import DamagedFile

RECORDS = {"I": "ACGTN" * 40, "empty": "", "II": "acgu" + "RYSWKMBDHVN", "III": "T"}
BASES = {"I": "ACGTN" * 40, "empty": "", "II": "ACGT" + "N" * 11, "III": "T"}


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    return tmp_path / "genomes"


def fasta_text(records, width=60):
    lines = []
    for name, sequence in records.items():
        lines += [f">{name} > of a test", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    return "\n".join(lines) + "\n"


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


# Sequences.


def test_letters():
    assert decode(encode("ACGTU acgtu\tRYSWKMBDHVN\n")) == "ACGTTACGTT" + "N" * 11
    assert encode("").shape == (0,)
    assert VOCABULARY[A : A + 5] == ("A", "C", "G", "T", "N")
    assert encode("AAC").dtype == np.uint8


def test_the_other_strand():
    assert decode(reverse_complement(encode("AACGTN"))) == "NACGTT"
    np.testing.assert_array_equal(COMPLEMENT[COMPLEMENT], np.arange(len(VOCABULARY)))
    rows = np.stack([encode("AAC"), encode("GNT")])
    assert [decode(row) for row in reverse_complement(rows)] == ["GTT", "ANC"]


@pytest.mark.parametrize("letter", ["E", "-", "1", "é", "\u00a0", "\u017f", "\x1c", "*"])
def test_what_is_no_nucleotide(letter):
    remedy = "take gaps out." if letter == "-" else "is this a protein, or no FASTA?"
    want = "expected A, C, G, T or U, or IUPAC's letters for several of them (RYSWKMBDHVN)"
    with fails(ValueError, f"here has {letter!r}, which is no nucleotide; {want}: {remedy}"):
        encode(f"AC{letter}G", "here")


# Files.


WRITTEN = {
    "lines": lambda text: text,
    "windows": lambda text: text.replace("\n", "\r\n"),
    "old mac": lambda text: text.replace("\n", "\r"),
    "no last line end": lambda text: text.rstrip("\n"),
    "empty lines": lambda text: "\n\n" + text.replace("\n", "\n\n"),
    "spaces": lambda text: text.replace("\n", " \t\n"),
    "byte order mark": lambda text: f"\ufeff{text}",
}


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("width", [1, 60, 1000])
def test_every_way_to_write_them(tmp_path, monkeypatch, way, block, width):
    monkeypatch.setattr(tables, "BLOCK", block)  # bytes
    path = write(tmp_path / "x.fa", WRITTEN[way](fasta_text(RECORDS, width)))
    found = list(read_fasta(path))
    assert [record.header for record in found] == [f"{name} > of a test" for name in RECORDS]
    assert [decode(record.tokens) for record in found] == list(BASES.values())
    lines = path.read_text(encoding="utf-8-sig").split("\n")  # also of the others, by universal newlines
    assert all(lines[record.line - 1].strip() == f">{record.header}" for record in found)


@pytest.mark.parametrize("name", ["x.fa", "x.FASTA.gz", "x.fna"])
def test_a_genome(folder, tmp_path, name):
    found = Genome(write(tmp_path / name, fasta_text(RECORDS)))
    assert found.names == list(RECORDS)
    assert len(found) == sum(map(len, BASES.values())) == 216
    assert isinstance(found.tokens, np.memmap)
    assert found.tokens.dtype == np.uint8
    parts = [decode(found.tokens[a:b]) for a, b in zip(found.bounds, found.bounds[1:], strict=False)]
    assert parts == list(BASES.values())
    assert found.folder.parent == folder
    assert sorted(path.name for path in found.folder.iterdir()) == ["about.json", "gaps.npy", "tokens.bin"]


def test_tokens_are_kept(folder, tmp_path, monkeypatch):
    calls = []
    pack = fasta._pack
    monkeypatch.setattr(fasta, "_pack", lambda *given: calls.append(1) or pack(*given))
    path = write(tmp_path / "x.fa", fasta_text(RECORDS))
    first = Genome(path)
    assert Genome(str(path)).folder == first.folder
    assert len(calls) == 1
    write(path, fasta_text(RECORDS | {"III": "TT"}))
    second = Genome(path)
    assert (len(second), len(calls)) == (217, 2)
    os.utime(path, ns=(0, 0))
    assert Genome(path).folder not in (first.folder, second.folder)
    elsewhere = Genome(path, folder=tmp_path / "other")
    assert elsewhere.folder.parent == tmp_path / "other"


def test_several_files(folder, tmp_path):
    paths = [write(tmp_path / "a.fa", ">a\nAC\n>\nG"), write(tmp_path / "b.fa.gz", ">b\nTT\n")]
    found = Genome(paths)
    assert found.names == ["a", "", "b"]
    assert found.bounds.tolist() == [0, 2, 3, 5]
    assert decode(found.tokens) == "ACGTT"
    assert json.loads((found.folder / "about.json").read_text())["source"] == list(map(str, paths))
    assert decode(Genome(paths[::-1]).tokens) == "TTACG"


def test_gaps(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(fasta, "AT_ONCE", 64)
    sequence = "N" * 100 + "ACGT" * 20 + "N" * 99 + "A" * 9 + "n" * 300 + "C" + "N" * 128
    runs = [m.span() for m in re.finditer("N{100,}", sequence.upper())]
    assert len(runs) == 3
    found = Genome(write(tmp_path / "x.fa", f">x\n{sequence}\n"))
    assert found.gaps.tolist() == [list(run) for run in runs]
    assert Genome(write(tmp_path / "y.fa", ">y\nACGT\n")).gaps.shape == (0, 2)
    assert Genome(write(tmp_path / "z.fa", f">z\n{'N' * 1000}\n")).gaps.tolist() == [[0, 1000]]


def test_workers_open_the_file_by_themselves(folder, tmp_path):
    found = Genome(write(tmp_path / "x.fa", ">x\n" + "ACGT" * 10_000))
    assert (found.tokens != N).all()
    content = pickle.dumps(found)
    assert len(content) < 5000
    np.testing.assert_array_equal(pickle.loads(content).tokens, found.tokens)


def _read_in_another_process(path, folder, queue):
    queue.put(len(Genome(path, folder=folder)))


def test_several_processes_at_once(tmp_path):
    path = write(tmp_path / "x.fa", fasta_text(RECORDS))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [
        context.Process(target=_read_in_another_process, args=(path, tmp_path / "kept", queue)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    assert {queue.get(timeout=60) for _ in processes} == {216}
    for process in processes:
        process.join()
        assert process.exitcode == 0


NO_NUCLEOTIDE = (
    "which is no nucleotide; expected A, C, G, T or U, or IUPAC's letters for several of them (RYSWKMBDHVN): "
    "is this a protein, or no FASTA?"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path} is empty; expected FASTA: lines of a header, '>' and a name, and of a sequence."),
        ("\n\n", "{path} is empty; expected FASTA: lines of a header, '>' and a name, and of a sequence."),
        (">x\nACGT\n\nACEGT\n", f"{{path}}, line 4 has 'E', {NO_NUCLEOTIDE}"),
        (">x\r\nAC\r\nA!\r\n", f"{{path}}, line 3 has '!', {NO_NUCLEOTIDE}"),
        (
            ">x\nACGT>y\nA",
            "{path}, line 2 has '>' within a sequence; expected it at the beginning of a line only: is there a line "
            "end missing?",
        ),
        (">x\n>y\n", "{path} has 2 headers and no nucleotides; expected some."),
        (">x\nAC\0GT\n", "{path}, line 2 has a zero byte; expected text: is this a binary file?"),
    ],
)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_files_that_are_wrong(folder, tmp_path, monkeypatch, text, message, block):
    monkeypatch.setattr(tables, "BLOCK", block)
    path = write(tmp_path / "x.fa", text)
    with fails(ValueError, message.format(path=path)):
        Genome(path)
    assert [x for x in folder.iterdir() if x.is_dir()] == []  # nothing is left behind


def test_files_that_are_no_fasta(folder, tmp_path):
    expected = "expected '>' and a name before any sequence, as FASTA has it."
    path = write(tmp_path / "x.fa", "\nACGT\n>x\nA")
    with fails(ValueError, f"{path}, line 2 is 'ACGT'; {expected}"):
        Genome(path)
    write(path, f"LOCUS{' ' * 40}x\nACGT\n")
    with fails(ValueError, f"{path}, line 1 is 'LOCUS{' ' * 34}\u2026'; {expected}"):
        Genome(path)


def test_files_that_are_damaged(folder, tmp_path):
    path = write(tmp_path / "x.fa.gz", fasta_text(RECORDS))
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=rf"^{path} cannot be read \(.*\): get it again, or allow to read it\.$"):
        Genome(path)
    path = tmp_path / "latin.fa"
    path.write_bytes(b">x\nACGT\n>Sm\xf6rg\xe5s\nACGT\n")
    with pytest.raises(ValueError, match=rf"^{path}, line 3 has the byte 0xf6, which is not UTF-8"):
        Genome(path)
    found = Genome(write(tmp_path / "x.fa", fasta_text(RECORDS)))
    tokens = found.folder / "tokens.bin"
    os.truncate(tokens, 200)
    with fails(DamagedFile, f"{tokens} is damaged: it has 200 bytes; expected 216: remove {found.folder}."):
        Genome(tmp_path / "x.fa")


def test_files_that_are_not_there(folder, tmp_path):
    with fails(ValueError, "paths is empty; expected a FASTA file, or several."):
        Genome([])
    with fails(FileNotFoundError, f"{tmp_path}/x.fa is not there; expected a FASTA file."):
        Genome(tmp_path / "x.fa")
    (tmp_path / "y.fa").mkdir()
    with fails(FileNotFoundError, f"{tmp_path}/y.fa is a folder; expected a FASTA file."):
        list(read_fasta(tmp_path / "y.fa"))
    with fails(ValueError, "x.bam ends in '.bam'; expected one of .fa, .fasta, .fna, .ffn, .fas, also with .gz."):
        Genome("x.bam")
    file = FETCHED["chromosome"].file
    missing = f"chromosome is not in {tmp_path}/chromosome; expected {file}: lion.data.fetch('chromosome')."
    with fails(FileNotFoundError, missing):
        Genome("chromosome")


# Fetched.


@pytest.mark.skipif(not (lion_data_folder() / "chromosome").exists(), reason="lion.data.fetch('chromosome')")
def test_the_chromosome():
    found = Genome("chromosome")
    assert (found.names, len(found), len(found.gaps)) == (["I"], 15_072_434, 0)
    assert np.bincount(found.tokens)[A:].tolist() == [4_835_939, 2_695_890, 2_692_155, 4_848_450]
    assert decode(found.tokens[:12]) == "GCCTAAGCCTAA"

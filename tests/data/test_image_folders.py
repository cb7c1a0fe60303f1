"""Folders of pictures of people's own: found, decoded once, and all that is wrong is said at once."""

import shutil

import numpy as np
import pytest
from PIL import Image

from lion.data import image_folders
from lion.data.findings import BadData
from lion.data.image_files import decode
from lion.data.images import load_images
from tests.data import pixels, write_folder


def both(root, **options):
    return [load_images("folder", split, data=root, size=8, **options) for split in ("train", "test")]


def test_all_broken_pictures_at_once(tmp_path):
    write_folder(tmp_path / "train", per_class=4)
    write_folder(tmp_path / "valid", per_class=2)
    broken = [tmp_path / "train" / "cat" / "1.png", tmp_path / "train" / "dog" / "0.png", tmp_path / "valid/cat/1.png"]
    for path in broken:
        path.write_bytes(path.read_bytes()[:60])
    for split in ("train", "test"):
        with pytest.raises(BadData) as caught:
            load_images("folder", split, data=tmp_path, size=8)
        head, *lines = str(caught.value).splitlines()
        assert head.startswith(f"{tmp_path} has 3 bad pictures (3 that cannot be decoded); expected none: repair")
        assert [line.split(" cannot")[0] for line in lines] == [f"  - {path}" for path in broken]
    train, test = both(tmp_path, skip_bad=True)
    assert (len(train), len(test)) == (6, 3)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert train.notes["skipped"] == "3 pictures: 3 that cannot be decoded"
    assert b"cat/1.png" not in train.files.tolist()


@pytest.mark.parametrize("test", ["test", "Testing", "val", "valid", "Validation"])
def test_folders_of_splits(tmp_path, test):
    train = "Training" if test == "Testing" else "train"
    write_folder(tmp_path / train, per_class=3)
    write_folder(tmp_path / test, per_class=1)
    write_folder(tmp_path / "more", per_class=1)
    found = both(tmp_path)
    assert [len(x) for x in found] == [6, 2]
    assert [x.root.name for x in found] == [train, test]
    assert found[0].notes["not used"] == "the folders 'more'"


def test_a_folder_train_alone(tmp_path):
    write_folder(tmp_path / "train", per_class=5)
    train, test = both(tmp_path)
    assert (train.classes, len(train), len(test)) == (["cat", "dog"], 8, 2)


def test_a_class_that_is_called_train(tmp_path):
    write_folder(tmp_path, {"train": (8, 8), "test": (8, 8), "car": (8, 8)}, per_class=5)
    assert both(tmp_path)[0].classes == ["car", "test", "train"]


def test_copies_are_held_out_together(tmp_path):
    write_folder(tmp_path, per_class=10)
    for name in ("cat", "dog"):
        for i in range(10):
            shutil.copy(tmp_path / name / f"{i}.png", tmp_path / name / f"copy of {i}.png")
    found = [{x.decode().replace("copy of ", "") for x in part.files.tolist()} for part in both(tmp_path)]
    assert [len(x) for x in found] == [16, 4]
    assert not found[0] & found[1]
    before = both(tmp_path)[1].files.tolist()
    write_folder(tmp_path / "new", {"x": (8, 8)}, per_class=2)
    shutil.move(tmp_path / "new" / "x" / "0.png", tmp_path / "cat" / "0000.png")  # the first one by its name
    shutil.rmtree(tmp_path / "new")
    assert len({*before} & {*both(tmp_path)[1].files.tolist()}) >= len(before) - 2
    old = both(tmp_path, by_content=False)
    assert {x.decode().replace("copy of ", "") for part in old for x in part.files.tolist()} >= found[0]


def test_what_is_no_picture_is_counted(tmp_path):
    write_folder(tmp_path, per_class=3)
    for name in (".DS_Store", "readme.md", "cat/.DS_Store", "cat/notes.txt", "dog/list.csv"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "__MACOSX").mkdir()  # as unpacked archives have
    (tmp_path / "cat" / "deep").mkdir()
    shutil.copy(tmp_path / "dog" / "0.png", tmp_path / "cat" / "deep" / "x.png")
    train, test = both(tmp_path)
    assert len(train) + len(test) == 7
    wanted = "4 files: 2 not pictures by their names, 1 outside of the classes' folders, 1 hidden"
    assert train.notes["skipped"] == wanted


def test_sizes_and_colours(tmp_path):
    write_folder(tmp_path, {"cat": (12, 10), "dog": (30, 14)}, per_class=3)
    notes = both(tmp_path)[0].notes
    assert (
        notes["sizes"]
        == "12 x 10 to 30 x 14, half of them up to 30 x 14 pixels; cut to the middle square, resized to 8 x 8"
    )
    assert notes["channels"] == "3, for colours; no pictures are grey"
    for name in ("cat", "dog"):
        for i in range(3):
            grey = np.random.default_rng(i + 3 * (name == "cat")).integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(grey).save(tmp_path / name / f"{i}.png")
    notes = both(tmp_path)[0].notes
    assert notes["sizes"] == "8 x 8 pixels"
    assert notes["channels"] == "3, for colours; all pictures are grey"


def test_one_class_or_none(tmp_path):
    write_folder(tmp_path / "pets", per_class=2)
    hint = f" Did you mean {tmp_path / 'pets'}, which has several"
    with pytest.raises(ValueError, match=rf"^{tmp_path} has one class, 'pets'; expected two or more, .*\.{hint}\?$"):
        both(tmp_path)
    shutil.rmtree(tmp_path / "pets" / "dog")
    with pytest.raises(ValueError, match=r"has one class, 'cat'; expected two or more, a subfolder for each\.$"):
        both(tmp_path / "pets")
    with pytest.raises(ValueError, match=r"cat has 2 pictures and no subfolders; expected a subfolder for each class"):
        both(tmp_path / "pets" / "cat")


def test_pictures_that_are_too_many_to_keep(tmp_path, monkeypatch):
    write_folder(tmp_path, per_class=5)
    kept = both(tmp_path)[0]
    keys = [(0, i) for i in range(len(kept))]
    image_folders._decoded.cache_clear()
    monkeypatch.setattr(image_folders, "KEPT", 0)
    read = both(tmp_path)[0]
    assert (kept.pixels is None, read.pixels is None) == (False, True)
    np.testing.assert_array_equal(pixels(kept, keys), pixels(read, keys))


def test_transparent_pixels_are_white(tmp_path):
    """Whatever colour the file has below them."""
    ink = np.zeros((4, 4, 4), np.uint8)
    ink[:2, :, 3] = 255  # black, the lower half transparent
    Image.fromarray(ink).save(tmp_path / "rgba.png")
    Image.fromarray(ink).convert("LA").save(tmp_path / "la.png")
    Image.fromarray((ink[..., 3] == 0).astype(np.uint8)).convert("P").save(tmp_path / "p.gif", transparency=1)
    for name in ("rgba.png", "la.png", "p.gif"):
        seen = np.asarray(decode(name, tmp_path / name))
        assert (seen[:2] == 0).all()
        assert (seen[2:] == 255).all()

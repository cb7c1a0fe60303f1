"""Image datasets by name: `load_images("cifar10", "train")`; and single images, `read_image`."""

import copy
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lion.data.findings import Findings
from lion.data.image_files import DIGITS, KNOWN, Known, decode, find_arrays
from lion.data.image_folders import SUFFIXES, Files, check_classes, decoded, find_pictures, middle, split_folders
from lion.data.sources.fetching import FETCHED, lion_data_folder
from lion.data.splits import stratified
from lion.limits import Holdout, Pixels
from lion.ops.checks import one_of
from lion.optional import need

SPLITS = ("train", "test")


class ImageSet(Dataset[dict[str, Tensor]]):
    """Labelled images, for a `DataLoader(images, batch_sampler=..., collate_fn=lambda batch: batch)`."""

    classes: list[str]  # names, by label
    labels: Tensor  # [N]
    channels: int
    size: tuple[int, int] | None  # height and width of all images; None if they differ
    mean: tuple[float, ...]  # per channel, of values in 0..1
    std: tuple[float, ...]
    notes: Mapping[str, str] = {}  # how they were read, and what was skipped: `Findings.notes`
    augment: Augment = Augment()
    transform: Callable[[Any], Tensor] | None = None  # timm's, from a pillow image to a normalised tensor
    seed: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> dict[str, Tensor]:
        """The images of keys (epoch, index). The augmentation of an image depends on its key and `seed` alone."""
        epochs, indices = split_keys(keys)
        index = torch.from_numpy(indices.copy())
        return {"image": self._images(epochs, indices), "label": self.labels[index], "index": index}

    def path(self, index: int) -> str:
        """The file of an image; "" if it has none of its own."""
        return ""

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

    def _transformed(self, epochs: np.ndarray, indices: np.ndarray, read: Callable[[int], Any]) -> Tensor:
        """The images that `read` gives as pillow's, by timm's augmentation."""
        assert self.transform is not None
        images = []
        for index, seed in zip(indices.tolist(), scatter(self.seed, epochs, indices).tolist(), strict=True):
            with seeded(seed):
                images.append(self.transform(read(index)))
        return torch.stack(images)

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
        self.augment.check_fits(self.images.shape[2], self.images.shape[3])
        if self.augment.timm is not None and self.channels != 3:
            raise ValueError(
                f"timm is {self.augment.timm!r}, and the images are grey; expected None: there are pad_crop, flip, "
                "shift and erase."
            )
        with_timm, side = self.augment.timm is not None, (self.size or self.images.shape[2:])[0]
        self.transform = timm_transform(self.augment, side, self.mean, self.std) if with_timm else None

    def _open(self, index: int) -> Any:
        image = need("PIL.Image", "pillow", "train")
        return image.fromarray(self.images[index].permute(1, 2, 0).numpy())

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        if self.transform is not None:
            return self._transformed(epochs, indices, self._open)
        images = self._finish(self.images[indices], self.white, epochs, indices)
        same = images.shape[2:] == self.size
        return images if same else F.interpolate(images, self.size, mode="bilinear", antialias=True)


class FolderSet(ImageSet):
    """Images in files: resized by the shorter side, then cropped to the middle.

    Args:
        pixels: uint8 [M, side, side, 3], if they have been read already, and where each is in it; by default they are
            read when they are needed.
    """

    channels, mean, std = 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's

    def __init__(
        self,
        root: Path,
        files: np.ndarray,
        labels: np.ndarray,
        classes: list[str],
        side: int,
        share: float,
        pixels: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.pixels = pixels
        self.root, self.files, self.classes, self.side, self.crop_share = root, files, classes, side, share
        self.labels = torch.from_numpy(labels)
        self.size = (side, side)

    def digest(self) -> str:
        return digests.digest(digests.digest_of_files(self.root, self.files), self.labels)

    def _prepare(self) -> None:
        self.augment.check_fits(self.side, self.side)
        with_timm = self.augment.timm is not None
        self.transform = timm_transform(self.augment, self.side, self.mean, self.std) if with_timm else None

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        if self.transform is None:
            pixels = np.stack([self._read(i) for i in indices])
            return self._finish(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), 255, epochs, indices)
        return self._transformed(epochs, indices, self._open)

    def _read(self, index: int) -> np.ndarray:
        if self.pixels is None:
            return middle(self._open(index), self.side, self.side, self.crop_share)
        pixels, places = self.pixels
        return pixels[places[index]]

    def path(self, index: int) -> str:
        return str(self.root / os.fsdecode(self.files[index]))

    def _open(self, index: int) -> Any:
        path = self.path(index)
        return decode(path, path)


class FileSet(ImageSet):
    """The images below a folder, with a subfolder for each class, read as `read_image` does.

    Args:
        classes: names in the order of their labels; a subfolder of another name is refused.
        mean, std: of each channel, or one for all.
    """

    def __init__(
        self,
        root: Path,
        classes: Sequence[str],
        size: tuple[int, int],
        channels: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ):
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; expected one with a subfolder per class.")
        self.root, self.classes, self.channels = root, list(classes), channels
        self.files, labels = _labelled(root, find_pictures(root), self.classes)
        self.labels = torch.from_numpy(labels)
        self.read = partial(read_image, size=size, channels=channels)
        self.mean, self.std = mean, std

    def digest(self) -> str:
        return digests.digest(digests.digest_of_files(self.root, self.files), self.labels)

    def _images(self, epochs: np.ndarray, indices: np.ndarray) -> Tensor:
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return (torch.stack([self.read(self.path(i)) for i in indices]) - mean) / std

    def path(self, index: int) -> str:
        return str(self.root / os.fsdecode(self.files[index]))


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
    pixels = middle(decode(str(path), path, mode="L" if channels == 1 else "RGB"), *size)
    return torch.from_numpy(pixels).view(*size, channels).permute(2, 0, 1).float().div(255)


class Asked(NamedTuple):
    name: str
    split: str
    data: Path | None
    size: int | None
    seed: int
    holdout: float
    skip_bad: bool
    by_content: bool


def load_images(
    name: str,
    split: str,
    *,
    data: Path | str | None = None,
    size: int | None = None,
    seed: int = 0,
    holdout: float = 0.2,
    skip_bad: bool = False,
    by_content: bool = True,
) -> ImageSet:
    """The training or test images of a dataset (`IMAGE_SETS`).

    All pictures of a "folder" are decoded at once, and those that cannot be are listed in one error.

    Args:
        data: the folder or archive to read; by default `lion_data_folder() / name`, or for MNIST a package.
        size: height and width to resize to; by default 224 for folders, else no resizing.
        seed, holdout: the choice and the share of test images in every class, for a folder without splits.
        skip_bad: leave out pictures of a folder that cannot be decoded; `ImageSet.notes` has their number.
        by_content: copies of a picture are in the same split, and new pictures hardly change the splits of the others.
    """
    one_of("name", name, IMAGE_SETS)
    one_of("split", split, SPLITS)
    if size is not None:
        checked(Pixels, size, "size")
    checked(Holdout, holdout, "holdout")
    path = Path(data).expanduser() if data is not None else None
    if path is not None and not path.exists():
        raise FileNotFoundError(f"data is {path}, which does not exist; expected the folder or archive of {name}.")
    return IMAGE_SETS[name](Asked(name, split, path, size, seed, holdout, skip_bad, by_content))


def _load_digits(asked: Asked) -> ImageSet:
    if asked.data is not None:
        raise ValueError(f"data is {asked.data}; expected None: the digits come with scikit-learn.")
    images, labels = need("sklearn.datasets", "scikit-learn", "train").load_digits(return_X_y=True)
    part = stratified(labels, 0.2, seed=0)[SPLITS.index(asked.split)]  # the same for every seed
    return MemorySet(images[part].astype(np.uint8).reshape(-1, 1, 8, 8), labels[part], DIGITS, asked.size)


# Image folders.


def _root(asked: Asked) -> Path:
    need("PIL.Image", "pillow", "train")
    root = asked.data or lion_data_folder() / asked.name
    if not root.is_dir():
        wanted = "train and val, and in each a subfolder" if asked.name == "imagenet" else "a subfolder"
        raise FileNotFoundError(
            f"{root} is not a folder; expected one with {wanted} per class: give it as data (--data FOLDER)."
        )
    return root


def _load_imagenet(asked: Asked) -> ImageSet:
    root = _root(asked)
    folders = {"train": root / "train", "test": root / "val"}
    for folder in folders.values():
        if not folder.is_dir():
            raise FileNotFoundError(f"{root} has no {folder.name}; expected train and val.")
    classes = list(find_pictures(folders["train"]))
    folder = folders[asked.split]
    # 224 / 256: DeiT's evaluation
    return FolderSet(folder, *_labelled(folder, find_pictures(folder), classes), classes, asked.size or 224, 0.875)


def _load_folder(asked: Asked) -> ImageSet:
    root, side = _root(asked), asked.size or 224
    findings = Findings(root, "picture", skip=asked.skip_bad)
    folders = split_folders(root, findings)
    files = {folder: find_pictures(folder, findings) for folder in dict.fromkeys(folders.values())}
    check_classes(folders["train"], files[folders["train"]])
    classes = list(files[folders["train"]])
    listings = {folder: _labelled(folder, found, classes) for folder, found in files.items()}
    read = {folder: decoded(folder, names, side, 1.0) for folder, (names, _) in listings.items()}
    for folder, found in read.items():
        for index, words in found.problems.items():
            findings.bad((folder, index), "that cannot be decoded", words)
    findings.conclude()

    folder = folders[asked.split]
    (names, labels), found = listings[folder], read[folder]
    part = np.array([i for i in range(len(names)) if i not in found.problems], np.int64)
    if folders["train"] == folders["test"]:
        contents = [found.contents[i] for i in part] if asked.by_content else None
        part = part[stratified(labels[part], asked.holdout, asked.seed, contents)[SPLITS.index(asked.split)]]
        if not len(part):
            raise ValueError(f"{root} has one image per class, copies aside; expected more, to hold some out.")
    pixels = None if found.pixels is None else (found.pixels, part)
    images = FolderSet(folder, names[part], labels[part], classes, side, 1.0, pixels)
    images.notes = findings.notes | _shapes(np.concatenate([x.sizes for x in read.values()]), side)
    images.notes |= _colours(np.concatenate([x.grey[x.sizes[:, 0] > 0] for x in read.values()]))
    return images


def _shapes(sizes: np.ndarray, side: int) -> dict[str, str]:
    """sizes: [N, 2], 0 for those that cannot be decoded"""
    sizes = sizes[sizes[:, 0] > 0]
    by_area = sizes[np.argsort(sizes.prod(1), kind="stable")]
    least, middle_one, most = (f"{w:,} x {h:,}" for w, h in by_area[[0, len(by_area) // 2, -1]].tolist())
    before = least if (sizes == sizes[0]).all() else f"{least} to {most}, half of them up to {middle_one}"
    after = f"{side} x {side}"
    how = f"; {'' if (sizes[:, 0] == sizes[:, 1]).all() else 'cut to the middle square, '}resized to {after}"
    return {"sizes": f"{before} pixels{'' if before == after else how}"}


def _colours(grey: np.ndarray) -> dict[str, str]:
    share = "all" if grey.all() else f"{grey.sum():,} of {len(grey):,}" if grey.any() else "no"
    return {"channels": f"3, for colours; {share} pictures are grey"}


def _labelled(root: Path, files: Files, classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The files, relative to the folder, as bytes; and their labels."""
    for name in files:
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
        raise FileNotFoundError(
            f"{name} is not in {place}; expected {known.wanted}: give its folder as data (--data FOLDER){fetched}."
        )
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
    "folder": _load_folder,
    "imagenet": _load_imagenet,
}

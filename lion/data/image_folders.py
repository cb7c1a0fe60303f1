"""Folders of pictures, a subfolder for each class: found, and decoded once before they are used."""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data.findings import Findings
from lion.data.image_files import decode
from lion.data.splits import digest_of
from lion.optional import need
from lion.progress import progress
from lion.terminal import listed

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
TRAIN = ("train", "training")  # names of folders, in small letters
TESTS = ("test", "testing", "val", "valid", "validation")
SAMPLE = 200  # pictures that are asked for their size
JUNK = ("__MACOSX", "@eaDir", "lost+found")  # folders that unpacking, shares and file systems leave behind
ELONGATED = 50  # longest strip that is resized, in lengths of the wanted shape
KEPT = 1 << 30  # bytes of decoded pictures that are kept in memory
Files = dict[str, list[str]]  # paths below a folder, by class


def split_folders(root: Path, findings: Findings) -> dict[str, Path]:
    """The folders of "train" and "test": both the same, if the test pictures have no folder of their own."""
    below = {folder.name.lower(): folder for folder in subfolders(root) if subfolders(folder)}
    train = next((below[name] for name in TRAIN if name in below), root)
    test = next((below[name] for name in TESTS if name in below and train != root), train)
    unused = [folder.name for folder in subfolders(root) if train != root and folder not in (train, test)]
    if unused:
        findings.notes["not used"] = f"the folders {listed(unused)}"
    return {"train": train, "test": test}


def subfolders(root: Path) -> list[Path]:
    return sorted(x for x in root.iterdir() if x.is_dir() and not x.name.startswith(".") and x.name not in JUNK)


def find_pictures(root: Path, findings: Findings | None = None) -> Files:
    """The picture files of each class, in order. `findings` gets the numbers of other files."""
    found: Files = {}
    prefix = os.path.join(root, "")
    left = findings.left_out if findings is not None else Counter[str]()
    if findings is not None:
        outside = [x for x in root.iterdir() if x.is_file() and not x.name.startswith(".")]
        left["outside of the classes' folders"] += len(outside)
        if not subfolders(root):
            pictures = sum(x.name.lower().endswith(SUFFIXES) for x in outside)
            raise ValueError(
                f"{root} has {pictures or 'no'} pictures and no subfolders; expected a subfolder for each class, with "
                "its pictures."
            )
    for folder in subfolders(root):
        found[folder.name] = []
        for path in _walk(folder):
            name = os.path.basename(path)
            if name.startswith("."):
                left["hidden"] += 1
            elif not name.lower().endswith(SUFFIXES):
                left["not pictures by their names"] += 1
            else:
                found[folder.name].append(path.removeprefix(prefix))
        found[folder.name].sort()
    if not any(found.values()):
        raise ValueError(f"{root} has no images; expected a subfolder per class with files {', '.join(SUFFIXES)}.")
    for name, files in found.items():
        if not files:
            raise ValueError(f"{root / name} has no images; expected at least one: add some, or remove the folder.")
    return found


def _walk(folder: Path) -> Iterator[str]:
    for top, _, inside in os.walk(folder, followlinks=True):
        yield from (os.path.join(top, name) for name in inside)


def check_classes(root: Path, files: Files) -> None:
    """Refuse a folder with one class."""
    if len(files) > 1:
        return
    [name] = files
    nested = len(subfolders(root / name)) > 1
    hint = f" Did you mean {root / name}, which has several?" if nested else ""
    raise ValueError(f"{root} has one class, {listed(files)}; expected two or more, a subfolder for each.{hint}")


def usual_side(root: Path) -> int:
    """The median of the shorter sides of some of a folder's pictures, in pixels."""
    image = need("PIL.Image", "pillow", "train")
    paths = [path for path in _walk(root) if path.lower().endswith(SUFFIXES)]
    sides = []
    for path in sorted(paths)[:: max(1, len(paths) // SAMPLE)]:
        with contextlib.suppress(Exception), image.open(path) as picture:  # bad ones are told of when all are read
            sides.append(min(picture.size))
    return int(np.median(sides)) if sides else 224


class Decoded(NamedTuple):
    """All pictures of a folder, those that cannot be decoded as well."""

    pixels: np.ndarray | None  # uint8 [N, side, side, 3]; None if they are too many to be kept
    sizes: np.ndarray  # [N, 2], width and height before they were resized
    grey: np.ndarray  # bool [N]
    contents: list[bytes]  # digests of the files
    problems: dict[int, str]  # by index


def decoded(root: Path, files: np.ndarray, side: int, share: float) -> Decoded:
    """Every picture decoded and resized, or what is wrong with it. Remembered while the files stay as they are."""
    paths = [os.path.join(root, os.fsdecode(name)) for name in files]
    stamps = tuple((path, about.st_mtime_ns, about.st_size) for path in paths if (about := os.stat(path)))
    return _decoded(stamps, side, share)


@functools.lru_cache(maxsize=2)
def _decoded(stamps: tuple[tuple[str, int, int], ...], side: int, share: float) -> Decoded:
    count = len(stamps)
    keep = count * side * side * 3 <= KEPT
    pixels = np.zeros((count, side, side, 3), np.uint8) if keep else None
    sizes, grey, contents, problems = np.zeros((count, 2), np.int64), np.zeros(count, bool), [b""] * count, {}

    def read(index: int) -> None:
        path = stamps[index][0]
        try:
            contents[index] = digest_of(Path(path).read_bytes())
            image = decode(path, path)
            found = middle(image, side, side, share)
        except (ValueError, OSError) as problem:
            problems[index] = str(problem)
            return
        sizes[index], grey[index] = image.size, (found == found[..., :1]).all()
        if pixels is not None:
            pixels[index] = found

    with progress(count, "pictures") as bar, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        bar.describe("reading")
        for _ in pool.map(read, range(count)):
            bar.advance()
    return Decoded(pixels, sizes, grey, contents, dict(sorted(problems.items())))


def middle(image: Any, height: int, width: int, crop_share: float = 1.0) -> np.ndarray:
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

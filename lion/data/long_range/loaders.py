"""The Long Range Arena's six tasks, for lion's training loop: `long_range("listops", "train")`.

With `data`, the arena's own files are read. Without, ListOps and Pathfinder are made by its rules, IMDB and
CIFAR-10 come from `lion.data.fetch`; only the files of Retrieval have to be given.
"""

import inspect
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lion.data.images import load_images
from lion.data.labelled import imdb
from lion.data.long_range import arena_files as files
from lion.data.long_range.listops import COUNTS as LISTOPS_COUNTS
from lion.data.long_range.listops import VOCABULARY, ListOpsRules, write_listops
from lion.data.long_range.pathfinder import COUNTS as PATHFINDER_COUNTS
from lion.data.long_range.pathfinder import pathfinder_rules, write_pathfinder
from lion.data.long_range.sequences import SPLITS, Counts, Kind, Rows, Sequences, SequenceWriter, kept
from lion.data.sources.fetching import FETCHED, fetch, lion_data_folder, to_fetch
from lion.data.token_files import stamps
from lion.ops.checks import one_of

BYTES = 257  # tokens of text: padding and 256 bytes
CIFAR_MEAN, CIFAR_STD = 122.6 / 255, 61.0 / 255  # of grey pixels
NEEDED = {"text": "imdb", "image": "cifar10"}  # datasets that are fetched, unless `data` is given
OF_MAKING = ("min_length", "max_depth", "max_args", "counts", "seed")  # options of generated tasks only
RED, GREEN, BLUE = 19595, 38470, 7471  # ITU-R 601's weights of luminance, 0.299, 0.587 and 0.114, times 65536


def long_range(task: str, split: str, data: Path | str | None = None, **options: Any) -> Sequences:
    """The "train", "validation" or "test" split of a task (`LONG_RANGE`).

    Args:
        data: a folder with the arena's files (lra_release, or the task's folder in it); by default the task is
            generated or fetched.
        options: those of the task, such as `counts` and `seed` of a generated one; see `LONG_RANGE[task]`.
    """
    one_of("task", task, LONG_RANGE)
    one_of("split", split, SPLITS)
    fixed = ("split", "data", *getattr(LONG_RANGE[task], "keywords", ()))
    known = [name for name in inspect.signature(LONG_RANGE[task]).parameters if name not in fixed]
    for name in options:
        one_of(f"option of {task}", name, known)
        if data is not None and name in OF_MAKING:
            raise ValueError(f"{name} is given, but {task} is read from {data}; expected none: it is for making one.")
    if data is not None and not Path(data).expanduser().exists():
        raise FileNotFoundError(f"data is {data}, which does not exist; expected the folder of the arena's files.")
    if data is None and task in NEEDED and to_fetch(NEEDED[task]):
        fetch(NEEDED[task])
    return LONG_RANGE[task](split, data, **options)


def load_listops(
    split: str,
    data: Path | str | None = None,
    *,
    min_length: int = 500,
    max_length: int = 2000,
    max_depth: int = 10,
    max_args: int = 10,
    counts: tuple[int, int, int] = LISTOPS_COUNTS,
    seed: int = 0,
    processes: int | None = None,
) -> Sequences:
    """Nested lists of digits and their values: 10 classes. `lion.data.long_range.listops.VOCABULARY` names the tokens.

    Expressions read from `data` are cut to max_length; generated ones have the lengths of `ListOpsRules`.
    """
    if data is not None:
        found = files.find(data, ("listops-1000", "listops"), files.LISTOPS[split])
        folder = _kept_split("listops", split, found / files.LISTOPS[split], files.pack_listops)
    else:
        rules = ListOpsRules(min_length, max_length, max_depth, max_args)
        folder = _kept_drawn("listops", write_listops, rules, counts, seed, processes)
    return Sequences(folder, split, Kind(10, max_length, len(VOCABULARY)))


def load_text(split: str, data: Path | str | None = None, *, max_length: int = 4096, seed: int = 0) -> Sequences:
    """IMDB's reviews byte by byte, negative or positive. The arena has no validation split: it is the test split.

    Args:
        data: the folder aclImdb; by default the 25,000 reviews of `lion.data.fetch("imdb")`, 80 % of them for training.
        seed: of that split.
    """
    split = "test" if split == "validation" else split
    if data is not None:
        root = files.find(data, ("aclImdb",), split)
        key: list[Any] = [split, stamps(sorted((root / split).glob("*")))]
        read: Callable[[], Any] = partial(files.read_imdb, root, split)
    else:
        path = lion_data_folder() / "imdb" / FETCHED["imdb"].file
        key = [split, seed, stamps([path] if path.exists() else [])]
        read = partial(imdb, split, seed=seed)
    folder = kept("text", key, lambda unfinished: files.pack_texts(unfinished, split, *read()[:2]))
    return Sequences(folder, split, Kind(2, max_length, BYTES, first=1))


def load_retrieval(split: str, data: Path | str | None = None, *, max_length: int = 4000) -> Sequences:
    """Pairs of articles of the ACL Anthology Network, byte by byte: does one cite the other? `input_ids` are [B, 2, T].

    Args:
        data: the folder with new_aan_pairs.train.tsv; by default `lion_data_folder() / "aan"`.
    """
    found = files.find(data or lion_data_folder() / "aan", ("tsv_data", "aan"), files.AAN[split])
    folder = _kept_split("retrieval", split, found / files.AAN[split], files.pack_aan)
    return Sequences(folder, split, Kind(2, max_length, BYTES, first=1))


def load_image(split: str, data: Path | str | None = None, *, size: int = 32, tokens: bool = False) -> Sequences:
    """CIFAR-10 in grey, pixel by pixel: 10 classes. The last tenth of its training images is the validation split.

    Args:
        data: the folder or archive of CIFAR-10.
        size: height and width, 32; with 16 or 8, means of 2 x 2 or 4 x 4 pixels.
        tokens: whether pixels are tokens 0 to 255; by default they are numbers, normalised.
    """
    if size not in (32, 16, 8):
        raise ValueError(f"size is {size}; expected 32, 16 or 8.")
    place = Path(data).expanduser() if data is not None else lion_data_folder() / "cifar10"
    there = [path for pattern in ("*", "*/*", "*/*/*") for path in sorted(place.glob(pattern)) if path.is_file()]
    key = [str(place.resolve()), stamps(there or ([place] if place.exists() else [])), size]
    folder = kept("image", key, partial(_pack_cifar, data=data, size=size))
    return Sequences(folder, split, Kind(10, size * size, 256 if tokens else None, mean=CIFAR_MEAN, std=CIFAR_STD))


def _pack_cifar(folder: Path, data: Path | str | None, size: int) -> None:
    each = 32 // size
    sets = {split: load_images("cifar10", split, data=data) for split in ("train", "test")}
    with SequenceWriter(folder, {}) as writer:
        for split, images in sets.items():
            pixels, labels = images.images.numpy(), images.labels.numpy()  # type: ignore[attr-defined]
            red, green, blue = pixels.astype(np.uint32).transpose(1, 0, 2, 3)
            grey = (RED * red + GREEN * green + BLUE * blue + (1 << 15)) >> 16
            squares = grey.reshape(-1, size, each, size, each).sum((2, 4))
            grey = ((squares + each * each // 2) // (each * each)).astype(np.uint8)
            rows = Rows(grey.ravel(), np.full(len(labels), size * size), labels)
            held = len(labels) // 10 if split == "train" else 0
            writer.add(split, rows.part(0, len(labels) - held))
            if held:
                writer.add("validation", rows.part(len(labels) - held, len(labels)))


def load_pathfinder(
    split: str,
    data: Path | str | None = None,
    *,
    size: int = 32,
    contour_length: int = 14,
    counts: tuple[int, int, int] = PATHFINDER_COUNTS,
    seed: int = 0,
    tokens: bool = False,
    processes: int | None = None,
) -> Sequences:
    """Images pixel by pixel: are the two markers the ends of one contour?

    Args:
        data: a folder with the arena's lists and images; a tenth of them is for validation, a tenth for testing.
        size: 32, 64, 128 or 256.
        contour_length: 6, 9 or 14: easy, intermediate or hard.
        tokens: whether pixels are tokens 0 to 255; by default they are numbers from -1 to 1.
    """
    rules = pathfinder_rules(size, contour_length)
    if data is not None:
        if contour_length not in files.PATHFINDER:
            known = ", ".join(map(str, files.PATHFINDER))
            raise ValueError(f"contour_length is {contour_length}; expected one of {known}, which the arena has.")
        name = files.PATHFINDER[contour_length]
        root = files.find(data, (f"pathfinder{size}", f"pathfinder/pathfinder{size}"), f"{name}/metadata") / name
        write = partial(files.pack_pathfinder, root=root, size=size, processes=processes)
        folder = kept(f"pathfinder{size}", stamps(files.pathfinder_lists(root)), write)
    else:
        folder = _kept_drawn(f"pathfinder{size}", write_pathfinder, rules, counts, seed, processes)
    return Sequences(folder, split, Kind(2, size * size, 256 if tokens else None))


def _kept_split(name: str, split: str, path: Path, pack: Callable[..., None]) -> Path:
    """A split that is read from one file."""
    return kept(name, [split, stamps([path])], partial(pack, split=split, path=path))


def _kept_drawn(
    name: str, write: Callable[..., None], rules: Any, counts: tuple[int, int, int], seed: int, processes: int | None
) -> Path:
    """All splits, drawn by the rules."""
    sizes = Counts(*counts).check()
    key = [asdict(rules), sizes, seed]
    return kept(name, key, partial(write, rules=rules, counts=sizes, seed=seed, processes=processes))


LONG_RANGE: dict[str, Callable[..., Sequences]] = {
    "listops": load_listops,
    "text": load_text,
    "retrieval": load_retrieval,
    "image": load_image,
    "pathfinder": load_pathfinder,
    "pathx": partial(load_pathfinder, size=128),  # sequences of 16,384; all of it takes 3.3 GB
}

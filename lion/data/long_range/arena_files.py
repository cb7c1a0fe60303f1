"""The Long Range Arena's own files, read and written: ListOps and AAN as TSV, Pathfinder as folders of PNGs, IMDB."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import torch

from lion.data.image_files import decode
from lion.data.long_range.listops import from_text, to_text
from lion.data.long_range.sequences import SPLITS, Rows, Sequences, SequenceWriter, bunches, in_order, joined
from lion.data.sources.archives import reading
from lion.data.tables import delimited, place
from lion.files import replace
from lion.optional import need
from lion.progress import progress
from lion.terminal import listed

LISTOPS = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
AAN = {split: f"new_aan_pairs.{name}.tsv" for split, name in zip(SPLITS, ("train", "eval", "test"), strict=True)}
PATHFINDER = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}  # by contour_length
SHARE, SEED = 0.1, 42  # of Pathfinder's validation and test splits, the same as in S4 and S5
PER_FOLDER = 1000  # images written to a folder
PER_JOB = 200  # images read by a process at a time
LONGEST_NAME = 200  # characters of a file's or folder's name

Row = TypeVar("Row")


def find(data: Path | str, folders: Iterable[str], wanted: str) -> Path:
    """The folder that has the wanted file: `data`, or one of these folders inside of it or of `lra_release`."""
    data = Path(data).expanduser()
    for release in ("", "lra_release", "lra_release/lra_release"):
        for folder in ("", *folders):
            if (data / release / folder / wanted).exists():
                return data / release / folder
    raise FileNotFoundError(
        f"{data} has no {wanted}; expected it there, or in {' or '.join(folders)} of the release: give the folder as "
        "data (--data FOLDER)."
    )


def _pack(
    folder: Path,
    split: str,
    path: Path,
    read: Callable[[Path, Callable[[int], None]], Iterator[Row]],
    rows_of: Callable[[list[Row]], Rows],
) -> None:
    """A split from a file, row by row."""
    with SequenceWriter(folder, {"source": {split: str(path)}}) as writer, progress(path.stat().st_size, "B") as bar:
        bar.describe(path.name)
        for bunch in bunches(read(path, bar.advance), PER_JOB):
            writer.add(split, rows_of(bunch))
        if split not in writer.files:
            raise ValueError(f"{path} has no examples; expected some: is it all there?")


# ListOps.


def pack_listops(folder: Path, split: str, path: Path) -> None:
    _pack(folder, split, path, _expressions, lambda rows: joined((x for x, _ in rows), (label for _, label in rows)))


def _expressions(path: Path, advance: Callable[[int], None]) -> Iterator[tuple[bytes, int]]:
    rows = delimited(path, "\t", quotes=False)
    _, header = next(rows, (1, []))
    if header != ["Source", "Target"]:
        raise ValueError(f"{place(path, 1)} has the columns [{listed(header)}]; expected 'Source' and 'Target'.")
    for number, fields in rows:
        if len(fields) != 2 or fields[1] not in [*"0123456789"]:
            got = f"the target {listed(fields[1:])}" if len(fields) == 2 else f"{len(fields)} fields"
            raise ValueError(f"{place(path, number)} has {got}; expected an expression, a tab, and a digit.")
        try:
            yield from_text(fields[0]), int(fields[1])
        except ValueError as problem:
            raise ValueError(f"{place(path, number)} {problem}.") from None
        advance(len(fields[0]) + 3)


def write_listops_files(folder: Path, sets: dict[str, Sequences]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in sets.items():
        replace(folder / LISTOPS[split], partial(_write_expressions, examples))


def _write_expressions(examples: Sequences, path: Path) -> None:
    with path.open("w", newline="\n") as file, progress(len(examples), "expressions") as bar:
        file.write("Source\tTarget\n")
        for index, label in enumerate(examples.labels.tolist()):
            file.write(f"{to_text(examples.row(index)[0])}\t{label}\n")
            bar.advance()


# Texts, as sequences of bytes.


def pack_aan(folder: Path, split: str, path: Path) -> None:
    """Pairs of articles, and whether one cites the other."""

    def rows_of(pairs: list[tuple[int, bytes, bytes]]) -> Rows:
        return joined((text for _, *both in pairs for text in both), (label for label, *_ in pairs), per_example=2)

    _pack(folder, split, path, _pairs, rows_of)


def _pairs(path: Path, advance: Callable[[int], None]) -> Iterator[tuple[int, bytes, bytes]]:
    for number, fields in delimited(path, "\t", quotes=False):
        if len(fields) != 5:
            raise ValueError(f"{place(path, number)} has {len(fields)} fields; expected label, id1, id2, text1, text2.")
        label, _, _, *texts = fields
        if label not in ("0", "1", "0.0", "1.0"):
            raise ValueError(f"{place(path, number)} has the label {listed([label])}; expected 0 or 1.")
        first, second = (text.encode() for text in texts)
        if not first or not second:
            raise ValueError(f"{place(path, number)} has an empty text; expected two.")
        advance(len(first) + len(second))
        yield int(float(label)), first, second


def pack_texts(folder: Path, split: str, texts: list[Any], labels: np.ndarray) -> None:
    with SequenceWriter(folder, {}) as writer:
        writer.add(split, joined((text.encode() if isinstance(text, str) else text for text in texts), labels))


def read_imdb(root: Path, split: str) -> tuple[list[Any], np.ndarray]:
    """The reviews of the folder aclImdb, as bytes."""
    texts, labels = [], []
    for label, name in enumerate(("neg", "pos")):
        files = sorted((root / split / name).glob("*.txt"))
        if not files:
            raise FileNotFoundError(f"{root / split / name} has no *.txt; expected the reviews of aclImdb.")
        for path in files:
            texts.append(path.read_bytes())
            labels.append(label)
            if not texts[-1]:
                raise ValueError(f"{path} is empty; expected a review: get it again.")
    return texts, np.array(labels)


# Pathfinder.


def pathfinder_lists(root: Path) -> list[Path]:
    """The lists of images in a folder such as curv_contour_length_14: text files, though their names end in .npy."""
    files = list((root / "metadata").glob("*.npy"))
    for path in files:
        if not path.stem.isdigit():
            raise ValueError(f"{path} is no list of images; expected a number before .npy.")
    if not files:
        raise FileNotFoundError(f"{root / 'metadata'} has no *.npy; expected the arena's lists of images.")
    return sorted(files, key=lambda path: int(path.stem))


def pack_pathfinder(folder: Path, root: Path, size: int, processes: int | None = None) -> None:
    listed = [entry for path in pathfinder_lists(root) for entry in _entries(root, path)]
    jobs = list(bunches(listed, PER_JOB))
    unsorted = folder / "unsorted"
    found = []
    with progress(len(listed), "images") as bar, unsorted.open("wb") as file:
        bar.describe(root.name)
        for rows in in_order(partial(_read_images, size), jobs, processes):
            file.write(rows.tokens.data)
            found.append(rows.labels)
            bar.advance(PER_JOB)
    labels = np.concatenate(found) if found else np.zeros(0, np.uint8)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED)).numpy()
    held = int(SHARE * len(labels))
    train = len(labels) - 2 * held
    if not held:
        raise ValueError(f"{root} has {len(labels)} images; expected at least 10, for three parts.")
    images = np.memmap(unsorted, np.uint8, mode="r", shape=(len(labels), size * size))
    parts = {"train": order[:train], "validation": order[train : train + held], "test": order[train + held :]}
    with SequenceWriter(folder, {"source": str(root)}) as writer:
        for split, part in parts.items():
            for some in np.array_split(part, -(-len(part) // PER_FOLDER)):
                writer.add(split, Rows(images[some].ravel(), np.full(len(some), size * size), labels[some]))
    del images
    unsorted.unlink()


def _entries(root: Path, path: Path) -> Iterator[tuple[Path, int]]:
    with reading(str(path), "expected a list of images as text, one on each line"):
        lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise ValueError(f"{path}, line {number} is {line[:80]!r}; expected folder, file, number and label (0, 1).")
        inside = PurePosixPath(fields[0], fields[1])
        if inside.is_absolute() or ".." in inside.parts or max(map(len, inside.parts)) > LONGEST_NAME:
            raise ValueError(f"{path}, line {number} names {listed(fields[:2])}; expected an image inside of {root}.")
        yield root / inside, int(fields[3])


def _read_images(size: int, entries: list[tuple[Path, int]]) -> Rows:
    found, labels = [], []
    for path, label in entries:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing, which is listed; expected an image: get it again.")
        if not path.stat().st_size:  # the release has one empty file, which everybody leaves out
            continue
        pixels = np.asarray(decode(str(path), path, "L", "get it again"))
        if pixels.shape != (size, size):
            raise ValueError(f"{path} is {pixels.shape[1]} x {pixels.shape[0]} pixels; expected {size} x {size}.")
        found.append(pixels.ravel())
        labels.append(label)
    tokens = np.concatenate(found) if found else np.zeros(0, np.uint8)
    return Rows(tokens, np.full(len(found), size * size), np.array(labels, np.uint8))


def write_pathfinder_files(folder: Path, sets: dict[str, Sequences], size: int, contour_length: int) -> None:
    """All splits together, as in the release: readers split them."""
    pillow = need("PIL.Image", "pillow", "train")
    root = folder / PATHFINDER.get(contour_length, f"curv_contour_length_{contour_length}")
    (root / "metadata").mkdir(parents=True, exist_ok=True)
    every = ((examples, index) for examples in sets.values() for index in range(len(examples)))
    with progress(sum(map(len, sets.values())), "images") as bar:
        for batch in range(-(-sum(map(len, sets.values())) // PER_FOLDER)):
            inside = f"imgs/{batch}"
            (root / inside).mkdir(parents=True, exist_ok=True)
            lines = []
            for number, (examples, index) in enumerate(islice(every, PER_FOLDER)):
                name = f"sample_{number}.png"
                pillow.fromarray(examples.row(index)[0].reshape(size, size)).save(root / inside / name)
                lines.append(f"{inside} {name} {number} {int(examples.labels[index])}\n")
                bar.advance()
            (root / "metadata" / f"{batch}.npy").write_text("".join(lines))


# Arrays.


def write_arrays(folder: Path, sets: dict[str, Sequences]) -> None:
    """Each split as .npy files: bytes end to end, lengths and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in sets.items():
        arrays = {"tokens": examples.tokens, "lengths": examples.lengths, "labels": examples.labels.numpy()}
        for name, x in arrays.items():
            replace(folder / f"{split}_{name}.npy", partial(_save, x))


def _save(x: np.ndarray, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, x)

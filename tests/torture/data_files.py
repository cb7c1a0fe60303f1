"""Damaged data files of every format that is read: each gives data, or a message of a few lines that names the file."""

import gzip
import json
import os
import random
import shutil
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import lion.data.corpora
import lion.data.genomes
import lion.data.glue
import lion.data.images
import lion.data.labelled
import lion.data.labelled_dna
import lion.data.long_range
import lion.data.packed
import lion.data.tokenizers
from lion.data import FETCHED
from lion.data.fasta import Genome, read_fasta
from tests import data as samples
from tests.torture import Campaign, Lost
from tests.torture.children import Children
from tests.torture.mutations import mutated, mutated_png

LINES, LONG = 5, 2000  # of a message, at most
SECONDS = 20  # for an attempt
TEXTS = ["a good film", 'bad, "very" bad', "Ünï\ncode\tand tabs", "so so", "the end 😀", "x" * 300]
Mutate = Callable[[bytes, random.Random], bytes]


class Format(NamedTuple):
    write: Callable[[Path], object]  # small files of it, into a folder
    read: Callable[[Path], object]  # what lion makes of the folder
    mutate: tuple[Mutate, ...] = (mutated,)  # one of them, of one of the files
    kept: bool = False  # `read` has left files in the data folder, and those are damaged


def run(numbers: range, seed: int) -> list[Campaign]:
    """Of each format."""
    shared = Path("/dev/shm")  # memory, where there is such: files are written and synced all the time
    with tempfile.TemporaryDirectory(prefix="lion-torture-", dir=shared if shared.is_dir() else None) as home:
        return [
            Campaign(f"damaged files: {name}").all(
                Children(Path(home)).attempts(f"{__name__}:attempts", [home, name, seed], numbers, seconds=SECONDS)
            )
            for name in FORMATS
        ]


def attempts(given: list[Any]) -> Callable[[int], None]:
    home, name, seed = given
    whole, form = Path(home) / "whole", FORMATS[name]
    shutil.rmtree(whole, ignore_errors=True)
    _write(form, whole)

    def one(number: int) -> None:
        if problem := _attempt(form, whole, Path(home) / "damaged", random.Random(f"{name} {seed} {number}")):
            raise Lost(problem)

    return one


def _write(form: Format, folder: Path) -> None:
    (folder / "given").mkdir(parents=True)
    form.write(folder / "given")
    os.environ["LION_DATA"] = str(folder / "kept")
    form.read(folder / "given")  # what is whole can be read


def _attempt(form: Format, whole: Path, folder: Path, draw: random.Random) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    # Times are kept, and the folder's name is always the same length: what was kept of the files is found again.
    shutil.copytree(whole, folder, symlinks=True)
    os.environ["LION_DATA"] = str(folder / "kept")
    if form.kept:
        _name_anew(form, folder)
    else:
        shutil.rmtree(folder / "kept", ignore_errors=True)
    inside = folder / ("kept" if form.kept else "given")
    path = draw.choice(sorted(x for x in inside.rglob("*") if x.is_file() and x.suffix != ".lock"))
    path.write_bytes(draw.choice(form.mutate)(path.read_bytes(), draw))
    try:
        form.read(folder / "given")
    except (ValueError, OSError) as problem:
        return _unclear(str(problem), folder, problem)
    except BaseException as problem:
        return f"{path.name}: {_traced(problem)}"
    return ""


def _name_anew(form: Format, folder: Path) -> None:
    """What is kept of files is named by where they are."""
    shutil.rmtree(folder / "kept")
    form.read(folder / "given")


def _unclear(message: str, folder: Path, problem: BaseException) -> str:
    if str(folder) not in message:
        return f"no file is named: {_traced(problem)}"
    if message.count("\n") >= LINES or len(message) > LONG:
        return f"the message has {len(message)} characters: {_traced(problem)[:500]}"
    return ""


def _traced(problem: BaseException) -> str:
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}lion{os.sep}" in frame.filename] or frames
    return f"{type(problem).__name__}: {str(problem)[:300]} ({Path(ours[-1].filename).name}, line {ours[-1].lineno})"


# What is written and read.


def _rows() -> list[dict[str, Any]]:
    return [{"text": text, "label": number % 3, "more": [1, 2]} for number, text in enumerate(TEXTS * 2)]


def _write_table(delimiter: str, name: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        import csv

        with (folder / name).open("w", newline="") as file:
            rows = csv.writer(file, delimiter=delimiter)
            rows.writerow(["text", "label"])
            rows.writerows([row["text"], row["label"]] for row in _rows())

    return write


def _write_json_lines(folder: Path) -> None:
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _rows()))


def _arrow_table() -> Any:
    import pyarrow as pa

    rows = _rows()
    return pa.table(
        {
            "text": [row["text"] for row in rows],
            "label": pa.array([str(row["label"]) for row in rows]).dictionary_encode(),
            "numbers": pa.array([row["more"] for row in rows], pa.list_(pa.int32())),
            "share": pa.array([0.5, None] * (len(rows) // 2)),
            "inner": pa.array([{"a": "x", "b": [b"y"]}] * len(rows)),
            "view": pa.array([row["text"] for row in rows], pa.string_view()),
            "when": pa.array(range(len(rows)), pa.timestamp("us", "UTC")),
            "exact": pa.array([None, 1] * (len(rows) // 2), pa.decimal128(20, 3)),
            "yes": pa.array([True, False] * (len(rows) // 2)),
        }
    )


def _write_parquet(folder: Path) -> None:
    import pyarrow.parquet

    table = _arrow_table().drop_columns(["view"])
    for name, codec in (("plain", "none"), ("small", "snappy"), ("zstd", "zstd")):
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", compression=codec, row_group_size=5)


def _write_arrow(folder: Path) -> None:
    import pyarrow as pa

    table = _arrow_table()
    for name, make, codec in (
        ("stream", pa.ipc.new_stream, None),
        ("file", pa.ipc.new_file, None),
        ("lz4", pa.ipc.new_stream, "lz4"),
        ("zstd", pa.ipc.new_file, "zstd"),
    ):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with make(str(folder / f"{name}.arrow"), table.schema, options=options) as file:
            file.write_table(table, max_chunksize=5)


def _read_tables(folder: Path) -> None:
    """As labelled texts, and as documents."""
    for path in sorted(folder.iterdir()):
        found = lion.data.labelled.labelled(path, "text", "label")
        lion.data.labelled.LabelledTexts(found.texts, found.labels, lion.data.tokenizers.ByteTokenizer(), 16)
        list(lion.data.corpora.corpus(path))


def _write_texts(folder: Path) -> None:
    for name in ("x.txt", "y.txt"):
        (folder / name).write_text("\n\n".join(TEXTS))


def _write_lines(folder: Path) -> None:
    (folder / "x.txt").write_text("".join(f"line {i} of this text\n" for i in range(20)))


def _read_texts(folder: Path) -> None:
    for per in ("file", "paragraph", "line"):
        list(lion.data.corpora.documents(folder, per=per))


def _write_gz(folder: Path) -> None:
    _write_texts(folder)
    _write_json_lines(folder)
    _write_table(",", "x.csv")(folder)
    for path in sorted(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def _read_gz(folder: Path) -> None:
    list(lion.data.corpora.corpus([folder, folder / "x.csv.gz"]))


def inside_gz(content: bytes, draw: random.Random) -> bytes:
    return gzip.compress(mutated(gzip.decompress(content), draw), mtime=0)


def _write_fasta(folder: Path) -> None:
    bases = "ACGTN" * 60 + "N" * 120 + "acgtRYK" * 20
    lines = [bases[i : i + 70] for i in range(0, len(bases), 70)]
    content = "\n".join(x for name in ("I some", "II|label=b", "III") for x in (f">{name}", *lines)) + "\n"
    (folder / "x.fa").write_text(content)
    (folder / "y.fasta.gz").write_bytes(gzip.compress(content.encode(), mtime=0))


def _read_fasta(folder: Path) -> None:
    for path in (folder / "x.fa", folder / "y.fasta.gz"):
        list(read_fasta(path))
    genome = Genome([folder / "x.fa", folder / "y.fasta.gz"])
    windows = lion.data.genomes.Windows(genome, 16, "train", block=64)
    lion.data.genomes.MaskedNucleotides(windows).__getitems__([(0, 0), (0, len(windows) - 1)])


def _write_labelled_fasta(folder: Path) -> None:
    (folder / "x.fa").write_text("".join(f">n{i} label={i % 2}\nACGT{'A' * i}\n" for i in range(12)))
    (folder / "y.fa").write_text("".join(f">n{i}|{'ab'[i % 2]}\nACGT{'A' * i}\n" for i in range(12)))
    (folder / "z.csv").write_text("sequence,label\n" + "".join(f"ACGT{'A' * i},{i % 2}\n" for i in range(12)))


def _read_labelled_fasta(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        found = lion.data.labelled_dna.labelled_sequences(path)
        lion.data.labelled_dna.LabelledSequences(found, 8).__getitems__([(0, 0)])


def _write_splice(folder: Path) -> None:
    rows = [",".join([*f"{'ACGT' * 15:A<60}"[i:], *"T" * i, ("EI", "IE", "N")[i % 3]]) for i in range(9)]
    (folder / FETCHED["splice"].file).write_text("@relation x\n" + "\n".join(rows) + "\n")


def _write_images(folder: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (24, 20, 3), np.uint8)
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for ending in ("png", "jpg", "tif", "gif", "bmp", "webp", "ppm"):
            Image.fromarray(noise).save(folder / name / f"x.{ending}")
        Image.fromarray(noise[..., 0].astype(np.uint16) * 257).save(folder / name / "deep.png")
        Image.fromarray(noise[..., 0].astype(np.float32) / 255).save(folder / name / "float.tif")
        Image.fromarray(noise).save(folder / name / "lzw.tif", compression="tiff_lzw")
        Image.fromarray(noise).convert("P").save(folder / name / "palette.png")


def _write_png(folder: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (24, 20, 4), np.uint8)
    for name, picture in {
        "rgb": noise[..., :3],
        "rgba": noise,
        "grey": noise[..., 0],
        "deep": noise[..., 0].astype(np.uint16) * 257,
    }.items():
        (folder / name).mkdir()
        Image.fromarray(picture).save(folder / name / "x.png")
        Image.fromarray(255 - picture).save(folder / name / "y.png")  # not a copy: those are held out together


def _read_images(folder: Path) -> None:
    for split in ("train", "test"):
        found = lion.data.images.load_images("folder", split, data=folder, size=16)
        found.__getitems__([(0, i) for i in range(len(found))])


def _read_known(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        for split in ("train", "test"):
            found = lion.data.images.load_images(name, split, data=folder)
            found.__getitems__([(0, i) for i in range(len(found))])

    return read


def _write_cifar(folder: Path) -> None:
    samples.write_cifar("cifar10", folder / "in")
    samples.pack(folder / "in", folder / "cifar.tar.gz", "in")
    (folder / "bare").mkdir()
    with tarfile.open(folder / "cifar.tar.gz") as packed:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        packed.extractall(folder / "bare", **safe)


def _read_cifar(folder: Path) -> None:
    for split, place in (("train", folder / "bare" / "in"), ("test", folder / "cifar.tar.gz")):
        found = lion.data.images.load_images("cifar10", split, data=place)
        found.__getitems__([(0, i) for i in range(len(found))])


def inside_zip(content: bytes, draw: random.Random) -> bytes:
    """A zip with one member damaged, and its checksum right."""
    import io

    with zipfile.ZipFile(io.BytesIO(content)) as before:
        members = {name: before.read(name) for name in before.namelist()}
    place = draw.choice(sorted(members))
    members[place] = mutated(members[place], draw)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as after:
        for name, x in members.items():
            after.writestr(name, x)
    return out.getvalue()


def inside_any(content: bytes, draw: random.Random) -> bytes:
    """What is in a .gz, if it is one."""
    return inside_gz(content, draw) if content[:2] == b"\x1f\x8b" else mutated(content, draw)


def _write_vocabulary(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{x}" for x in "abcdefgh"), "good", "ü"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "tokenizer_class": "Bert"}))


def _use(tokenizer: Any) -> None:
    ids = tokenizer.encode([*TEXTS, "[MASK] x [SEP]"], specials=True, max_length=32)
    tokenizer.encode_pairs([(TEXTS[0], TEXTS[1])])
    for row in ids:
        tokenizer.decode(row)


def _write_tokenizers(folder: Path) -> None:
    train = {"bpe": lion.data.tokenizers.train_byte_bpe, "wordpiece": lion.data.tokenizers.train_wordpiece}
    for name, make in train.items():
        make(TEXTS, 300).save(folder / name)
    lion.data.tokenizers.ByteTokenizer().save(folder / "bytes")


def _read_tokenizers(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        _use(lion.data.tokenizers.load_tokenizer(path))


def _write_arena(folder: Path) -> None:
    expression = "( ( ( [MAX 1 ) 2 ) ] )"
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_text("Source\tTarget\n" + f"{expression}\t2\n" * 5)
    for name in ("train", "eval", "test"):
        rows = "".join(f"{i % 2}.0\tb'id'\tb'id'\tb'one text {i}'\tb'another'\n" for i in range(5))
        (folder / f"new_aan_pairs.{name}.tsv").write_text(rows)
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            (folder / split / name).mkdir(parents=True)
            (folder / split / name / "1.txt").write_text(f"a {name} review")
    pathfinder = folder / "curv_contour_length_14"
    (pathfinder / "imgs" / "0").mkdir(parents=True)
    (pathfinder / "metadata").mkdir()
    lines = [f"imgs/0 sample_{i}.png {i} {i % 2} 1 2 3\n" for i in range(12)]
    (pathfinder / "metadata" / "0.npy").write_text("".join(lines))
    for i in range(12):
        Image.fromarray(np.full((32, 32), i, np.uint8)).save(pathfinder / "imgs" / "0" / f"sample_{i}.png")


def _read_arena(*tasks: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        for task in tasks:
            options = {"processes": 1} if task == "pathfinder" else {}
            for split in ("train", "validation", "test"):
                found = lion.data.long_range.long_range(task, split, folder, **options)
                found.__getitems__([(0, i) for i in range(len(found))])

    return read


def _write_reviews(folder: Path) -> None:
    rows = "".join(f'"good, film {i}<br />",{i % 2},{("imdb", "short")[i == 3]}\n' for i in range(12))
    (folder / FETCHED["imdb"].file).write_text("text,label,source\n" + rows)


def _read_reviews(folder: Path) -> None:
    lion.data.labelled.imdb("train", data=folder)


def _write_glue(folder: Path) -> None:
    for task, (name, header, row) in {
        "CoLA": ("train.tsv", "", "gj04\t1\t\tA sentence, {i}.\n"),
        "SST-2": ("train.tsv", "sentence\tlabel\n", "a film {i}\t1\n"),
        "STS-B": ("train.tsv", "\t".join("abcdefghij") + "\n", "0\t1\t2\t3\t4\t5\t6\tone {i}\ttwo\t3.5\n"),
        "QQP": ("train.tsv", "\t".join("abcdef") + "\n", "0\t1\t2\tis it {i}?\tis it?\t0\n"),
    }.items():
        (folder / task).mkdir()
        (folder / task / name).write_text(header + "".join(row.format(i=i) for i in range(6)))


def _read_glue(folder: Path) -> None:
    for task in ("cola", "sst2", "stsb", "qqp"):
        lion.data.glue.glue(task, folder, "train")


def _read_packed(folder: Path) -> None:
    tokenizer = lion.data.tokenizers.ByteTokenizer()
    documents = lion.data.corpora.documents(folder, per="line")
    for split in ("train", "validation"):
        packed = lion.data.packed.PackedTokens(documents, tokenizer, 16, split=split, holdout=0.5)
        every = [(0, i) for i in range(len(packed))]
        lion.data.packed.MaskedTokens(packed, 0.15, 0).__getitems__(every)
        lion.data.packed.NextTokens(packed).__getitems__(every)
        lion.data.packed.Passages(packed).__getitems__([(0, 0)])


FORMATS = {
    "csv": Format(_write_table(",", "x.csv"), _read_tables),
    "tsv": Format(_write_table("\t", "x.tsv"), _read_tables),
    "jsonl": Format(_write_json_lines, _read_tables),
    "parquet": Format(_write_parquet, _read_tables),
    "arrow": Format(_write_arrow, _read_tables),
    "txt": Format(_write_texts, _read_texts),
    "gz": Format(_write_gz, _read_gz, (mutated, inside_gz)),
    "fasta": Format(_write_fasta, _read_fasta, (mutated, inside_any)),
    "fasta, kept": Format(_write_fasta, _read_fasta, kept=True),
    "fasta, labelled": Format(_write_labelled_fasta, _read_labelled_fasta),
    "splice": Format(_write_splice, lambda folder: lion.data.labelled_dna.splice("train", data=folder)),
    "images": Format(_write_images, _read_images),
    "png": Format(_write_png, _read_images, (mutated_png,)),
    "mnist, idx": Format(lambda folder: samples.write_mnist(folder, ""), _read_known("mnist")),
    "mnist, gz": Format(lambda folder: samples.write_mnist(folder), _read_known("mnist"), (mutated, inside_gz)),
    "mnist, zarr": Format(samples.write_zarr, _read_known("mnist"), (mutated, inside_zip)),
    "cifar": Format(_write_cifar, _read_cifar, (mutated, inside_any)),
    "cifar, png": Format(samples.write_png_rows, _read_known("cifar10")),
    "vocab.txt": Format(_write_vocabulary, lambda folder: _use(lion.data.tokenizers.load_tokenizer(folder))),
    "tokenizer.json": Format(_write_tokenizers, _read_tokenizers),
    "arena": Format(_write_arena, _read_arena("listops", "retrieval", "text", "pathfinder")),
    "arena, kept": Format(_write_arena, _read_arena("listops", "retrieval"), kept=True),
    "imdb": Format(_write_reviews, _read_reviews),
    "glue": Format(_write_glue, _read_glue),
    "tokens, kept": Format(_write_lines, _read_packed, kept=True),
}

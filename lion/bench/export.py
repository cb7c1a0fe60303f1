"""`lion bench export`: models in ONNX Runtime, beside a BERT or ViT of the same size there, and beside torch."""

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lion.bench.peak_memory import peak_memory
from lion.bench.results import report, save, setting
from lion.bench.text import SIZES, bert
from lion.bench.timing import Work, inference, interleaved
from lion.export.onnx_files import session, write
from lion.export.subjects import MASK, Call, Port, Subject, subject_of
from lion.models.encoder import Encoder, encoder_config
from lion.models.registry import create_model
from lion.progress import progress
from lion.terminal import mebibytes, milliseconds

PEER_TOKENS = 4100  # up to so many tokens softmax is run: its time and memory grow with their square


class Kind(NamedTuple):
    peer: str
    make: Callable[[str, str, int], Subject]  # name, size, and the most tokens
    sizes: Callable[[int], dict[str, int]]  # of an input with so many tokens
    tokens: Callable[[int], int]


def _text(name: str, size: str, most: int) -> Subject:
    if name == "bert":
        model = bert(replace(SIZES[size], dropout=0.0, max_tokens=most), "sdpa")
        ids = Port("input_ids", ("batch", "length"), "", torch.long, SIZES[size].vocab_size)
        call = Call(model, lambda model, ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state)
        hidden = Port("hidden", ("batch", "length", SIZES[size].dim), "")
        return Subject(call, [ids, MASK], [hidden], {"batch": 2, "length": 9}, [])
    return subject_of(Encoder(replace(encoder_config(size, name), dropout=0.0)))


def _image(name: str, size: str, most: int) -> Subject:
    return subject_of(create_model(f"{name}_{size}_patch16_224"))


KINDS = {
    "text": Kind("bert", _text, lambda n: {"batch": 1, "length": n}, lambda n: n),
    "images": Kind("softmax", _image, lambda n: {"batch": 1, "height": n, "width": n}, lambda n: 1 + (n // 16) ** 2),
}


def run(
    *,
    texts: Sequence[str] = ("lion_s",),
    images: Sequence[str] = ("lion_s_2scan",),
    text_size: str = "minilm",
    image_size: str = "tiny",
    lengths: Sequence[int] = (128, 512, 1000, 4096, 16384),
    pixels: Sequence[int] = (224, 512, 1024),
    threads: int = 1,
    rounds: int = 5,
    json_path: Path | None = None,
) -> list[dict]:
    """Time and peak memory of a batch of one, without the weights' memory."""
    asked = [("text", text_size, texts, lengths), ("images", image_size, images, pixels)]
    before, records = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory() as folder, progress(sum(len(x[3]) for x in asked), "size") as bar:
            for what, size, names, places in asked:
                kind = KINDS[what]
                most = max(512, *(kind.tokens(n) for n in places)) if places else 512
                files = {
                    n: _file(kind.make(n, size, most), Path(folder) / f"{what}-{n}.onnx") for n in (kind.peer, *names)
                }
                for place in places:
                    records += _measured(what, kind, files, place, threads, rounds)
                    bar.advance()
    finally:
        torch.set_num_threads(before)
    print(_table(records, f"{text_size} and {image_size}, a batch of one, {threads} threads, best of {rounds}"))
    save(json_path, {"setting": setting(threads=threads, rounds=rounds), "records": records})
    return records


def _file(subject: Subject, path: Path) -> tuple[Subject, Path]:
    subject = subject._replace(module=subject.module.eval())
    write(subject, path, check=False)
    return subject, path


def _measured(what: str, kind: Kind, files: dict[str, Any], place: int, threads: int, rounds: int) -> list[dict]:
    tokens = kind.tokens(place)
    works: dict[str, Work] = {}
    memory: dict[str, int] = {}
    for name, (subject, path) in files.items():
        if name == kind.peer and tokens > PEER_TOKENS:
            continue
        inputs = subject.some(kind.sizes(place))
        # In its first run ONNX Runtime reserves what it keeps.
        memory[f"{name} onnx"] = peak_memory(_in_runtime(path, subject, inputs, threads))
        works[f"{name} onnx"] = _in_runtime(path, subject, inputs, threads)
        works[f"{name} torch"] = inference(functools.partial(subject.module, *inputs))
        memory[f"{name} torch"] = peak_memory(works[f"{name} torch"])
    seconds, tries = interleaved(works, rounds=rounds)
    return [
        {
            "what": what,
            "model": name,
            "tokens": tokens,
            "best_of": tries,
            **{f"{how}_seconds": seconds.get(f"{name} {how}") for how in ("onnx", "torch")},
            **{f"{how}_bytes": memory.get(f"{name} {how}") for how in ("onnx", "torch")},
        }
        for name in files
    ]


def _in_runtime(path: Path, subject: Subject, inputs: list[Tensor], threads: int) -> Work:
    running = session(path, threads=threads)
    given = {port.name: x.numpy() for port, x in zip(subject.inputs, inputs, strict=True)}
    return lambda: running.run(None, given)


def _table(records: Sequence[dict], about: str) -> str:
    rows = []
    for x in records:
        peer = next(y for y in records if y["what"] == x["what"] and y["tokens"] == x["tokens"])
        cells = [
            x["model"],
            milliseconds(x["onnx_seconds"]),
            _of(x["onnx_seconds"], peer["onnx_seconds"]),
            milliseconds(x["torch_seconds"]),
            _of(x["onnx_seconds"], x["torch_seconds"]),
            mebibytes(x["onnx_bytes"]),
            mebibytes(x["torch_bytes"]),
        ]
        rows.append(((x["what"], f"{x['tokens']:,}"), cells))
    header = ("", "tokens", "model", "ONNX ms", "of the peer's", "torch ms", "of torch's", "ONNX MiB", "torch MiB")
    notes = ["bert and softmax (a ViT): the peers, in ONNX Runtime too; -: left out, expected to take too long"]
    return report(about, header, rows, notes)


def _of(x: float | None, other: float | None) -> str:
    return "-" if x is None or other is None else f"{x / other:.2f}"

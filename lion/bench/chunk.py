"""`lion bench chunk`: time and memory of an image model's inference by the size of chunks."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lion.bench import results, vision
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import LARGE, best_of, check_choices, left_out, save_with_plot, setting
from lion.bench.timing import Work, inference, interleaved
from lion.devices import CPU, chosen
from lion.machine import available_memory
from lion.models import registry
from lion.models.flops import tokens_of
from lion.models.registry import names_without_size
from lion.models.vision import VisionModel
from lion.nn.layers import set_form
from lion.ops.checks import BackendName, Form
from lion.ops.kernels import KERNELS, usable_backends
from lion.progress import progress
from lion.terminal import mebibytes, milliseconds

CHUNKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
COMPILED = "scan, compiled"


class Chunked(NamedTuple):
    form: Form
    backend: BackendName


# No state is kept between the chunks of `chunk`, as in the paper: its work is the same for every size. In `scan`, work
# grows with the size.
KINDS = {
    "chunk": Chunked("chunk", "torch"),
    "scan": Chunked("scan", "torch"),
    COMPILED: Chunked("scan", "cpu"),
    "scan, Triton": Chunked("scan", "triton"),
}


def kinds_of(model: str, device: torch.device = CPU) -> list[str]:
    """The chunked forms that the model has there."""
    usable = usable_backends(device)
    return [
        name
        for name, (form, backend) in KINDS.items()
        if vision.has_form(model, form) and backend in usable and any(key[:2] == (backend, form) for key in KERNELS)
    ]


def expected_bytes(heads: int, chunk: int, tokens: int, batch: int) -> int:
    """The scores of a row of blocks, and what is made of them."""
    return 4 * 4 * batch * heads * chunk * tokens


def work(model: nn.Module, images: Tensor, kind: str, chunk: int) -> Work:
    def run() -> Tensor:
        set_form(model, KINDS[kind].form, backend=KINDS[kind].backend, chunk_size=chunk)
        return model(images)

    return inference(run)


def run(
    *,
    model: str = "lion_d",
    size: str = "tiny",
    pixels: int = 768,
    chunk_sizes: Sequence[int] = CHUNKS,
    batch: int = 1,
    rounds: int = 3,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it."""
    there = chosen(device)
    known = [name for name in names_without_size() if kinds_of(name, there)]
    check_choices(model=([model], known), size=([size], tuple(registry.SIZES)))
    if min(pixels, batch, rounds, *chunk_sizes) < 1:
        raise ValueError(f"chunk_sizes are {list(chunk_sizes)}, of {pixels} pixels; expected numbers of 1 or more.")
    config = vision.config_for(model, size, pixels)
    tokens = tokens_of(config)
    chunks = sorted({min(x, tokens) for x in chunk_sizes})  # a longer one is the whole sequence
    images = torch.randn(batch, config.in_channels, pixels, pixels, generator=torch.Generator().manual_seed(0))
    images, net = images.to(there), VisionModel(config).eval().to(there)
    room = vision.SHARE * available_memory(there)
    records: list[dict] = []
    kinds = kinds_of(model, there)
    with progress(total=len(chunks) * len(kinds) * (rounds + 1), unit="run") as bar:
        for chunk in chunks:
            bar.describe(f"chunks of {chunk}")
            fits = expected_bytes(config.heads, chunk, tokens, batch) <= room
            works = {kind: work(net, images, kind, chunk) for kind in kinds} if fits else {}
            times, tries = interleaved(works, rounds=rounds, tick=bar.advance)
            bar.advance((rounds + 1) * (len(kinds) - len(works)))
            records += [
                {
                    "name": kind,
                    "model": model,
                    "size": size,
                    "pixels": pixels,
                    "batch": batch,
                    "tokens": tokens,
                    "chunk": chunk,
                    "chunks": math.ceil(tokens / chunk),
                    "best_of": tries if fits else None,
                    "seconds": times.get(kind),
                    "peak_bytes": peak_memory(works[kind], there) if fits else None,
                    "left_out": None if fits else LARGE,
                }
                for kind in kinds
            ]
    about = setting(rounds=rounds, device=device)
    print(report(records, about))
    save_with_plot(json_path, {"setting": about, "results": records}, draw)
    return records


def report(records: Sequence[dict], about: dict) -> str:
    kinds = list(dict.fromkeys(x["name"] for x in records))
    rows = []
    for chunk, chunks in dict.fromkeys((x["chunk"], x["chunks"]) for x in records):
        found = {x["name"]: x for x in records if x["chunk"] == chunk}
        times = [milliseconds(found[kind]["seconds"]) for kind in kinds]
        rows.append(((), [chunk, chunks, *times, *(mebibytes(found[kind]["peak_bytes"]) for kind in kinds)]))
    header = ("chunk size", "chunks", *(f"{kind} ms" for kind in kinds), *(f"{kind} MiB" for kind in kinds))
    first = records[0]
    what = f"{first['model']}, {first['size']}, {first['pixels']} pixels, {first['tokens']:,} tokens"
    heading = f"{what}, batch {first['batch']}, {about['dtype']}, {about['threads']} threads{best_of(records)}"
    notes = [
        "chunk: rows of blocks of the matrix, without states between chunks, as the paper has it",
        "scan: states are carried between the chunks, in plain PyTorch and compiled",
        "MiB: peak memory, beside that of the weights",
        *left_out(records),
    ]
    return results.report(heading, header, rows, notes)


def draw(records: Sequence[dict], path: Path) -> None:
    """Time and peak memory against the size of chunks."""

    def panel(label: str, y: Callable[[dict], float | None]) -> Panel:
        return Panel("", "tokens of a chunk", label, lines_of(records, lambda x: x["name"], "chunk", y), log=False)

    def memory(x: dict) -> float | None:
        return None if x["peak_bytes"] is None else x["peak_bytes"] / 2**20

    batch = "" if records[0]["batch"] == 1 else f" of {records[0]['batch']} images"
    panels = [
        panel(f"seconds{batch}", lambda x: x["seconds"]),
        panel(f"peak memory{batch}, MiB", memory),
    ]
    draw_lines([panels], path)

"""`lion bench stream`: a chromosome through a DNA model, block by block: memory, speed, and whether blocks matter."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lion.bench.peak_memory import peak_memory
from lion.bench.results import save
from lion.data import fasta, fetch
from lion.devices import CPU, chosen
from lion.models.long_range import LongConfig, LongModel
from lion.streaming.stream import MEMORY, stream
from lion.tasks.dna import TOKENS
from lion.terminal import duration, table

BLOCKS = (4096, 65536)
WHOLE = 200_000  # bases that are also run at once
ROWS = 1 << 16  # bases of which a row is kept, of those that are compared


def model_of(variant: str, device: torch.device = CPU) -> LongModel:
    """As `lion train dna` has it, untrained."""
    torch.manual_seed(0)
    config = LongConfig(
        variant, dim=128, depth=4, heads=4, stem=9, vocab_size=TOKENS, classes=fasta.BASES, answer="token"
    )
    return LongModel(config).eval().to(device)


def blocks_of(tokens: np.ndarray, block: int, device: torch.device = CPU) -> Iterator[Tensor]:
    for first in range(0, len(tokens), block):
        yield torch.from_numpy(tokens[first : first + block].astype(np.int32)).to(device)[None]


def run(
    *,
    data: str = "chromosome",
    variant: str = "lion_s",
    blocks: Sequence[int] = BLOCKS,
    tokens: int = 0,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    """Print time, memory and differences of the embeddings; `tokens` limits the length."""
    there = chosen(device)
    if data in fasta.NAMED:
        fetch(data)
    genome = fasta.Genome(data)
    given = genome.tokens[: tokens or len(genome)]
    model = model_of(variant, there)
    records: list[dict[str, Any]] = []
    rows, kept = [], {}
    for block in blocks:
        begun = time.perf_counter()
        found: list[Tensor] = []

        def work(block: int = block, found: list[Tensor] = found) -> None:
            step = max(1, len(given) // ROWS)
            first = 0
            for x in stream(model, blocks_of(given, block, there), memory=MEMORY):
                found.append(x[0, -first % step :: step].clone())
                first += x.shape[1]

        peak = peak_memory(work, there)
        seconds = time.perf_counter() - begun
        kept[block] = torch.cat(found)
        records.append({"tokens": len(given), "block": block, "seconds": seconds, "peak_bytes": peak})
        speed = f"{len(given) / seconds:,.0f}"
        rows.append((f"{block:,}", duration(seconds), speed, f"{peak / 2**20:,.0f} MiB"))
    print(table(("block", "time", "bases per second", "memory above the model's"), rows))
    for a, b in itertools.pairwise(blocks):
        error = _difference(kept[a], kept[b])
        records.append({"blocks": [a, b], "difference": error})
        print(f"blocks of {a:,} and {b:,} differ by {error:.1e} (largest, of numbers of size 1)")
    part = given[:WHOLE]
    with torch.no_grad():
        at_once = model.features(next(blocks_of(part, len(part), there)))[0][0]
        exact = model.double().features(next(blocks_of(part, len(part), there)))[0][0]
    model.float()
    for block in blocks:
        found = list(stream(model, blocks_of(part, block, there)))
        errors = [_difference(x, exact) for x in (torch.cat(found, 1)[0], at_once)]
        records.append({"tokens": len(part), "block": block, "error": errors[0], "error_at_once": errors[1]})
        print(f"{len(part):,} bases in blocks of {block:,}: {errors[0]:.1e} from float64; at once: {errors[1]:.1e}")
    save(json_path, {"variant": variant, "results": records})
    return records


def _difference(x: Tensor, y: Tensor) -> float:
    return (x.double() - y.double()).abs().max().item()

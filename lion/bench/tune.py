"""`lion bench kernel --tune`: the compiled scan by the size of its chunks, beside the sizes that it takes.

The table of sizes is `chunk_tokens` in lion/ops/cpu/src/chunk_size.h. Register tiles follow from the vectors' width.
"""

from pathlib import Path

import torch

import lion
from lion.bench.op import DECAYS, Inputs, Shape
from lion.bench.results import save
from lion.bench.timing import Work, inference, interleaved, training
from lion.ops.cpu import library
from lion.progress import progress
from lion.terminal import milliseconds, table

TOKENS = 8192  # of all heads together, about
LENGTHS = (64, 128, 197, 1024)
CHANNELS = (16, 32, 64, 128)  # of a head
KINDS = ("per-token", "diagonal")
MOST = (16, 24, 32, 48, 64, 96, 128)  # tokens of a chunk
CLOSE = 1.03  # times the best time: not worth another size


def sizes(T: int, D: int, decay: str) -> tuple[int, list[int]]:
    """The kernel's own size of chunks, and those to measure: that one, one block, and equal parts of the sequence."""
    own = library.chunk_tokens(T, D, D, diagonal=DECAYS[decay] == "diagonal")
    equal = {-(-T // -(-T // most)) for most in MOST if most < T}
    block = {T} if T <= 4 * D else set()  # a longer one is far behind
    return own, sorted(equal | block | {own})


def works(T: int, D: int, decay: str, chunks: list[int], *, backward: bool) -> dict[str, Work]:
    inputs = Inputs.random(Shape(1, max(1, TOKENS // T), T, D), torch.float32, decay, torch.device("cpu"))
    inputs = inputs.trainable() if backward else inputs

    def work(chunk: int) -> Work:
        def run() -> torch.Tensor:
            return lion.attention(*inputs, form="scan", backend="cpu", chunk_size=chunk)

        return training(run, inputs) if backward else inference(run)

    return {str(chunk): work(chunk) for chunk in chunks}


def run(rounds: int = 7, json_path: Path | None = None) -> list[dict]:
    """Measure, print, write the JSON: a record for each shape, with the seconds of each size of chunks."""
    library.loaded()  # raises with the reason, if there is none
    cases = [(decay, D, T) for decay in KINDS for D in CHANNELS for T in LENGTHS]
    records = []
    with progress(total=len(cases), unit="shape") as bar:
        for decay, D, T in cases:
            bar.describe(f"{decay}, {D} channels, {T} tokens")
            own, chunks = sizes(T, D, decay)
            record: dict = {"decay": decay, "channels": D, "tokens": T, "chunk": own}
            for name, backward in (("forward", False), ("training", True)):
                found, _ = interleaved(works(T, D, decay, chunks, backward=backward), rounds=rounds, patience=3.0)
                record[name] = {int(chunk): seconds for chunk, seconds in found.items()}
            records.append(record | {"choice": choice(own, record["training"])})
            bar.advance()
    print(report(records))
    save(json_path, {"instruction_set": library.loaded().instruction_set, "results": records})
    return records


def choice(own: int, seconds: dict[int, float]) -> int:
    """The best size in training; the kernel's own, if that is about as good."""
    best = min(seconds, key=seconds.__getitem__)
    return own if seconds[own] <= CLOSE * seconds[best] else best


def report(records: list[dict]) -> str:
    rows = []
    for x in records:
        own, other = x["chunk"], x["choice"]
        cells = [f"{x[name][own] / min(x[name].values()):.2f}" for name in ("forward", "training")]
        took = milliseconds(x["training"][own])
        rows.append((x["decay"], x["channels"], x["tokens"], own, took, *cells, "the same" if other == own else other))
    header = ("decay", "D", "T", "chunk", "fwd+bwd ms", "fwd of best", "fwd+bwd of best", "would choose")
    kernels, threads = library.loaded().instruction_set, torch.get_num_threads()
    heading = (
        f"float32, {kernels}, {threads} threads, {TOKENS:,} tokens of all heads; chunk: tokens that the kernel takes"
    )
    changes = sum(x["choice"] != x["chunk"] for x in records)
    said = f"{changes} of {len(records)} sizes would be others: at least {CLOSE - 1:.0%} less time in training."
    return "\n\n".join([heading, table(header, [[str(cell) for cell in row] for row in rows]), said])

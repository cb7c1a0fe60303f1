"""The operator itself: that its forms are one function, and what the size of chunks costs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lion.bench import agreement
from lion.bench import chunk as chunks
from lion.reproduce.exhibits import (
    Cell,
    Claim,
    Exhibit,
    Figure,
    Numbers,
    ScaleName,
    Table,
    Value,
    above,
    register_exhibit,
)
from lion.reproduce.readings import Reading, recorded
from lion.reproduce.steps import Step, measuring

# Rows of the paper's table, and our variants. LION's own three are named inside other rows there.
VARIANTS = {
    "LinAtt": "linatt",
    "LinAtt + Scaling": "linatt_scaled",
    "LION-LIT": "lion_lit",
    "RetNet": "retnet",
    "RetNet + Scaling": "retnet_scaled",
    "LION-D": "lion_d",
    "Gated RFA": "grfa",
    "LION-S": "lion_s",
    "Mamba-2": "mamba2",
    "RWKV-6": "rwkv6",
    "Mamba": "mamba",
    "GLA": "gla",
    "HGRN-2": "hgrn2",
    "xLSTM": "xlstm",
    "DeltaNet": "deltanet",
}
KERNELS = {  # by the name of a column
    "rnn": ("torch", "rnn"),
    "chunk": ("torch", "chunk"),
    "scan": ("torch", "scan"),
    "scan, compiled": ("cpu", "scan"),
}
SAME = 1e-10  # what counts as equal in float64
OUTPUT, GRADIENTS = "output, {}", "gradients, {}"


def largest(found: Any, part: str, of: Sequence[str], **which: str) -> float | None:
    """The largest difference of some records; None if there are none."""
    records = [x for x in found[part] if all(x[key] == value for key, value in which.items())]
    return max((x[key] for x in records for key in of), default=None)


def of_layers(variant: str, kernel: tuple[str, str], dtype: str, of: Sequence[str]) -> Callable[[Any], float | None]:
    backend, form = kernel
    return lambda found: largest(found, "layers", of, variant=variant, backend=backend, form=form, dtype=dtype)


def of_operators(decay: str, kernel: tuple[str, str]) -> Callable[[Any], float | None]:
    backend, form = kernel
    both = agreement.Difference._fields
    return lambda found: largest(found, "operators", both, decay=decay, backend=backend, form=form, dtype="float64")


def _equal(row: str, *columns: str) -> Callable[[Numbers], list[Value]]:
    return lambda n: [n(row, column).times(-1).minus(-SAME) for column in columns]


@register_exhibit(
    "table1",
    "Linear transformers as full linear attention and as a bidirectional RNN.",
    label="tab:unify",
    claim="Each model of the table is both exactly: full linear attention, and a bidirectional RNN.",
)
def table1(scale: ScaleName) -> Exhibit:
    sizes = "--tokens 197 --dim 192 --heads 3" if scale == "paper" else ""
    step = measuring("agreement", sizes, minutes=5 if scale == "paper" else 1, alone=False)
    both = agreement.Difference._fields
    columns = tuple(words.format(dtype) for dtype in agreement.PRECISIONS for words in (OUTPUT, GRADIENTS))
    as_rnn = {
        row: [
            Cell(None, (step,), of_layers(variant, KERNELS["rnn"], dtype, [of]))
            for dtype in agreement.PRECISIONS
            for of in both
        ]
        for row, variant in VARIANTS.items()
    }
    others = {
        row: [
            Cell(None, (step,), of_layers(variant, KERNELS[form], "float64", both)) for form in KERNELS if form != "rnn"
        ]
        for row, variant in VARIANTS.items()
    }
    kernels = {"full": agreement.FULL, **KERNELS}
    defined = {
        decay: [Cell(None, (step,), of_operators(decay, kernel)) for kernel in kernels.values()]
        for decay in agreement.OPERATORS
    }
    tables = (
        Table(columns, as_rnn, "{:.1e}", "The RNN beside full attention: the largest relative difference."),
        Table(
            tuple(form for form in KERNELS if form != "rnn"),
            others,
            "{:.1e}",
            "The other forms beside full attention, outputs and gradients in float64. (The delta rule lacks two.)",
        ),
        Table(
            tuple(f"operator, {form}" for form in kernels),
            defined,
            "{:.1e}",
            "The operator beside its definition, token by token (lion/ops/reference.py), in float64.",
        ),
    )
    claims = [
        Claim(
            f"{row}: full attention and the RNN are the same, to {SAME:g} in float64",
            _equal(row, *(words.format("float64") for words in (OUTPUT, GRADIENTS))),
        )
        for row in VARIANTS
    ]
    claims.append(
        Claim(
            "beyond the paper: both are the operator's definition, with every kind of decay",
            lambda n: [x for decay in defined for x in _equal(decay, "operator, full", "operator, rnn")(n)],
        )
    )
    about = (
        "Whole attention layers with random weights, on random tokens with padding, in one and in two directions: "
        "the form `rnn` walks token by token, `full` makes the T x T matrix. Relative differences of outputs, and of "
        "the gradients of the input and of every parameter; the largest of each."
    )
    not_run = (
        "the two columns as they are printed, where they are not each other's. The corrected pair is compared: "
        "selective decays act a token late in the recurrences, the full form of diagonal decays counts the diagonal "
        "twice, DeltaNet's lacks triangles and a beta, and RWKV-6 is another recurrence (docs/maths.md, Errata 1, 2, "
        "3 and 10; tests/ops/test_errata.py shows both sides)."
    )
    return Exhibit(about, tables, tuple(claims), not_run=not_run)


# Chunks.

TIME, MEMORY = "{}, ms", "{}, MiB"


def _at(kind: str, chunk: int, key: str, factor: float) -> Reading:
    return recorded(key, lambda x: x[key] * factor, name=kind, chunk=chunk)


def _draw_chunks(results: Sequence[Any], path: Path) -> bool:
    records = [x for found in results if found is not None for x in found["results"]]
    if not records:
        return False
    chunks.draw(records, path)
    return True


@register_exhibit(
    "figure4",
    "Time and memory of LION-D in chunks against the size of the chunks.",
    label="fig:chsize",
    claim="Larger chunks take less time and more memory, too much beyond 1024; 8 to 16 chunks are a balance.",
)
def figure4(scale: ScaleName) -> Exhibit:
    size, pixels, tokens = ("base", 1248, 6085) if scale == "paper" else ("tiny", 768, 2305)
    options = f"--model lion_d --size {size} --pixels {pixels} --chunk-sizes {' '.join(map(str, chunks.CHUNKS))}"
    step: Step = measuring("chunk", f"{options} --rounds 2", minutes=60 if scale == "paper" else 3)
    sizes = sorted({min(x, tokens) for x in chunks.CHUNKS})
    rows, names = {}, {}
    for chunk in sizes:
        count = -(-tokens // chunk)
        names[chunk] = f"{chunk} ({count} {'chunks' if count > 1 else 'chunk'})"
        too_large = "out of memory" if chunk > 1024 and scale == "paper" else None
        cells = []
        for kind in chunks.KINDS:
            cells += [
                Cell(None, (step,), _at(kind, chunk, "seconds", 1e3)),
                Cell(too_large if kind == "chunk" else None, (step,), _at(kind, chunk, "peak_bytes", 2**-20)),
            ]
        rows[names[chunk]] = cells
    time, memory = TIME.format("chunk"), MEMORY.format("chunk")
    first, last = names[sizes[0]], names[sizes[-1]]
    growing = [names[x] for x in reversed(sizes)]
    balanced = [names[x] for x in sizes if 8 <= -(-tokens // x) <= 16]
    claims = (
        above(time, *reversed(growing), words="every larger chunk takes less time"),
        above(memory, *growing, words="every larger chunk takes more memory"),
        above(time, first, last, words="one chunk takes less time than the smallest chunks"),
        above(memory, last, first, words="one chunk takes more memory than the smallest chunks"),
        Claim(
            "8 to 16 chunks are a balance: less time than the smallest chunks, less memory than one chunk",
            lambda n: [
                margin
                for row in balanced
                for margin in (n(first, time).minus(n(row, time)), n(last, memory).minus(n(row, memory)))
            ],
        ),
    )
    columns = tuple(words.format(kind) for kind in chunks.KINDS for words in (TIME, MEMORY))
    table = Table(columns, rows, "{:.0f}", f"One image of {pixels} pixels, {tokens:,} tokens, by tokens of a chunk.")
    figure = Figure("chunks", "Time and peak memory over the size of chunks.", (step,), _draw_chunks)
    about = (
        f"Inference of the {size} LION-D on one image of {pixels} pixels. `chunk` is the paper's form: rows of blocks, "
        "no state between them. For information, `scan`, which carries states between chunks, in plain PyTorch and "
        "compiled; its work grows with the size of chunks."
    )
    not_run = "the paper's GPU, whose memory was full beyond chunks of 1024. It prints no numbers, only curves."
    return Exhibit(about, (table,), claims, (figure,), not_run)

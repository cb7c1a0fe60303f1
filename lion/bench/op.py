"""`lion bench op`: the forms of the operator beside torch's softmax attention."""

import contextlib
import math
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import lion
from lion.bench.peak_memory import peak_memory
from lion.bench.results import save
from lion.bench.timing import interleaved
from lion.machine import available_memory
from lion.ops import flops
from lion.ops.cpu import library
from lion.ops.kernels import DECAYS as DECAY_KINDS
from lion.ops.kernels import FORMS, KERNELS
from lion.progress import progress
from lion.terminal import mebibytes, milliseconds, percent, ratio, table

SOFTMAX = "softmax"  # torch.nn.functional.scaled_dot_product_attention
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
DECAYS = {"none": "none", "fixed": "scalar", "per-token": "scalar", "diagonal": "diagonal"}  # kinds of the kernels


class Shape(NamedTuple):
    B: int
    H: int
    T: int
    D: int

    @staticmethod
    def parse(text: str) -> "Shape":
        try:
            sizes = [int(x) for x in text.split(",")]
        except ValueError:
            sizes = []
        if len(sizes) != 4 or min(sizes) < 1:
            raise ValueError(f"shape is {text!r}; expected four sizes B,H,T,D, as in 1,8,1024,64.")
        return Shape(*sizes)

    def __str__(self) -> str:
        return ",".join(map(str, self))


USUAL = ("8,12,128,64", "8,6,197,64", "1,8,1024,64", "1,8,4096,64", "1,8,16384,64")
SHAPES = tuple(Shape.parse(x) for x in USUAL)


class Inputs(NamedTuple):
    """What all contenders get: positive features, as a feature map makes them."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None

    @staticmethod
    def random(shape: Shape, dtype: torch.dtype, decay: str, device: torch.device) -> "Inputs":
        B, H, T, D = shape
        generator = torch.Generator().manual_seed(0)

        def normal(*size: int) -> Tensor:
            return torch.randn(*size, generator=generator)

        q, k = (F.normalize(F.silu(normal(B, T, H, D)) + 0.5, dim=-1).to(device, dtype) for _ in range(2))
        sizes = {"none": None, "fixed": (H,), "per-token": (B, T, H), "diagonal": (B, T, H, D)}[decay]
        # Decays are float32 in half-precision models too.
        wide = dtype if dtype == torch.float64 else torch.float32
        log_decay = None if sizes is None else F.logsigmoid(normal(*sizes) + 4).to(device, wide)
        return Inputs(q, k, normal(B, T, H, D).to(device, dtype), log_decay)

    def trainable(self) -> "Inputs":
        for x in self:
            if x is not None:
                x.requires_grad_()
        return self


class Contender(NamedTuple):
    name: str
    form: str  # or SOFTMAX
    backend: str = "auto"

    def on(self, inputs: Inputs) -> Callable[[], Tensor]:
        q, k, v, log_decay = inputs
        if self.form == SOFTMAX:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return lambda: F.scaled_dot_product_attention(q, k, v)
        return lambda: lion.attention(q, k, v, log_decay, form=self.form, backend=self.backend)  # type: ignore[call-overload]


PEER = Contender(SOFTMAX, SOFTMAX)


def contenders(forms: Sequence[str], backend: str, decay: str) -> list[Contender]:
    """The forms on a backend; beside a compiled one, the same forms on torch."""
    if backend in ("auto", "torch"):
        return [Contender(form, form, backend) for form in forms]
    kind = DECAYS[decay]
    has = [form for form in forms if (backend, form, kind) in KERNELS]
    if not has:
        what = " and ".join(f"{form!r}" for form in forms)
        raise ValueError(f"backend {backend!r} has no form {what} with {DECAY_KINDS[kind]}.")
    return [Contender(f"{name} {form}", form, name) for form in has for name in ("torch", backend)]


def useful_flops(shape: Shape, decay: str, backward: bool) -> int:
    """Multiplications and additions of the compiled `scan`."""
    B, H, T, D = shape
    return B * flops.scan_flops(flops.Attention(T, H, D, D, DECAYS[decay]), backward=backward)


def training(run: Callable[[], Tensor], inputs: Inputs) -> Callable[[], object]:
    """Forward and backward of a contender."""
    leaves = [x for x in inputs if x is not None and x.requires_grad]
    along: list[Tensor] = []  # made in the first run, which only warms up: it is not attention's work

    def work() -> None:
        out = run()
        if not along:
            along.append(torch.ones_like(out))
        torch.autograd.grad(out, leaves, along[0], allow_unused=True)

    return work


def memory_needed(form: str, shape: Shape, size: int, backward: bool) -> int:
    """A rough count of bytes, to refuse what would not fit: the T x T matrices, or the states kept for autograd."""
    B, H, T, D = shape
    if form == "full":
        return B * H * T * T * size * (7 if backward else 4)
    if form == "rnn" and backward:
        return B * H * T * D * (D + 1) * size * 2 * 3
    return 0


def measure(
    shape: Shape,
    what: Sequence[Contender],
    *,
    dtype: str,
    decay: str,
    rounds: int,
    backward: bool,
    with_memory: bool,
    device: torch.device,
    tick: Callable[[], object],
) -> list[dict]:
    """One record per contender: seconds, bytes, or why it was left out."""
    inputs = Inputs.random(shape, DTYPES[dtype], decay, device)
    size = max(4, DTYPES[dtype].itemsize)
    if backward:
        inputs = inputs.trainable()
    works: dict[str, Callable[[], object]] = {}
    for x in what:
        if memory_needed(x.form, shape, size, backward) < 0.5 * available_memory():
            works[x.name] = training(x.on(inputs), inputs) if backward else x.on(inputs)
    context = contextlib.nullcontext() if backward else torch.no_grad()
    with context:
        times, tries = interleaved(works, rounds=rounds, tick=tick)
        bytes_ = {name: peak_memory(work, device) for name, work in works.items()} if with_memory else {}
    record = {"shape": list(shape), "pass": "forward+backward" if backward else "forward", "best_of": tries}
    return [
        record
        | {
            "name": name,
            "seconds": times.get(name),
            "times_faster_than_softmax": times[SOFTMAX] / times[name] if times.keys() >= {SOFTMAX, name} else None,
            "peak_bytes": bytes_.get(name),
            "left_out": None if name in times else "would not fit into memory",
        }
        for name in (x.name for x in what)
    ]


def run(
    shapes: Sequence[Shape] = SHAPES,
    forms: Sequence[str] = tuple(FORMS),
    *,
    backend: str = "auto",
    dtype: str = "float32",
    decay: str = "per-token",
    rounds: int = 5,
    with_softmax: bool = True,
    with_memory: bool = True,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON."""
    what = contenders(forms, backend, decay)
    what = [PEER, *what] if with_softmax else what
    with_peak = backend == "cpu" and DTYPES[dtype] in library.DTYPES
    peaks = [0.0]
    records: list[dict] = []
    runs = [(shape, backward) for shape in shapes for backward in (False, True)]
    with progress(total=len(runs) * len(what) * (rounds + 1), unit="run") as bar:
        for shape, backward in runs:
            bar.describe(f"{shape} {'forward+backward' if backward else 'forward'}")
            if with_peak:
                peaks.append(library.peak(DTYPES[dtype], torch.get_num_threads()))
            records += measure(
                shape,
                what,
                dtype=dtype,
                decay=decay,
                rounds=rounds,
                backward=backward,
                with_memory=with_memory,
                device=torch.device(device),
                tick=bar.advance,
            )
    setting = {
        "dtype": dtype,
        "decay": decay,
        "backend": backend,
        "device": device,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "torch": torch.__version__,
        "lion": lion.__version__,
        "peak_flops": max(peaks) or None,
        "machine": machine(),
    }
    if with_peak:
        add_shares_of_peak(records, decay, max(peaks))
    print(report(records, setting))
    save(json_path, {"setting": setting, "results": records})
    return records


def add_shares_of_peak(records: Sequence[dict], decay: str, peak: float) -> None:
    """Of the compiled kernels; the backward pass alone is what training takes longer than inference."""
    forward = {
        tuple(x["shape"]): x["seconds"] for x in records if x["pass"] == "forward" and x["name"].startswith("cpu ")
    }
    for x in records:
        shape = Shape(*x["shape"])
        if not x["name"].startswith("cpu ") or x["seconds"] is None:
            continue
        backward = x["pass"] != "forward"
        seconds = x["seconds"] - forward[shape] if backward else x["seconds"]
        x["share_of_peak"] = useful_flops(shape, decay, backward) / seconds / peak


def report(records: Sequence[dict], setting: dict) -> str:
    """The table, and how times grow with T where shapes differ in nothing else."""
    passes = ("forward", "forward+backward")
    peers, memory = (any(x[key] is not None for x in records) for key in ("times_faster_than_softmax", "peak_bytes"))
    columns: list[tuple[str, str, Callable]] = [("ms", "seconds", milliseconds)]
    if peers:
        columns.append(("vs softmax", "times_faster_than_softmax", ratio))
    if memory:
        columns.append(("MiB", "peak_bytes", mebibytes))
    if setting.get("peak_flops"):
        columns.append(("% of peak", "share_of_peak", percent))
    both: dict[tuple[str, str], dict[str, dict]] = {}
    for x in records:
        both.setdefault((",".join(map(str, x["shape"])), x["name"]), {})[x["pass"]] = x
    rows, last = [], None
    for (shape, name), found in both.items():
        cells = [show(found[which].get(key)) for which in passes for _, key, show in columns]
        rows.append([shape if shape != last else "", name, *cells])
        last = shape
    header = ("B,H,T,D", "what", *(f"{which} {title}" for which in ("fwd", "fwd+bwd") for title, *_ in columns))
    words = f"{setting['dtype']}, {setting['decay']} decay, {setting['threads']} threads, best of {_tries(records)}"
    notes = []
    if peers:
        notes.append("vs softmax: how many times faster than torch's scaled_dot_product_attention")
    if setting.get("peak_flops"):
        peak = f"{setting['peak_flops'] / 1e9:.0f} GFLOP/s of multiply-adds on {setting['threads']} threads"
        notes.append(f"% of peak: of {peak}, measured in the same run; under fwd+bwd, the backward pass alone")
    if any(x["left_out"] for x in records):
        notes.append("-: left out, it would not fit into memory")
    notes += [
        f"{name}, {which}: time grows as T^{power:.2f} from {first:,} to {last_:,} tokens"
        for which in passes
        for name, first, last_, power in growth([x for x in records if x["pass"] == which])
    ]
    return "\n".join([words, "", table(header, rows), "", *notes])


def _tries(records: Sequence[dict]) -> str:
    tries = sorted({x["best_of"] for x in records})
    same = "the same for all of a shape"
    return str(tries[0]) if len(tries) == 1 else f"{tries[0]} to {tries[-1]} ({same})"


def machine() -> str:
    """What a measurement was made on."""
    return f"{cpu_model()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def growth(records: Sequence[dict]) -> list[tuple[str, int, int, float]]:
    """(name, shortest T, longest T, exponent) of what was timed at several T and otherwise equal shapes."""
    lines: dict[tuple, list[tuple[int, float]]] = {}
    for x in records:
        B, H, T, D = x["shape"]
        if x["seconds"] is not None:
            lines.setdefault((x["name"], B, H, D), []).append((T, x["seconds"]))
    found = []
    for (name, *_), points in lines.items():
        (first, start), (last, end) = min(points), max(points)
        if last >= 4 * first:  # less says more about the noise than about the growth
            found.append((name, first, last, math.log(end / start) / math.log(last / first)))
    return found

"""`lion bench op`: the forms of the operator beside torch's softmax attention."""

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import lion
from lion.bench import results
from lion.bench.peak_memory import peak_memory
from lion.bench.results import LARGE, save, setting
from lion.bench.timing import Work, interleaved, training
from lion.devices import chosen
from lion.machine import available_memory
from lion.ops import flops
from lion.ops.checks import one_of
from lion.ops.cpu import library
from lion.ops.kernels import BACKENDS, FORMS, KERNELS
from lion.ops.kernels import DECAYS as DECAY_KINDS
from lion.progress import progress
from lion.terminal import mebibytes, milliseconds, percent, ratio

SOFTMAX = "softmax"  # torch.nn.functional.scaled_dot_product_attention
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
DECAYS = {"none": "none", "fixed": "scalar", "per-token": "scalar", "diagonal": "diagonal"}  # kinds of the kernels
PASSES = ("forward", "forward+backward")
USUAL = ("8,12,128,64", "8,6,197,64", "1,8,1024,64", "1,8,4096,64", "1,8,16384,64")


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


class Inputs(NamedTuple):
    """The inputs of all contenders: positive features, as from a feature map."""

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
        # Decays are float32 also in half-precision models.
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


def memory_needed(form: str, shape: Shape, size: int, backward: bool) -> int:
    """A rough number of bytes, to leave out what would not fit: T x T matrices, or states saved for autograd."""
    B, H, T, D = shape
    if form == "full":
        return B * H * T * T * size * (7 if backward else 4)
    if form == "rnn" and backward:
        return B * H * T * D * (D + 1) * size * 2 * 3
    return 0


def measure(
    shape: Shape, what: Sequence[Contender], setting: dict, *, backward: bool, memory: bool, tick: Callable[[], object]
) -> list[dict]:
    """One record per contender: seconds, bytes, or why it was left out."""
    dtype, device = DTYPES[setting["dtype"]], torch.device(setting["device"])
    inputs = Inputs.random(shape, dtype, setting["decay"], device)
    if backward:
        inputs = inputs.trainable()
    works: dict[str, Work] = {}
    for x in what:
        if memory_needed(x.form, shape, max(4, dtype.itemsize), backward) < 0.5 * available_memory(device):
            works[x.name] = training(x.on(inputs), inputs) if backward else x.on(inputs)
    with contextlib.nullcontext() if backward else torch.no_grad():
        times, tries = interleaved(works, rounds=setting["rounds"], tick=tick)
        bytes_ = {name: peak_memory(work, device) for name, work in works.items()} if memory else {}
    record = {"shape": list(shape), "pass": PASSES[backward], "best_of": tries}
    return [
        record
        | {
            "name": name,
            "seconds": times.get(name),
            "times_faster_than_softmax": times[SOFTMAX] / times[name] if times.keys() >= {SOFTMAX, name} else None,
            "peak_bytes": bytes_.get(name),
            "left_out": None if name in times else LARGE,
        }
        for name in (x.name for x in what)
    ]


def run(
    shapes: Sequence[str] = USUAL,
    forms: Sequence[str] = tuple(FORMS),
    *,
    backend: str = "auto",
    dtype: str = "float32",
    decay: str = "per-token",
    threads: int | None = None,
    rounds: int = 5,
    device: str = "cpu",
    softmax: bool = True,
    memory: bool = True,
    variants: bool = False,
    json_path: Path | None = None,
) -> list[dict] | None:
    """Measure, print a table, write the JSON."""
    for form in forms:
        one_of("form", form, FORMS)
    one_of("backend", backend, ("auto", *BACKENDS))
    one_of("dtype", dtype, DTYPES)
    one_of("decay", decay, DECAYS)
    there = chosen(device)
    if threads is not None:
        torch.set_num_threads(threads)
    if variants:
        _run_variants(shapes, rounds, there, json_path)
        return None
    what = [*([PEER] if softmax else []), *contenders(forms, backend, decay)]
    about = setting(dtype=dtype, decay=decay, backend=backend, device=device, rounds=rounds)
    with_peak = backend == "cpu" and DTYPES[dtype] in library.DTYPES
    peaks = [0.0]
    records: list[dict] = []
    runs = [(Shape.parse(shape), backward) for shape in shapes for backward in (False, True)]
    with progress(total=len(runs) * len(what) * (rounds + 1), unit="run") as bar:
        for shape, backward in runs:
            bar.describe(f"{shape} {PASSES[backward]}")
            if with_peak:
                peaks.append(library.peak(DTYPES[dtype], torch.get_num_threads()))
            records += measure(shape, what, about, backward=backward, memory=memory, tick=bar.advance)
    about["peak_flops"] = max(peaks) or None
    if with_peak:
        add_shares_of_peak(records, decay, max(peaks))
    print(report(records, about))
    save(json_path, {"setting": about, "results": records})
    return records


def _run_variants(shapes: Sequence[str], rounds: int, device: torch.device, json_path: Path | None) -> None:
    from lion.bench import op_variants

    if shapes is USUAL:
        shapes = [str(op_variants.USUAL)]
    if len(shapes) > 1:
        raise ValueError(f"--variants measures one shape; --shapes has {len(shapes)}.")
    op_variants.run(Shape.parse(shapes[0]), rounds=rounds, device=device, json_path=json_path)


def add_shares_of_peak(records: Sequence[dict], decay: str, peak: float) -> None:
    """Add the compiled kernels' shares of the peak; the time of the backward pass is a difference."""
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


def report(records: Sequence[dict], about: dict) -> str:
    """The table, and how times grow with T where shapes differ in nothing else."""
    known: list[tuple[str, str, Callable[[Any], str]]] = [
        ("ms", "seconds", milliseconds),
        ("vs softmax", "times_faster_than_softmax", ratio),
        ("MiB", "peak_bytes", mebibytes),
        ("% of peak", "share_of_peak", percent),
    ]
    columns = [x for x in known if x[0] == "ms" or any(record.get(x[1]) is not None for record in records)]
    both: dict[tuple[str, str], dict[str, dict]] = {}
    for x in records:
        both.setdefault((",".join(map(str, x["shape"])), x["name"]), {})[x["pass"]] = x
    rows = [
        ([shape], [name, *(show(found[which].get(key)) for which in PASSES for _, key, show in columns)])
        for (shape, name), found in both.items()
    ]
    header = ("B,H,T,D", "what", *(f"{which} {title}" for which in ("fwd", "fwd+bwd") for title, *_ in columns))
    tries = sorted({x["best_of"] for x in records})
    words = str(tries[0]) if len(tries) == 1 else f"{tries[0]} to {tries[-1]} (the same for all of a shape)"
    notes = []
    if any(x[0] == "vs softmax" for x in columns):
        notes.append("vs softmax: how many times faster than torch's scaled_dot_product_attention")
    if about["peak_flops"]:
        peak = f"{about['peak_flops'] / 1e9:.0f} GFLOP/s of multiply-adds on {about['threads']} threads"
        notes.append(f"% of peak: of {peak}, measured in the same run; under fwd+bwd, the backward pass alone")
    if any(x["left_out"] for x in records):
        notes.append("-: left out, it would not fit into memory")
    notes += [
        f"{name}, {which}: time grows as T^{power:.2f} from {first:,} to {last:,} tokens"
        for which in PASSES
        for name, first, last, power in growth([x for x in records if x["pass"] == which])
    ]
    heading = f"{about['dtype']}, {about['decay']} decay, {about['threads']} threads, best of {words}"
    return results.report(heading, header, rows, notes)


def growth(records: Sequence[dict]) -> list[tuple[str, int, int, float]]:
    """(name, shortest T, longest T, exponent) for all that were timed at several T and otherwise equal shapes."""
    lines: dict[tuple, list[tuple[int, float]]] = {}
    for x in records:
        B, H, T, D = x["shape"]
        if x["seconds"] is not None:
            lines.setdefault((x["name"], B, H, D), []).append((T, x["seconds"]))
    found = []
    for (name, *_), points in lines.items():
        (first, start), (last, end) = min(points), max(points)
        if last >= 4 * first:  # over a shorter range, noise would dominate
            found.append((name, first, last, math.log(end / start) / math.log(last / first)))
    return found

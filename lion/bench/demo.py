"""`lion demo`: models trained on digits; all forms give the same numbers; what each costs as sequences grow."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import lion
from lion.bench import demo_training as digits
from lion.bench.op import SOFTMAX, Contender, Inputs, Shape, memory_needed
from lion.bench.peak_memory import peak_memory
from lion.bench.report.page import Demo, write_report
from lion.bench.timing import seconds
from lion.ops import reference
from lion.ops.kernels import FORMS
from lion.progress import Bar, progress
from lion.terminal import mebibytes, milliseconds, table
from lion.train.report import environment

LENGTHS = tuple(2**n for n in range(8, 16))  # 256 to 32,768
PAPER_DECAYS = {"none": "LION-LIT, no decay", "fixed": "LION-D, fixed decay", "per-token": "LION-S, selective decay"}
QUADRATIC = (SOFTMAX, "full", "chunk")
PATIENCE = 2.0  # seconds: what a run may be expected to take
MEMORY = 4 << 30


def agreement() -> list[tuple[str, str, str, str]]:
    """For each decay of the paper, how far each form is from the definition; float64, largest over all."""
    rows: list[tuple[str, str, str, str]] = []
    for decay, label in PAPER_DECAYS.items():
        inputs = Inputs.random(Shape(2, 3, 197, 16), torch.float64, decay, torch.device("cpu")).trainable()
        want = _with_gradients(reference.attention(*inputs), inputs)
        for form in FORMS:
            got = _with_gradients(lion.attention(*inputs, form=form), inputs)
            worst = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(got, want, strict=True)]
            rows.append((label if form == "full" else "", form, f"{worst[0]:.1e}", f"{max(worst[1:]):.1e}"))
    return rows


def _with_gradients(out: Tensor, inputs: Inputs) -> list[Tensor]:
    leaves = [x for x in inputs if x is not None]
    return [out, *torch.autograd.grad(out, leaves, torch.linspace(-1, 1, out.numel()).double().view_as(out))]


class Point(NamedTuple):
    name: str
    length: int
    seconds: float
    bytes: int


def sweep(lengths: tuple[int, ...], bar: Bar) -> list[Point]:
    """Time and peak memory of every form over T, each as far as it can go in reasonable time."""
    points: list[Point] = []
    expected = dict.fromkeys((SOFTMAX, *FORMS), 0.0)
    for T in lengths:
        shape = Shape(1, 4, T, 64)
        bar.describe(f"T = {T:,}")
        inputs = Inputs.random(shape, torch.float32, "per-token", torch.device("cpu"))
        for name in expected:
            bar.advance()
            if expected[name] > PATIENCE or memory_needed(name, shape, 4, backward=False) > MEMORY:
                expected[name] = torch.inf
                continue
            work = Contender(name, name).on(inputs)
            with torch.no_grad():
                time = min(seconds(work) for _ in range(1 if expected[name] > 0.5 else 5))
                memory = peak_memory(work)  # warm: without what is only ever allocated once
            expected[name] = time * (4 if name in QUADRATIC else 2)
            points.append(Point(name, T, time, memory))
    return points


def costs(points: list[Point]) -> str:
    names = (SOFTMAX, *FORMS)
    found = {(p.name, p.length): p for p in points}
    rows = []
    for T in sorted({p.length for p in points}):
        row = [f"{T:,}"]
        for field, show in (("seconds", milliseconds), ("bytes", mebibytes)):
            row += [show(getattr(found[name, T], field)) if (name, T) in found else "-" for name in names]
        rows.append(row)
    header = ("T", *(f"{name} ms" for name in names), *(f"{name} MiB" for name in names))
    return table(header, rows)


def draw(points: list[Point], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    panels = ((axes[0], "seconds", 1e3, "milliseconds"), (axes[1], "bytes", 2**-20, "peak memory, MiB"))
    for axis, field, factor, label in panels:
        for name in (SOFTMAX, *FORMS):
            line = [(p.length, max(getattr(p, field) * factor, 0.1)) for p in points if p.name == name]
            style = {"color": "0.4", "linestyle": "--"} if name == SOFTMAX else {}
            axis.plot(*zip(*line, strict=True), marker="o", markersize=4, label=name, **style)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("tokens")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axis.tick_params(axis="x", rotation=30)
    axes[0].legend(frameon=False)
    figure.suptitle("One operator, four forms: selective decay, 4 heads of 64, float32, forward")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(out: Path, lengths: tuple[int, ...] = LENGTHS, changes: dict[str, str] | None = None) -> None:
    """Everything, and a report of it. `changes` are fields of the runs to set."""
    print("1. Four models of one size learn to read digits\n", flush=True)
    runs = digits.train_all(out, changes or {})
    print(f"\n{digits.training_table(runs)}")
    print("\n2. The trained lion_s in every form, on the held-out digits\n", flush=True)
    with progress(total=len(FORMS), unit="form") as bar:
        forms = digits.in_every_form(out / "lion_s", bar)
    print(digits.forms_table(forms))
    print("\n3. All forms are the same function (float64, against the definition, 197 tokens)\n", flush=True)
    rows = agreement()
    print(table(("decay", "form", "output differs by", "gradients differ by"), rows))
    heads = "4 heads of 64 channels, float32, forward"
    print(f"\n4. What they cost: selective decay, {heads}, {torch.get_num_threads()} threads\n", flush=True)
    with progress(total=len(lengths) * (len(FORMS) + 1), unit="run") as bar:
        points = sweep(lengths, bar)
    print(costs(points))
    print("\nsoftmax is torch's scaled_dot_product_attention; -: left out, too slow or too large.")
    draw(points, out / "forms.png")
    write_report(out / "report.html", Demo(runs, forms, rows, points, environment()))
    print(f"\nreport: {out / 'report.html'}")

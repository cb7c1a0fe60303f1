"""`lion demo`: models are trained on digits; all forms give the same numbers; the cost of each form by length."""

from pathlib import Path

import torch

import lion
from lion.bench import demo_training
from lion.bench.agreement import Difference, with_gradients
from lion.bench.op import SOFTMAX, Contender, Inputs, Shape, memory_needed
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines
from lion.bench.report.page import Demo, Point, write_report
from lion.bench.timing import seconds
from lion.ops import reference
from lion.ops.kernels import FORMS
from lion.progress import Bar, progress
from lion.terminal import mebibytes, milliseconds, table
from lion.train.report import environment

LENGTHS = tuple(2**n for n in range(8, 16))  # 256 to 32,768
PAPER_DECAYS = {"none": "LION-LIT, no decay", "fixed": "LION-D, fixed decay", "per-token": "LION-S, selective decay"}
QUADRATIC = (SOFTMAX, "full", "chunk")
PATIENCE = 2.0  # seconds that a run may be expected to take
MEMORY = 4 << 30


def agreement() -> list[tuple[str, str, str, str]]:
    """The largest relative difference of each form to the definition, for each decay of the paper, in float64."""
    rows: list[tuple[str, str, str, str]] = []
    for decay, label in PAPER_DECAYS.items():
        inputs = Inputs.random(Shape(2, 3, 197, 16), torch.float64, decay, torch.device("cpu")).trainable()
        leaves = [x for x in inputs if x is not None]
        want = with_gradients(reference.attention(*inputs), leaves)
        for form in FORMS:
            worst = Difference.of(with_gradients(lion.attention(*inputs, form=form), leaves), want)
            rows.append((label if form == "full" else "", form, f"{worst.output:.1e}", f"{worst.gradients:.1e}"))
    return rows


def sweep(lengths: tuple[int, ...], bar: Bar) -> list[Point]:
    """Time and peak memory of every form by T, each as far as it goes in reasonable time."""
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
                memory = peak_memory(work)  # after the warm-up: without what is allocated only once
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
    panels = []
    for field, factor, label in (("seconds", 1e3, "milliseconds"), ("bytes", 2**-20, "peak memory, MiB")):
        lines: dict[str, list[tuple[float, float]]] = {}
        for p in points:
            lines.setdefault(p.name, []).append((p.length, max(getattr(p, field) * factor, 0.1)))
        panels.append(Panel("", "tokens", label, lines))
    draw_lines([panels], path, "One operator, four forms: selective decay, 4 heads of 64, float32, forward")


def run(out: Path, lengths: tuple[int, ...] = LENGTHS, changes: dict[str, str] | None = None) -> None:
    """Run all parts and write the report. `changes` are fields of the runs to set."""
    print("1. Four models of one size are trained to read digits\n", flush=True)
    runs = demo_training.train_all(out, changes or {})
    print(f"\n{demo_training.training_table(runs)}")
    print("\n2. The trained lion_s in every form, on the evaluation set\n", flush=True)
    with progress(total=len(FORMS), unit="form") as bar:
        forms = demo_training.in_every_form(out / "lion_s", bar)
    print(demo_training.forms_table(forms))
    print("\n3. All forms are the same function (float64, against the definition, 197 tokens)\n", flush=True)
    rows = agreement()
    print(table(("decay", "form", "output differs by", "gradients differ by"), rows))
    heads = "4 heads of 64 channels, float32, forward"
    print(f"\n4. The cost of each form: selective decay, {heads}, {torch.get_num_threads()} threads\n", flush=True)
    with progress(total=len(lengths) * (len(FORMS) + 1), unit="run") as bar:
        points = sweep(lengths, bar)
    print(costs(points))
    print("\nsoftmax is torch's scaled_dot_product_attention; -: left out, too slow or too large.")
    draw(points, out / "forms.png")
    write_report(out / "report.html", Demo(runs, forms, rows, points, environment()))
    print(f"\nreport: {out / 'report.html'}")

"""The demo's report: one HTML page with all measurements, in plots, tables and sentences made from the numbers."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lion.bench.report.learned import LABELS, Digits, learned, look, masks
from lion.nn.variants import VARIANTS
from lion.pages.figures import Axis, Html, Line, colour, legend, listed, plot, tag, together
from lion.pages.parts import apart, beyond_chance, card, named, opening, over_steps, panel, smooth, table, write
from lion.train.report import METRICS, read_metrics

SOFTMAX = "softmax"
FORMS = {
    "full": "the matrix of all pairs of tokens, at once",
    "rnn": "two recurrences, token by token",
    "chunk": "some rows of the matrix at a time",
    "scan": "chunks, with a state from one to the next",
}
TIMES = "\N{MULTIPLICATION SIGN}"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


class TrainedRun(NamedTuple):
    folder: Path  # with metrics.jsonl, and the model in `model`
    accuracy: float  # on the evaluation set
    step_ms: float  # of a training step, interleaved with the others
    parameters: int


class FormResult(NamedTuple):
    accuracy: float
    differ: int  # predictions that differ from the first form's
    logits: float  # the largest difference to the first form's
    image_ms: float


class Point(NamedTuple):
    """The cost of a form, or of softmax, at one length."""

    name: str
    length: int
    seconds: float
    bytes: int


class Demo(NamedTuple):
    runs: dict[str, TrainedRun]  # by model, of LABELS: lion_s, lion_d and softmax at least
    forms: dict[str, FormResult]  # of the trained lion_s
    agreement: Sequence[tuple[str, str, str, str]]  # decay ("" as above), form, output and gradients differ by
    points: Sequence[Point]
    environment: dict[str, Any]


def write_report(path: Path, demo: Demo) -> None:
    digits = Digits.load()
    seen = {name: look(demo.runs[name].folder / "model", digits) for name in ("lion_s", "lion_d")}
    sections = {
        "Training": _training(demo, len(digits.labels), seen["lion_s"].tokens),
        f"One model, {_number(len(demo.forms))} forms": _forms(demo, len(digits.labels)),
        "What it learned": learned(seen, digits),
        "A mask": masks(seen, digits),
        "What the forms cost": _costs(demo.points),
    }
    write(path, "lion: what the demo found", _header(demo, digits), sections, demo.environment)


# Header.


def _header(demo: Demo, digits: Digits) -> Html:
    same = "nearly the same" if any(form.differ for form in demo.forms.values()) else "the same"
    sizes = sorted(run.parameters for run in demo.runs.values())
    size = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,}"
    lead = (
        f"{_number(len(demo.runs)).capitalize()} models of {size} parameters were trained on handwritten digits, on "
        f"this machine: {digits.trained_on:,} digits for training, {len(digits.labels):,} for evaluation."
    )
    title = f"Attention that trains like a Transformer and runs like an RNN, with {same} predictions."
    return opening(title, [lead], _cards(demo, len(digits.labels)))


def _cards(demo: Demo, images: int) -> list[Html]:
    forms = demo.forms.values()
    same = images - max(form.differ for form in forms)
    cards = [
        card(
            f"{demo.runs['lion_s'].accuracy:.1%}",
            "accuracy of LION-S on the evaluation set",
            f"softmax: {demo.runs[SOFTMAX].accuracy:.1%}",
        ),
        card(
            f"{same}",
            f"equal predictions in all {_number(len(forms))} forms",
            f"logits within {_difference(max(form.logits for form in forms))}",
            unit=f"of {images}",
        ),
    ]
    both = _common(demo.points)
    if both is None:
        return cards
    best, peer = both
    times = peer.seconds / best.seconds
    return [
        *cards,
        card(
            f"{_short(max(times, 1 / times))}{TIMES}",
            f"{'faster' if times >= 1 else 'slower'} than softmax at {best.length:,} tokens",
            f"{_time(best.seconds)} against {_time(peer.seconds)}",
        ),
        card(
            _mebibytes(best.bytes),
            f"peak memory of {best.name} at {best.length:,} tokens",
            f"softmax: {_mebibytes(peer.bytes)} MiB",
            unit="MiB",
        ),
    ]


# Training.


def _training(demo: Demo, images: int, tokens: int) -> list[Html]:
    losses, accuracies = [], []
    for name, run in demo.runs.items():
        rows = read_metrics(run.folder / METRICS)
        losses.append(Line(name, smooth([(row["step"], row["loss"]) for row in rows if row["kind"] == "train"])))
        tested = apart([(row["step"], row["accuracy"]) for row in rows if row["kind"] == "eval"])
        tips = [f"{LABELS[name]}, step {step:,}: {share:.1%}" for step, share in tested]
        accuracies.append(Line(name, tested, tips))
    figures = [
        tag("figure", over_steps(losses, "training loss")),
        tag("figure", over_steps(accuracies, "accuracy on the evaluation set", percent=True)),
    ]
    names = legend([(name, LABELS[name]) for name in demo.runs])
    return [
        tag("p", _accuracy_words(demo, images)),
        tag("p", _step_words(demo, tokens)),
        tag("div", names, tag("div", *figures, class_="pair"), class_="panel"),
        panel(_training_table(demo, images)),
    ]


def _accuracy_words(demo: Demo, images: int) -> str:
    """The accuracies, and whether their differences are significant."""
    softmax = demo.runs[SOFTMAX].accuracy
    apart = []
    for name, run in demo.runs.items():
        gap = run.accuracy - softmax
        if beyond_chance(run.accuracy, softmax, images):
            apart.append(f"{LABELS[name]} is {abs(gap) * 100:.1f} points {'above' if gap > 0 else 'below'}")
    lion_s = demo.runs["lion_s"].accuracy
    words = f"The accuracy of LION-S on the evaluation set is {lion_s:.1%}, that of softmax attention {softmax:.1%}."
    if apart:
        return f"{words} Compared with softmax, {listed(apart)}: more than chance explains, with {images} digits."
    return f"{words} No model is further from softmax than chance explains: one digit of {images} is {1 / images:.2%}."


def _step_words(demo: Demo, tokens: int) -> str:
    softmax = demo.runs[SOFTMAX].step_ms
    ratios = [f"{LABELS[name]} {run.step_ms / softmax:.2f}" for name, run in demo.runs.items() if name != SOFTMAX]
    return (
        f"At the {tokens} tokens of these images, a training step takes {listed(ratios)} times softmax's time. "
        "This is one run of each model; other seeds give somewhat different numbers."
    )


def _training_table(demo: Demo, images: int) -> Html:
    header = ["model", "accuracy", f"wrong, of {images}", "ms per step", "of softmax's", "parameters"]
    rows = []
    for name, run in demo.runs.items():
        label = named(together(tag("span", class_="chip", style=colour(name)), LABELS[name]), VARIANTS[name].about)
        wrong = round((1 - run.accuracy) * images)
        ratio = f"{run.step_ms / demo.runs[SOFTMAX].step_ms:.2f}{TIMES}"
        rows.append([label, f"{run.accuracy:.1%}", wrong, f"{run.step_ms:.1f}", ratio, f"{run.parameters:,}"])
    return table(header, rows)


# Forms.


def _forms(demo: Demo, images: int) -> list[Html]:
    first = next(iter(demo.forms))
    header = ["form", "accuracy", f"predictions unlike {first}'s", "largest difference of logits", "ms per image"]
    rows = []
    for name, form in demo.forms.items():
        cells = (f"{form.accuracy:.1%}", form.differ, _difference(form.logits), f"{form.image_ms:.3g}")
        rows.append([named(name, FORMS[name]), *cells])
    note = (
        "The operator alone in float64, on random tokens: the largest difference of each form to the definition, "
        "in the output (above) and in the gradients (below)."
    )
    words = tag("p", _forms_words(demo, first, images))
    return [words, panel(table(header, rows)), panel(_agreement_table(demo), note)]


def _forms_words(demo: Demo, first: str, images: int) -> str:
    unlike = [f"{form.differ} of {name}" for name, form in demo.forms.items() if form.differ]
    if unlike:
        words = f"Of {images} predictions of the trained LION-S, {listed(unlike)} differ from those of {first}"
    else:
        words = f"In every form, the trained LION-S predicts the same for each of the {images} digits"
    logits = max(form.logits for form in demo.forms.values())
    size = f"{_difference(logits)}{', which is rounding' if logits < 1e-3 else ''}"
    quick = min(demo.forms, key=lambda name: demo.forms[name].image_ms)
    return f"{words}; its logits differ by up to {size}. The fastest form for images this small is {quick}."


def _agreement_table(demo: Demo) -> Html:
    """A row per decay, a column per form."""
    cells: dict[str, dict[str, Html]] = {}
    decay = ""
    for label, form, output, gradients in demo.agreement:
        decay = label or decay
        cells.setdefault(decay, {})[form] = together(output, tag("br"), tag("span", gradients, class_="below"))
    forms = list(dict.fromkeys(form for row in cells.values() for form in row))
    rows = [[named(*decay.split(", ", 1)), *(row.get(form, "-") for form in forms)] for decay, row in cells.items()]
    return table(["decay", *forms], rows)


# Costs.


def _costs(points: Sequence[Point]) -> list[Html]:
    names = list(dict.fromkeys(point.name for point in points))
    x = Axis.powers("tokens", [point.length for point in points], base=4)
    times, memory = [], []
    for name in names:
        line = [point for point in points if point.name == name]
        tips = [f"{name}, {p.length:,} tokens: {_time(p.seconds)}, {_mebibytes(p.bytes)} MiB" for p in line]
        times.append(Line(name, [(p.length, p.seconds * 1e3) for p in line], tips))
        memory.append(Line(name, [(p.length, max(p.bytes / 2**20, 0.1)) for p in line], tips))
    figures = []
    for lines, label in ((times, "milliseconds"), (memory, "peak memory, MiB")):
        y = Axis.powers(label, [value for line in lines for _, value in line.points])
        figures.append(tag("figure", plot(lines, x, y, f"{label} over the number of tokens, for each form")))
    note = (
        "Selective decay, forward. All axes are logarithmic; a line ends where a form would take too long, or too much "
        "memory. Softmax is torch's scaled_dot_product_attention."
    )
    key = legend([(name, name) for name in names])
    return [
        tag("p", " ".join(_costs_words(points))),
        tag("div", key, tag("div", *figures, class_="pair"), tag("p", note, class_="note"), class_="panel"),
    ]


def _costs_words(points: Sequence[Point]) -> list[str]:
    both = _common(points)
    if both is None:
        return ["Softmax and the forms have no length in common for a comparison."]
    best, peer = both
    words = [
        f"At {best.length:,} tokens, the longest sequence of softmax, {best.name} takes "
        f"{_time(best.seconds)} and {_mebibytes(best.bytes)} MiB, softmax {_time(peer.seconds)} and "
        f"{_mebibytes(peer.bytes)} MiB.",
        _crossing(points),
    ]
    grown = [(name, _growth([p for p in points if p.name == name])) for name in (best.name, SOFTMAX)]
    if all(times is not None for _, times in grown):
        known = [f"{name}'s time by {times:.1f}" for name, times in grown]
        words.append(f"Doubling a long sequence multiplies {listed(known)}.")
    return words


def _crossing(points: Sequence[Point]) -> str:
    """The length from which on some form is quicker than softmax."""
    quicker = {}
    for peer in sorted((p for p in points if p.name == SOFTMAX), key=lambda p: p.length):
        forms = [p.seconds for p in points if p.name != SOFTMAX and p.length == peer.length]
        quicker[peer.length] = bool(forms) and min(forms) < peer.seconds
    slower = [length for length in quicker if not quicker[length]]
    if not slower:
        return f"At every length, from {min(quicker):,} tokens on, some form is quicker than softmax."
    if max(slower) == max(quicker):
        return f"Softmax is quicker than every form at {max(slower):,} tokens."
    return f"Softmax is quicker than every form at {max(slower):,} tokens, but not above."


def _growth(points: Sequence[Point]) -> float | None:
    """The factor of time when the length doubles, over the longer half of the lengths."""
    if len(points) < 2:
        return None
    first, last = points[(len(points) - 1) // 2], points[-1]
    return (last.seconds / first.seconds) ** (1 / math.log2(last.length / first.length))


def _common(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The fastest form and softmax, at the longest length that both were measured at."""
    for peer in sorted((p for p in points if p.name == SOFTMAX), key=lambda p: -p.length):
        forms = [p for p in points if p.name != SOFTMAX and p.length == peer.length]
        if forms:
            return min(forms, key=lambda p: p.seconds), peer
    return None


# Numbers.


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else f"{count}"


def _short(times: float) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.1f}"


def _mebibytes(count: int) -> str:
    size = count / 2**20
    return f"{size:,.0f}" if size >= 10 else f"{size:.1f}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _difference(x: float) -> str:
    return f"{x:.1e}" if x else "0"

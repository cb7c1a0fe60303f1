"""Image classification: accuracy beside training time, and the costs of inference."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lion.bench.plots import Panel, draw_lines, lines_of
from lion.models.flops import parameters_of
from lion.models.registry import model_config
from lion.reproduce.drawing.scatter import draw as draw_scatter
from lion.reproduce.exhibits import (
    Cell,
    Claim,
    Exhibit,
    Figure,
    Numbers,
    ScaleName,
    Table,
    Value,
    register_exhibit,
)
from lion.reproduce.paper.image_runs import CIFAR10, on_cifar10
from lion.reproduce.readings import Reading, accuracy, recorded, time_of
from lion.reproduce.steps import Step, measuring, seeds

ACCURACY, TIME, PARAMETERS = "accuracy, %", "training time", "parameters, M"
CLASSES = 1000  # of ImageNet: the classifier is among the parameters
# Rows of the paper's tables, and the models of these names.
MODELS = {
    "ViT": "softmax",
    "DeiT": "softmax",
    "Hydra": "hydra",
    "Vim": "vim",
    "LION-LIT": "lion_lit",
    "LION-D": "lion_d",
    "LION-D 2 scans": "lion_d_2scan",
    "LION-S": "lion_s",
    "LION-S 2 scans": "lion_s_2scan",
}
LAPTOP = (
    f"Accuracy: {CIFAR10} (`cifar10.*`). Training time: a forward and a backward pass of the paper's own models on "
    "images of 224 pixels, of softmax attention's. Parameters: of these, with the classifier."
)
PAPER = "ImageNet as DeiT trains it, 300 epochs. Training time: a forward and a backward pass, of softmax attention's."
SPEED = "times_faster_than_softmax"
VIT = "The accuracy of the row ViT: it is the model DeiT by an older training recipe, which the paper does not print."


def accuracy_steps(model: str, size: str, scale: ScaleName) -> tuple[Step, ...]:
    if scale == "paper":
        return seeds(1, f"imagenet.{model}_{size}")
    return on_cifar10(f"cifar10.{model}")


def time_step(sizes: Sequence[str], models: Sequence[str]) -> Step:
    options = f"--sizes {' '.join(sizes)} --pixels 224 --no-inference --models {' '.join(dict.fromkeys(models))}"
    return measuring("vision", options, minutes=12 * len(sizes))


def classification(printed: Mapping[str, tuple[float, float, float]], size: str, scale: ScaleName, step: Step) -> Table:
    """A table of parameters, accuracy and training time at one size. `printed`: the three numbers of each row."""
    rows = {}
    for row, (millions, percent, times) in printed.items():
        model = MODELS[row]
        runs = () if row == "ViT" else accuracy_steps(model, size, scale)
        rows[row] = [
            Cell(millions, value=parameters(model, size) / 1e6),
            Cell(percent, runs, accuracy),
            Cell(times, (step,), time_of(model, size, SPEED)),
        ]
    columns = _of(PARAMETERS, size), _of(ACCURACY, size), _of(TIME, size)
    return Table(columns, rows, forms={columns[0]: "{:.3g}", columns[2]: "{:.2f}"})


@functools.cache
def parameters(model: str, size: str) -> int:
    return parameters_of(replace(model_config(f"{model}_{size}_patch16_224"), num_classes=CLASSES))


def _of(column: str, size: str) -> str:
    """The name of a column: two tables of an exhibit have the same rows."""
    return f"{column} ({size})"


FASTER = (  # the first trains faster than the second
    ("LION-LIT", "DeiT"),
    ("LION-D 2 scans", "Vim"),
    ("LION-S 2 scans", "Vim"),
    ("LION-D 2 scans", "Hydra"),
)
HIGHER = (  # the first is more accurate than the second
    ("LION-D 2 scans", "LION-D"),
    ("LION-S 2 scans", "LION-S"),
    ("LION-D", "LION-LIT"),
    ("LION-S", "LION-LIT"),
    ("LION-D 2 scans", "Hydra"),
)
NEAR = 2.0  # points that "close to" and "softmax-level" are taken for
TIMES = 8.0  # what "10 times" is rounded from


def claims_of(size: str, rows: Collection[str]) -> list[Claim]:
    """What the paper says of training time and of accuracy, at one size."""

    def less(a: str, b: str, column: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(b, column).minus(n(a, column))]

    time, percent = _of(TIME, size), _of(ACCURACY, size)
    claims = [Claim(f"{size}: {a} trains faster than {b}", less(a, b, time)) for a, b in FASTER if b in rows]
    claims += [Claim(f"{size}: {a} is more accurate than {b}", less(b, a, percent)) for a, b in HIGHER if b in rows]
    for row in ("LION-D 2 scans", "LION-S 2 scans"):
        words = f"{size}: {row} is close to DeiT: at most {NEAR:g} points below it"
        claims.append(Claim(words, lambda n, row=row: [n(row, percent).minus(n("DeiT", percent)).minus(-NEAR)]))  # type: ignore[misc]
    return claims


def claims_of_small() -> list[Claim]:
    """What the paper's text says of the small size alone."""
    time, percent = _of(TIME, "small"), _of(ACCURACY, "small")
    two = "LION-D 2 scans"
    return [
        Claim(f"small: {two} surpasses DeiT", lambda n: [n(two, percent).minus(n("DeiT", percent))]),
        Claim(
            f"small: {two} trains 10 times as fast as Vim ({TIMES:g} or more)",
            lambda n: [n("Vim", time).minus(n(two, time).times(TIMES))],
        ),
    ]


def scatter(step: Step, size: str, scale: ScaleName) -> Figure:
    """Accuracy against training speed: top right is best."""
    models = [model for row, model in MODELS.items() if row != "ViT"]
    names = [row for row in MODELS if row != "ViT"]
    runs = [accuracy_steps(model, size, scale) for model in models]

    def draw(results: Sequence[Any], path: Path) -> bool:
        timing, rest = results[0], list(results[1:])
        points = []
        for name, model, steps in zip(names, models, runs, strict=True):
            found = [accuracy(x) for x in (rest.pop(0) for _ in steps) if x is not None]
            times = time_of(model, size, SPEED)(timing) if timing is not None else None
            if found and times:
                points.append((name, 1 / times, sum(found) / len(found)))
        return draw_scatter(points, path, "training speed, of softmax attention's", "accuracy, %")

    words = f"Accuracy and training speed, {size} size (softmax attention's speed is 1)."
    return Figure("scatter", words, (step, *(x for steps in runs for x in steps)), draw)


@register_exhibit(
    "table2",
    "Image classification: accuracy and training time, and both in a scatter plot.",
    label="tab:imagenet_grouped_all",
    claim="LION is as accurate as DeiT and the SSMs, and trains up to 10 times faster than Vim.",
)
def table2(scale: ScaleName) -> Exhibit:
    small = {
        "ViT": (22, 72.2, 1.0), "DeiT": (22, 79.8, 1.0), "Hydra": (22, 78.6, 2.50), "Vim": (26, 80.3, 14.95),
        "LION-LIT": (22, 72.4, 0.74), "LION-D": (22, 73.5, 1.49), "LION-D 2 scans": (22, 79.9, 1.66),
        "LION-S": (22, 74.0, 2.03), "LION-S 2 scans": (22, 79.6, 2.72),
    }  # fmt: skip
    base = {
        "ViT": (86, 77.9, 1.0), "DeiT": (86, 81.8, 1.0), "Hydra": (91, 81.0, 2.51), "Vim": (98, 81.9, 10.86),
        "LION-LIT": (86, 74.7, 0.73), "LION-D": (86, 77.8, 1.39), "LION-D 2 scans": (86, 80.2, 1.48),
        "LION-S": (86, 76.3, 1.46), "LION-S 2 scans": (86, 79.9, 1.68),
    }  # fmt: skip
    step = time_step(("small", "base"), list(MODELS.values()))
    first, second = classification(small, "small", scale, step), classification(base, "base", scale, step)
    if scale == "laptop":  # one size of the models of CIFAR-10
        second = replace(second, rows={row: [a, Cell(b.printed), c] for row, (a, b, c) in second.rows.items()})
    return Exhibit(
        LAPTOP if scale == "laptop" else PAPER,
        (first, second),
        (*claims_of("small", small), *claims_of_small(), *claims_of("base", base)),
        (scatter(step, "small", scale),),
        VIT,
    )


@register_exhibit(
    "table12",
    "Image classification at tiny size: accuracy and training time.",
    label="tab:imc_tiny",
    claim="What Table 2 shows holds for tiny models, too.",
)
def table12(scale: ScaleName) -> Exhibit:
    tiny = {
        "ViT": (5, 70.2, 1.0), "DeiT": (5, 72.2, 1.0), "Vim": (7, 76.1, 9.48), "LION-LIT": (5, 68.9, 0.69),
        "LION-D": (5, 72.4, 1.48), "LION-D 2 scans": (5, 74.2, 1.73), "LION-S": (5, 72.4, 2.05),
        "LION-S 2 scans": (5, 73.5, 3.83),
    }  # fmt: skip
    step = time_step(("tiny",), [MODELS[row] for row in tiny])
    about = LAPTOP if scale == "laptop" else PAPER
    return Exhibit(about, (classification(tiny, "tiny", scale, step),), tuple(claims_of("tiny", tiny)), not_run=VIT)


# Costs of inference.

CURVES = "The paper prints no numbers, only curves."


def found_at(name: str, pixels: int, key: str) -> Reading:
    """What `lion bench vision` found for a model at a size of images, of one image."""
    unit = 2**20 if key == "peak_bytes" else 1
    return recorded(key, lambda x: x[key] / x["batch"] / unit, name=name, pixels=pixels)


def against_pixels(title: str, key: str, factor: float, label: str) -> Callable[[Sequence[Any], Path], bool]:
    """Draw lines of what `lion bench vision` found over the sides of images."""

    def draw(results: Sequence[Any], path: Path) -> bool:
        records = [x for found in results if found is not None for x in found["results"] if x[key]]
        if not records:
            return False
        lines = lines_of(records, lambda x: x["name"], "pixels", lambda x: x[key] * factor / x["batch"])
        draw_lines([[Panel(title, "pixels each way", label, lines)]], path)
        return True

    return draw


MEMORY = ("peak_bytes", 2**-20, "peak memory, MiB per image")
SECONDS = ("seconds", 1.0, "seconds per image")


@register_exhibit(
    "figure1",
    "Memory and time of the forms: full attention, chunks and RNN, for LION-LIT, LION-D and LION-S.",
    label="fig:chunking_decay_fig",
    claim="The RNN takes the least memory and full attention the most; chunks are fast, and between them in memory.",
)
def figure1(scale: ScaleName) -> Exhibit:
    size = "base" if scale == "paper" else "tiny"
    pixels = (224, 512, 768, 1024) if scale == "laptop" else (224, 512, 768, 1024, 1248)
    models = {"LION-LIT": "lion_lit", "LION-D": "lion_d", "LION-S": "lion_s"}
    options = (
        f"--sizes {size} --pixels {' '.join(map(str, pixels))} --models {' '.join(models.values())} --forms full rnn "
        "chunk --no-training --batch 1 --rounds 2"
    )
    step = measuring("vision", options, minutes=12)
    at = pixels[-1]
    tables, claims = [], []
    rows = {}
    for row, model in models.items():
        for form in ("full", "chunk", "rnn"):
            name = f"{model}, {form}"
            rows[f"{row}, {form}"] = [
                Cell(None, (step,), found_at(name, at, "peak_bytes")),
                Cell(None, (step,), found_at(name, at, "seconds")),
            ]
        claims += _claims_of_forms(row)
    columns = ("memory, MiB", "time, s")
    tables.append(Table(columns, rows, title=f"One image of {at} pixels.", form="{:.2f}", forms={columns[0]: "{:.0f}"}))
    figures = tuple(
        Figure(f"{what}-{model}", f"{row}: {words} of the forms.", (step,), _of_model(model, row, axis))
        for row, model in models.items()
        for what, words, axis in (("memory", "memory", MEMORY), ("time", "time", SECONDS))
    )
    about = f"Inference of the {size} model on one image; `chunk` with the kernel's own chunk size. {CURVES}"
    return Exhibit(about, tuple(tables), tuple(claims), figures)


def _of_model(model: str, title: str, axis: tuple[str, float, str]) -> Callable[[Sequence[Any], Path], bool]:
    draw = against_pixels(title, *axis)

    def draw_some(results: Sequence[Any], path: Path) -> bool:
        some = [x and {"results": [r for r in x["results"] if r["model"] == model]} for x in results]
        return draw(some, path)

    return draw_some


def _claims_of_forms(row: str) -> list[Claim]:
    def less(a: str, b: str, column: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(f"{row}, {b}", column).minus(n(f"{row}, {a}", column))]

    return [
        Claim(f"{row}: chunks take less memory than full attention", less("chunk", "full", "memory, MiB")),
        Claim(f"{row}: the RNN takes less memory than chunks", less("rnn", "chunk", "memory, MiB")),
        Claim(f"{row}: chunks are faster than the RNN", less("chunk", "rnn", "time, s")),
        Claim(f"{row}: chunks are faster than full attention", less("chunk", "full", "time, s")),
    ]


def _by_model(
    names: dict[str, str], size: str, pixels: Sequence[int], form: str, key: str, minutes: float
) -> tuple[Step, Table]:
    """A step that measures inference, and a table of it with a column for each size of images."""
    models = " ".join(dict.fromkeys(names.values()))
    options = (
        f"--sizes {size} --pixels {' '.join(map(str, pixels))} --models {models} --forms {form} --no-training "
        "--batch 1 --rounds 2"
    )
    step = measuring("vision", options, minutes=minutes)
    rows = {}
    for row, model in names.items():
        name = row if row.startswith("softmax") else model if form == "auto" else f"{model}, {form}"
        name = model if model == "softmax" and not row.startswith("softmax") else name
        rows[row] = [Cell(None, (step,), found_at(name, side, key)) for side in pixels]
    form_of_numbers = "{:.0f}" if key == "peak_bytes" else "{:.3g}"
    return step, Table(tuple(f"{side} px" for side in pixels), rows, form=form_of_numbers)


@register_exhibit(
    "figure3",
    "Memory of inference against the resolution of images: LION as an RNN, ViT, Hydra and Vim.",
    label="fig:inference_efficiency",
    claim="LION's memory grows linearly with the number of patches, softmax attention's quadratically.",
)
def figure3(scale: ScaleName) -> Exhibit:
    size, pixels = ("base", (224, 512, 768, 1024, 1248)) if scale == "paper" else ("tiny", (224, 512, 768, 1024))
    names = {"ViT": "softmax", "LION-LIT": "lion_lit", "LION-D": "lion_d", "LION-S": "lion_s", "Hydra": "hydra",
             "Vim": "vim"}  # fmt: skip
    step, table = _by_model(names, size, pixels, "rnn", "peak_bytes", 25)
    far, near = (f"{pixels[-1]} px", f"{pixels[1]} px")
    longer = (pixels[-1] / pixels[1]) ** 2

    def linear(row: str) -> Callable[[Numbers], list[Value]]:
        """Memory grows no faster than the number of patches, and a quarter more."""
        return lambda n: [n(row, near).times(1.25 * longer).minus(n(row, far))]

    claims = [Claim(f"the memory of {row} grows linearly", linear(row)) for row in names if row != "ViT"]
    materialised = "softmax, materialised"
    table = Table(
        table.columns,
        {**table.rows, materialised: [Cell(None, (step,), found_at(materialised, x, "peak_bytes")) for x in pixels]},
        table.form,
        "Peak memory of one image, MiB.",
    )
    claims.append(
        Claim(
            "softmax attention, as it is written down, grows faster than linearly",
            lambda n: [n(materialised, far).minus(n(materialised, near).times(1.25 * longer))],
        )
    )
    draw = against_pixels("", *MEMORY)
    figure = Figure("memory", "Peak memory of inference over the side of the image.", (step,), draw)
    about = (
        f"Inference of the {size} models on one image, in the form `rnn`. ViT is torch's fused softmax attention, "
        f"which keeps no T x T matrix; the materialised one does, as the paper's. {CURVES}"
    )
    return Exhibit(about, (table,), tuple(claims), (figure,))


@register_exhibit(
    "figure10",
    "Time of inference against the resolution of images: LION-D in chunks, ViT, Hydra and Vim.",
    label="fig:inf_time",
    claim="At low resolutions all are alike, Vim and Hydra a little slower; at high ones the SSMs are faster.",
)
def figure10(scale: ScaleName) -> Exhibit:
    size, pixels = ("base", (224, 512, 768, 1024, 1248)) if scale == "paper" else ("tiny", (224, 512, 768, 1024))
    names = {"ViT": "softmax", "LION-D": "lion_d", "Hydra": "hydra", "Vim": "vim"}
    step, _ = _by_model(names, size, pixels, "auto chunk", "seconds", 15)
    rows = {
        "ViT": "softmax", "LION-D": "lion_d", "LION-D, chunk": "lion_d, chunk", "Hydra": "hydra", "Vim": "vim",
    }  # fmt: skip
    near, far = f"{pixels[0]} px", f"{pixels[-1]} px"
    table = Table(
        tuple(f"{side} px" for side in pixels),
        {row: [Cell(None, (step,), found_at(name, side, "seconds")) for side in pixels] for row, name in rows.items()},
        "{:.3g}",
        "Seconds of one image. LION-D without a form is the compiled kernel; `chunk` is plain PyTorch, as the paper's.",
    )

    def faster(a: str, b: str, column: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(b, column).minus(n(a, column))]

    claims = (
        Claim(f"at {near} LION-D in chunks is faster than Vim", faster("LION-D, chunk", "Vim", near)),
        Claim(f"at {near} LION-D in chunks is faster than Hydra", faster("LION-D, chunk", "Hydra", near)),
        Claim(f"at {far} Hydra is faster than LION-D in chunks", faster("Hydra", "LION-D, chunk", far)),
        Claim(f"at {far} Vim is faster than LION-D in chunks", faster("Vim", "LION-D, chunk", far)),
        Claim(f"beyond the paper: at {far} LION-D as compiled is the fastest",
              lambda n: [n(x, far).minus(n("LION-D", far)) for x in ("ViT", "Hydra", "Vim")]),
    )  # fmt: skip
    figure = Figure("time", "Time of inference over the side of the image.", (step,), against_pixels("", *SECONDS))
    about = f"Inference of the {size} models on one image. {CURVES}"
    return Exhibit(about, (table,), claims, (figure,))

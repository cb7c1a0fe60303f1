"""`lion bench vision`: whole image classifiers, training and inference, beside the same model with softmax."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lion.bench import results
from lion.bench.by_length import work
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import LARGE, MIB, SLOW, best_of, check_choices, save_with_plot, setting
from lion.bench.timing import Work, interleaved
from lion.devices import chosen
from lion.machine import available_memory
from lion.models import registry
from lion.models.flops import model_flops, tokens_of
from lion.models.registry import model_config, names_without_size
from lion.models.vision import VisionConfig, VisionModel
from lion.nn.layers import set_form
from lion.nn.variants import VARIANTS
from lion.ops.checks import Form
from lion.ops.kernels import FORMS, KERNELS
from lion.progress import progress
from lion.terminal import mebibytes, per_second, ratio

SIZES = ("tiny", "small")
PIXELS = (224, 512, 1024)
SOFTMAX = "softmax"
USUAL = (SOFTMAX, "lion_lit", "lion_d", "lion_s", "lion_d_2scan", "lion_s_2scan")
MATERIALISED = "softmax, materialised"  # with T x T matrices in memory
PASSES = {"training": True, "inference": False}
CPU = torch.device("cpu")

PATIENCE = 30.0  # seconds that a run may be expected to take
ROUNDS_PATIENCE = 90.0  # the same for all rounds of a case, if there are more than 2
SHARE = 0.5  # of the available memory, which a run may be expected to take


class Contender(NamedTuple):
    model: str  # a name of the registry without size
    form: Form = "auto"
    materialised: bool = False

    @property
    def name(self) -> str:
        if self.materialised:
            return MATERIALISED
        return self.model if self.form == "auto" else f"{self.model}, {self.form}"

    @property
    def quadratic(self) -> bool:
        """Whether it has T x T numbers in memory."""
        return self.materialised or self.form == "full"

    @property
    def counted_as(self) -> str:
        """The form whose number of FLOPs is the same."""
        counted: dict[str, str] = {"auto": "scan", "chunk": "full"}
        return counted.get(self.form, self.form)


class Case(NamedTuple):
    size: str
    pixels: int
    batch: int
    training: bool


def config_for(model: str, size: str, pixels: int) -> VisionConfig:
    return model_config(f"{model}_{size}_patch16_224", image_size=(pixels, pixels))


def usual_batch(pixels: int) -> int:
    """8 images of 224 pixels, 2 of 512, 1 of 1024."""
    return min(8, max(1, round(8 * (224 / pixels) ** 2)))


def contenders(models: Sequence[str], forms: Sequence[str], training: bool) -> list[Contender]:
    """The contenders of a pass. Models are trained in the form "auto"; other forms are for inference."""
    found = []
    for model in dict.fromkeys(models):
        has = [form for form in dict.fromkeys(forms) if has_form(model, form)]
        found += [Contender(model, cast(Form, form)) for form in (has if has and not training else ["auto"])]
        if model == SOFTMAX:
            found.append(Contender(SOFTMAX, materialised=True))
    return found


def has_form(model: str, form: str) -> bool:
    name = config_for(model, next(iter(registry.SIZES)), 224).variant
    if form == "auto" or name not in VARIANTS:
        return True
    variant = VARIANTS[name]
    return not variant.softmax and (not variant.delta or ("torch", form, "delta") in KERNELS)


def materialised(run: Work) -> Work:
    def with_matrices() -> object:
        with sdpa_kernel(SDPBackend.MATH):
            return run()

    return with_matrices


# Time and memory are expected from those at another size.


def expected_seconds(x: Contender, case: Case, known: Sequence[dict]) -> float:
    # Softmax with its matrices in memory is not timed; it takes at least as long as without.
    before = _last(x._replace(materialised=False), case, known, "seconds")
    if before is None:
        return 0.0
    return before["seconds"] * _flops(x, case) / _flops(x, _case(before))


def expected_bytes(x: Contender, case: Case, known: Sequence[dict]) -> float:
    before = _last(x, case, known, "peak_bytes")
    if before is not None:
        return before["peak_bytes"] * _volume(x, case) / _volume(x, _case(before))
    return 16.0 * _volume(x, case) if x.quadratic else 0.0  # four matrices


def _last(x: Contender, case: Case, known: Sequence[dict], measured: str) -> dict | None:
    found = [r for r in known if (r["name"], r["training"]) == (x.name, case.training) and r[measured] is not None]
    return found[-1] if found else None


def _case(record: dict) -> Case:
    return Case(record["size"], record["pixels"], record["batch"], record["training"])


def _flops(x: Contender, case: Case) -> int:
    config = config_for(x.model, case.size, case.pixels)
    return case.batch * sum(model_flops(config, form=x.counted_as).values())


def _volume(x: Contender, case: Case) -> int:
    """The size of the largest kind of tensors, in numbers."""
    config = config_for(x.model, case.size, case.pixels)
    tokens = tokens_of(config)
    layer = config.heads * tokens**2 if x.quadratic else tokens * config.dim
    return case.batch * layer * (config.depth if case.training else 1)


def measure(
    case: Case,
    what: Sequence[Contender],
    known: Sequence[dict],
    *,
    rounds: int,
    device: torch.device = CPU,
    tick: Callable[[int], object] = lambda steps: None,
) -> list[dict]:
    """One record per contender: seconds, bytes, or why it was left out."""
    generator = torch.Generator().manual_seed(0)
    config = config_for(what[0].model, case.size, case.pixels)
    images = torch.randn(case.batch, config.in_channels, case.pixels, case.pixels, generator=generator).to(device)
    works: dict[str, Work] = {}
    left_out: dict[str, str] = {}
    for x in what:
        if expected_seconds(x, case, known) > PATIENCE:
            left_out[x.name] = SLOW
        elif expected_bytes(x, case, known) > SHARE * available_memory(device):
            left_out[x.name] = LARGE
        else:
            model: nn.Module = VisionModel(config_for(x.model, case.size, case.pixels)).to(device)
            if x.form != "auto":
                set_form(model, x.form)
            run = work(model, images, case.training)
            works[x.name] = materialised(run) if x.materialised else run
    timed = {name: run for name, run in works.items() if name != MATERIALISED}
    round_takes = sum(expected_seconds(x, case, known) for x in what if x.name in timed)
    fair = min(rounds, max(2, int(ROUNDS_PATIENCE / max(round_takes, 1e-9))))
    times, tries = interleaved(timed, rounds=fair, tick=lambda: tick(1))
    bytes_ = {name: peak_memory(run, device) for name, run in works.items()}
    tick(len(what) * (rounds + 1) - len(timed) * (fair + 1))
    records = []
    for x in what:
        seconds, peers = times.get(x.name), times.get(SOFTMAX)
        records.append(
            case._asdict()
            | {
                "name": x.name,
                "model": x.model,
                "form": x.form,
                "tokens": tokens_of(config_for(x.model, case.size, case.pixels)),
                "best_of": tries,
                "seconds": seconds,
                "images_per_second": case.batch / seconds if seconds else None,
                "times_faster_than_softmax": peers / seconds if peers and seconds else None,
                "peak_bytes": bytes_.get(x.name),
                "left_out": left_out.get(x.name),
            }
        )
    return records


def run(
    *,
    sizes: Sequence[str] = SIZES,
    pixels: Sequence[int] = PIXELS,
    models: Sequence[str] = USUAL,
    forms: Sequence[str] = ("auto",),
    batch: int | None = None,
    rounds: int = 3,
    training: bool = True,
    inference: bool = True,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it."""
    check_choices(
        sizes=(sizes, tuple(registry.SIZES)), models=(models, names_without_size()), forms=(forms, ("auto", *FORMS))
    )
    _check(pixels, batch, rounds, training or inference)
    there = chosen(device)
    passes = [which for which, wanted in (("training", training), ("inference", inference)) if wanted]
    what = {which: contenders(models, forms, PASSES[which]) for which in passes}
    plan = [(size, n, which) for size in dict.fromkeys(sizes) for n in sorted(set(pixels)) for which in passes]
    records: list[dict] = []
    with progress(total=sum(len(what[which]) for *_, which in plan) * (rounds + 1), unit="run") as bar:
        for size, n, which in plan:
            bar.describe(f"{size}, {n} px, {which}")
            case = Case(size, n, batch or usual_batch(n), PASSES[which])
            records += measure(case, what[which], records, rounds=rounds, device=there, tick=bar.advance)
    about = setting(rounds=rounds, patience=PATIENCE, device=device)
    print(report(records, about))
    save_with_plot(json_path, {"setting": about, "results": records}, draw)
    return records


def _check(pixels: Sequence[int], batch: int | None, rounds: int, any_pass: bool) -> None:
    if not pixels or min(pixels) < 1:
        raise ValueError(f"pixels is {list(pixels)}; expected the sides of images, as in 224 512.")
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; expected at least 1.")
    if batch is not None and batch < 1:
        raise ValueError(f"batch is {batch}; expected at least 1, or None for what is usual at a size.")
    if not any_pass:
        raise ValueError("neither training nor inference is to be measured; expected one of them at least.")


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("images/s", "images_per_second", per_second),
    ("vs softmax", "times_faster_than_softmax", ratio),
    ("MiB", "peak_bytes", mebibytes),
]


def _passes(records: Sequence[dict]) -> list[str]:
    return [which for which, training in PASSES.items() if any(x["training"] == training for x in records)]


def report(records: Sequence[dict], about: dict) -> str:
    passes = _passes(records)
    peers = any(x["times_faster_than_softmax"] is not None for x in records)
    columns = [column for column in COLUMNS if peers or column[0] != "vs softmax"]
    both: dict[tuple, dict[bool, dict]] = {}
    order = list(dict.fromkeys((x["size"], x["pixels"], x["model"]) for x in records))  # the forms of a model together
    for x in sorted(records, key=lambda x: order.index((x["size"], x["pixels"], x["model"]))):
        both.setdefault((x["size"], x["pixels"], x["batch"], x["name"]), {})[x["training"]] = x
    rows = []
    for (*place, name), found in both.items():
        cells = [show(found.get(PASSES[which], {}).get(key)) for which in passes for _, key, show in columns]
        rows.append((place, [name, *cells]))
    header = ("size", "pixels", "batch", "model", *(f"{which} {title}" for which in passes for title, *_ in columns))
    notes = ["vs softmax: how many times as many images per second as the model with softmax attention"] * peers
    notes.append(MIB)
    if any(x["name"] == MATERIALISED for x in records):
        notes.append(f"{MATERIALISED}: with T x T matrices in memory, as attention is written down; not timed")
    reasons = [reason for reason in (SLOW, LARGE) if any(x["left_out"] == reason for x in records)]
    if reasons:
        notes.append(f"-: left out, {' or '.join(reasons)}")
    return results.report(f"{about['dtype']}, {about['threads']} threads{best_of(records)}", header, rows, notes)


def draw(records: Sequence[dict], path: Path) -> None:
    """Images per second and peak memory against pixels: a row of panels for every size."""

    def speed(x: dict) -> float | None:
        return x["images_per_second"]

    def memory(x: dict) -> float | None:
        return None if x["peak_bytes"] is None else max(x["peak_bytes"] / x["batch"] / 2**20, 1e-2)

    rows = []
    for size in dict.fromkeys(x["size"] for x in records):
        panels = []
        for which in _passes(records):
            some = [x for x in records if (x["size"], x["training"]) == (size, PASSES[which])]
            for y, label in ((speed, "images per second"), (memory, "peak memory, MiB per image")):
                lines = lines_of(some, lambda x: x["name"], "pixels", y)
                panels.append(Panel(f"{size}, {which}", "pixels each way", label, lines))
        rows.append(panels)
    draw_lines(rows, path)

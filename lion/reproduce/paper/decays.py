"""The decays that LION-D learns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lion.reproduce.exhibits import Cell, Claim, Exhibit, Figure, Numbers, ScaleName, Table, Value, register_exhibit
from lion.reproduce.paper.image_runs import on_cifar10
from lion.reproduce.paper.text_runs import pretraining
from lion.reproduce.steps import measuring, training

IMAGES, WORDS = "images", "masked words"
RANGE, FIRST, LAYERS = "range of half-lives", "range at first", "range across layers"
KEYS = {RANGE: "range", FIRST: "range_first", LAYERS: "across_layers"}
DIVERSE = 4.0  # times: the range of the half-lives of all heads
APART = 2.0  # times: the slowest layer's half-life, of the fastest's
ABOUT = {
    "laptop": "LION-D on CIFAR-10 (64 patches, 4 blocks), and as a masked language model on English (128 tokens, 2).",
    "paper": "LION-D at small size on ImageNet, and as a masked language model at base size on C4.",
}
MEANT = (
    "A head's decay is shown as its half-life: after so many tokens, half is left. The range is the ratio of the 90th "
    "percentile of all heads to the 10th. Across layers: the ratio of the slowest layer to the fastest, of the median "
    "head. LION-D begins as RetNet: with a wide range of decays over the heads, the same in every layer. So that heads "
    "differ need not have been learned; that layers differ has been."
)


def _read(key: str) -> Callable[[Any], float]:
    return lambda found: found["runs"][0][key]


def _at_least(row: str, column: str, least: float) -> Callable[[Numbers], list[Value]]:
    return lambda n: [n(row, column).minus(least)]


def _draw(results: Sequence[Any], path: Path) -> bool:
    from lion.bench.decays import draw

    records = [x for found in results if found is not None for x in found["results"]]
    if records:
        draw(records, path)
    return bool(records)


@register_exhibit(
    "figure12",
    "Decays that LION-D learns, by layer and head: image classification and masked language modelling.",
    label="fig:three_chunking_figures",
    claim="The model learns a diverse range of decays, across heads and layers.",
)
def figure12(scale: ScaleName) -> Exhibit:
    images = on_cifar10("cifar10.lion_d")[0] if scale == "laptop" else training("imagenet.lion_d_small")
    words = pretraining("lion_d", "base", scale)[0]
    runs = {IMAGES: images, WORDS: words}
    looks = {row: measuring("decays", "", run, minutes=0.2, alone=False) for row, run in runs.items()}
    rows = {row: [Cell(None, (step,), _read(key)) for key in KEYS.values()] for row, step in looks.items()}
    claims = []
    for row in looks:
        claims += [
            Claim(f"{row}: decays are diverse (a range of {DIVERSE:g} or more)", _at_least(row, RANGE, DIVERSE)),
            Claim(f"{row}: they differ across layers ({APART:g} times or more)", _at_least(row, LAYERS, APART)),
        ]
    figure = Figure("decays", "Half-lives by layer and head; rings: before training.", tuple(looks.values()), _draw)
    not_run = (
        "the paper's own pictures: it does not say of which models they are, prints no numbers, and has captions of "
        "another figure below them."
    )
    return Exhibit(f"{ABOUT[scale]} {MEANT}", (Table(tuple(KEYS), rows),), tuple(claims), (figure,), not_run)

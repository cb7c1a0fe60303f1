"""The sections of the report on what the models have learned: their decays and masks on the evaluation set."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lion.bench.decays import Layer, half_lives, rounded, untrained, watched
from lion.data.images import load_images
from lion.models.saving import load_model
from lion.pages.figures import Axis, Html, Row, hills, key, listed, picture, tag

LABELS = {"lion_s": "LION-S", "lion_d": "LION-D", "lion_lit": "LION-LIT", "softmax": "softmax"}
HEADS = 4  # whose masks are shown
DIGIT = 3  # whose masks are shown
TITLES = {"lion_s": "Masks of LION-S: they depend on the digit", "lion_d": "Masks of LION-D: distance alone"}
ABOUT_MASKS = {
    "lion_s": "In a mask, a row is a token that attends, a column a token it attends to. The digit decides how far.",
    "lion_d": "Fixed decays make the same mask for all digits. In effect: as many tokens as would share a row equally.",
}
FOLLOWS = 0.5  # smallest correlation of a decay that follows the ink


class Digits(NamedTuple):
    """The evaluation set."""

    images: Tensor  # [N, 1, height, width], normalised
    labels: Tensor
    trained_on: int  # size of the training set

    @staticmethod
    def load() -> "Digits":
        images = load_images("digits", "test")
        batch = images.__getitems__([(0, i) for i in range(len(images))])
        return Digits(batch["image"], batch["label"], len(load_images("digits", "train")))

    def ink(self) -> Tensor:
        """[N, 1, height, width], 0 to 1."""
        low, high = self.images.min(), self.images.max()
        return (self.images - low) / (high - low)


class Seen(NamedTuple):
    layers: list[Layer]
    begin: list[Tensor]  # [H] of each layer: the half-lives of an untrained model, for an input of zeros
    right: Tensor  # [N], whether each prediction is right
    tokens: int
    grid: tuple[int, int]  # of patches, which are the last tokens


def look(folder: Path, digits: Digits) -> Seen:
    with torch.random.fork_rng(devices=[]):
        model = load_model(folder).eval()
    layers, logits = watched(model, lambda: model(digits.images))
    begin = [half_lives(log_decay)[0] for log_decay in untrained(model)]
    with torch.no_grad():
        patches = model.patch_embed(digits.images[:1])[1]  # type: ignore[operator]
    return Seen(layers, begin, logits.argmax(-1) == digits.labels, layers[0].x.shape[1], patches)


# The section on decays.


def learned(seen: Mapping[str, Seen], digits: Digits) -> list[Html]:
    x = _half_life_axis(seen)
    figures = []
    for name, found in seen.items():
        rows = [
            _row(layer, head, lives[:, head].numpy(), float(found.begin[layer][head]))
            for layer, lives in enumerate(each.half_lives() for each in found.layers)
            for head in range(lives.shape[1])
        ]
        about = f"half-lives of the decays of {LABELS[name]}, by layer and head"
        plot = hills(name, rows, x, (found.tokens, f"{found.tokens} tokens, an image"), about)
        values = "one decay per head" if len(rows[0].values) == 1 else "all tokens of the evaluation set"
        figures.append(tag("figure", tag("h3", f"{LABELS[name]}: {values}"), plot))
    note = "Rings: before training. Left, tokens are soon forgotten; right, they are long remembered."
    return [
        tag("p", f"{_selective_words(seen['lion_s'])} {_ink_words(seen['lion_s'], digits)}"),
        tag("p", _fixed_words(seen["lion_d"])),
        tag("div", tag("div", *figures, class_="pair"), tag("p", note, class_="note"), class_="panel"),
    ]


def _half_life_axis(seen: Mapping[str, Seen]) -> Axis:
    shares = (0.002, 0.998)  # values further out pile up at the ends
    values = [np.quantile(layer.half_lives(), shares, axis=0) for s in seen.values() for layer in s.layers]
    values += [begin.numpy() for s in seen.values() for begin in s.begin]
    tokens = max(s.tokens for s in seen.values())
    low, high = min(1.0, *map(np.min, values)), max(float(tokens), *map(np.max, values))
    axis = Axis.powers("half-life in tokens, and decay per token", [max(low, 0.1), high])
    return axis._replace(ticks={x: f"{text}\n{_decay(x)}" for x, text in axis.ticks.items()})


def _decay(half_life: float) -> str:
    """With as many digits as distinguish it from 1."""
    decay = 0.5 ** (1 / half_life)
    return f"{decay:.1g}" if decay < 0.1 else f"{decay:.{math.ceil(-math.log10(1 - decay))}f}"


def _row(layer: int, head: int, lives: np.ndarray, begin: float) -> Row:
    low, middle, high = (rounded(x) for x in np.quantile(lives, [0.05, 0.5, 0.95]))
    spread = f", 90% of tokens {low} to {high}" if len(lives) > 1 else ""
    tip = f"layer {layer + 1}, head {head + 1}: half-life {middle}{spread}; at the beginning {rounded(begin)}"
    return Row(f"layer {layer + 1}", f"head {head + 1}", lives, begin, tip)


def _selective_words(seen: Seen) -> str:
    """The head whose decays vary most."""
    spreads = {
        (i, head): np.quantile(lives, [0.05, 0.95])
        for i, layer in enumerate(seen.layers)
        for head, lives in enumerate(layer.half_lives().numpy().T)
    }
    (layer, head), (low, high) = max(spreads.items(), key=lambda item: item[1][1] / item[1][0])
    return (
        f"LION-S computes a decay for every token. They vary most in head {head + 1} of layer {layer + 1}: nine in ten "
        f"of its half-lives lie between {rounded(low)} and {rounded(high)} tokens."
    )


def _ink_words(seen: Seen, digits: Digits) -> str:
    """The correlation of decays with the ink."""
    ink = F.adaptive_avg_pool2d(digits.ink(), seen.grid).flatten(1)  # [N, patches]
    found = {}
    for i, layer in enumerate(seen.layers):
        lives = layer.half_lives().log().unflatten(0, (len(ink), -1))[:, -ink.shape[1] :]  # [N, patches, H]
        for head in range(lives.shape[-1]):
            both = torch.stack([ink.flatten(), lives[..., head].flatten()])
            found[i, head] = float(torch.corrcoef(both)[0, 1].nan_to_num())
    (depth, head), most = max(found.items(), key=lambda item: abs(item[1]))
    where = f"in head {head + 1} of layer {depth + 1} (correlation {most:.2f})"
    if abs(most) < FOLLOWS:
        return f"No decay follows the ink of the pixels closely; the closest is {where}."
    return f"Decays follow the ink most closely {where}: memory is {'longer' if most > 0 else 'shorter'} on the stroke."


def _fixed_words(seen: Seen) -> str:
    lives = torch.cat([layer.half_lives().flatten() for layer in seen.layers])
    begin = torch.cat(seen.begin)
    short = int((lives < seen.tokens).sum())
    return (
        f"LION-D learns one decay per head: half-lives of {rounded(lives.min())} to {rounded(lives.max())} tokens, "
        f"{rounded(begin.min())} to {rounded(begin.max())} before training. In {short} of {len(lives)} heads less than "
        f"half of a token is left across an image, {seen.tokens} tokens away."
    )


# The section on masks.


def masks(seen: Mapping[str, Seen], digits: Digits) -> list[Html]:
    """The masks of one digit, in the layer where the decays of LION-S vary most from token to token."""
    image = _digit(seen, digits)
    selective = seen["lion_s"]
    depth = max(range(len(selective.layers)), key=lambda i: _variety(selective.layers[i], image))
    shown = picture("ink", digits.ink()[image, 0].numpy(), f"a handwritten {DIGIT}")
    cells = [
        tag("figure", tag("h3", f"A {DIGIT} of the evaluation set"), shown, class_="digit"),
        _maps(selective.layers[depth], image, selective.grid),
    ]
    reach = {}
    for name, found in seen.items():
        each = found.layers[depth].masks(image)[:HEADS]
        reach[name] = [_reach(mask) for mask in each]
        figures = [
            _head(i, picture(name, _rows_to_one(mask), f"mask of head {i + 1}"), f"{rounded(tokens)} tokens in effect")
            for i, (mask, tokens) in enumerate(zip(each, reach[name], strict=True))
        ]
        cells.append(tag("p", ABOUT_MASKS[name], class_="note"))
        cells.append(_heads(TITLES[name], key(name, "none", "the row's most"), figures))
    return [
        tag("p", _mask_words(depth, selective.tokens, reach)),
        tag("div", tag("div", *cells, class_="masks"), class_="panel"),
    ]


def _digit(seen: Mapping[str, Seen], digits: Digits) -> int:
    """The first one that all models classify correctly, or else the first."""
    wanted = digits.labels == DIGIT
    right = torch.stack([wanted, *(s.right for s in seen.values())]).all(0)
    return int((right if right.any() else wanted).int().argmax())


def _variety(layer: Layer, image: int) -> float:
    return float(layer.half_lives().log().unflatten(0, (len(layer.x), -1))[image].std(0).mean())


def _maps(layer: Layer, image: int, grid: tuple[int, int]) -> Html:
    """Maps of the decays of a digit's patches."""
    lives = layer.half_lives().unflatten(0, (len(layer.x), -1))[image, -math.prod(grid) :, :HEADS]  # [patches, H]
    logs = lives.log()
    shares = (logs - logs.min()) / (logs.max() - logs.min()).clamp(min=1e-9)
    figures = []
    for head in range(shares.shape[1]):
        shown = picture("lion_s", shares[:, head].unflatten(0, grid).numpy(), f"half-lives of head {head + 1}")
        low, high = (rounded(x) for x in lives[:, head].aminmax())
        figures.append(_head(head, shown, f"{low} to {high} tokens"))
    ends = key("lion_s", rounded(lives.min()), f"{rounded(lives.max())} tokens")
    return _heads("LION-S: the half-life at each patch", ends, figures)


def _heads(title: str, ends: Html, figures: Sequence[Html]) -> Html:
    return tag("div", tag("div", tag("h3", title), ends, class_="title"), tag("div", *figures, class_="heads"))


def _head(i: int, shown: Html, words: str) -> Html:
    return tag("figure", shown, tag("figcaption", tag("strong", f"head {i + 1}"), f" {words}"))


def _mask_words(depth: int, tokens: int, reach: Mapping[str, Sequence[float]]) -> str:
    parts = [f"{LABELS[name]} {rounded(min(each))} to {rounded(max(each))}" for name, each in reach.items()]
    return (
        f"The masks of layer {depth + 1}, over {tokens} tokens: the decays alone, without queries and keys. "
        f"Tokens are the patches of the image, row by row. By head, the number of tokens that a token sees in effect: "
        f"{listed(parts)}."
    )


def _reach(mask: Tensor) -> float:
    shares = mask / mask.sum(-1, keepdim=True)
    return float((1 / shares.square().sum(-1)).mean())


def _rows_to_one(mask: Tensor) -> np.ndarray:
    return (mask / mask.amax(-1, keepdim=True)).numpy()

"""Single examples of an eval set, as people see them: thumbnails, shortened texts, sparklines."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from lion.pages.charts import sparkline
from lion.pages.figures import Html, image, tag, together
from lion.tasks import Shown
from lion.terminal import brief
from lion.train.evaluate import Examined

MOST = 12  # examples of a page
LETTERS, BASES = 280, 120  # of a text, of a sequence
SIDE = 96  # longest side of a thumbnail, in pixels
SMALL = 32  # images up to this side are shown with their pixels


def gallery(run: Examined, examples: dict[int, Html]) -> Html:
    """Examples of the eval set by index, each with words about it."""
    items = []
    kind = ""
    for index, words in examples.items():
        shown = run.task.shown(index, run.examples)
        kind = shown.kind if shown else ""
        picture = KINDS[shown.kind](shown) if shown else tag("p", f"example {index}")
        name = tag("p", brief(shown.name), class_="path") if shown and shown.name else ""
        items.append(tag("li", picture, tag("p", words, class_="verdict"), name))
    return tag("ul", *items, class_=f"examples {kind}s")


def words_of(predicted: str, true: str, beside: str = "") -> Html:
    said = tag("span", "predicted: ", tag("strong", predicted), beside, class_="said")
    return together(said, " ", tag("span", "true: ", tag("strong", true)))


def _thumbnail(shown: Shown) -> Html:
    pixels = torch.from_numpy(np.ascontiguousarray(shown.content)).permute(2, 0, 1).float()
    longest = max(pixels.shape[1:])
    if longest > SIDE:
        size = [max(1, round(x * SIDE / longest)) for x in pixels.shape[1:]]
        pixels = F.interpolate(pixels[None], size, mode="bilinear", antialias=True)[0]
    small = pixels.round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    return tag("div", image(small, "the image"), class_="pixels" if longest <= SMALL else "photo")


def _text(shown: Shown) -> Html:
    words = shown.content.split()
    if len(words) == 1 and len(words[0]) > BASES:  # a sequence: its beginning, and how long it is
        return tag("blockquote", brief(words[0], BASES), f" ({len(words[0]):,})", class_="letters")
    return tag("blockquote", brief(" ".join(words), LETTERS))


def _series(shown: Shown) -> Html:
    return sparkline(shown.content)


KINDS: dict[str, Callable[[Shown], Html]] = {"image": _thumbnail, "text": _text, "series": _series}

"""Drawings of how LION works: they need no runs, and are made of what the operator computes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lion.reproduce.drawing import block, chunks, memory, paths
from lion.reproduce.exhibits import Exhibit, Figure, ScaleName, register_exhibit


def drawing(name: str, words: str, draw: Callable[[Path], bool]) -> Figure:
    """A picture that needs no results."""

    def draw_always(results: Sequence[Any], path: Path) -> bool:
        return draw(path)

    return Figure(name, words, (), draw_always)


@register_exhibit(
    "figure2",
    "A standard Transformer block, LION's training mode, and its inference mode.",
    label="lionfig",
    claim="LION trains as full linear attention, and runs as an equivalent bidirectional RNN.",
)
def figure2(scale: ScaleName) -> Exhibit:
    about = (
        "A schematic; its matrices are what `lion.attention` computes of random queries, keys and decays. Table 1 "
        "measures that training mode and inference mode are the same function."
    )
    return Exhibit(about, figures=(drawing("block", block.CAPTION, block.draw),))


@register_exhibit(
    "figure7",
    "What is kept in memory during the forward and the reverse recurrence.",
    label="fig:mem",
    claim="The two recurrences can use the same memory: it is reused in inference.",
)
def figure7(scale: ScaleName) -> Exhibit:
    about = (
        "Left, the recurrences as they can reuse their memory: one state, and one vector for each token. The steps are "
        "those of an algorithm that is run for the picture, whose outputs are `lion.attention`'s. Right, a trace of "
        "this library's form `rnn`, of every tensor that it allocates: it does not reuse the memory as strictly, and "
        "keeps about four vectors for each token at its peaks. It, too, grows with T and not with its square."
    )
    return Exhibit(about, figures=(drawing("memory", memory.CAPTION, memory.draw),))


@register_exhibit(
    "figure8",
    "The chunkwise form of attention without decay, of LION-D and of LION-S; and the masks of both.",
    label="fig:chunks",
    claim="The output of a chunk needs a row of blocks, each a product of a factor for queries and one for keys.",
)
def figure8(scale: ScaleName) -> Exhibit:
    figures = (
        drawing("chunks", chunks.CAPTION, chunks.draw),
        drawing("masks", chunks.CAPTION_OF_MASKS, chunks.draw_masks),
    )
    about = (
        f"Matrices of {chunks.TOKENS} tokens in chunks of {chunks.CHUNK}, computed by `lion.attention`; the factors "
        "are those of its form `chunk`. They are decays from the border of a chunk, so none exceeds 1: the paper's "
        "factors divide by products of decays, which can overflow."
    )
    return Exhibit(about, figures=figures)


@register_exhibit(
    "figure11",
    "The paths along which the patches of an image are walked.",
    label="fig:rot",
    claim="Two snakes, along rows and along columns, take in more of the image's space than a walk row by row.",
)
def figure11(scale: ScaleName) -> Exhibit:
    about = (
        "The paths are `lion.nn.orders`', the weights `lion.attention`'s, of queries and keys that are all alike. Rows "
        "are the path of LION-D and LION-S, both snakes that of the models with two scans (Table 2)."
    )
    return Exhibit(about, figures=(drawing("paths", paths.CAPTION, paths.draw),))

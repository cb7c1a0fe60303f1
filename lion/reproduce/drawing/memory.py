"""The memory of the bidirectional RNN: what the two walks keep, step by step, and what our form `rnn` allocates."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from lion.bench.op import Inputs, Shape
from lion.ops.torch import dense
from lion.ops.torch.options import Options
from lion.reproduce.drawing.canvas import BOTH, FORWARD, GREEN, GREY, INK, REVERSE, arrow, canvas, save, tint

NOTHING, FIRST, DONE = "", "forward sum", "output"  # what the place of a token holds
TOKENS, CHANNELS = 8, 4  # of the walks that are drawn
LONGER, WIDER = 48, 8  # of the trace
CAPTION = (
    f"Left, what is stored after each step of the two walks, of {TOKENS} tokens with {CHANNELS} channels, where both "
    "use the same places: the reverse walk adds to what the forward walk has left in a token's place, and divides. A "
    "vector is a value with its weight; the state is one for each channel. Right, what our form `rnn` in plain PyTorch "
    "has in memory after every operator call, beside its inputs."
)
KINDS = (
    "states",
    "sums of a walk, token by token",
    "whole sequences: values, sums of the walks",
    "decays, a token's weight of itself",
)


class Step(NamedTuple):
    """What is stored after a step of a walk."""

    reverse: bool
    token: int  # that the step was at
    places: tuple[str, ...]  # what each token's place holds
    state: int  # vectors of the state

    @property
    def vectors(self) -> int:
        return self.state + sum(place != NOTHING for place in self.places)


def walk(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, list[Step]]:
    """The paper's two recurrences of one head, with one state, and one place for each token that both walks use.

    q, k [T, D], v [T, V], log_decay [T]. The forward walk leaves the sum and the weight of a token in its place; the
    reverse walk adds its own, divides, and leaves the output there. Returns the outputs, [T, V], and the steps.
    """
    T, D = q.shape
    v = torch.cat([v, torch.ones(T, 1).to(v)], -1)  # the weights are one more column
    places: list[Tensor | None] = [None] * T
    held, steps = [NOTHING] * T, []
    for reverse in (False, True):
        state = v.new_zeros(D, v.shape[-1])
        for t in reversed(range(T)) if reverse else range(T):
            sums = q[t] @ state + (q[t] @ k[t]) / 2 * v[t]  # each walk has half of what the token is to itself
            state = log_decay[t].exp() * (state + torch.outer(k[t], v[t]))
            before = places[t]
            if before is None:
                places[t], held[t] = sums, FIRST
            else:
                whole = before + sums
                places[t], held[t] = whole[:-1] / whole[-1], DONE
            steps.append(Step(reverse, t, tuple(held), len(state)))
    return torch.stack([x for x in places if x is not None]), steps


class Live(TorchDispatchMode):
    """Counts the numbers in memory after every operator call, by the size of the tensors they are in."""

    def __init__(self, given: tuple[Tensor, ...]):
        super().__init__()
        self._known = {x.untyped_storage().data_ptr() for x in given}
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.counts: list[dict[int, int]] = []  # numbers by the size of their tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self._known:
                storage = x.untyped_storage()
                self._live[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes() // x.element_size()
        self._live = {place: x for place, x in self._live.items() if not x[0].expired()}
        found: dict[int, int] = {}
        for _, size in self._live.values():
            found[size] = found.get(size, 0) + size
        self.counts.append(found)
        return out


def traced(form: Callable, tokens: int, channels: int) -> list[dict[str, float]]:
    """Vectors in memory after every operator call of a form, by kind; beside its inputs."""
    q, k, v, log_decay = Inputs.random(Shape(1, 1, tokens, channels), torch.float64, "per-token", torch.device("cpu"))
    assert log_decay is not None
    cost = log_decay[..., None]
    width = channels + 1  # of v, with the weights' column
    sizes = {channels * width: KINDS[0], width: KINDS[1], tokens * width: KINDS[2]}
    sizes |= {tokens: KINDS[3], tokens * channels: KINDS[3]}
    assert len(sizes) == len(KINDS) + 1  # they tell the kinds apart
    with torch.no_grad(), Live((q, k, v, cost)) as live:
        form(q, k, v, cost, cost, Options("both", include_self=True, with_den=True, chunk_size=None))
    found = []
    for counts in live.counts:
        vectors = dict.fromkeys((*KINDS, "other"), 0.0)
        for size, numbers in counts.items():
            vectors[sizes.get(size, "other")] += numbers / width
        found.append(vectors)
    return found


def draw(path: Path) -> bool:
    figure = canvas(13.0, 6.1)
    left = figure.add_axes((0.075, 0.3, 0.5, 0.67))
    bars = figure.add_axes((0.075, 0.08, 0.5, 0.205))
    right = figure.add_axes((0.66, 0.08, 0.305, 0.85))
    inputs = Inputs.random(Shape(1, 1, TOKENS, CHANNELS), torch.float64, "per-token", torch.device("cpu"))
    q, k, v, log_decay = (x[0, :, 0] for x in inputs if x is not None)
    _, steps = walk(q, k, v, log_decay)
    _places(left, steps)
    _bars(bars, steps)
    _trace(right)
    return save(figure, path)


def _places(axis: Any, steps: Sequence[Step]) -> None:
    """A column for each step: the state, and what the place of each token holds."""
    from matplotlib.patches import Rectangle

    def cell(x: int, y: float, fill: Any, words: str = "", ink: str = INK) -> None:
        axis.add_patch(Rectangle((x, y), 1, 1, fc=fill, ec="0.75", lw=0.8))
        axis.text(x + 0.5, y + 0.5, words, fontsize=11, ha="center", va="center", color=ink)

    for x, step in enumerate(steps):
        cell(x, -1.5, REVERSE if step.reverse else FORWARD, "$S,z$", "white")
        for token, held in enumerate(step.places):
            now = token == step.token
            shade = BOTH if held == DONE else FORWARD
            fill = "white" if held == NOTHING else shade if now else tint(shade, 0.3)
            cell(x, token, fill, ("$y$" if held == DONE else "$y^F$") if now else "", "white")
    half = len(steps) // 2
    for begin, colour, words in ((0, FORWARD, "forward walk"), (half, REVERSE, "reverse walk")):
        arrow(axis, (begin + 0.15, -1.95), (begin + half - 0.15, -1.95), colour, width=2)
        axis.text(begin + half / 2, -2.2, words, fontsize=11.5, fontweight="bold", ha="center", color=colour)
    axis.text(-0.25, -1, "state", fontsize=10.5, ha="right", va="center", color=INK)
    for token in range(half):
        axis.text(-0.25, token + 0.5, f"token {token + 1}", fontsize=10.5, ha="right", va="center", color=INK)
    axis.set_xlim(0, len(steps))
    axis.set_ylim(half + 0.1, -2.9)
    axis.axis("off")


def _bars(axis: Any, steps: Sequence[Step]) -> None:
    below = [0] * len(steps)
    parts = (
        ("state", GREY, [step.state for step in steps]),
        ("forward sums", FORWARD, [step.places.count(FIRST) for step in steps]),
        ("outputs", BOTH, [step.places.count(DONE) for step in steps]),
    )
    for name, colour, counts in parts:
        places = [x + 0.5 for x in range(len(steps))]
        axis.bar(places, counts, 0.78, bottom=below, color=tint(colour, 0.55), label=name)
        below = [a + b for a, b in zip(below, counts, strict=True)]
    for x, step in enumerate(steps):
        axis.text(x + 0.5, step.vectors + 0.4, step.vectors, fontsize=9.5, ha="center", color=INK)
    axis.set_xlim(0, len(steps))
    axis.set_ylim(0, 1.55 * max(below))
    axis.set_xticks([x + 0.5 for x in range(len(steps))], range(1, len(steps) + 1), fontsize=9.5)
    axis.set_yticks([])
    axis.set_ylabel("vectors\nstored", fontsize=10.5, rotation=0, ha="right", va="center")
    axis.set_xlabel("step", fontsize=10.5, labelpad=1)
    axis.tick_params(length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.legend(fontsize=9.5, frameon=False, ncols=3, loc="upper left", borderaxespad=0, columnspacing=1.2)


def _trace(axis: Any) -> None:
    counts = traced(dense.rnn, LONGER, WIDER)
    full = max(sum(x.values()) for x in traced(dense.full, LONGER, WIDER))
    most = max(sum(x.values()) for x in counts)
    order = (KINDS[2], KINDS[1], KINDS[3], KINDS[0])
    shades = (BOTH, FORWARD, GREEN, GREY)
    axis.stackplot(
        range(1, len(counts) + 1),
        *([x[kind] for x in counts] for kind in order),
        labels=order,
        colors=[tint(shade, 0.55) for shade in shades],
        step="mid",
    )
    for times in range(1, 5):
        axis.axhline(times * LONGER, color=INK, lw=0.8, ls=(0, (4, 4)), alpha=0.5)
        words = "$T$" if times == 1 else f"${times}T$"
        axis.text(len(counts) * 1.01, times * LONGER, words, fontsize=10.5, va="center", color=INK)
    axis.set_title(f"Our form rnn as it runs: T = {LONGER}, {WIDER} channels", fontsize=11.5, fontweight="bold", pad=10)
    axis.set_xlim(1, len(counts))
    axis.set_ylim(0, 1.42 * most)
    axis.set_xlabel("operator calls", fontsize=10.5)
    axis.set_ylabel("vectors in memory", fontsize=10.5)
    axis.tick_params(labelsize=9.5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=9.5, frameon=False, loc="upper left", reverse=True)
    words = f"at most {most:.0f}; the form full, with its T x T scores: {full:.0f}"
    axis.text(0.025, 0.76, words, fontsize=9.5, transform=axis.transAxes, color=INK)

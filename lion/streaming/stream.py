"""`stream`: block by block, layer by layer."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lion import files
from lion.nn.pieces import refusals
from lion.streaming.blocks import Asked, Blocks
from lion.streaming.store import Block, Store

if TYPE_CHECKING:
    from lion.models.blocks import Backbone, Stage

MEMORY = 1 << 27  # bytes
BLOCK = 1 << 16  # tokens
COMPLETE = "complete.json"
Progress = Callable[[int, int, int], None]  # layer, block, blocks


def stream(
    model: "Backbone",
    blocks: Iterable[Tensor],
    masks: Iterable[Tensor] | None = None,
    *,
    answer: bool = False,
    memory: int = MEMORY,
    folder: Path | str | None = None,
    begin: int = 0,
    progress: Progress | None = None,
) -> Iterator[Tensor]:
    """The outputs of a model for one sequence of any length, block by block: those of the whole sequence at once, to
    rounding, whatever the blocks are.

    All blocks go through a layer before any goes through the next one, since what a layer makes of the first block
    depends on the last one, too. So time is linear in the length, and memory is that of a block; what waits between two
    layers is on the disk where it is more than `memory`.

    Args:
        blocks: tokens [B, t], of one sequence or of B that are equally long, in the order of the text; of any lengths.
        masks: of the blocks, as the model takes them.
        answer: what the model says of the tokens (of each, or for every block the same of the whole), in place of
            the last layer's output [B, t, dim].
        memory: bytes of activations that may be kept in memory.
        folder: where they are kept instead, all of them. A run that was stopped goes on there, if it is given the same
            model and blocks, and the folder is removed at the end.
        begin: the first block whose outputs are wanted.
        progress: is told after each block of each layer: (layer, blocks done, blocks).
    """
    if reasons := refusals(model):
        raise ValueError(f"the model cannot be run block by block. {reasons[0]}.")
    if model.training:
        raise ValueError("the model is in training; expected model.eval(): dropout would differ from pass to pass.")
    return _stream(model, blocks, masks, answer, memory, folder, begin, progress or (lambda *done: None))


def answered(model: Any, ids: Tensor, mask: Tensor | None = None, *, block: int = BLOCK) -> Tensor:
    """model(ids, mask); of long sequences in the memory of a block, where the model allows it."""
    if ids.shape[1] <= 4 * block or refusals(model):
        return model(ids, mask)
    outputs = stream(model, ids.split(block, 1), None if mask is None else mask.split(block, 1), answer=True)
    first = next(outputs)
    return torch.cat([first, *outputs], 1) if first.dim() == 3 else first  # of each token, or of the whole


@torch.no_grad()
def _stream(
    model: "Backbone",
    blocks: Iterable[Tensor],
    masks: Iterable[Tensor] | None,
    answer: bool,
    memory: int,
    folder: Path | str | None,
    begin: int,
    progress: Progress,
) -> Iterator[Tensor]:
    spill = Path(tempfile.mkdtemp(prefix="lion-stream-")) if folder is None else Path(folder)
    try:
        kept = None if folder is None else spill
        run = _Run(model, memory, spill, kept, progress)
        run.read(blocks, masks)
        stages: list[Any] = [*model.stages()]
        if answer:
            stages.append(lambda x, mask: (model.answer(x, mask), mask))
        yield from run.outputs(stages, begin)
    finally:
        if folder is None:
            shutil.rmtree(spill, ignore_errors=True)
    if folder is not None:
        shutil.rmtree(spill, ignore_errors=True)


class _Run:
    def __init__(self, model: "Backbone", memory: int, spill: Path, kept: Path | None, progress: Progress):
        self.model, self.memory, self.spill, self.kept, self.progress = model, memory, spill, kept, progress
        self.device = next(model.parameters()).device
        self.layer = self.stages_done = self.count = 0
        done = sorted(kept.glob(f"layer-*/{COMPLETE}")) if kept is not None else []
        if done:
            found = files.read_json(done[-1])
            self.layer, self.stages_done, self.count = found["layer"], found["stages"], found["blocks"]
        self.store = self._store(self.layer)

    def read(self, blocks: Iterable[Tensor], masks: Iterable[Tensor] | None) -> None:
        """Take in the blocks, unless some layers have seen them already."""
        given, number = iter(masks) if masks is not None else None, 0
        for i, x in enumerate(blocks):
            mask = None if given is None else next(given)
            if not self.layer and i not in self.store:
                self.store[i] = x, mask
            number += 1
        if not number:
            raise ValueError("there are no blocks; expected one, at least, which may be empty.")
        if self.layer and number != self.count:
            raise ValueError(
                f"{self.kept} has {self.count:,} blocks, and {number:,} are given; expected the same ones, or another "
                "folder."
            )
        self.count = number
        self.pieces = Blocks(number, self.memory, self.spill)

    def outputs(self, stages: "Sequence[Stage]", begin: int) -> Iterator[Tensor]:
        waiting: list[Stage] = []  # those that ask nothing are left to the next one that does
        for n, stage in enumerate(stages[self.stages_done :], self.stages_done + 1):
            waiting.append(stage)
            while self._asks(waiting):
                for i in range(self.count):
                    self._through(waiting, i)
                    self.progress(self.layer, i + 1, 2 * self.count)
                self.pieces.answer()
            if self.pieces.questions and n < len(stages):
                self._advance(waiting, n)
                waiting = []
        for i in range(self.count):
            self.progress(self.layer, self.count + i + 1, 2 * self.count)
            if i < begin:
                self.pieces.skip(i)
                continue
            out = self._through(waiting, i)
            assert out is not None
            yield out[0]

    def _asks(self, stages: "Sequence[Stage]") -> bool:
        """Whether these ask something that has not been answered: so does every block then."""
        asks = self._through(stages, 0) is None
        self.pieces.asking = None
        return asks

    def _advance(self, stages: "Sequence[Stage]", done: int) -> None:
        """Run the stages over all blocks, and keep what they make of them."""
        after = self._store(self.layer + 1)
        for i in range(self.count):
            if i in after:
                self.pieces.skip(i)
            else:
                out = self._through(stages, i)
                assert out is not None
                after[i] = out
            self.progress(self.layer, self.count + i + 1, 2 * self.count)
        self.pieces.forget()
        self.layer += 1
        if self.kept is not None:
            about = {"layer": self.layer, "stages": done, "blocks": self.count}
            files.write_json(after.folder / COMPLETE, about)
        self.store.remove()
        self.store = after

    def _through(self, stages: "Sequence[Stage]", i: int) -> Block | None:
        """The block behind these stages; None if they ask something first."""
        x, mask = self.store[i]
        x, mask = x.to(self.device), None if mask is None else mask.to(self.device)
        try:
            with self.pieces.at(i, self.model):
                for stage in stages:
                    x, mask = stage(x, mask)
        except Asked:
            return None
        return x, mask

    def _store(self, layer: int) -> Store:
        name = f"layer-{layer:03d}"  # there are two at a time, with half of the memory each
        return Store(self.memory // 2, None if self.kept is None else self.kept / name, self.spill / name)

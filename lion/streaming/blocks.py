"""The blocks of one sequence as its pieces, one after the other in one process.

A layer's blocks wait for each other: what arrives at the first is of the last one, too. So a layer is run over all
blocks until each has said what it sends, and then once more, with what arrives.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lion.nn.messages import Sent, leaves, like, packed, unpacked
from lion.nn.pieces import Cuttable, Piece
from lion.streaming.store import Rows


class Asked(BaseException):
    """A block has asked what nobody has answered yet. Not an error: it leaves the layer where that is."""


class Question:
    """The messages of all blocks to one question. They are put in block by block, and read in the same order."""

    def __init__(self, count: int, limit: int, folder: Path):
        self.count, self.rows = count, Rows(count, limit, folder)
        self.forward: Any = None  # messages of all blocks before the one that is next
        self.whole: Any = None
        self.like: Sent | None = None

    def put(self, i: int, sent: Sent) -> None:
        self.whole = sent.whole if i == 0 else None if sent.whole is None else self.whole.join(sent.whole)
        sent = sent._replace(whole=None)
        self.like = sent
        self.rows[i] = packed(leaves(sent))

    def close(self) -> None:
        """All blocks have sent. In the place of what each sends in reverse comes what arrives there."""
        assert self.like is not None
        if self.like.reverse is not None:
            arrived = self.like.reverse.nothing()
            for i in reversed(range(self.count)):
                sent = self._sent(i)
                self.rows[i] = packed(leaves(sent._replace(reverse=arrived)))
                arrived = arrived.join(sent.reverse)

    def arriving(self, i: int) -> Sent:
        sent = self._sent(i)
        if i == 0:
            self.forward = None if sent.forward is None else sent.forward.nothing()
        arrived = Sent(self.forward, sent.reverse, self.whole)
        if sent.forward is not None:
            self.forward = self.forward.join(sent.forward)
        return arrived

    def _sent(self, i: int) -> Sent:
        assert self.like is not None
        return like(self.like, unpacked(self.rows[i].clone(), leaves(self.like)))


class Blocks(Piece):
    def __init__(self, count: int, limit: int, folder: Path):
        self.count, self.limit, self.folder = count, limit, folder
        self.questions: list[Question] = []
        self.asking: Question | None = None  # which is asked for the first time in this run over the blocks
        self.i = self.asked = 0

    @contextlib.contextmanager
    def at(self, i: int, model: nn.Module) -> Iterator[None]:
        """The model works on block i."""
        modules = [module for module in model.modules() if isinstance(module, Cuttable)]
        self.i, self.asked, self.first = i, 0, i == 0
        try:
            for module in modules:
                module.piece = self
            yield
        finally:
            for module in modules:
                module.piece = None

    def exchange(self, x: Tensor, own: Callable[[], Sent]) -> Sent:
        if self.asked < len(self.questions):
            self.asked += 1
            return self.questions[self.asked - 1].arriving(self.i)
        if self.asking is None:
            self.asking = Question(self.count, self.limit, self.folder)
        self.asking.put(self.i, own())
        raise Asked

    def answer(self) -> None:
        """All blocks have asked."""
        assert self.asking is not None
        self.asking.close()
        self.questions.append(self.asking)
        self.asking = None

    def skip(self, i: int) -> None:
        """Nobody wants block i's outputs; the next block wants to know what is before it."""
        for question in self.questions:
            question.arriving(i)

    def forget(self) -> None:
        """The layer is done."""
        self.questions.clear()

"""The processes of a group as the pieces of a sequence: rank r has piece r."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lion.nn.messages import Sent, leaves, like
from lion.nn.pieces import Piece
from lion.parallel.exchange import Exchange


class Ranks(Piece):
    def __init__(self, group: dist.ProcessGroup):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.first = self.rank == 0

    def exchange(self, x: Tensor, own: Callable[[], Sent]) -> Sent:
        return self._exchange(x, own())

    @torch.compiler.disable(reason="an exchange between processes stands between the parts of a layer")
    def _exchange(self, x: Tensor, sent: Sent) -> Sent:
        return like(sent, Exchange.apply(self.group, sent, x, *leaves(sent)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self  # copies of a model are of the same group

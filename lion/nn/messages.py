"""Messages between the pieces of a sequence: what they are, how they are joined, and how they are packed.

A message is a NamedTuple of tensors that can be joined (`join`) with that of the piece which comes next, and that has a
neutral one (`nothing`). The `State` of lion.attention is one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

ALIGNED = 8  # bytes: every tensor of a message begins at a multiple, whatever its dtype


class Sent(NamedTuple):
    """Messages from one piece; or, joined, those that arrive at one: what comes from all before it, from all after it,
    and from all of them together, its own among them."""

    forward: Any = None
    reverse: Any = None
    whole: Any = None


class Added(NamedTuple):
    """Sums over tokens: [B, ...] each"""

    sums: Tensor
    number: Tensor

    def join(self, later: "Added") -> "Added":
        return Added(self.sums + later.sums, self.number + later.number)

    def nothing(self) -> "Added":
        return Added(torch.zeros_like(self.sums), torch.zeros_like(self.number))


class First(NamedTuple):
    """The first real token of each sequence."""

    token: Tensor  # [B, ...]; 0 where there is none
    found: Tensor  # [B], whether there is one

    def join(self, later: "First") -> "First":
        found = self.found.reshape(-1, *[1] * (self.token.dim() - 1))
        return First(torch.where(found, self.token, later.token), self.found | later.found)

    def nothing(self) -> "First":
        return First(torch.zeros_like(self.token), torch.zeros_like(self.found))


class Last(NamedTuple):
    """The last tokens that a walk has met, for a convolution, which needs some neighbours; and how many there were."""

    tokens: Tensor  # [B, n, ...]; zeros come first where there were fewer
    number: Tensor  # [], of all tokens

    @staticmethod
    def of(x: Tensor, n: int) -> "Last":
        """x [B, T, ...], as the walk meets them"""
        T = x.shape[1]
        kept = x[:, max(0, T - n) :]
        missing = x.new_zeros(x.shape[0], n - kept.shape[1], *x.shape[2:])
        return Last(torch.cat([missing, kept], 1), torch.tensor(T, device=x.device))

    def join(self, later: "Last") -> "Last":
        n = self.tokens.shape[1]
        place = torch.arange(n, device=self.number.device)
        new = later.number.clamp(max=n)
        earlier = self.tokens.index_select(1, (place + new).clamp(max=max(0, n - 1)))
        is_new = (place >= n - new).reshape(1, n, *[1] * (self.tokens.dim() - 2))
        return Last(torch.where(is_new, later.tokens, earlier), self.number + later.number)

    def nothing(self) -> "Last":
        return Last(torch.zeros_like(self.tokens), torch.zeros_like(self.number))


def arrivals(sent: Sequence[Sent]) -> list[Sent]:
    """What arrives at each piece, of what all have sent."""
    forward = _before([x.forward for x in sent])
    reverse = _before([x.reverse for x in reversed(sent)])[::-1]
    whole = None if sent[0].whole is None else _joined([x.whole for x in sent])
    return [Sent(f, r, whole) for f, r in zip(forward, reverse, strict=True)]


def _before(messages: Sequence[Any]) -> list[Any]:
    """By message, those before it, joined."""
    if messages[0] is None:
        return [None] * len(messages)
    found = [messages[0].nothing()]
    for message in messages[:-1]:
        found.append(found[-1].join(message))
    return found


def _joined(messages: Sequence[Any]) -> Any:
    total = messages[0]
    for message in messages[1:]:
        total = total.join(message)
    return total


def leaves(sent: Sent) -> list[Tensor]:
    return [x for message in sent if message is not None for x in message if x is not None]


def like(sent: Sent, tensors: Sequence[Any]) -> Sent:
    """The same messages with other tensors."""
    left = iter(tensors)

    def filled(message: Any) -> Any:
        return None if message is None else type(message)(*(x if x is None else next(left) for x in message))

    return Sent(*map(filled, sent))


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """One row of bytes."""
    rows = []
    for x in tensors:
        row = x.detach().contiguous().view(-1).view(torch.uint8)
        rows += [row, row.new_zeros(-len(row) % ALIGNED)]
    return torch.cat(rows) if rows else torch.empty(0, dtype=torch.uint8)


def unpacked(row: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    found, start = [], 0
    for x in like:
        size = x.numel() * x.element_size()
        found.append(row[start : start + size].view(x.dtype).view(x.shape))
        start += size + -size % ALIGNED
    return found

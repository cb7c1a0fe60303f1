"""Messages between processes: gathered from all, joined, and the same in reverse for gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from lion.nn.messages import Sent, arrivals, leaves, like, packed, unpacked

all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its older name


def gathered(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> list[list[Tensor]]:
    """The tensors of all processes, by rank: one all-gather, of so many bytes from each."""
    row = packed(tensors)
    rows = row.new_empty(dist.get_world_size(group) * len(row))
    all_gather(rows, row, group=group)
    return [unpacked(x, tensors) for x in rows.view(-1, len(row))]


class Exchange(torch.autograd.Function):
    """What arrives at a process, of the tensors that all send.

    A message's gradient is the sum of what it counts at all processes. Each of them sends the gradient of what has
    arrived there, and finds its own message's by itself, since it has got the others' messages already. x is what the
    messages are made of: without tokens they are not, and yet all processes have to be there in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, sent: Sent, x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        rows = gathered(tensors, group)
        arrived = leaves(arrivals([like(sent, row) for row in rows])[dist.get_rank(group)])
        arrived = [x.clone() for x in arrived]  # no views of what is kept for the gradients
        ctx.group, ctx.sent, ctx.ranks = group, like(sent, rows[dist.get_rank(group)]), len(rows)
        ctx.save_for_backward(*(x for row in rows for x in row))
        ctx.mark_non_differentiable(*(x for x in arrived if not x.is_floating_point()))
        return tuple(arrived)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        count, rank = len(saved) // ctx.ranks, dist.get_rank(ctx.group)
        rows = [list(saved[i * count : (i + 1) * count]) for i in range(ctx.ranks)]
        own = [x.detach().requires_grad_(x.is_floating_point()) for x in rows[rank]]
        with torch.enable_grad():
            rows[rank] = own
            arrived = [leaves(x) for x in arrivals([like(ctx.sent, row) for row in rows])]
        floats = [i for i, y in enumerate(arrived[0]) if y.is_floating_point()]
        along = gathered([grads[i] for i in floats], ctx.group)
        pairs = [(arrived[r][i], dy) for r in range(ctx.ranks) for i, dy in zip(floats, along[r], strict=True)]
        pairs = [(y, dy) for y, dy in pairs if y.requires_grad]  # what arrives there is partly of this process
        wanted = [x for x in own if x.requires_grad]
        outputs, along_them = zip(*pairs, strict=True) if pairs else ((), ())
        found = iter(torch.autograd.grad(outputs, wanted, along_them, allow_unused=True))
        return None, None, None, *(next(found) if x.requires_grad else None for x in own)

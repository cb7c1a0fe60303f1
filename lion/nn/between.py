"""RWKV's reading of a decay: a key decays by the tokens between it and the query, not by its own or the query's.

`lion.attention` charges for leaving a token. So each walk gets every key one token late, at the first of the tokens
that it is to decay by: exact, at the price of one call per direction.
"""

import torch
from torch import Tensor

from lion.nn.decay import heads_axis
from lion.nn.walks import token_before
from lion.ops.attention import attention
from lion.ops.checks import BackendName, Direction, Form

WAYS: dict[Direction, tuple[Direction, ...]] = {
    "both": ("forward", "backward"),
    "forward": ("forward",),
    "backward": ("backward",),
}


def attention_between(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    *,
    self_weight: Tensor | float | None = None,
    direction: Direction = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    form: Form = "auto",
    backend: BackendName = "auto",
    chunk_size: int | None = None,
) -> Tensor:
    """Unnormalised. Arguments as those of `lion.attention`."""
    B, T = q.shape[:2]
    paths = torch.arange(T, device=q.device)[None] if orders is None else torch.atleast_2d(orders)
    weight = 1.0 if self_weight is None else self_weight
    weight = weight[:, None] if isinstance(weight, Tensor) and weight.dim() == 1 else weight
    own = (q * weight * k).sum(-1, keepdim=True) * v
    if mask is not None:
        own = torch.where(mask[:, :, None, None], own, 0)
    total = len(paths) * own
    costs = (None,) if log_decay is None else log_decay.split(q.shape[2], heads_axis(log_decay))
    for n, path in enumerate(paths):
        for way in WAYS[direction]:
            before, exists = token_before(path, way == "backward", mask, cu_seqlens, B)
            index = before[..., None, None]
            late = [x.gather(1, index.expand(-1, -1, *x.shape[2:])) for x in (k, v)]
            late_k = torch.where(exists[..., None, None], late[0], 0)
            total = total + attention(
                q,
                late_k,
                late[1],
                costs[n % len(costs)],  # of this order, or of all
                norm="none",
                direction=way,
                mask=mask,
                cu_seqlens=cu_seqlens,
                orders=None if orders is None else path,
                form=form,
                backend=backend,
                chunk_size=chunk_size,
            )
    return total

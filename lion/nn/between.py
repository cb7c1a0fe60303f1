"""RWKV's reading of a decay: a key decays by the tokens between it and the query, not by its own or the query's.

`lion.attention` charges for leaving a token. A backend may have a kernel that does not charge a key for its own. For
the others each walk gets every key one token late, at the first of the tokens that it is to decay by: that is exact, at
the price of one call per direction.
"""

from typing import Any

import torch
from torch import Tensor

from lion.nn.arrival import first_met, token_before
from lion.nn.decay import heads_axis
from lion.ops.attention import LogDecay, as_autocast, attention
from lion.ops.call import Call
from lion.ops.checks import Direction, as_pair
from lion.ops.kernels import fused
from lion.ops.state import State, States

WAYS: dict[Direction, tuple[Direction, ...]] = {
    "both": ("forward", "reverse"),
    "forward": ("forward",),
    "reverse": ("reverse",),
}


def attention_between(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: LogDecay,
    *,
    self_weight: Tensor | float | None = None,
    direction: Direction = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    forward_state: State | None = None,
    reverse_state: State | None = None,
    return_states: bool = False,
    **how: Any,
) -> Any:
    """Unnormalised. Arguments as those of `lion.attention`; `how` are form, backend and chunk_size."""
    call = Call(q, k, v, *as_pair(log_decay), norm="none", direction=direction, mask=mask, cu_seqlens=cu_seqlens)
    call = call._replace(self_weight=self_weight, orders=orders, chunk_size=how.get("chunk_size"))
    call = call._replace(forward_state=forward_state, reverse_state=reverse_state, return_states=return_states)
    for row in fused(how.get("backend", "auto")):
        mixed = row.between(as_autocast(call), how.get("form", "auto"))
        if mixed is not None:
            return mixed
    B, T = q.shape[:2]
    paths = torch.arange(T, device=q.device)[None] if orders is None else torch.atleast_2d(orders)
    weight = 1.0 if self_weight is None else self_weight
    weight = weight[:, None] if isinstance(weight, Tensor) and weight.dim() == 1 else weight
    own = (q * weight * k).sum(-1, keepdim=True) * v
    if mask is not None:
        own = torch.where(mask[:, :, None, None], own, 0)
    states: dict[str, State] = {}
    total = len(paths) * own
    given = {"forward": forward_state, "reverse": reverse_state}
    both = log_decay if isinstance(log_decay, tuple) else (log_decay, log_decay)
    costs = [(None,) if x is None else x.split(q.shape[2], heads_axis(x)) for x in both]
    for n, path in enumerate(paths):
        for way in WAYS[direction]:
            before, exists = token_before(path, way == "reverse", mask, cu_seqlens, B)
            index = before[..., None, None]
            late = [x.gather(1, index.expand(-1, -1, *x.shape[2:])) for x in (k, v)]
            late_k = torch.where(exists[..., None, None], late[0], 0)
            options: dict[str, Any] = {
                "norm": "none",
                "direction": way,
                "mask": mask,
                "cu_seqlens": cu_seqlens,
                "orders": None if orders is None else path,
                "return_states": return_states,
                **how,
                f"{way}_state": given[way],
            }
            cost = costs[way == "reverse"]
            result: Any = attention(q, late_k, late[1], cost[n % len(cost)], **options)  # of this order, or of all
            if return_states:
                result, behind = result
                states[way] = _with_the_last(behind[way == "reverse"], k, v, way == "forward", mask)
            total = total + result
    return (total, States(states.get("forward"), states.get("reverse"))) if return_states else total


def _with_the_last(state: State, k: Tensor, v: Tensor, forward: bool, mask: Tensor | None) -> State:
    """The last token's key has not been late for anybody yet."""
    k, v = (first_met(x.to(state.sums.dtype), forward, mask) for x in (k, v))  # [B, H, .]
    return state._replace(sums=state.sums + k[..., None] * v[..., None, :], keys=state.keys + k)

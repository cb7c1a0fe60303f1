"""The definition of the operator, written as plainly as possible. Every kernel is judged by it.

It imports torch and nothing of ours, works in float64, one batch row, head and sequence at a time,
and takes T^2 D time and memory. Gradients are autograd's.
"""

import itertools

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | tuple[Tensor, Tensor] | None = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    self_weight: Tensor | float | None = None,
    norm: str = "sum",
    direction: str = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    forward_state: tuple[Tensor, Tensor] | None = None,
    reverse_state: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """States are U [B, H, D, V] and u [B, H, D], as `states` has them."""
    B, T, H, D = q.shape
    V = v.shape[-1]
    q, k, v = q.double(), k.double(), v.double()
    both = _both_ways(log_decay)
    heads_of_decay = H if both[0] is None else both[0].shape[-1 if both[0].dim() in (1, 3) else -2]
    decays = [_every_token(0.0 if x is None else x, (B, T, heads_of_decay, D)) for x in both]
    self_weight = _every_token(1.0 if self_weight is None else self_weight, (B, T, H, D))
    log_gain = torch.zeros(B, T, H).double() if log_gain is None else log_gain.double()
    borders = [0, T] if cu_seqlens is None else cu_seqlens.tolist()
    orders = torch.arange(T)[None] if orders is None else torch.atleast_2d(orders)

    rows = []
    for batch in range(B):
        heads = []
        for head in range(H):
            num, den = torch.zeros(T, V).double(), torch.zeros(T).double()
            for n, order in enumerate(orders.tolist()):
                costs = [x[:, :, n * H + head if heads_of_decay > H else head] for x in decays]  # of this order, or all
                for first, last in itertools.pairwise(borders):
                    walk = [t for t in order[first:last] if mask is None or mask[batch, t]]
                    at = (batch, torch.tensor(walk, dtype=torch.long), head)
                    token = [q[at], k[at], v[at], *(x[at[:2]] for x in costs), log_gain[at], self_weight[at]]
                    outside = [s and (s[0][batch, head], s[1][batch, head]) for s in (forward_state, reverse_state)]
                    if beta is None:
                        walk_num, walk_den = _one_sequence(*token, *outside, norm=norm, direction=direction)
                    else:
                        walk_num = _one_delta(*token, *outside, beta=beta[at].double(), direction=direction)
                        walk_den = walk_num.new_ones(len(walk))
                    num = num.index_add(0, at[1], walk_num)
                    den = den.index_add(0, at[1], walk_den)
            present = torch.ones(T).bool() if mask is None else mask[batch]
            den = torch.where(present, den, 1.0)
            if norm == "max":
                den = den.abs().clamp(min=1)
            heads.append(num if norm == "none" else num / den[:, None])
        rows.append(torch.stack(heads, 1))
    return torch.stack(rows) if rows else v  # of an empty batch, which is as empty as the result


def _both_ways(log_decay: Tensor | tuple[Tensor, Tensor] | None) -> tuple[Tensor | None, Tensor | None]:
    """The log decays of the forward and of the reverse walk."""
    return log_decay if isinstance(log_decay, tuple) else (log_decay, log_decay)


def _every_token(x: Tensor | float, shape: tuple[int, int, int, int]) -> Tensor:
    """A number, [H], [H, D], [B, T, H] or [B, T, H, D], given out to [B, T, H, D]."""
    x = torch.as_tensor(x).double()
    if x.dim() in (1, 3):
        x = x[..., None]
    return x.expand(shape)


def states(
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | tuple[Tensor, Tensor] | None = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    mask: Tensor | None = None,
    forward_state: tuple[Tensor, Tensor] | None = None,
    reverse_state: tuple[Tensor, Tensor] | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The states (U, u) of the forward walk behind the last token, and of the reverse walk before the first."""
    B, T, H, D = k.shape
    k, v = k.double(), v.double()
    k = k if log_gain is None else k * log_gain.double().exp()[..., None]
    ways = zip((forward_state, reverse_state), (range(T), reversed(range(T))), _both_ways(log_decay), strict=True)
    found = []
    for state, tokens, cost in ways:
        decay = _every_token(0.0 if cost is None else cost, (B, T, H, D)).exp()
        U, u = state or (torch.zeros(B, H, D, v.shape[-1]).double(), torch.zeros(B, H, D).double())
        for t in tokens:
            written, key = v[:, t], k[:, t]  # [B, H, V], [B, H, D]
            if beta is not None:
                written, key = written - torch.einsum("bhd,bhdv->bhv", key, U), key * beta[:, t, :, None].double()
            new = (U + key[..., None] * written[..., None, :]) * decay[:, t, ..., None], (u + key) * decay[:, t]
            real = torch.ones(B).bool() if mask is None else mask[:, t]
            U, u = torch.where(real[:, None, None, None], new[0], U), torch.where(real[:, None, None], new[1], u)
        found.append((U, u))
    return found[0], found[1]


def _one_sequence(q, k, v, f, b, log_gain, self_weight, first=None, last=None, *, norm, direction):
    """num [T, V] and den [T] of one head of one sequence, and of what arrives at its ends."""
    T, D = q.shape
    reached = torch.ones(T, T).double()
    rows = []
    for i in range(T):
        # Leaving token t costs f[t] going forward: from j < i, tokens j .. i-1. In reverse it costs b[t]: from j > i,
        # tokens i+1 .. j.
        before = f[:i].flip(0).cumsum(0).flip(0).exp()
        after = b[i + 1 :].cumsum(0).exp()
        if direction == "forward":
            after = torch.zeros_like(after)
            reached[i, i + 1 :] = 0
        if direction == "reverse":
            before = torch.zeros_like(before)
            reached[i, :i] = 0
        rows.append(torch.cat([before, self_weight[i : i + 1], after]))
    m = torch.stack(rows) if rows else torch.zeros(0, 0, D).double()  # m[i, j]: the decay from j to i
    keys = log_gain.exp()[:, None] * k
    P = torch.einsum("id,ijd,jd->ij", q, m, keys)
    den = (q @ keys.T * reached).sum(1) if norm == "unmasked" else P.sum(1)
    num = P @ v
    for state, costs in ((first, f), (last, b.flip(0))):
        if state is not None:  # it has to be carried over all tokens up to this one
            way = torch.cat([torch.zeros(1, D).double(), costs.cumsum(0)])[:T].exp()
            reader = q * (way if state is first else way.flip(0))
            num, den = num + reader @ state[0], den + reader @ state[1]
    return num, den


def _one_delta(q, k, v, f, b, log_gain, self_weight, first=None, last=None, *, beta, direction):
    """num [T, V] of the delta rule: S <- (I - beta k k^T) S + beta k v^T, from either end."""
    own = beta[:, None] * (q * k).sum(1, keepdim=True) * v
    num = beta[:, None] * (q * self_weight * k).sum(1, keepdim=True) * v
    for way in ("forward", "reverse") if direction == "both" else (direction,):
        tokens = range(len(q)) if way == "forward" else reversed(range(len(q)))
        state, cost = (first, f) if way == "forward" else (last, b)
        S = torch.zeros(q.shape[1], v.shape[1]).double() if state is None else state[0]
        read = {}
        for i in tokens:
            S = S - beta[i] * torch.outer(k[i], k[i] @ S) + beta[i] * torch.outer(k[i], v[i])
            read[i] = q[i] @ S - own[i]
            S = cost[i].exp()[:, None] * S
        num = num + torch.stack([read[i] for i in range(len(q))]) if read else num
    return num

"""The block of decayed scores P_ij = q_i . (m_ij * k_j), and its gradient.

`full` is one block as long as the sequence, `chunk` is rows of blocks, `scan` is the blocks on the
diagonal. Sums of log decays are only ever accumulated outwards from the point they start at, never
formed as the difference of two running sums: nothing cancels, and -inf needs no special case.

Shapes: q, k [..., C, D]; costs f, b [..., C, E] with E = 1 (scalar decay) or D (diagonal decay).
f[t] is the log decay of leaving token t forwards, b[t] of leaving it backwards (docs/maths.md).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.plain import plain

ROWS = 128  # of a large block's mask that are made at a time


def walks(direction: str, f: Tensor, b: Tensor) -> list[tuple[bool, Tensor]]:
    """The walks along the sequence that a direction has: (reverse, the costs it pays)."""
    return {"both": [(False, f), (True, b)], "forward": [(False, f)], "reverse": [(True, b)]}[direction]


def running_sum(x: Tensor, *, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """Cumulative sum over dim -2. Its transpose is the same sum with `reverse` flipped."""
    if exclusive:  # shift before summing: subtracting x afterwards would give inf - inf
        x = F.pad(x, (0, 0, 0, 1))[..., 1:, :] if reverse else F.pad(x, (0, 0, 1, 0))[..., :-1, :]
    return x.flip(-2).cumsum(-2).flip(-2) if reverse else x.cumsum(-2)


def arriving(cost: Tensor, *, reverse: bool) -> Tensor:
    """Log decay from the first token of the block that a walk meets to token i."""
    return running_sum(cost, reverse=reverse, exclusive=True)


def leaving(cost: Tensor, *, reverse: bool) -> Tensor:
    """Log decay from token j until the walk has left the block."""
    return running_sum(cost, reverse=not reverse)


def arriving_grad(grad: Tensor, *, reverse: bool) -> Tensor:
    return running_sum(grad, reverse=not reverse, exclusive=True)


def leaving_grad(grad: Tensor, *, reverse: bool) -> Tensor:
    return running_sum(grad, reverse=reverse)


def unreached(size: int, direction: str, include_self: bool, device: torch.device) -> Tensor:
    """[size, size]: the pairs that a direction does not reach, and the diagonal without `include_self`."""
    pairs = torch.ones(size, size, dtype=torch.bool, device=device)
    own = torch.eye(size, dtype=torch.bool, device=device)
    inside = {"both": ~own, "forward": pairs.tril(-1), "reverse": pairs.triu(1)}[direction]
    return ~(inside | own if include_self else inside)


def segment_sums(cost: Tensor, *, reverse: bool) -> Tensor:
    """[..., C, 1] -> [..., C, C]: the log decay from j to i along one direction, 0 off its triangle."""
    size = cost.shape[-2]
    triangle = torch.ones(size, size, dtype=torch.bool, device=cost.device)
    if reverse:  # i < j: leave tokens i+1 .. j
        steps = torch.where(triangle.triu(1), cost.transpose(-1, -2), 0)
        return steps.cumsum(-1)
    steps = torch.where(triangle.tril(-1), F.pad(cost, (0, 0, 1, 0))[..., :-1, :], 0)
    return steps.cumsum(-2)  # i > j: leave tokens j .. i-1


def decay_mask(f: Tensor, b: Tensor, direction: str, include_self: bool) -> Tensor:
    """The mask m_ij of scalar decay, [..., C, C]."""
    if not plain() and f.shape[-2] > ROWS:  # in this order: exported graphs are for every length
        log_mask = _log_mask_by_rows(f, b, direction)
    else:
        log_masks = [segment_sums(cost, reverse=reverse) for reverse, cost in walks(direction, f, b)]
        log_mask = log_masks[0] if len(log_masks) == 1 else log_masks[0] + log_masks[1]
    if direction != "both" or not include_self:
        # Before the exponential, which autograd keeps.
        nothing = unreached(f.shape[-2], direction, include_self, f.device)
        log_mask = log_mask.masked_fill_(nothing, -torch.inf)
    return log_mask.exp_()


def _log_mask_by_rows(f: Tensor, b: Tensor, direction: str) -> Tensor:
    """The sum of the directions' segment sums, written once: beside a block on the diagonal every walk crosses the
    block's border, and what it pays is the sum of two vectors. The triangle that one direction does not reach is left
    as it is."""
    size = f.shape[-2]
    log_mask = f.new_empty(*torch.broadcast_shapes(f.shape[:-2], b.shape[:-2]), size, size)
    for start in range(0, size, ROWS):
        rows = slice(start, min(start + ROWS, size))
        log_mask[..., rows, rows] = 0
        for reverse, cost in walks(direction, f, b):
            here = cost[..., rows, :]
            outside = slice(rows.stop, None) if reverse else slice(0, start)
            there = leaving(cost[..., outside, :], reverse=reverse).transpose(-1, -2)
            torch.add(arriving(here, reverse=reverse), there, out=log_mask[..., rows, outside])
            log_mask[..., rows, rows] += segment_sums(here, reverse=reverse)
    return log_mask


def decayed_scores(q: Tensor, k: Tensor, f: Tensor, b: Tensor, direction: str, include_self: bool) -> Tensor:
    if f.shape[-1] == 1:
        scores, mask = q @ k.transpose(-1, -2), decay_mask(f, b, direction, include_self)
        return scores * mask if plain() else scores.mul_(mask)
    lead = q.shape[:-2]
    q, k, f, b = (_one_batch(x, lead) for x in (q, k, f, b))
    return _diagonal_scores(q, k, f, b, direction, include_self).unflatten(0, lead)


def decayed_scores_grad(
    q: Tensor, k: Tensor, f: Tensor, b: Tensor, grad: Tensor, direction: str, include_self: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, f, b; and the scores themselves, which come with them."""
    if f.shape[-1] == 1:
        return _scalar_scores_grad(q, k, f, b, grad, direction, include_self)
    lead = q.shape[:-2]
    q, k, f, b, grad = (_one_batch(x, lead) for x in (q, k, f, b, grad))
    grads = _diagonal_scores_grad(q, k, f, b, grad, direction, include_self)
    dq, dk, df, db, scores = (x.unflatten(0, lead) for x in grads)
    return dq, dk, df, db, scores


def _one_batch(x: Tensor, lead: torch.Size) -> Tensor:
    """One leading dimension: torch.export cannot follow the halves of several symbolic ones."""
    return x.expand(*lead, -1, -1).flatten(0, -3)


def _scalar_scores_grad(q, k, f, b, grad, direction, include_self):
    mask = decay_mask(f, b, direction, include_self)
    masked_grad = mask * grad
    dq = masked_grad @ k
    dk = masked_grad.transpose(-1, -2) @ q
    raw = q @ k.transpose(-1, -2)
    weight = masked_grad.mul_(raw)  # P_ij dP_ij
    # Leaving t forwards is paid by every walk from j <= t to i > t, and by no other: sum over just those.
    df = weight.tril(-1).cumsum_(-1).tril_(-1).sum(-2).unsqueeze(-1)
    # Leaving t backwards, by every walk from j >= t to i < t.
    # (Summed along the rows: along the columns every number is in another cache line.)
    db = weight.triu_(1).flip(-1).cumsum_(-1).flip(-1).triu_(1).sum(-2).unsqueeze(-1)
    return dq, dk, df, db, raw.mul_(mask)


# Diagonal decay. Halve the block again and again: every pair (i, j) is parted by exactly one midpoint,
# and measured from that midpoint the decay factors into one factor for i and one for j, both <= 1.
# (Measured from the block's start the factors would be q * L and k / L, which overflows.)


def _diagonal_scores(q, k, f, b, direction, include_self):
    """q, k, f, b [..., C, D] -> [..., C, C]"""
    size = q.shape[-2]
    if size <= 1:
        own = (q * k).sum(-1, keepdim=True)[..., :size]
        return own if include_self else torch.zeros_like(own)
    q, k, f, b = (_halves(x) for x in (q, k, f, b))
    inner = _diagonal_scores(q, k, f, b, direction, include_self)
    corners = {}
    for reverse, cost in walks(direction, f, b):
        queries, keys, _, _ = _from_midpoint(q, k, cost, reverse)
        corners[reverse] = queries @ keys.transpose(-1, -2)
    return _assemble(inner, corners, size)


def _diagonal_scores_grad(q, k, f, b, grad, direction, include_self):
    size = q.shape[-2]
    if size <= 1:
        own = _diagonal_scores(q, k, f, b, direction, include_self)
        grad = grad.sum(-1, keepdim=True) if include_self else torch.zeros_like(q)
        return grad * k, grad * q, torch.zeros_like(q), torch.zeros_like(q), own
    q, k, f, b = (_halves(x) for x in (q, k, f, b))
    half = q.shape[-2]
    grad = F.pad(grad, (0, size % 2, 0, size % 2)).unflatten(-1, (2, half)).unflatten(-3, (2, half))
    inner_grad = torch.stack([grad[..., 0, :, 0, :], grad[..., 1, :, 1, :]])
    dq, dk, df, db, inner = _diagonal_scores_grad(q, k, f, b, inner_grad, direction, include_self)
    corners = {}
    for reverse, cost in walks(direction, f, b):
        here, there = _roles(reverse)
        queries, keys, to_query, to_key = _from_midpoint(q, k, cost, reverse)
        corners[reverse] = queries @ keys.transpose(-1, -2)
        corner_grad = grad[..., here, :, there, :]
        dqueries = corner_grad @ keys
        dkeys = corner_grad.transpose(-1, -2) @ queries
        dq[here] += dqueries * to_query
        dk[there] += dkeys * to_key
        dcost = db if reverse else df
        dcost[here] += arriving_grad(dqueries * queries, reverse=reverse)
        dcost[there] += leaving_grad(dkeys * keys, reverse=reverse)
    whole = (torch.cat([x[0], x[1]], -2)[..., :size, :] for x in (dq, dk, df, db))
    return *whole, _assemble(inner, corners, size)


def _halves(x: Tensor) -> Tensor:
    """[..., C, E] -> [2, ..., ceil(C / 2), E], an odd block filled up with a zero."""
    size = x.shape[-2]
    return F.pad(x, (0, 0, 0, size % 2)).unflatten(-2, (2, (size + 1) // 2)).movedim(-3, 0)


def _roles(reverse: bool) -> tuple[int, int]:
    """Which half holds the queries and which the keys: a forward walk ends in the second half."""
    return (0, 1) if reverse else (1, 0)


def _from_midpoint(q: Tensor, k: Tensor, cost: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    here, there = _roles(reverse)
    to_query = arriving(cost[here], reverse=reverse).exp()
    to_key = leaving(cost[there], reverse=reverse).exp()
    return q[here] * to_query, k[there] * to_key, to_query, to_key


def _assemble(inner: Tensor, corners: dict[bool, Tensor], size: int) -> Tensor:
    """inner [2, ..., s, s] on the diagonal, corners [..., s, s] off it -> [..., size, size]"""
    first, second = inner
    blank = torch.zeros_like(first)
    top = torch.cat([first, corners.get(True, blank)], -1)
    bottom = torch.cat([corners.get(False, blank), second], -1)
    return torch.cat([top, bottom], -2)[..., :size, :size]

"""Decays on arrival, as causal models have them; and which real token a walk meets before another."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def token_before(
    path: Tensor, reverse: bool, mask: Tensor | None, cu_seqlens: Tensor | None, B: int
) -> tuple[Tensor, Tensor]:
    """The real token that a walk along a path [T] meets before each token, [B, T], and whether there is one."""
    T = path.shape[0]
    if not T:
        return path.expand(B, 0), path.bool().expand(B, 0)
    steps = torch.arange(T, device=path.device)
    walk = path.flip(0) if reverse else path
    real = torch.ones(B, T, dtype=torch.bool, device=path.device) if mask is None else mask[:, walk]
    count = real.long().cumsum(1)
    # The step of the n-th real token, for n from 1. (A running maximum of steps is the same, but ONNX has none.)
    nth = steps.new_zeros(B, T + 1).scatter(1, torch.where(real, count, 0), steps.expand(B, T))
    seen = torch.where(count > 0, nth.gather(1, count), -1)
    step = F.pad(seen, (1, -1), value=-1)
    exists = step >= 0
    before = walk[step.clamp(min=0)]
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens.long(), steps, right=True)
        exists = exists & (sequence[before] == sequence[walk])
    place = walk.expand(B, T)
    by_token = torch.empty_like(before).scatter(1, place, before)
    return by_token, torch.empty_like(exists).scatter(1, place, exists)


def first_met(x: Tensor, reverse: bool, mask: Tensor | None) -> Tensor:
    """x [B, T, ...] at the first real token that a walk meets, [B, ...]; 0 where there is none."""
    B, T = x.shape[:2]
    if not T:
        return x.new_zeros(B, *x.shape[2:])
    x = x.flip(1) if reverse else x
    if mask is None:
        return x[:, 0]
    real = mask.flip(1) if reverse else mask
    ones = [1] * (x.dim() - 2)
    first = x.gather(1, real.long().argmax(1).reshape(B, 1, *ones).expand(B, 1, *x.shape[2:]))[:, 0]
    return torch.where(real.any(1).reshape(B, *ones), first, 0)


def with_entry(log_decay: Tensor, size: Sequence[int], direction: str, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """A piece's decays on arrival, given out to its tokens, and what it costs to arrive at the first, [B, H, 1 or D].

    A state that comes in pays that, since the token before the piece has not.
    """
    if log_decay.dim() <= 2:
        log_decay = log_decay.expand(*size, *log_decay.shape)
    per_channel = log_decay if log_decay.dim() == 4 else log_decay[..., None]
    return log_decay, first_met(per_channel, direction == "reverse", mask)


def charge_for_leaving(
    log_decay: Tensor | None, heads: int, direction: str, mask: Tensor | None = None, orders: Tensor | None = None
) -> Tensor | None:
    """Decays on arrival, as `lion.attention` wants them: leaving a token costs what the next real one has for it."""
    if log_decay is None or log_decay.dim() <= 2 or not log_decay.shape[1]:  # the same for all tokens
        return log_decay
    if mask is None and orders is None:
        channels = [0, 0] * (log_decay.dim() - 2)
        return F.pad(log_decay, (*channels, -1, 1) if direction == "forward" else (*channels, 1, -1))
    B, T = log_decay.shape[:2]
    paths = torch.arange(T, device=log_decay.device)[None] if orders is None else torch.atleast_2d(orders)
    costs = log_decay.split(heads, 2)
    charged = []
    for n, path in enumerate(paths):
        # The next one going forward is the one before it going back.
        following, exists = token_before(path, direction == "forward", mask, None, B)
        cost = costs[n % len(costs)]  # of this order, or of all
        shape = B, T, *[1] * (cost.dim() - 2)
        index = following.reshape(shape).expand_as(cost)
        charged.append(torch.where(exists.reshape(shape), cost.gather(1, index), 0))
    return torch.cat(charged, 2)

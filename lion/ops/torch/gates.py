"""Input gates in log space: exp(log_gain) may be far outside a float's range, the output is not.

Scale token i's row of P by exp(-p_i), with p_i = max_j (log m_ij + log_gain_j), the largest exponent
that reaches it. Along a walk the p_i telescope, so this is the same operator with other numbers:

    f'_t = f_t + p_t - p_(t+1)     b'_t = b_t + p_t - p_(t-1)     k'_j = exp(log_gain_j - p_j) k_j

All three exponents are <= 0 by the definition of p (docs/maths.md; f' and b' up to rounding, which
telescopes too), so kernels need not know of gains. The result does not depend on p: to autograd it is
a constant.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.torch.chunks import into_blocks, out_of_blocks
from lion.ops.torch.scores import arriving, leaving, segment_sums

BLOCK = 16  # small, since a block's walks are a [BLOCK, BLOCK] tensor, per channel if decays are


class Gained(NamedTuple):
    query_factor: Tensor | None  # [B, T, H, D]; None is 1
    key_factor: Tensor  # [B, T, H, D or 1]
    f: Tensor
    b: Tensor
    log_scale: Tensor  # [B, T, H, 1]: num and den come out times exp(-log_scale); -inf where nothing arrives
    exponent: Tensor  # p, [B, T or 1, H, D or 1]


def stabilise(log_gain: Tensor, f: Tensor, b: Tensor, direction: str, arriving: Sequence[Tensor] = ()) -> Gained:
    """log_gain [B, T, H, 1]; f, b [B or 1, T or 1, H or 1, D or 1]; `arriving`: exponents of what states bring."""
    largest = _largest_exponent(log_gain.detach(), f.detach(), b.detach(), direction)
    for exponent in arriving:
        largest = torch.maximum(largest, exponent.detach())
    reached = ~largest.isneginf()
    p = torch.where(reached, largest, 0)
    scale = largest.amax(-1, keepdim=True)
    # Tokens that nothing reaches have nothing to pass on, and the last has nowhere to go: no matter the cost.
    following = torch.cat([p, p[:, -1:]], 1)[:, 1:]
    preceding = torch.cat([p[:, :1], p], 1)[:, :-1]
    return Gained(
        # Channels that decay apart arrive at scales of their own; the row has one.
        query_factor=torch.where(reached, p - scale, 0).exp() if p.shape[-1] > 1 else None,
        key_factor=(log_gain - p).exp(),
        f=f + torch.where(reached, p - following, 0),
        b=b + torch.where(reached, p - preceding, 0),
        log_scale=scale,
        exponent=p,
    )


def stabilise_together(log_gain: Tensor, f: Tensor, b: Tensor, arriving: Sequence[Tensor] = ()) -> Gained:
    """The same where there is no decay and every token reaches every token: one p for all."""
    largest = log_gain.detach().amax(1, keepdim=True) if log_gain.shape[1] else log_gain.detach()
    for exponent in arriving:  # the same for all tokens
        largest = torch.maximum(largest, exponent.detach()[:, :1])
    p = torch.where(largest.isneginf(), 0, largest)
    return Gained(None, (log_gain - p).exp(), f, b, largest.expand(log_gain.shape), p)


def _largest_exponent(log_gain: Tensor, f: Tensor, b: Tensor, direction: str) -> Tensor:
    """p [B, T, H, E], one for each channel that decays on its own."""
    channels = torch.broadcast_shapes(log_gain.shape, f.shape)
    start, f, b = (x.expand(channels).permute(0, 2, 3, 1).unsqueeze(-1) for x in (log_gain, f, b))  # [B, H, E, T, 1]
    p = start
    if direction != "reverse":
        p = torch.maximum(p, _best_walk(start, f))
    if direction != "forward":
        p = torch.maximum(p, _best_walk(start.flip(-2), b.flip(-2)).flip(-2))
    return p.squeeze(-1).permute(0, 3, 1, 2)


def _best_walk(start: Tensor, cost: Tensor, depth: int = 0) -> Tensor:
    """a_t = max(start_t, a_(t-1) + cost_(t-1)) over the T of [..., T, 1], by blocks."""
    T = start.shape[-2]
    if depth == 1 if torch.compiler.is_exporting() else T <= BLOCK:
        reach = torch.ones(T, T, dtype=torch.bool, device=start.device).tril()
        ways = segment_sums(cost, reverse=False) + start.transpose(-1, -2)
        return torch.where(reach, ways, -torch.inf).amax(-1, keepdim=True) if T else start

    start, cost = into_blocks(start, BLOCK, fill=-torch.inf), into_blocks(cost, BLOCK)
    within = _best_walk(start, cost, depth=1)
    leaves, total = (start + leaving(cost, reverse=False)).amax(-2), cost.sum(-2)
    # A walk that leaves block m crosses m+1 whole before it can leave that: the cost is the target's.
    left = _best_walk(leaves, F.pad(total, (0, 0, 0, 1))[..., 1:, :], depth + 1)
    entering = F.pad(left, (0, 0, 1, 0), value=-torch.inf)[..., :-1, :].unsqueeze(-2)
    return out_of_blocks(torch.maximum(within, entering + arriving(cost, reverse=False)), T)

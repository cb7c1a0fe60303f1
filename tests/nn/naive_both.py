"""Linear attention in both directions, pair by pair, as the LION paper's masks have it; see docs/maths.md.

It imports torch and nothing of ours. Layout: q, k [B, T, H, D]; v [B, T, H, V].
"""

import torch

from tests.nn import naive


def both_ways(q, k, v, decay, own=1.0, between=False):
    """num_i = sum_j q_i . (m_ij k_j) v_j [B, T, H, V] and den_i = sum_j q_i . (m_ij k_j) [B, T, H, 1].

    m_ij is the product of the decays of the tokens that are left on the way from j to i: j and those between the two.
    With `between`, of those between alone (RWKV). m_ii is `own`. The decay is of the shape of k, or broadcasts to it; a
    pair is what keys to the left and keys to the right of the query pay.
    """
    pair = decay if isinstance(decay, tuple) else (decay, decay)
    decays = {step: torch.as_tensor(x).expand(k.shape) for step, x in zip((-1, 1), pair, strict=True)}
    T = q.shape[1]
    nums, dens = [], []
    for i in range(T):
        weight = (q[:, i] * own * k[:, i]).sum(-1, keepdim=True)
        num, den = weight * v[:, i], weight
        for step in (-1, 1):
            m, j = torch.ones_like(k[:, i]), i + step
            while 0 <= j < T:
                left = m * decays[step][:, j]
                weight = (q[:, i] * (m if between else left) * k[:, j]).sum(-1, keepdim=True)
                num, den = num + weight * v[:, j], den + weight
                m, j = left, j + step
        nums.append(num)
        dens.append(den)
    return torch.stack(nums, 1), torch.stack(dens, 1)


def scaled_both_ways(q, k, v, decay):
    num, den = both_ways(q, k, v, decay)
    return num / den


def softmax_both_ways(q, k, v):
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5).exp()
    return torch.einsum("bhij,bjhe->bihe", weights / weights.sum(-1, keepdim=True), v)


def gated_deltanet_both_ways(q, k, v, beta, alpha):
    """Leaving a token costs its alpha: the causal rule with the alphas one token later. Either walk writes the token
    itself; once is enough."""

    def walk(q, k, v, beta, alpha):
        return naive.gated_deltanet(q, k, v, beta, torch.cat([torch.ones_like(alpha[:, :1]), alpha[:, :-1]], 1))

    tokens = q, k, v, beta, alpha
    there, back = walk(*tokens), walk(*(x.flip(1) for x in tokens)).flip(1)
    return there + back - beta[..., None] * (q * k).sum(-1, keepdim=True) * v


def deltanet_both_ways(q, k, v, beta):
    return gated_deltanet_both_ways(q, k, v, beta, torch.ones_like(beta))

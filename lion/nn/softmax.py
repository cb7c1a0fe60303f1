"""Softmax attention under the same conditions, as the baseline: torch's own, with masks, packing and directions."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.plain import transformed


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    direction: str = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
) -> Tensor:
    """[B, T, H, D] each. Orders change nothing: every token sees every token."""
    if mask is None and cu_seqlens is None and direction != "reverse":
        return _scaled(q, k, v, is_causal=direction == "forward")
    T = q.shape[1]
    sees = torch.ones(1, T, T, dtype=torch.bool, device=q.device)
    if direction != "both":
        sees = sees.tril() if direction == "forward" else sees.triu()
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens.long(), torch.arange(T, device=q.device), right=True)
        sees = sees & (sequence[:, None] == sequence)
    if mask is None:
        return _scaled(q, k, v, attn_mask=sees[:, None])
    # A masked token sees itself, lest its row be empty, and outputs 0.
    sees = sees & mask[:, None, :] | torch.eye(T, dtype=torch.bool, device=q.device)
    v = torch.where(mask[:, :, None, None], v, 0)
    return torch.where(mask[:, :, None, None], _scaled(q, k, v, attn_mask=sees[:, None]), 0)


class KeysAndValues(NamedTuple):
    """The cache of softmax attention: all tokens so far, [B, T, H, .] each."""

    k: Tensor
    v: Tensor


def softmax_step(q: Tensor, k: Tensor, v: Tensor, past: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]:
    """One token, [B, H, D] each."""
    k, v = k[:, None], v[:, None]
    if past is not None:
        k, v = torch.cat([past.k, k], 1), torch.cat([past.v, v], 1)
    return _scaled(q[:, None], k, v)[:, 0], KeysAndValues(k, v)


def _scaled(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if not transformed():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal).transpose(1, 2)
    # torch's own has no forward mode, and no gradients of many examples at once.
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)

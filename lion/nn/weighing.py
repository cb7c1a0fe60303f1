"""Attention by its weights: the [T, T] matrix that linear attention does without, for looking at."""

import torch
from torch import Tensor

from lion.nn.layers import LionAttention


def mix_by_weights(
    layer: LionAttention,
    x: Tensor,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    last: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A layer's outputs [B, T, dim], computed from its weights, and those, [B, H, T, T]; or of the last tokens only.

    The weights are what token j's value counts in token i's output, normalised as the variant does it: they need not be
    positive, nor sum to 1. Gradients of the output reach them. Time and memory grow with T^2.
    """
    y = layer._tokens(layer.in_proj(x))
    B, T = x.shape[:2]
    ones = torch.eye(T, dtype=y.v.dtype, device=x.device)[None, :, None].expand(B, T, layer.heads, T)
    weights = layer._mix(y._replace(v=ones), mask, cu_seqlens, None).transpose(1, 2)
    v = y.v if mask is None else torch.where(mask[:, :, None, None], y.v, 0)
    rows = slice(0 if last is None else T - last, None)
    weights = weights[:, :, rows]
    mixed = torch.einsum("bhij,bjhv->bihv", weights, v)
    return layer._finish(mixed, y.gate[:, rows], y.values[:, rows]), weights

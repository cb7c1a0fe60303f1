"""The division by a row's sum: the one place in Python that knows what the norms mean."""

import torch
from torch import Tensor

from lion.ops.plain import plain


def divided(num: Tensor, den: Tensor | None, norm: str, log_scale: Tensor | None = None) -> Tensor:
    """num [..., V] by den [..., 1]; both come times exp(-log_scale), [..., 1], where there is one.

    norm: "sum", "max" or "none". num is the caller's own, and may be divided in place.
    """
    if norm == "none":
        return num if log_scale is None else num * log_scale.exp()
    assert den is not None
    if norm == "max":
        least = torch.ones_like(den) if log_scale is None else (-log_scale).exp()
        den = torch.maximum(den.abs(), least)
    # Without a graph that would keep num, in place.
    return num / den if num.requires_grad or den.requires_grad or plain() else num.div_(den)

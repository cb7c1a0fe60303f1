"""The tail of a layer: the norms and gates between the mixed values and the output's projection.

A variant's `tail` names them, in the order in which its authors apply them. All take and return [B, T, dim], the heads
side by side.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HeadRMSNorm(nn.RMSNorm):
    """RMS norm of each head by itself; all heads share the weights, [V]."""

    def __init__(self, heads: int, channels: int, *, eps: float):
        super().__init__(channels, eps=eps)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(-1, (self.heads, -1))).flatten(-2)


class HeadLayerNorm(nn.Module):
    """Layer norm of each head by itself, with a weight for every channel, [dim]: GroupNorm, token by token."""

    def __init__(self, heads: int, channels: int, *, eps: float, bias: bool):
        super().__init__()
        self.heads, self.eps = heads, eps
        self.weight = nn.Parameter(torch.ones(heads * channels))
        self.bias = nn.Parameter(torch.zeros(heads * channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (self.heads, -1))
        x = F.layer_norm(heads, heads.shape[-1:], eps=self.eps).flatten(-2) * self.weight
        return x if self.bias is None else x + self.bias

    def extra_repr(self) -> str:
        return f"{self.heads}, {self.weight.numel()}, eps={self.eps}, bias={self.bias is not None}"


def rms_norm(heads: int, channels: int, *, eps: float) -> nn.RMSNorm:
    """RMS norm over all channels of all heads."""
    return nn.RMSNorm(heads * channels, eps=eps)


OutputNorm = nn.RMSNorm | HeadLayerNorm
OUTPUT_NORMS: dict[str, Callable[[int, int], OutputNorm]] = {  # by heads and value channels of a head
    "head_rms": partial(HeadRMSNorm, eps=1e-5),
    "mamba2": partial(rms_norm, eps=1e-5),
    "hgrn2": partial(rms_norm, eps=1e-6),
    "retnet": partial(HeadRMSNorm, eps=1e-6),
    "rwkv6": partial(HeadLayerNorm, eps=64e-5, bias=True),  # 1e-5 of an output divided by 8, as RWKV-5 began
    "xlstm": partial(HeadLayerNorm, eps=1e-6, bias=False),
}

GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}

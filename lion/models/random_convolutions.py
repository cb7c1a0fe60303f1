"""A linear model of random convolutions of a sequence of numbers, which answers together with a network.

Kernels of random weights, at every power of 2 as a dilation, look for shapes of every length; how much of a sequence is
like each of them, and how like at most, is what classes are told by (Dempster and others' idea, "ROCKET", 2020).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (7, 9, 11)
LEVELS = 4  # thresholds of each kernel
PIECE = 1 << 24  # numbers that are made at a time


class Group(NamedTuple):
    """Kernels of one width and dilation."""

    width: int
    dilation: int
    kernels: int


def groups(kernels: int, reach: int) -> list[Group]:
    """So many kernels, about, that span up to `reach` steps."""
    shapes = [(width, 2**n) for width in WIDTHS for n in range(1 + int(math.log2(max(1, (reach - 1) / (width - 1)))))]
    return [Group(*shape, max(1, kernels // len(shapes))) for shape in shapes]


class RandomConvolutions(nn.Module):
    """[B, T] numbers, or [B, T, channels], -> [B, classes] logits.

    All of it is drawn and fitted before training (lion.tasks._random_convolutions), and stays as it is: these are
    buffers.
    """

    weight: Tensor  # [classes, features]
    bias: Tensor  # [classes]

    def __init__(self, kernels: int, reach: int, channels: int, classes: int):
        super().__init__()
        self.groups = groups(kernels, reach)
        for i, group in enumerate(self.groups):
            self.register_buffer(f"kernels_{i}", torch.zeros(group.kernels, channels, group.width))
            self.register_buffer(f"levels_{i}", torch.zeros(group.kernels, LEVELS))
        features = sum(group.kernels for group in self.groups) * (LEVELS + 1)
        self.register_buffer("weight", torch.zeros(classes, features))
        self.register_buffer("bias", torch.zeros(classes))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.linear(self.features(x, mask), self.weight, self.bias)

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, features]: of every kernel, the shares of the steps above its levels, and the largest number."""
        if torch.compiler.is_exporting():  # a graph has no pieces: their number would depend on the length
            return self._features(x, mask)
        widest = max(group.kernels for group in self.groups)
        size = max(1, PIECE // (widest * max(1, x.shape[1])))
        masks = [None] * len(x) if mask is None else mask.split(size)
        return torch.cat([self._features(part, there) for part, there in zip(x.split(size), masks, strict=False)])

    def _features(self, x: Tensor, mask: Tensor | None) -> Tensor:
        found = []
        for i, y in enumerate(self.convolved(x, mask)):
            levels = getattr(self, f"levels_{i}")
            if mask is None:
                above = [(y > level[:, None]).to(y.dtype).mean(-1) for level in levels.T]
                found += [*above, y.amax(-1)]
            else:
                there, steps = mask[:, None], mask.sum(1, keepdim=True).clamp(min=1)
                above = [((y > level[:, None]) & there).sum(-1) / steps for level in levels.T]
                found += [*above, y.masked_fill(~there, -torch.inf).amax(-1).nan_to_num(neginf=0)]
        return torch.cat(found, 1)

    def convolved(self, x: Tensor, mask: Tensor | None = None) -> Iterator[Tensor]:
        """What the kernels of each group make of x, [B, kernels, T]; in float32, or levels would be missed."""
        x = (x[..., None] if x.dim() == 2 else x).to(self.weight.dtype)
        x = (x if mask is None else x.masked_fill(~mask[..., None], 0)).transpose(1, 2)
        for i, group in enumerate(self.groups):
            with torch.autocast(x.device.type, enabled=False):
                padding = group.dilation * (group.width // 2)
                yield F.conv1d(x, getattr(self, f"kernels_{i}"), padding=padding, dilation=group.dilation)

"""Tokens moved so that a layer whose tokens see their neighbours, as a convolution does, can be masked and packed.

The real tokens of a sequence are moved together, and packed sequences apart: between two of them, and behind the last,
there are zeros, as they are around a sequence that is alone.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.checks import check_packing


class Apart(NamedTuple):
    """[B, T', dim] tokens, 0 where there is none; the mask [B, T'] of those that are; the borders of sequences
    [sequences + 1], if they are packed; and the places [B, T] of the tokens as they came, T' for those left out."""

    x: Tensor
    mask: Tensor
    cu_seqlens: Tensor | None
    places: Tensor

    @staticmethod
    def of(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, room: int) -> "Apart":
        """x [B, T, dim] with room for so many tokens between sequences."""
        B, T, dim = x.shape
        real = torch.ones(B, T, dtype=torch.bool, device=x.device) if mask is None else mask
        places, length, borders = real.cumsum(1) - 1, T, None
        if cu_seqlens is not None:
            check_packing(cu_seqlens, x)
            cu_seqlens = cu_seqlens.long()
            number = torch.searchsorted(cu_seqlens, torch.arange(T, device=x.device), right=True) - 1
            places, length = places + room * number, T + room * (len(cu_seqlens) - 2)
            before = F.pad(real[0].cumsum(0), (1, 0))[cu_seqlens]  # real tokens before each border
            borders = before + room * torch.arange(len(cu_seqlens), device=x.device)
            borders = torch.cat([borders[:-1], borders.new_full((1,), length)])
        places = places.where(real, length)
        moved = x.new_zeros(B, length + 1, dim).scatter(1, _for_all_channels(places, dim), x)[:, :-1]
        there = torch.zeros_like(moved[..., 0], dtype=torch.bool)
        there = F.pad(there, (0, 1)).scatter(1, places, True)[:, :-1]
        return Apart(moved, there, borders, places)

    def back(self, y: Tensor) -> Tensor:
        """y [B, T', dim], in the order in which the tokens came; 0 for those left out."""
        return F.pad(y, (0, 0, 0, 1)).gather(1, _for_all_channels(self.places, y.shape[-1]))


def _for_all_channels(places: Tensor, dim: int) -> Tensor:
    return places[..., None].expand(-1, -1, dim)

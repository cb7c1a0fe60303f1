"""Cutting a dimension into blocks of one size, in a way that torch.export can follow for every length."""

import torch
from torch import Tensor


def into_blocks(x: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """[..., length, E] -> [..., blocks, size, E], the last block filled up."""
    length, width = x.shape[-2:]
    blocks = (length + size - 1) // size
    if torch.compiler.is_exporting():
        # Rows are taken by index: slices and reshapes need facts of a symbolic length that cannot be proved. One
        # block to spare, so that there are never just one, which broadcasting would treat apart.
        place = torch.arange(blocks + 1, device=x.device)[:, None] * size + torch.arange(size, device=x.device)
        return torch.where((place < length)[..., None], x[..., place.clamp(max=length - 1), :], fill)
    out = x.new_full((*x.shape[:-2], blocks * size, width), fill)
    out[..., :length, :] = x
    return out.unflatten(-2, (blocks, size))


def out_of_blocks(x: Tensor, length: int) -> Tensor:
    """[..., blocks, size, E] -> [..., length, E]"""
    x = x.flatten(-3, -2)
    if torch.compiler.is_exporting():
        return x.index_select(-2, torch.arange(length, device=x.device))
    return x[..., :length, :]

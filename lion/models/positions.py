"""Positions of tokens, for models that learn an embedding of each."""

import logging
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from lion.models.blocks import ModelConfig

log = logging.getLogger("lion")
Config = TypeVar("Config", bound=ModelConfig)


def placed(config: Config, tokens: int | None = None, *, aligned: bool = False) -> Config:
    """The config, with learned positions if nothing else tells the order of tokens, or if sequences are aligned and
    a place means the same in all of them; for so many tokens, if given."""
    config = replace(config, positions="learned") if aligned or not config.tells_order else config
    if tokens is None or config.positions != "learned":
        return config
    return replace(config, max_tokens=tokens)  # type: ignore[call-arg]


def spanning(config: Config, tokens: int) -> Config:
    """The config with first half-lives up to so many tokens, if the last is 0: as long as the sequences."""
    half_lives = getattr(config, "half_lives", None)
    if half_lives is None or half_lives[1]:
        return config
    return replace(config, half_lives=(half_lives[0], float(tokens)))  # type: ignore[call-arg]


def warn_if_blind(config: ModelConfig) -> None:
    if not config.tells_order:
        log.warning(
            "%s has no decay, and positions is 'none': the order of the tokens makes no difference to this model. "
            "With positions='learned' it does.",
            config.variant,
        )


def learned_positions(config: ModelConfig, tokens: int) -> nn.Embedding | None:
    return nn.Embedding(tokens, config.dim) if config.positions == "learned" else None


def waves(tokens: int, dim: int, *, period: float = 1e4) -> Tensor:
    """Sines and cosines of every position, [tokens, dim], with a mean square of about 1. Learned positions start there:
    the distance of two tokens is visible from the first step on."""
    rates = period ** (-2 / dim * torch.arange((dim + 1) // 2))
    angles = torch.arange(tokens)[:, None] * rates
    return 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)[:, :dim]


def add_positions(
    x: Tensor,
    positions: nn.Embedding | None,
    position_ids: Tensor | None = None,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    before: Tensor | None = None,
) -> Tensor:
    """x [B, T, dim] with learned positions, if there are any; by default the tokens are counted (`count`)."""
    if positions is not None:
        if position_ids is None:
            position_ids = count(x, positions.num_embeddings, mask, cu_seqlens, before=before)
        return x + positions(position_ids)
    if position_ids is not None:
        raise ValueError(
            "position_ids is given, but positions is 'none'; expected none: leave them out. "
            "(Packed sequences are told apart by cu_seqlens.)"
        )
    return x


def count(
    x: Tensor,
    most: int,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    before: Tensor | None = None,
) -> Tensor:
    """[B or 1, T]: how many real tokens of x [B, T, dim] come before each in its sequence.

    Args:
        most: tokens that a sequence may have.
        mask: [B, T], True for real tokens.
        cu_seqlens: the borders of sequences packed end to end, with B = 1.
        before: [B], tokens that each sequence has had already.
    """
    length = x.shape[1]
    place = torch.arange(length, device=x.device)[None]
    found = place if mask is None else mask.cumsum(1) - mask.long()
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens, place.to(cu_seqlens.dtype), right=True) - 1
        starts = cu_seqlens.long()[sequence].clamp(max=length - 1)
        found = found - found.gather(1, starts.expand_as(found))
        found = found.clamp(min=0)  # wrong cu_seqlens get this far: attention says what is wrong with them
    if before is not None:
        found = found + before[:, None]
    if mask is not None:
        found = found.where(mask, 0)
    told_by_shape = mask is None and cu_seqlens is None
    if before is not None or (length > most and not told_by_shape):
        # The longest sequence's; only now, because this waits for a GPU.
        length = int(found.max()) + 1 if found.numel() else 0
    if length > most:
        raise ValueError(
            f"there are {length} tokens in a sequence; expected at most {most}, the max_tokens of the learned "
            "positions: cut the sequence, or take a model with positions='none', which fits any length."
        )
    return found

"""Places of tokens, for models that learn an embedding of each."""

import logging
from dataclasses import replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

log = logging.getLogger("lion")


class WithPositions(Protocol):
    """What configs have that say how places are told."""

    @property
    def tells_order(self) -> bool: ...
    @property
    def positions(self) -> str: ...
    @property
    def variant(self) -> str: ...


Config = TypeVar("Config", bound=WithPositions)


def placed(config: Config, tokens: int | None = None) -> Config:
    """The config, with learned positions if nothing else tells the order of tokens; for so many of them, if given."""
    config = config if config.tells_order else replace(config, positions="learned")  # type: ignore[type-var]
    if tokens is None or config.positions != "learned":
        return config
    return replace(config, max_tokens=tokens)  # type: ignore[type-var]


def warn_if_blind(config: WithPositions) -> None:
    if not config.tells_order:
        log.warning(
            "%s has no decay, and positions is 'none': the order of the tokens makes no difference to this model. "
            "With positions='learned' it does.",
            config.variant,
        )


def waves(tokens: int, dim: int, *, period: float = 1e4) -> Tensor:
    """Sines and cosines of every place, [tokens, dim], of about 1 in the mean square: where learned positions begin, so
    that how far apart two tokens are is told from the first step on."""
    rates = period ** (-2 / dim * torch.arange((dim + 1) // 2))
    angles = torch.arange(tokens)[:, None] * rates
    return 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)[:, :dim]


def count(
    x: Tensor,
    most: int,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    before: Tensor | None = None,
) -> Tensor:
    """[B or 1, T]: for a real token of x [B, T, dim], how many there are before it in its sequence.

    Args:
        most: tokens that a sequence may have.
        mask: [B, T], True for real tokens.
        cu_seqlens: of sequences packed end to end, with B = 1.
        before: [B], tokens that each sequence has had already.
    """
    length = x.shape[1]
    place = torch.arange(length, device=x.device)[None]
    found = place if mask is None else mask.cumsum(1) - mask.long()
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens, place.to(cu_seqlens.dtype), right=True) - 1
        starts = cu_seqlens.long()[sequence].clamp(max=length - 1)
        found = found - found.gather(1, starts.expand_as(found))
        found = found.clamp(min=0)  # so that attention comes to say what is wrong with cu_seqlens
    if before is not None:
        found = found + before[:, None]
    if mask is not None:
        found = found.where(mask, 0)
    told_by_shape = mask is None and cu_seqlens is None
    if before is not None or (length > most and not told_by_shape):
        length = int(found.max()) + 1  # of the longest sequence; only now, as a GPU is waited for
    if length > most:
        raise ValueError(
            f"there are {length} tokens in a sequence; expected at most {most}, the max_tokens of the learned "
            "positions: cut the sequence, or take a model with positions='none', which fits any length."
        )
    return found

"""Classifiers of long sequences: the Long Range Arena's, and of genomes."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lion.configs import check
from lion.legacy import takes_old_names
from lion.limits import Classes, Depth, Heads, Kernel, OneOf, Ratio, Share, Tokens, Width
from lion.models.blocks import make_layer, variant_tells_order
from lion.models.positions import count, warn_if_blind
from lion.models.vision import KEPT, POSITIONS, Mlp
from lion.nn.variants import VARIANTS

ANSWERS = ("sequence", "pair", "token")


@takes_old_names
@dataclass(frozen=True)
class LongConfig:
    variant: Annotated[str, OneOf(VARIANTS)] = "lion_s_diag"  # a key of lion.VARIANTS
    vocab_size: Classes = 0  # tokens there are; 0: what comes in are numbers
    classes: Classes = 10
    answer: Annotated[str, OneOf(ANSWERS)] = "sequence"  # what is classified, "token": every one
    dim: Width = 128
    depth: Depth = 6
    heads: Heads = 4
    mlp_ratio: Ratio = 2.0
    # Where something decays, places are told by that, at any length.
    positions: Annotated[str, OneOf(POSITIONS)] = "none"
    max_tokens: Tokens = 1024  # that there are learned positions for
    stem: Kernel = 0  # width of a convolution of what comes in; 0: none, and sequences read backwards are the same
    dropout: Share = 0.0
    features: str | None = None  # in place of the variant's own, as the next two
    decay: str | None = None
    norm: str | None = None

    def __post_init__(self):
        check(self)
        if self.stem and not self.stem % 2:
            raise ValueError(f"stem is {self.stem}; expected an odd width, as many neighbours on both sides.")

    @property
    def tells_order(self) -> bool:
        """Whether it makes a difference what order the tokens have."""
        return self.positions == "learned" or variant_tells_order(self)


class LongModel(nn.Module):
    """Tokens, or numbers, [B, T] -> [B, classes]; pairs [B, 2, T] -> [B, classes]; every token -> [B, T, classes]."""

    def __init__(self, config: LongConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim) if config.vocab_size else nn.Linear(1, config.dim)
        self.positions = nn.Embedding(config.max_tokens, config.dim) if config.positions == "learned" else None
        self.stem = nn.Conv1d(config.dim, config.dim, config.stem, padding="same") if config.stem else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(LongBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)
        # Of a pair: both, how they differ, and what they have in common.
        self.compare = Mlp(4 * config.dim, 2 * config.dim) if config.answer == "pair" else None
        self.head = nn.Linear(4 * config.dim if config.answer == "pair" else config.dim, config.classes)
        self.checkpointed = False
        warn_if_blind(config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: tokens, or numbers.
            mask: of x's shape, True for what is real, wherever that is. The rest changes nothing. (To a stem, what is
                not real between real tokens is a gap; before and behind them it is nothing.)
        """
        wanted = 3 if self.config.answer == "pair" else 2
        if x.dim() != wanted or (wanted == 3 and x.shape[1] != 2):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected {'[B, 2, T]' if wanted == 3 else '[B, T]'}, as answer is "
                f"{self.config.answer!r}."
            )
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)} and dtype {str(mask.dtype).removeprefix('torch.')}; expected "
                f"{tuple(x.shape)}, as x, and bool, True for what is real."
            )
        if self.config.answer == "token":
            return self.head(self.features(x, mask))
        flat, flat_mask = x.flatten(0, -2), None if mask is None else mask.flatten(0, -2)
        pooled = mean(self.features(flat, flat_mask), flat_mask)
        if self.compare is not None:
            one, other = pooled.unflatten(0, (-1, 2)).unbind(1)
            pooled = torch.cat([one, other, one - other, one * other], -1)
            pooled = pooled + self.compare(pooled)
        return self.head(pooled)

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, T] -> [B, T, dim]"""
        y = self.embedding(x if self.config.vocab_size else x[..., None])
        if self.positions is not None:
            y = y + self.positions(count(y, self.positions.num_embeddings, mask))
        if mask is not None:
            y = y.masked_fill(~mask[..., None], 0)  # whatever is there, even if it is no number
        if self.stem is not None:
            y = y + self.stem(y.transpose(1, 2)).transpose(1, 2)
        y = self.dropout(y)
        for block in self.blocks:
            again = self.checkpointed and torch.is_grad_enabled()
            y = checkpoint(block, y, mask, use_reentrant=False) if again else block(y, mask)
        return self.norm(y)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep what enters the blocks only, and compute the rest again for the gradients: for very long sequences."""
        self.checkpointed = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are no weights: decays and the like."""
        return {name for name, _ in self.named_parameters() if any(part in KEPT for part in name.split("."))}


class LongBlock(nn.Module):
    def __init__(self, config: LongConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim)
        self.attention = make_layer(config)
        self.norm2 = nn.LayerNorm(config.dim)
        self.mlp = Mlp(config.dim, int(config.dim * config.mlp_ratio), config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), mask))
        return x + self.mlp(self.norm2(x))


def mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Over what is real: [B, T, dim] -> [B, dim]"""
    if mask is None:
        return x.mean(1)
    weight = mask[..., None].to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


# Widths and depths are those of S5, which the paper follows. Heads, which S5 has none of, are of 32 channels.
LONG_MODELS: dict[str, LongConfig] = {
    "listops": LongConfig(classes=10, dim=128, depth=8, heads=4),
    "text": LongConfig(classes=2, dim=256, depth=6, heads=8, dropout=0.1),
    "retrieval": LongConfig(classes=2, dim=128, depth=6, heads=4, answer="pair"),
    "image": LongConfig(classes=10, dim=512, depth=6, heads=16, dropout=0.1),
    "pathfinder": LongConfig(classes=2, dim=192, depth=6, heads=6, dropout=0.05),
    "pathx": LongConfig(classes=2, dim=128, depth=6, heads=4),
}

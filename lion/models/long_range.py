"""Classifiers of long sequences: those of the Long Range Arena, DNA, and series of numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.legacy import takes_old_names
from lion.limits import Classes, Depth, HalfLives, Heads, Kernel, Kmers, OneOf, Ratio, Share, Tokens, Width
from lion.models.blocks import Backbone, Mlp, ModelConfig, Stage, check_mask, make_layer
from lion.models.borders import convolved, tokens_before, total
from lion.models.heads import mean_tokens
from lion.models.kmers import BASES, FIRST, KmerWeights
from lion.models.positions import add_positions, learned_positions, placed, spanning, warn_if_blind
from lion.models.random_convolutions import RandomConvolutions
from lion.nn.pieces import Cuttable
from lion.nn.variants import VARIANTS

ANSWERS = ("sequence", "pair", "token")
SUMMARIES = 4  # of aligned sequences


@takes_old_names
@dataclass(frozen=True, kw_only=True)
class LongConfig(ModelConfig):
    variant: Annotated[str, OneOf(VARIANTS)] = field(default="lion_s_diag", kw_only=False)
    dim: Width = 128
    depth: Depth = 6
    heads: Heads = 4
    vocab_size: Classes = 0  # different tokens; 0: the inputs are numbers
    channels: Width = 1  # numbers of each step, where the inputs are numbers
    classes: Classes = 10  # outputs
    answer: Annotated[str, OneOf(ANSWERS)] = "sequence"  # what is classified; "token": every one
    mlp_ratio: Ratio = 2.0  # of the MLPs' channels to dim
    max_tokens: Tokens = 1024  # the most tokens, where positions are learned
    stem: Kernel = 0  # width of a convolution over the inputs; 0: none (then left and right are alike: docs/maths.md)
    stem_depth: Depth = 0  # for few examples: so many convolutions in its place, each with a norm and a GELU; 0: one
    stride: Kernel = 1  # inputs for each token, by the first of these convolutions: for long and smooth inputs
    summaries: Classes = 0  # sums over tokens that are classified, each with weights by place and channel; 0: the mean
    random_kernels: Classes = 0  # of a linear model of random convolutions, which answers with the network; 0: none
    random_reach: Tokens = 1  # inputs that the widest of these kernels span
    kmers: Kmers = 0  # bases of the longest k-mers of a linear model of DNA, whose logits are added; 0: none
    both_strands: bool = False  # of that model: a k-mer and its reverse complement are the same
    dropout: Share = 0.0  # of the inputs, and of what each block adds
    two_sided: bool = False  # decays of their own for each direction
    zero_order_hold: bool = True  # values begin small where HIPPO's decays are slow, as the paper has it
    half_lives: HalfLives = None  # tokens, of the first decays: first and last head (0: all of them); none: own

    def __post_init__(self):
        super().__post_init__()
        if self.vocab_size and self.channels > 1:
            raise ValueError(f"channels is {self.channels}, but the inputs are tokens; expected 1, or vocab_size 0.")
        if self.stem and not self.stem % 2:
            raise ValueError(f"stem is {self.stem}; expected an odd width, as many neighbours on both sides.")
        if self.stem_depth and not self.stem:
            raise ValueError(f"stem_depth is {self.stem_depth}, and stem 0; expected the width of the convolutions.")
        if self.summaries and (self.positions != "learned" or self.answer != "sequence"):
            raise ValueError(
                f"summaries is {self.summaries}; expected 0, or positions='learned' and answer='sequence': they have "
                "weights for max_tokens places."
            )
        if self.random_kernels and (self.vocab_size or self.answer != "sequence"):
            raise ValueError(
                f"random_kernels is {self.random_kernels}; expected 0, or inputs that are numbers (vocab_size 0) and "
                "answer='sequence'."
            )
        if self.kmers and (self.vocab_size <= FIRST + BASES or self.answer != "sequence"):
            raise ValueError(
                f"kmers is {self.kmers}; expected 0, or the tokens of DNA (vocab_size above {FIRST + BASES}) and "
                "answer='sequence'."
            )
        if self.stride != 1 and (not 1 < self.stride <= self.stem or not self.stem_depth or self.answer == "token"):
            raise ValueError(
                f"stride is {self.stride}; expected 1, or 2 to {self.stem} (the width of the convolutions), with "
                "stem_depth, and an answer for the whole."
            )


def fitted(config: LongConfig, longest: int, tokens: int, *, aligned: bool) -> LongConfig:
    """The config for sequences of up to `longest` inputs, which become at most `tokens` tokens, as far as the width of
    the convolutions allows (0: by its own stride); if they are aligned, with learned positions and summaries."""
    if tokens and config.stem_depth:
        config = replace(config, stride=min(-(-longest // tokens), config.stem))
    length = -(-longest // config.stride)
    config = spanning(placed(config, length, aligned=aligned), length)
    return replace(config, summaries=SUMMARIES) if aligned and config.stem_depth else config


class LongModel(Backbone):
    """Tokens, or numbers, [B, T] -> [B, classes]; pairs [B, 2, T] -> [B, classes]; every token -> [B, T, classes].

    With several channels, numbers have one dimension more: [B, T, channels].
    """

    def __init__(self, config: LongConfig):
        super().__init__()
        self.config = config
        tokens, dim = config.vocab_size, config.dim
        self.embedding = nn.Embedding(tokens, dim) if tokens else nn.Linear(config.channels, dim)
        self.positions = learned_positions(config, config.max_tokens)
        self.stem = nn.Conv1d(dim, dim, config.stem, padding="same") if config.stem and not config.stem_depth else None
        strides = [config.stride, *[1] * config.stem_depth][: config.stem_depth]
        self.convolutions = nn.ModuleList(Convolution(dim, config.stem, stride) for stride in strides)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(LongBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)
        # A pair is compared by both vectors, their difference and their product.
        self.compare = Mlp(4 * config.dim, 2 * config.dim) if config.answer == "pair" else None
        self.summaries = Summaries(config) if config.summaries else None
        vectors = 4 if config.answer == "pair" else config.summaries or 1
        self.head = nn.Linear(vectors * config.dim, config.classes)
        random = config.random_kernels, config.random_reach, config.channels, config.classes
        self.random_convolutions = RandomConvolutions(*random) if config.random_kernels else None
        words = config.kmers, config.classes
        self.kmer_weights = KmerWeights(*words, both_strands=config.both_strands) if config.kmers else None
        warn_if_blind(config)

    def forward(self, x: Tensor, mask: Tensor | None = None, token_logits: Tensor | None = None) -> Tensor:
        """
        Args:
            x: tokens, or numbers.
            mask: of x's shape without channels, True for real tokens, wherever they are. The others change nothing.
                (To a stem, those between real tokens are a gap.)
            token_logits: [B, classes], in place of those of `kmer_weights`: in training, what such a model says that
                was fitted to other sequences.
        """
        pair, several = self.config.answer == "pair", self.config.channels > 1
        shape = ("B", *(2,) * pair, "T", *(self.config.channels,) * several)
        if x.dim() != len(shape) or any(want not in ("B", "T", got) for got, want in zip(x.shape, shape, strict=True)):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected [{', '.join(map(str, shape))}], as answer is "
                f"{self.config.answer!r}{f' and channels is {self.config.channels}' if several else ''}."
            )
        check_mask(mask, x.shape[:-1] if several else x.shape)
        flat = x.flatten(0, 1) if pair else x
        flat_mask = mask.flatten(0, 1) if pair and mask is not None else mask
        logits = self.answer(*self.features(flat, flat_mask))
        if self.kmer_weights is not None:
            token_logits = self.kmer_weights(x, mask) if token_logits is None else token_logits
            logits = logits + token_logits.to(logits.dtype)
        if self.random_convolutions is None or self.training:  # which is fitted by itself, and so is the network
            return logits
        both = logits + self.random_convolutions(x, mask)
        return both / 2 if self.config.classes == 1 else both

    def answer(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits, of what `features` returns."""
        if self.config.answer == "token":
            return self.head(x)
        pooled = self.pooled(x, mask)
        if self.compare is not None:
            one, other = pooled.unflatten(0, (-1, 2)).unbind(1)
            pooled = torch.cat([one, other, one - other, one * other], -1)
            pooled = pooled + self.compare(pooled)
        return self.head(pooled)

    def features(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """[B, T], or numbers of several channels [B, T, channels], -> [B, tokens, dim] and the mask of these tokens"""
        for stage in self.stages():
            x, mask = stage(x, mask)
        return x, mask

    def stages(self) -> Iterator[Stage]:
        """What is done to the tokens, one after the other: (x, mask) -> (x, mask)"""
        yield self._embedded
        if self.stem is not None:
            yield self._stemmed
        yield from self.convolutions
        yield self._placed
        for block in self.blocks:
            yield lambda x, mask, block=block: (self.run(block, x, mask), mask)  # type: ignore[misc]
        yield lambda x, mask: (self.norm(x), mask)

    def pooled(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[B, T, dim] -> [B, dim or more]"""
        return mean_tokens(x, mask, piece=self.piece) if self.summaries is None else self.summaries(x, mask)

    def whole_only(self) -> str | None:
        return None if self.random_convolutions is None else "its random convolutions read the whole sequence"

    def _embedded(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y = self.embedding(x if self.config.vocab_size or self.config.channels > 1 else x[..., None])
        if not self.config.stem_depth:
            y = self._with_positions(y, mask)
        return y if mask is None else y.masked_fill(~mask[..., None], 0), mask  # even if there is nan

    def _stemmed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert self.stem is not None
        return x + convolved(self.stem, x, self.piece)[0], mask

    def _placed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        x = self._with_positions(x, mask) if self.config.stem_depth else x  # convolutions find patterns anywhere
        return self.dropout(x), mask

    def _with_positions(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.positions is None:
            return x
        return add_positions(x, self.positions, mask=mask, before=tokens_before(x, mask, self.piece))


class Convolution(Cuttable, nn.Module):
    """A convolution over time with a norm and a GELU, added to its input [B, T, dim], of which a stride leaves some."""

    def __init__(self, dim: int, width: int, stride: int):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, width, stride=stride, padding=width // 2, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y, tokens = convolved(self.conv, x, self.piece)
        y = F.gelu(self.norm(y))
        mask = mask if mask is None else mask[:, tokens]
        # Masked tokens stay 0, or the next convolution would see them.
        return x[:, tokens] + (y if mask is None else y.masked_fill(~mask[..., None], 0)), mask


class Summaries(Cuttable, nn.Module):
    """Weighted sums of the tokens, [B, T, dim] -> [B, summaries * dim]. A mean knows no places, these do."""

    def __init__(self, config: LongConfig):
        super().__init__()
        shape = config.summaries, config.max_tokens, config.dim
        self.weight = nn.Parameter((1 + torch.randn(shape)) / config.max_tokens)  # about the mean, each in its own way

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x if mask is None else x * mask[..., None]
        before = tokens_before(x, None, self.piece)
        begin = 0 if before is None or not len(before) else int(before[0])
        sums = torch.einsum("btd,std->bsd", x, self.weight[:, begin : begin + x.shape[1]]).flatten(1)
        return total(sums, self.piece)


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


# Widths and depths are those of S5, which the paper follows. Heads, which S5 does not have, have 32 channels.
LONG_MODELS: dict[str, LongConfig] = {
    "listops": LongConfig(classes=10, dim=128, depth=8, heads=4),
    "text": LongConfig(classes=2, dim=256, depth=6, heads=8, dropout=0.1),
    "retrieval": LongConfig(classes=2, dim=128, depth=6, heads=4, answer="pair"),
    "image": LongConfig(classes=10, dim=512, depth=6, heads=16, dropout=0.1),
    "pathfinder": LongConfig(classes=2, dim=192, depth=6, heads=6, dropout=0.05),
    "pathx": LongConfig(classes=2, dim=128, depth=6, heads=4),
}

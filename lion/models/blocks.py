"""What the models share: the fields of their configs, their layers of attention, MLPs and bookkeeping."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lion.configs import check
from lion.limits import Depth, Heads, OneOf, Width
from lion.nn.layers import LionAttention
from lion.nn.pieces import Cuttable
from lion.nn.variants import VARIANTS
from lion.ops.checks import Norm

POSITIONS = ("learned", "none")
Stage = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]  # (x, mask) -> (x, mask)
# What the variants of LionAttention have, and the baselines do not.
CHOICES = ("features", "decay", "norm", "two_sided", "half_lives", "orders", "double_diagonal")
# Parts of names: parameters that are decays and the like, and no weights.
NO_WEIGHTS = ("decay", "bonus", "skip")


@dataclass(frozen=True)
class ModelConfig:
    """The fields that every model's config has."""

    variant: Annotated[str, OneOf(VARIANTS)] = "lion_s"  # the kind of attention: `lion list variants`
    _: KW_ONLY
    dim: Width = 768  # channels of every token
    depth: Depth = 12  # blocks
    heads: Heads = 12  # of attention, in each block
    positions: Annotated[str, OneOf(POSITIONS)] = "none"  # decays tell places, at any length; softmax needs "learned"
    features: str | None = None  # of queries and keys; none: the variant's own
    decay: str | None = None  # how decays are made; none: the variant's own
    norm: str | None = None  # what attention is divided by; none: the variant's own

    def __post_init__(self):
        check(self)
        for name in CHOICES if self.variant not in VARIANTS else ():  # a baseline
            if getattr(self, name, None):
                raise ValueError(f"variant is {self.variant!r}, which has no {name} to choose.")

    @property
    def tells_order(self) -> bool:
        """Whether the order of the tokens makes a difference."""
        if self.variant not in VARIANTS:  # a baseline, which convolves
            return True
        variant = VARIANTS[self.variant]
        return self.positions == "learned" or variant.delta or (self.decay or variant.decay) != "none"


def make_layer(config: ModelConfig, layer: type[LionAttention] = LionAttention, **options: Any) -> LionAttention:
    return layer(
        config.dim,
        config.heads,
        config.variant,
        features=config.features,
        decay=config.decay,
        norm=cast(Norm | None, config.norm),  # which the layer checks
        two_sided=getattr(config, "two_sided", False),  # causal models have no other side
        zero_order_hold=getattr(config, "zero_order_hold", True),  # an ablation of the arena's models
        half_lives=getattr(config, "half_lives", None),
        **options,
    )


class Backbone(Cuttable, nn.Module):
    """A model with blocks: they can be recomputed, and some of their parameters are no weights."""

    no_weights: ClassVar[tuple[str, ...]] = NO_WEIGHTS

    def __init__(self) -> None:
        super().__init__()
        self.grad_checkpointing = False

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only what enters the blocks, and compute the rest again in the backward pass: for long sequences."""
        self.grad_checkpointing = enable

    def run(self, block: nn.Module, *inputs: Any) -> Any:
        if self.grad_checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    def stages(self) -> Iterator[Stage]:
        """What is done to tokens [B, T], or numbers, one after the other: what enters is the sequence and its mask."""
        raise ValueError(f"{type(self).__name__} cannot be run block by block; expected a LongModel or an Encoder.")

    def answer(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What the model says, of what the last stage returns."""
        return x

    def stream(self, blocks: Iterable[Tensor], masks: Iterable[Tensor] | None = None, **how: Any) -> Iterator[Tensor]:
        """The outputs for a sequence of any length, given and returned block by block. See lion.streaming.stream."""
        from lion.streaming import stream

        return stream(self, blocks, masks, **how)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that an optimizer should not shrink: decays and the like."""
        return no_weights(self, self.no_weights)


def no_weights(model: nn.Module, parts: tuple[str, ...] = NO_WEIGHTS) -> set[str]:
    """Names of parameters that have one of the parts between their dots."""
    return {name for name, _ in model.named_parameters() if not set(parts).isdisjoint(name.split("."))}


class Mlp(nn.Module):
    def __init__(
        self, dim: int, hidden: int, dropout: float = 0.0, *, hidden_dropout: float | None = None, gelu: str = "none"
    ):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate=gelu)
        self.hidden_drop = nn.Dropout(dropout if hidden_dropout is None else hidden_dropout)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.hidden_drop(self.act(self.fc1(x)))))


def init_linear(linear: nn.Linear, std: float) -> None:
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)


def check_mask(mask: Tensor | None, shape: tuple[int, ...]) -> None:
    if mask is not None and (mask.dtype != torch.bool or mask.shape != shape):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)} and dtype {str(mask.dtype).removeprefix('torch.')}; expected "
            f"{tuple(shape)} and bool: True marks a real token."
        )


@torch.no_grad()
def copy_qkv(layer: LionAttention, parameter: str, parts: Sequence[Tensor]) -> None:
    """Take queries, keys and values of another attention, [heads x channels, ...] each, where the shapes are the same.

    Args:
        parameter: "weight" or "bias".
    """
    rows: tuple[Tensor, ...] = getattr(layer.in_proj, parameter).split(list(layer.columns.values()))
    for mine, part in zip(rows, parts, strict=False):  # q, k and v come first
        if mine.shape == part.shape:
            mine.copy_(part)

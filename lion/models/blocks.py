"""What mixes the tokens of a block: the variants of lion.nn, and baselines that are built differently."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import nn

from lion.models.baselines import Hydra, Vim
from lion.models.scripting import Scriptable
from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS
from lion.ops.checks import Direction, Norm, one_of

if TYPE_CHECKING:
    from lion.models.vision import VisionConfig

# By (dim, direction): modules whose forward takes x [B, T, dim] and `grid`, the height and width of the last tokens.
BASELINES: dict[str, Callable[[int, Direction], nn.Module]] = {"hydra": Hydra, "vim": Vim}


class ImageAttention(Scriptable, LionAttention):
    """LionAttention, for models that TorchScript compiles."""

    def to_export(self) -> nn.Module:
        # The delta rule goes from chunk to chunk in a loop of the graph, which TorchScript does not know.
        return copy.copy(self).set_form("full") if self.variant.delta else self


def make_image_layer(config: "VisionConfig", direction: Direction) -> nn.Module:
    one_of("variant", config.variant, (*VARIANTS, *BASELINES))
    if config.variant in BASELINES:
        return BASELINES[config.variant](config.dim, direction)
    options = {"double_diagonal": config.double_diagonal, "direction": direction, "orders": config.orders or None}
    return make_layer(config, ImageAttention, **options)


class WithVariant(Protocol):
    """What all configs have that say which variant a model's layers are."""

    @property
    def dim(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def variant(self) -> str: ...
    @property
    def features(self) -> str | None: ...
    @property
    def decay(self) -> str | None: ...
    @property
    def norm(self) -> str | None: ...


def make_layer(config: WithVariant, layer: type[LionAttention] = LionAttention, **options: Any) -> LionAttention:
    return layer(
        config.dim,
        config.heads,
        config.variant,
        features=config.features,
        decay=config.decay,
        norm=cast(Norm | None, config.norm),  # which the layer checks
        **options,
    )


def variant_tells_order(config: WithVariant) -> bool:
    """Whether it makes a difference to the layers what order the tokens have."""
    variant = VARIANTS[config.variant]
    return variant.delta or (config.decay or variant.decay) != "none"

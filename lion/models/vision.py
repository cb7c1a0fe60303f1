"""Image classifiers: a vision transformer with any of the variants, at any image size.

Parameters are named as timm names those of its VisionTransformer, and the model has the methods that timm expects,
but needs no timm.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from lion.legacy import takes_old_names
from lion.limits import Channels, Classes, HalfLives, Heads, OneOf, Patch, Pixels, Ratio, Share, ShareBelowOne, Width
from lion.models.bands import embedded_band, pooled_over_bands
from lion.models.baselines import BASELINES
from lion.models.blocks import NO_WEIGHTS, Backbone, Mlp, ModelConfig, make_layer
from lion.models.patches import STEMS, PatchEmbed
from lion.models.scripting import Scriptable, WithScriptable
from lion.nn.layers import LionAttention, directions
from lion.nn.orders import ORDER_NORMS
from lion.nn.variants import VARIANTS
from lion.ops.checks import Direction

INITS = ("own", "deit")
POOLS = ("token", "mean", "none")  # "none": every token is classified


@takes_old_names
@dataclass(frozen=True, kw_only=True)
class VisionConfig(ModelConfig):
    variant: Annotated[str, OneOf((*VARIANTS, *BASELINES))] = field(default="lion_s", kw_only=False)
    dim: Width = 192
    heads: Heads = 3
    mlp_ratio: Ratio = 4.0  # of the MLPs' channels to dim; 0: blocks without an MLP
    patch_size: Patch = 16  # pixels along one side of a token
    stem: Annotated[str, OneOf(STEMS)] = "patch"  # "conv": for few images, convolutions embed the patches
    image_size: tuple[Pixels, Pixels] = (224, 224)  # of training; others can be used at any time
    in_channels: Channels = 3  # of the images: 1 for grey, 3 for colour
    num_classes: Classes = 1000  # 0: no classifier, the output is the pooled features
    class_token: bool = True  # a token before all patches, for the class
    distillation_token: bool = False  # another one, which learns from a teacher
    pool: Annotated[str, OneOf(POOLS)] = "token"  # what is classified; "none": every token
    orders: tuple[str, ...] = ()  # paths through the patches (lion.nn.orders)
    order_norm: Annotated[str, OneOf(ORDER_NORMS)] = "joint"  # of several paths; "each" by itself, and then the mean
    direction: str = "both"  # or "forward", "reverse", "alternating" by layer
    double_diagonal: bool = False  # a token's own weight counts twice, once for each direction
    dropout: Share = 0.0  # of the embedded patches, and of the MLPs
    drop_path: ShareBelowOne = 0.0  # of the last block; linearly less in those before it
    two_sided: bool = False  # decays of their own for each direction
    half_lives: HalfLives = None  # tokens, of the first decays: first and last head (0: all of them); none: own
    init: Annotated[str, OneOf(INITS)] = "own"  # of the weights; "deit": normal with deviation 0.02, positions too

    def __post_init__(self):
        super().__post_init__()
        if self.stem == "conv" and self.patch_size & (self.patch_size - 1):
            raise ValueError(f"patch_size is {self.patch_size}; expected 1, 2, 4, 8, ... with stem='conv'.")
        if self.pool == "token" and not self.class_token:
            raise ValueError("pool is 'token', but there is no class token; expected pool='mean'.")
        if self.pool == "token" and self.direction == "forward":
            raise ValueError(
                "direction is 'forward', and pool 'token'; expected pool='mean': the class token comes first, and sees "
                "no patch."
            )
        if self.pool == "mean" and self.distillation_token:
            raise ValueError("pool is 'mean'; expected 'token' with a distillation token: each token has a classifier.")


class VisionModel(WithScriptable, Backbone):
    """[B, channels, height, width] -> [B, classes]"""

    no_weights = (*NO_WEIGHTS, "cls_token", "dist_token", "pos_embed")

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.config = config
        self.num_classes, self.in_chans, self.pool = config.num_classes, config.in_channels, config.pool
        self.num_features = self.embed_dim = self.head_hidden_size = config.dim
        self.num_prefix_tokens = config.class_token + config.distillation_token
        self.distilled_training = False  # whether training returns the outputs of both classifiers
        self.patch_embed = PatchEmbed(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.dim)) if config.class_token else None
        self.dist_token = nn.Parameter(torch.zeros(1, 1, config.dim)) if config.distillation_token else None
        tokens = self.num_prefix_tokens + math.prod(self.patch_embed.grid_size)
        learned = config.positions == "learned"
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, config.dim)) if learned else None
        self.pos_drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config, direction, drop_path)
            for direction, drop_path in zip(
                directions(config.direction, config.depth),
                torch.linspace(0, config.drop_path, config.depth, device="cpu").tolist(),
                strict=True,
            )
        )
        self.feature_info = [
            {"module": f"blocks.{i}", "num_chs": config.dim, "reduction": config.patch_size}
            for i in range(config.depth)
        ]
        self.norm: nn.Module = nn.LayerNorm(config.dim, eps=1e-6)
        self.head = self._classifier(config.num_classes)
        self.head_dist = self._classifier(config.num_classes) if config.distillation_token else None
        self._init_weights()

    def whole_only(self) -> str | None:
        return "the convolutions of stem='conv' see the pixels of other pieces" if self.config.stem == "conv" else None

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """[B, tokens, dim], normalised; the class token first, if there is one."""
        x, grid = self._embed(x)
        for block in self.blocks:
            x = block(x, grid) if torch.jit.is_scripting() else self.run(block, x, grid)
        return self.norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        if self.pool == "none":
            return x if pre_logits else self.head(x)
        if not torch.jit.is_scripting():  # noqa: SIM102 (it looks into both parts of an `and`)
            if self.piece is not None:
                x = pooled_over_bands(x, self.num_prefix_tokens, self.pool == "mean", self.piece)
        if self.head_dist is not None:
            if pre_logits:
                return (x[:, 0] + x[:, 1]) / 2
            own, distilled = self.head(x[:, 0]), self.head_dist(x[:, 1])
            if self.distilled_training and self.training:
                return own, distilled
            return (own + distilled) / 2
        pooled = x[:, 0] if self.pool == "token" else x[:, self.num_prefix_tokens :].mean(1)
        return pooled if pre_logits else self.head(pooled)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The outputs of some blocks (the last n, or by number), as maps "NCHW" or tokens "NLC"; and the features."""
        if output_fmt not in ("NCHW", "NLC"):
            raise ValueError(f"output_fmt is {output_fmt!r}; expected 'NCHW' or 'NLC'.")
        wanted = self._block_indices(indices)
        x, grid = self._embed(x)
        found = []
        for i, block in enumerate(self.blocks[: max(wanted) + 1] if stop_early else self.blocks):
            x = self.run(block, x, grid)
            if i in wanted:
                found.append(self.norm(x) if norm else x)
        prefix = [y[:, : self.num_prefix_tokens] for y in found]
        maps = [y[:, self.num_prefix_tokens :] for y in found]
        if output_fmt == "NCHW":
            maps = [y.transpose(1, 2).unflatten(2, grid).contiguous() for y in maps]
        results: list[Any] = list(zip(maps, prefix, strict=True)) if return_prefix_tokens else maps
        return results if intermediates_only else (self.norm(x), results)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the blocks behind the last one that is wanted; also the norm and the classifier."""
        wanted = self._block_indices(indices)
        self.blocks = self.blocks[: max(wanted) + 1]
        self.config = replace(self.config, depth=len(self.blocks))
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0)
        return wanted

    def get_classifier(self) -> nn.Module | tuple[nn.Module, nn.Module]:
        return self.head if self.head_dist is None else (self.head, self.head_dist)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        pools = {None: self.config.pool, "token": "token", "avg": "mean", "mean": "mean", "": "none", "none": "none"}
        pool = pools.get(global_pool)
        if pool is None:
            raise ValueError(f"global_pool is {global_pool!r}; expected 'token', 'avg' or '', for none.")
        self.config = replace(self.config, num_classes=num_classes, pool=pool)
        self.num_classes, self.pool = num_classes, pool
        for name in ("head",) if self.head_dist is None else ("head", "head_dist"):
            setattr(self, name, self._classifier(num_classes).to(next(self.blocks.parameters())).train(self.training))

    def set_input_size(self, img_size: int | tuple[int, int] | None = None, patch_size: int | None = None) -> None:
        """Resample learned positions for a size. (Images of another size can be classified without this.)"""
        if patch_size is not None and patch_size != self.config.patch_size:
            raise ValueError(f"patch_size is {patch_size}; expected {self.config.patch_size}: patches keep their size.")
        if img_size is None:
            return
        size = (img_size, img_size) if isinstance(img_size, int) else (img_size[0], img_size[1])
        if self.pos_embed is not None:  # before the grid that they belong to is replaced
            positions = self._positions(self.pos_embed, self.patch_embed.grid(*size)).detach().clone()
            self.pos_embed = nn.Parameter(positions, requires_grad=self.pos_embed.requires_grad)
        self.config = replace(self.config, image_size=size)
        self.patch_embed.set_image_size(size)

    def set_distilled_training(self, enable: bool = True) -> None:
        self.distilled_training = enable

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Regular expressions that assign parameters to layers, for layer-wise learning rates."""
        blocks: Any = r"^blocks\.(\d+)" if coarse else [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]
        return {"stem": r"^cls_token|^dist_token|^pos_embed|^patch_embed", "blocks": blocks}

    def _embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        if not torch.jit.is_scripting():  # noqa: SIM102
            if self.piece is not None:
                return embedded_band(self, x, self.piece)
        x, grid = self.patch_embed(x)
        tokens: list[Tensor] = []
        if self.cls_token is not None:
            tokens.append(self.cls_token.expand(x.shape[0], -1, -1))
        if self.dist_token is not None:
            tokens.append(self.dist_token.expand(x.shape[0], -1, -1))
        tokens.append(x)
        if len(tokens) > 1:
            x = torch.cat(tokens, 1)
        if self.pos_embed is not None:
            x = x + self._positions(self.pos_embed, grid)
        return self.pos_drop(x), grid

    def _positions(self, positions: Tensor, grid: tuple[int, int]) -> Tensor:
        return fit_positions(positions, self.num_prefix_tokens, self.patch_embed.grid_size, grid)

    def _block_indices(self, indices: int | Sequence[int] | None) -> list[int]:
        depth = len(self.blocks)
        if indices is None:
            return list(range(depth))
        if isinstance(indices, int):
            if not 0 < indices <= depth:
                raise ValueError(f"indices is {indices}; expected 1 to {depth}: so many of the last blocks.")
            return list(range(depth - indices, depth))
        wanted = [i + depth if i < 0 else i for i in indices]
        if not wanted or not all(0 <= i < depth for i in wanted):
            raise ValueError(f"indices is {list(indices)}; expected numbers of blocks, {-depth} to {depth - 1}.")
        return wanted

    def _classifier(self, num_classes: int) -> nn.Module:
        if not num_classes:
            return nn.Identity()
        head = nn.Linear(self.config.dim, num_classes)
        nn.init.trunc_normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
        return head

    def _init_weights(self) -> None:
        as_deit = self.config.init == "deit"
        # Positions are as large as embedded patches: with DeiT's 0.02, learning to tell them apart takes long.
        for token, std in ((self.cls_token, 0.02), (self.dist_token, 0.02), (self.pos_embed, 0.02 if as_deit else 1.0)):
            if token is not None:
                nn.init.trunc_normal_(token, std=std, a=-2 * std, b=2 * std)
        for block in self.blocks:
            if isinstance(block.mlp, Mlp):
                for linear in (block.mlp.fc1, block.mlp.fc2):
                    (_small if as_deit else nn.init.xavier_uniform_)(linear.weight)
                    nn.init.zeros_(linear.bias)
            attention = block.attn
            if as_deit and isinstance(attention, LionAttention) and not attention.variant.state_space_init:
                for linear in (attention.in_proj, attention.out_proj):
                    _small(linear.weight)  # biases stay: the decays begin by them


def _small(weight: Tensor) -> Tensor:
    return nn.init.trunc_normal_(weight, std=0.02, a=-2.0, b=2.0)


@torch.fx.wrap  # one node of a traced graph: it asks for sizes
def fit_positions(positions: Tensor, prefix: int, own: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Learned positions [1, tokens, dim] of one grid, resampled for another. If their number does not fit their own
    grid, as in a checkpoint of another size, they are taken for those of a square."""
    patches = positions.shape[1] - prefix
    if own[0] * own[1] != patches:
        side = int(math.sqrt(patches))
        own = (side, side)
    for_all_sizes = False  # a graph exported for all sizes cannot ask for this one
    if not torch.jit.is_scripting():
        for_all_sizes = torch.compiler.is_exporting()
    if not for_all_sizes and own == grid:
        return positions
    known = positions[0, prefix:]
    known = known if known.dtype == torch.float64 else known.float()
    rows = cubic(own[0], grid[0], known) @ known.reshape(own[0], -1)  # [height, own width x dim]
    columns = cubic(own[1], grid[1], known).expand(grid[0], -1, -1)
    maps = torch.bmm(columns, rows.unflatten(1, [own[1], -1]))  # a broadcast product would ask for sizes
    return torch.cat([positions[:, :prefix], maps.flatten(0, 1)[None].to(positions.dtype)], 1)


def cubic(own: int, new: int, like: Tensor) -> Tensor:
    """[new, own]: bicubic interpolation with antialiasing along one side, as F.interpolate has it. (In torch 2.13 that
    is wrong where the result is one wide and not one high; and ONNX's has other weights.)"""
    place = torch.arange(new, dtype=like.dtype, device=like.device)
    step = own / torch.ones_like(place).sum()  # a tensor, as sizes may be symbols
    middle = torch.arange(own, dtype=like.dtype, device=like.device) + 0.5
    x = ((middle - step * (place[:, None] + 0.5)) / step.clamp(min=1)).abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, -0.5 * (((x - 5) * x + 8) * x - 4)
    weights = torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
    return weights / weights.sum(1, keepdim=True)


class Block(nn.Module):
    def __init__(self, config: VisionConfig, direction: Direction, drop_path: float):
        super().__init__()
        dim = config.dim
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = make_image_layer(config, direction)
        self.drop_path = DropPath(drop_path)
        with_mlp = config.mlp_ratio > 0
        self.norm2 = nn.LayerNorm(dim, eps=1e-6) if with_mlp else None
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio), config.dropout) if with_mlp else None

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid=grid))
        if self.mlp is not None and self.norm2 is not None:
            x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x


class ImageAttention(Scriptable, LionAttention):
    """LionAttention, for models that TorchScript compiles."""

    def to_export(self) -> nn.Module:
        # The delta rule's scan is a loop in the graph, which TorchScript does not know.
        return copy.copy(self).set_form("full") if self.variant.delta else self


def make_image_layer(config: VisionConfig, direction: Direction) -> nn.Module:
    if config.variant in BASELINES:
        return BASELINES[config.variant](config.dim, direction)
    options = {"double_diagonal": config.double_diagonal, "direction": direction, "orders": config.orders or None}
    return make_layer(config, ImageAttention, **options, order_norm=config.order_norm)


class DropPath(nn.Module):
    """Stochastic depth: in training, some examples skip a block, and its output is scaled up for the others."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.probability:
            return x
        keep = 1 - self.probability
        return x * (x.new_empty([x.shape[0]] + [1] * (x.dim() - 1)).bernoulli_(keep) / keep)

    def extra_repr(self) -> str:
        return f"{self.probability:.3f}"

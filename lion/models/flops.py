"""FLOPs of an image model's forward pass, part by part, and its parameters; from its config alone.

A multiply-add counts as two. lion/ops/flops.py says what counts and what does not.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from lion.models.baselines import Hydra, SelectiveScan
from lion.models.patches import STEMS
from lion.models.vision import Block, VisionConfig, VisionModel
from lion.nn.layers import LionAttention, directions
from lion.ops.checks import Direction, one_of
from lion.ops.flops import BETWEEN, FORMS, SOFTMAX, Attention, flops

Size = int | tuple[int, int] | None  # of an image, in pixels; None: the config's


def model_flops(config: VisionConfig, image_size: Size = None, form: str = "scan") -> dict[str, int]:
    """FLOPs for one image, by part. `form` is "full", "scan" or "rnn"; softmax has one form."""
    one_of("form", form, FORMS)
    patches, tokens = _patches(config, image_size), tokens_of(config, image_size)
    blocks = [_block(config, direction) for direction in directions(config.direction, config.depth)]
    mixing = {block: sum(flops(call._replace(tokens=tokens), form) for call in block.calls) for block in set(blocks)}
    classified = tokens if config.pool == "none" else 1
    heads = 1 + config.distillation_token
    return {
        "patch embedding": patches * _per_patch(config),
        "positions": _resampling(config, image_size),
        "projections": tokens * sum(block.projections for block in blocks),
        "token mixing": sum(mixing[block] for block in blocks),
        "MLPs": 4 * tokens * config.depth * config.dim * int(config.dim * config.mlp_ratio),
        "head": 2 * classified * heads * config.dim * config.num_classes,
    }


def tokens_of(config: VisionConfig, image_size: Size = None) -> int:
    return _patches(config, image_size) + config.class_token + config.distillation_token


def parameters_of(config: VisionConfig) -> int:
    """The number of a model's parameters."""
    blocks = sum(_block(config, direction).parameters for direction in directions(config.direction, config.depth))
    around = replace(config, depth=0, variant="softmax", orders=(), features=None, decay=None)
    return _parameters_around(around) + blocks


def _patches(config: VisionConfig, image_size: Size) -> int:
    return math.prod(_grid(config, image_size))


def _grid(config: VisionConfig, image_size: Size) -> tuple[int, int]:
    """The rows and columns of patches."""
    size = config.image_size if image_size is None else image_size
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"image_size is {size}; expected at least 1 pixel each way.")
    return -(-height // config.patch_size), -(-width // config.patch_size)


def _resampling(config: VisionConfig, image_size: Size) -> int:
    """FLOPs of fitting learned positions to another grid: rows first, then columns."""
    own, (rows, columns) = _grid(config, None), _grid(config, image_size)
    if config.positions != "learned" or own == (rows, columns):
        return 0
    return 2 * config.dim * rows * own[1] * (own[0] + columns)


def _per_patch(config: VisionConfig) -> int:
    """FLOPs of embedding a patch."""
    with torch.device("meta"):
        stem = STEMS[config.stem](config)
    total, side = 0, config.patch_size  # the side of a patch in positions of a convolution's output
    for conv in (x for x in stem.modules() if isinstance(x, nn.Conv2d)):
        side //= conv.stride[0]
        total += 2 * side**2 * conv.weight.numel()
    return total


class Costs(NamedTuple):
    """What a block costs. All of a model's blocks with one direction are alike."""

    parameters: int
    projections: int  # FLOPs per token
    calls: tuple[Attention, ...]  # with the tokens left open


@functools.cache
def _block(config: VisionConfig, direction: Direction) -> Costs:
    with torch.device("meta"):  # no memory for the weights, no numbers
        block = Block(config, direction, 0.0)
        return Costs(_count(block), _projections(block.attn), tuple(_calls(block.attn)))


@functools.cache
def _parameters_around(config: VisionConfig) -> int:
    """Parameters outside the blocks."""
    return _count(VisionModel(config))


def _count(module: nn.Module) -> int:
    return sum(x.numel() for x in module.parameters())


def _projections(layer: nn.Module) -> int:
    """FLOPs per token of linear layers, short convolutions and random features."""
    total = 0
    for module in layer.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            total += 2 * module.weight.numel()
        if isinstance(module, LionAttention) and "directions" in dict(module.features.named_buffers()):
            total += 2 * (module.columns["q"] + module.columns["k"]) * len(module.features.get_buffer("directions"))
    return total


def _calls(layer: nn.Module) -> list[Attention]:
    found = [of(module) for module in layer.modules() for kind, of in CALLS.items() if isinstance(module, kind)]
    if not found:
        raise ValueError(f"the FLOPs of a {type(layer).__name__} are not known; expected a row for it in CALLS.")
    return [call for calls in found for call in calls]


def _of_layer(layer: LionAttention) -> list[Attention]:
    variant = layer.variant
    call = Attention(
        tokens=0,
        heads=layer.heads,
        D=layer.features.channels,
        V=layer.value_channels,
        decay=_decay(layer),
        ways=2 if layer.direction == "both" else 1,
        orders=len(layer.order_names or ("as they come",)),
        with_den=variant.norm != "none",
        self_weight=layer.double_diagonal or layer.bonus is not None,
    )
    if variant.norm == "unmasked":
        return [call, call._replace(V=0, decay="none", self_weight=False)]
    return [call]


def _decay(layer: LionAttention) -> str:
    variant = layer.variant
    for there, decay in ((variant.softmax, SOFTMAX), (variant.delta, "delta"), (variant.decay_between, BETWEEN)):
        if there:
            return decay
    log_decay = layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay
    if isinstance(log_decay, tuple):  # forward and reverse, of one kind
        log_decay = log_decay[0]
    return "none" if log_decay is None else "diagonal" if log_decay.dim() in (2, 4) else "scalar"


def _of_hydra(layer: Hydra) -> list[Attention]:
    inner, state, *_ = layer.parts
    return [Attention(0, layer.heads, state, inner // layer.heads, "scalar", ways=1)] * len(layer.ways)


def _of_selective_scan(scan: SelectiveScan) -> list[Attention]:
    _, state, _ = scan.columns
    return [Attention(0, scan.skip.numel(), state, 1, "diagonal", ways=1)]


# How a module calls `lion.attention`.
CALLS: dict[type[nn.Module], Callable[[Any], list[Attention]]] = {
    LionAttention: _of_layer,
    Hydra: _of_hydra,
    SelectiveScan: _of_selective_scan,
}

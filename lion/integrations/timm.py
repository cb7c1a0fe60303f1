"""timm: lion's models by name, and linear attention for timm's vision transformers.

Importing this registers `lion.models.registry.MODELS`: `timm.create_model("lion_s_tiny_patch16_224", num_classes=10)`.
`convert` changes the attention of a model that is there already, and keeps its weights. `deit_teacher` makes the
network that DeiT learned from.

timm imports torchvision. Where that fails with "operator torchvision::nms does not exist", it was built for another
torch than the one installed; timm can be used all the same once this module has been imported.
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lion.legacy import current
from lion.models.blocks import copy_qkv, no_weights
from lion.models.patches import PatchEmbed
from lion.models.registry import MODELS, create_model
from lion.models.scripting import Scriptable
from lion.models.vision import DropPath, VisionConfig, VisionModel, fit_positions
from lion.nn.layers import LionAttention, directions
from lion.ops.checks import Norm, one_of
from lion.optional import need_timm

need_timm()

import timm  # noqa: E402
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD  # noqa: E402
from timm.models import (  # noqa: E402
    build_model_with_cfg,
    generate_default_cfgs,
    is_model,
    model_entrypoint,
    register_model,
    register_notrace_module,
    resolve_pretrained_cfg,
)
from timm.models.vision_transformer import Attention, VisionTransformer  # noqa: E402

__all__ = ["convert", "deit_teacher"]  # timm adds the models

TEACHER = "regnety_160.deit_in1k"

FIELDS = {  # of VisionConfig, by timm's names of them; the others have one name
    "img_size": "image_size",
    "in_chans": "in_channels",
    "embed_dim": "dim",
    "num_heads": "heads",
    "global_pool": "pool",
    "pos_embed": "positions",
    "drop_rate": "dropout",
    "drop_path_rate": "drop_path",
}
FIELDS |= {field.name: field.name for field in fields(VisionConfig) if field.name not in FIELDS.values()}
VALUES = {"global_pool": {"avg": "mean", "": "none"}, "pos_embed": {"learn": "learned", "": "none"}}  # by timm's


def _default_cfg(config: VisionConfig) -> dict[str, Any]:
    return {
        "url": "",
        "num_classes": config.num_classes,
        "input_size": (config.in_channels, *config.image_size),
        "pool_size": None,
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj",
        "classifier": ("head", "head_dist") if config.distillation_token else "head",
    }


# Under this name timm's registry looks for it.
default_cfgs = generate_default_cfgs({name: _default_cfg(config) for name, config in MODELS.items()})


def _entrypoint(name: str) -> Callable[..., nn.Module]:
    """What timm calls to make a model: a function of the model's name."""

    def make(pretrained: bool = False, **options: Any) -> nn.Module:
        if pretrained:
            _check_weights(name, options.get("pretrained_cfg"), options.get("pretrained_cfg_overlay"))
        options = current(options, FIELDS, warn=True)
        own = {"variant": options.pop("variant")} if "variant" in options else {}  # build_model_with_cfg has one too
        features = {"out_indices": options.pop("out_indices", 3), "feature_cls": "getter"}
        return build_model_with_cfg(
            partial(_make, name, **own),
            name,
            pretrained,
            pretrained_filter_fn=_fit_positions,
            feature_cfg=features,
            **options,
        )

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name} of lion.models.registry, by timm's names of its config's fields."
    return make


def _make(name: str, *, device: Any = None, dtype: torch.dtype | None = None, **options: Any) -> nn.Module:
    changes = {}
    for option, value in options.items():
        try:
            one_of("argument", option, FIELDS)
        except ValueError as unknown:
            raise TypeError(str(unknown)) from None  # as Python's own, which timm's callers expect
        if option == "img_size" and isinstance(value, int):
            value = (value, value)
        elif option in VALUES:
            value = VALUES[option].get(value, value)
        changes[FIELDS[option]] = tuple(value) if isinstance(value, list) else value
    with contextlib.nullcontext() if device is None else torch.device(device):
        return create_model(name, **changes).to(dtype=dtype)


def _check_weights(name: str, cfg: Any, overlay: dict[str, Any] | None) -> None:
    found = resolve_pretrained_cfg(name, pretrained_cfg=cfg, pretrained_cfg_overlay=overlay)
    if not found.has_weights and not found.state_dict:
        raise ValueError(
            f"pretrained is True, but there are no pretrained weights of {name}; expected pretrained=False, with "
            "checkpoint_path=... for a file of yours, or pretrained_cfg_overlay={'file': ...}."
        )


def _fit_positions(state: dict[str, Tensor], model: VisionModel) -> dict[str, Tensor]:
    """A checkpoint's positions, resampled if they are for images of another size."""
    positions = state.get("pos_embed")
    if positions is None or model.pos_embed is None or positions.shape == model.pos_embed.shape:
        return state
    grid = model.patch_embed.grid_size
    return {**state, "pos_embed": fit_positions(positions, model.num_prefix_tokens, grid, grid)}


def _register(name: str) -> None:
    if not is_model(name):
        globals()[name] = register_model(_entrypoint(name))
    elif model_entrypoint(name).__module__ != __name__:
        warnings.warn(f"{name} is a model of timm's own; lion.models.registry.create_model makes ours.", stacklevel=2)


for _name in MODELS:
    _register(_name)
for _module in (PatchEmbed, DropPath, LionAttention, Scriptable):
    register_notrace_module(_module)  # they ask for sizes: each is a single node of torch.fx's graphs


def deit_teacher() -> nn.Module:
    """The RegNetY-16GF that DeiT learned from, with its authors' weights for ImageNet, which timm has from the hub. For
    `--distill.teacher lion.integrations.timm:deit_teacher`: ImageNet as lion.data normalises it."""
    try:
        return timm.create_model(TEACHER, pretrained=True)
    except OSError as problem:
        raise OSError(
            f"the teacher is timm's {TEACHER}, and its weights are neither here nor to be had ({problem}); expected a "
            "connection to the Hugging Face hub for the first time, or another teacher: --distill.teacher RUN"
        ) from problem


def convert(
    vit: VisionTransformer,
    variant: str = "lion_s",
    *,
    orders: Sequence[str] = (),
    features: str | None = None,
    decay: str | None = None,
    norm: Norm | None = None,
    direction: str = "both",
) -> VisionTransformer:
    """Put LionAttention in the place of every attention of a timm VisionTransformer, and return that same model.

    Queries, keys, values and the projection of the output keep their weights; as "softmax" the model computes what it
    did before. (Where all heads share their keys, as in Mamba, only values and output carry over; HGRN-2 has no keys
    to keep.) The rest of a variant, as its decays, is new: train the model before it is used.

    Args:
        vit: a VisionTransformer of timm's, DeiT and the like included; positions, MLPs and the rest stay as they are.
        variant, features, decay, norm: of LionAttention.
        orders: names of paths through the patches (lion.nn.orders); images may have any shape the model takes.
        direction: "both", "forward", "reverse", or "alternating" by block.
    """
    if not isinstance(vit, VisionTransformer):
        raise TypeError(f"the model is a {type(vit).__name__}; expected a VisionTransformer of timm's.")
    if orders and not isinstance(vit.patch_drop, nn.Identity):
        raise ValueError("orders need all patches of an image; expected a model with patch_drop_rate=0.")
    patches = PatchGrid(vit.num_prefix_tokens) if orders else None
    options: dict[str, Any] = {"orders": orders or None, "features": features, "decay": decay, "norm": norm}
    layers: list[tuple[nn.Module, str, BlockAttention]] = []
    for i, (block, way) in enumerate(zip(vit.blocks, directions(direction, len(vit.blocks)), strict=True)):
        attentions = {name: module for name, module in block.named_modules() if type(module) is Attention}
        if not attentions:
            raise ValueError(f"blocks.{i} is a {type(block).__name__}; expected one with timm's Attention in it.")
        for name, attention in attentions.items():
            _check_attention(f"blocks.{i}.{name}", attention)
            bias = attention.qkv.bias is not None or attention.proj.bias is not None
            layer = BlockAttention(
                attention.qkv.in_features, attention.num_heads, variant, direction=way, bias=bias, **options
            )
            layer.take_over(attention, patches)
            layers.append((block, name, layer))
    for block, name, layer in layers:  # only now, when nothing can fail any more
        block.set_submodule(name, layer)
    if patches is not None:
        vit.patch_embed.register_forward_pre_hook(patches)
    vit.no_weight_decay = partial(set, vit.no_weight_decay() | no_weights(vit))  # timm's optimizers ask for these
    return vit


class BlockAttention(LionAttention):
    """LionAttention as timm's blocks call it."""

    patches: "PatchGrid | None"
    proj_drop: nn.Module

    def forward(  # type: ignore[override]
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if attn_mask is not None:
            raise ValueError("attn_mask is given; expected None: linear attention has no scores to add it to.")
        if is_causal and self.direction != "forward":
            raise ValueError(
                f"is_causal is True, but direction is {self.direction!r}; expected a model converted with 'forward'."
            )
        grid = None if self.patches is None else self.patches.of(x)
        return self.proj_drop(super().forward(x, grid=grid))

    def __prepare_scriptable__(self) -> nn.Module:
        raise TypeError(
            "the model is a converted VisionTransformer of timm's; torch.jit.script expected one of lion's own, as "
            "timm.create_model('lion_s_tiny_patch16_224'). torch.export.export takes both."
        )

    @torch.no_grad()
    def take_over(self, attention: Attention, patches: "PatchGrid | None") -> None:
        """Keep the weights, the dropout, the dtype and the device."""
        self.patches, self.proj_drop = patches, attention.proj_drop
        self.to(attention.qkv.weight)
        self.train(attention.training)
        for parameter in ("weight", "bias") if self.in_proj.bias is not None else ("weight",):
            copy_qkv(self, parameter, _parameter(attention.qkv, parameter).chunk(3))
            getattr(self.out_proj, parameter).copy_(_parameter(attention.proj, parameter))


class PatchGrid:
    """Height and width of images, in patches, noted as they enter: timm's blocks see tokens only.

    They are kept by the number of patches, because a recomputed block may run after other images have entered.
    """

    def __init__(self, prefix: int):
        self.prefix = prefix  # class tokens and the like
        self.sizes: dict[int, tuple[int, int]] = {}

    def __call__(self, patch_embed: nn.Module, inputs: tuple[Tensor]) -> None:
        """A forward pre-hook of patch_embed."""
        height, width = patch_embed.dynamic_feat_size(inputs[0].shape[-2:])  # type: ignore[operator]
        self.sizes[height * width] = height, width

    def of(self, x: Tensor) -> tuple[int, int]:
        patches = x.shape[1] - self.prefix
        if patches not in self.sizes:
            raise ValueError(f"there are {patches} patches, but no image of so many has passed through patch_embed.")
        return self.sizes[patches]


def _check_attention(where: str, attention: Attention) -> None:
    dim = attention.qkv.in_features
    cannot_keep = {
        "qk_norm": not isinstance(attention.q_norm, nn.Identity) or not isinstance(attention.k_norm, nn.Identity),
        "scale_attn_norm": not isinstance(attention.norm, nn.Identity),
        "a gate": getattr(attention, "gate", None) is not None,
        "attn_drop_rate": attention.attn_drop.p > 0,
        "heads that do not add up to its dim": attention.proj.weight.shape != (dim, dim),
    }
    for what, has in cannot_keep.items():
        if has:
            raise ValueError(f"{where} has {what}, which LionAttention does not; expected a model without.")


def _parameter(linear: nn.Linear, name: str) -> Tensor:
    """A weight or a bias; a bias that is not there is 0."""
    found: Tensor | None = getattr(linear, name)
    return linear.weight.new_zeros(linear.out_features) if found is None else found

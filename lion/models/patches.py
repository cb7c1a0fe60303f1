"""Patches of images as tokens."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from lion.models.vision import VisionConfig

NARROWEST = 32  # channels of a convolution


def patch_stem(config: "VisionConfig") -> nn.Module:
    p = config.patch_size
    proj = nn.Conv2d(config.in_channels, config.dim, p, p)
    nn.init.trunc_normal_(proj.weight, std=(config.in_channels * p * p) ** -0.5)
    nn.init.zeros_(proj.bias)  # type: ignore[arg-type]
    return proj


def conv_stem(config: "VisionConfig") -> nn.Module:
    """Two convolutions at every size from the image's to the patches', and a projection. Channels double where sizes
    halve. For large patches the first is half the image's size: most of the time would go into a whole one."""
    halvings = config.patch_size.bit_length() - 1
    sizes = range(1 if halvings > 2 else 0, halvings + 1)  # log2 of the image's to this
    parts: list[nn.Module] = []
    before = config.in_channels
    for i in sizes:
        width = max(config.dim >> (halvings - i), NARROWEST)
        parts += [ConvNorm(before, width, stride=2 if i else 1), Residual(ConvNorm(width, width))]
        before = width
    return nn.Sequential(*parts, nn.Conv2d(before, config.dim, 1))


class ConvNorm(nn.Sequential):
    def __init__(self, before: int, width: int, stride: int = 1):
        conv = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        super().__init__(conv, nn.BatchNorm2d(width), nn.GELU())


class Residual(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


STEMS: dict[str, Callable[["VisionConfig"], nn.Module]] = {"patch": patch_stem, "conv": conv_stem}


class PatchEmbed(nn.Module):
    """Patches as tokens, row by row. Zeros fill up incomplete patches, below and to the right."""

    def __init__(self, config: "VisionConfig"):
        super().__init__()
        p = config.patch_size
        self.patch_size = (p, p)
        self.in_channels = config.in_channels
        self.proj = STEMS[config.stem](config)
        self.set_image_size(config.image_size)

    def set_image_size(self, size: tuple[int, int]) -> None:
        self.img_size = size
        self.grid_size = self.grid(*size)
        self.num_patches = math.prod(self.grid_size)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        if not torch.jit.is_scripting():
            self._check(x)
        height, width = x.shape[2], x.shape[3]
        rows, columns = self.grid(height, width)
        p, q = self.patch_size
        x = F.pad(x, [0, columns * q - width, 0, rows * p - height])
        return self.proj(x).flatten(2).transpose(1, 2), (rows, columns)

    def _check(self, x: Tensor) -> None:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"the images have shape {tuple(x.shape)}; expected [B, {self.in_channels}, height, width]."
            )

    def grid(self, height: int, width: int) -> tuple[int, int]:
        p, q = self.patch_size
        return (height + p - 1) // p, (width + q - 1) // q  # not -(-height // p): ONNX divides towards 0

    def feat_ratio(self, as_scalar: bool = True) -> int | tuple[int, int]:
        return self.patch_size[0] if as_scalar else self.patch_size

"""Augmentation of training images, a pure function of (seed, epoch, index); mixup and cutmix of batches."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lion.configs import check
from lion.limits import PixelsOrAll, Share, Weight
from lion.optional import need_timm

AREA, ASPECT = (0.02, 1 / 3), (0.3, 1 / 0.3)  # of an erased rectangle: share of the image, height / width
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Augment:
    """Random changes, in this order. For colours, a policy of timm may take the place of the moves."""

    pad_crop: PixelsOrAll = 0  # pixels of padding on every side, before a crop of the image's size
    padding: Literal["zero", "reflect"] = "zero"  # what the padding is filled with: black, or the mirrored image
    flip: bool = False  # left to right, half of the time
    shift: PixelsOrAll = 0  # largest shift in pixels, each way; black moves in
    erase: Share = 0.0  # probability that a rectangle becomes the mean colour
    timm: str | None = None  # "rand-m9-mstd0.5-inc1" and erase=0.25 are DeiT's: with resized crops, flips and jitter

    def __post_init__(self) -> None:
        check(self)
        if self.timm is not None and (self.pad_crop or self.flip or self.shift):
            raise ValueError(
                f"timm is {self.timm!r}, with pad_crop, flip or shift; expected none of them: timm crops and flips."
            )

    def check_fits(self, height: int, width: int) -> None:
        for name in ("pad_crop", "shift"):
            if getattr(self, name) >= min(height, width):
                raise ValueError(f"{name} is {getattr(self, name)}; expected less than the images, {height} x {width}.")

    def move(self, pixels: Tensor, numbers: np.ndarray) -> Tensor:
        """Crop, flip and shift uint8 images [B, C, H, W], by the uniform numbers `draws(...)` [B, 10]."""
        if not (self.pad_crop or self.flip or self.shift):
            return pixels
        B, C, H, W = pixels.shape
        crop_y, crop_x, flip, shift_y, shift_x = numbers.T[:5]
        flip = (flip < 0.5) & self.flip
        rows, rows_in = self._sources(H, crop_y, np.zeros_like(flip), shift_y)
        columns, columns_in = self._sources(W, crop_x, flip, shift_x)
        places = torch.from_numpy((rows[:, :, None] * W + columns[:, None, :]).reshape(B, 1, H * W))
        inside = torch.from_numpy(rows_in[:, :, None] & columns_in[:, None, :])
        moved = pixels.flatten(2).gather(2, places.expand(B, C, H * W)).view(B, C, H, W)
        return moved * inside[:, None]

    def _sources(
        self, length: int, crop: np.ndarray, flip: np.ndarray, shift: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The source of each pixel along one axis [B, length], and whether it is inside of the image."""
        last = length - 1
        place = np.arange(length) - _within(shift, self.shift)[:, None]
        inside = (place >= 0) & (place <= last)
        place = np.where(flip[:, None], last - place, place)
        place = place + _within(crop, self.pad_crop)[:, None]
        if self.padding == "zero":
            inside = inside & (place >= 0) & (place <= last)
        else:
            place = last - np.abs(last - np.abs(place))
        return place.clip(0, last), inside

    def cover(self, images: Tensor, numbers: np.ndarray) -> Tensor:
        """Erase rectangles of normalised images [B, C, H, W], in place: 0 is the mean colour."""
        if not self.erase:
            return images
        H, W = images.shape[-2:]
        chance, area, aspect, top, left = numbers.T[5:]
        area = H * W * (AREA[0] + (AREA[1] - AREA[0]) * area)
        aspect = ASPECT[0] * (ASPECT[1] / ASPECT[0]) ** aspect
        height = np.sqrt(area * aspect).round().clip(1, H)[:, None]
        width = np.sqrt(area / aspect).round().clip(1, W)[:, None]
        top, left = np.floor(top[:, None] * (H - height + 1)), np.floor(left[:, None] * (W - width + 1))
        rows = (np.arange(H) >= top) & (np.arange(H) < top + height) & (chance[:, None] < self.erase)
        columns = (np.arange(W) >= left) & (np.arange(W) < left + width)
        return images.masked_fill_(torch.from_numpy(rows[:, None, :, None] & columns[:, None, None, :]), 0)


def _within(uniform: np.ndarray, most: int) -> np.ndarray:
    return np.floor(uniform * (2 * most + 1)).astype(np.int64) - most


def scatter(seed: int, epochs: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """64 random bits for every (epoch, index), [B]."""
    # splitmix64's last step turns neighbouring counters into unrelated numbers. Hashing seed, epoch and index one after
    # the other, gives every image its own numbers for a whole batch at once, without the state of a generator.
    state = _mix(np.array([seed % 2**64], np.uint64))
    for counter in (epochs, indices):
        state = _mix(state + counter.astype(np.uint64))
    return state


def draws(seed: int, epochs: np.ndarray, indices: np.ndarray, count: int = 10) -> np.ndarray:
    """Uniform numbers in [0, 1) for every (epoch, index), [B, count]."""
    bits = _mix(scatter(seed, epochs, indices)[:, None] + np.arange(count, dtype=np.uint64) * GOLDEN)
    return (bits >> np.uint64(11)) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The global generators of Python, numpy and torch (CPU) start from `seed`, and are restored at the end."""
    # timm draws from numpy's old global generator.
    before = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.default_generator.set_state(before[2])


def timm_transform(
    augment: Augment, size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> Callable[[Any], Tensor]:
    """timm's augmentation as DeiT uses it: from a pillow image to a normalised tensor [3, size, size]."""
    create_transform = need_timm("timm.data").create_transform
    try:
        return create_transform(
            size,
            is_training=True,
            auto_augment=augment.timm,
            color_jitter=0.4,  # DeiT's; timm leaves it out beside RandAugment
            interpolation="bicubic",
            re_prob=augment.erase,
            re_mode="pixel",
            re_count=1,
            mean=mean,
            std=std,
        )
    except (AssertionError, ValueError, KeyError) as problem:
        raise ValueError(
            f"timm is {augment.timm!r}; expected a policy that timm knows, such as 'rand-m9-mstd0.5-inc1' ({problem})."
        ) from problem


@dataclass(frozen=True)
class Mixup:
    """Mix the images of a batch in pairs (the first with the last, and so on), and their labels alike.

    One weight per batch: mixup adds the two images, cutmix puts a rectangle of one into the other. DeiT has 0.8 and 1.
    """

    mixup: Weight = 0.0  # alpha of the weight's beta distribution; 0 for none
    cutmix: Weight = 0.0  # the same for cutmix
    probability: Share = 1.0  # of mixing at all
    switch_probability: Share = 0.5  # of cutmix, where both are on

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, batch: dict[str, Tensor], seed: int, step: int, num_classes: int) -> dict[str, Tensor]:
        """The batch with mixed images and their "target" probabilities [B, num_classes]; unchanged if both are 0."""
        if not (self.mixup or self.cutmix):
            return batch
        generator = np.random.default_rng((seed % 2**64, step))
        mixes, cuts, y, x = generator.random(4)
        cut = bool(self.cutmix and (not self.mixup or cuts < self.switch_probability))
        alpha = self.cutmix if cut else self.mixup
        images, weight = batch["image"], 1.0
        if alpha and mixes < self.probability:
            weight = float(generator.beta(alpha, alpha))
            if cut:
                images, weight = _cut(images, weight, y, x)
            else:
                images = images.lerp(images.flip(0), 1 - weight)
        targets = F.one_hot(batch["label"], num_classes).float()
        return batch | {"image": images, "target": targets.lerp(targets.flip(0), 1 - weight)}


def _cut(images: Tensor, weight: float, y: float, x: float) -> tuple[Tensor, float]:
    """Paste a rectangle around (y, x), with up to 1 - weight of the image's area; and the weight that results."""
    H, W = images.shape[-2:]
    side = math.sqrt(1 - weight)
    height, width, y, x = int(H * side), int(W * side), int(H * y), int(W * x)
    rows = slice(max(y - height // 2, 0), min(y + height // 2, H))
    columns = slice(max(x - width // 2, 0), min(x + width // 2, W))
    mixed = images.clone()
    mixed[..., rows, columns] = images.flip(0)[..., rows, columns]
    return mixed, 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (H * W)

"""Recipes for images. docs/results.md has what those reached that were run, with the command."""

import functools
from collections.abc import Callable
from dataclasses import replace

from lion.data.augment import Augment, Mixup
from lion.models.registry import MODELS, SIZES, names_without_size
from lion.models.vision import VisionConfig
from lion.train.config import Optim, Run
from lion.train.images import ImageTask


def _model(variant: str, **size) -> VisionConfig:
    """A model of some size with a variant, or with one that ends in _2scan and walks two paths."""
    named = MODELS[f"{variant}_tiny_patch16_224"]
    if not named.mlp_ratio:  # blocks that do an MLP's work too
        size["depth"] *= 2
    return replace(named, **size)


def digits(variant: str) -> Run:
    """1,797 handwritten digits of 8 x 8 pixels, a token for each 2 x 2: half a minute on two cores."""
    size = {"dim": 64, "depth": 4, "heads": 4, "patch_size": 2, "image_size": (8, 8)}
    model = _model(variant, **size, positions="learned", drop_path=0.05)
    task = ImageTask("digits", model=model, smoothing=0.1)
    return Run(task, Optim(lr=5e-3, weight_decay=0.05, warmup=0.1), epochs=30, batch=64, ema=0.99)


def mnist(variant: str) -> Run:
    """MNIST, 28 x 28 pixels in patches of 2 x 2, 196 tokens, small enough for two cores."""
    size = {"dim": 64, "depth": 3, "heads": 8, "patch_size": 2, "image_size": (28, 28)}
    task = ImageTask("mnist", model=_model(variant, **size, positions="learned"), smoothing=0.1)
    return Run(task, Optim(lr=4e-3, warmup=0.1), epochs=5, batch=64, ema=0.995)


def cifar10(variant: str) -> Run:
    """CIFAR-10 in patches of 4 x 4, 64 tokens, small enough for two cores."""
    model = _model(variant, dim=64, depth=4, heads=4, patch_size=4, image_size=(32, 32))
    task = ImageTask("cifar10", model=model, augment=Augment(pad_crop=4, flip=True), smoothing=0.1)
    return Run(task, Optim(lr=3e-3, warmup=0.1), epochs=3, batch=64, ema=0.995)


def cifar100(variant: str) -> Run:
    """CIFAR-100 as in the paper's ablations: the tiny model on images of 224 pixels, DeiT's augmentation."""
    model = MODELS[f"{variant}_tiny_patch16_224"]
    task = ImageTask(
        "cifar100",
        image_size=224,
        model=replace(model, drop_path=0.1),
        augment=Augment(pad_crop=4, flip=True, erase=0.25),
        mixup=Mixup(mixup=0.8, cutmix=1.0),
        smoothing=0.1,
    )
    return Run(task, Optim(lr=1e-3, warmup=0.05), epochs=300, batch=512, ema=0.9999, precision="bfloat16", workers=8)


def imagenet(variant: str, size: str) -> Run:
    """ImageNet as DeiT trains it: 300 epochs, batches of 1,024, AdamW at 1e-3, RandAugment, mixup, cutmix."""
    model = replace(MODELS[f"{variant}_{size}_patch16_224"], drop_path=0.1)
    task = ImageTask(
        "imagenet",
        image_size=224,
        model=model,
        augment=Augment(timm="rand-m9-mstd0.5-inc1", erase=0.25),
        mixup=Mixup(mixup=0.8, cutmix=1.0),
        smoothing=0.1,
    )
    optim = Optim(lr=1e-3, weight_decay=0.05, warmup=5 / 300)
    return Run(task, optim, epochs=300, batch=1024, ema=0.99996, precision="bfloat16", workers=10)


def images() -> Run:
    """Your own folder of images, a subfolder for each class: `lion train images --data PATH`."""
    model = replace(MODELS["lion_s_2scan_tiny_patch16_224"], depth=6, patch_size=8, drop_path=0.05)
    task = ImageTask("folder", image_size=64, model=model, augment=Augment(pad_crop=6, flip=True))
    return Run(task, Optim(lr=1e-3, warmup=0.1), epochs=20, batch=64, ema=0.99)


DIRECTIONS = ("forward", "reverse", "alternating", "both")
ONE_WAY = {"class_token": False, "pool": "mean"}  # for all of them: going forward, a first token sees no other
# The paper's ablations on CIFAR-100, by what they change of LION-S.
ABLATIONS: dict[str, dict] = {
    "fixed_decay": {"decay": "fixed"},  # tab:ablation_lambda
    "vector_decay": {"decay": "selective_diagonal"},
    "softplus_decay": {"decay": "softplus"},
    "with_positions": {"positions": "learned"},
    "double_diagonal": {"double_diagonal": True},
    "identity_features": {"features": "identity", "norm": "none"},
    "elu_features": {"features": "elu_plus_one"},
    "relu_features": {"features": "relu"},
    "sigmoid_features": {"features": "sigmoid"},
    "performer_features": {"features": "performer"},
    "no_norm": {"norm": "none"},
    "norm_unmasked": {"norm": "unmasked"},
}
# tab:ablation_extensive: of LION-LIT, which has no mask
EXTENSIVE: dict[str, dict] = {
    "softmax": {"variant": "softmax", "features": None},
    "softmax_no_positions": {"variant": "softmax", "features": None, "positions": "none"},
    "lit": {},
    "lit_identity": {"features": "identity", "norm": "none"},
    "lit_no_positions": {"positions": "none"},
    "lit_identity_no_positions": {"features": "identity", "norm": "none", "positions": "none"},
}


def _with(run: Run, **model) -> Run:
    assert isinstance(run.task, ImageTask)
    return replace(run, task=replace(run.task, model=replace(run.task.model, **model)))


def ablation(base: Callable[[str], Run], variant: str, changes: dict) -> Run:
    """A model with one thing changed."""
    return _with(base(variant), **changes)


ABOUT = {
    "digits": digits.__doc__ or "",
    "mnist": mnist.__doc__ or "",
    "cifar10": cifar10.__doc__ or "",
    "cifar100": cifar100.__doc__ or "",
    "imagenet": imagenet.__doc__ or "",
    "images": images.__doc__ or "",
    "ablation": "The paper's ablations (tables ablation_lambda, ablation_extensive, forward), at CIFAR-100's size and,"
    " with _cifar10, at one that two cores can train.",
}


def _recipes() -> dict[str, Callable[[], Run]]:
    found: dict[str, Callable[[], Run]] = {"images": images}
    for variant in names_without_size():
        for family in (digits, mnist, cifar10, cifar100):
            found[f"{family.__name__}.{variant}"] = functools.partial(family, variant)
        for size in SIZES:
            found[f"imagenet.{variant}_{size}"] = functools.partial(imagenet, variant, size)
    for base, suffix in ((cifar100, ""), (cifar10, "_cifar10")):
        for direction in DIRECTIONS:
            for variant in ("lion_s", "lion_s_2scan"):
                name = f"ablation.{variant}_{direction}{suffix}"
                found[name] = functools.partial(ablation, base, variant, {"direction": direction, **ONE_WAY})
        for name, changes in ABLATIONS.items():
            found[f"ablation.{name}{suffix}"] = functools.partial(ablation, base, "lion_s", changes)
        for name, changes in EXTENSIVE.items():
            found[f"ablation.{name}{suffix}"] = functools.partial(ablation, base, "lion_lit", changes)
    return dict(sorted(found.items(), key=lambda item: list(ABOUT).index(item[0].split(".")[0])))


RECIPES = _recipes()

"""Recipes for public sets of images. docs/results.md has what those reached that were run, with the command."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lion.data.augment import Augment, Mixup
from lion.models.registry import MODELS, SIZES, names_without_size
from lion.models.vision import VisionConfig
from lion.recipes import register_recipe
from lion.tasks.images import ImageTask
from lion.train.config import Optim, Run
from lion.train.distill import Distill

VARIANTS = names_without_size()


def _model(variant: str, **size) -> VisionConfig:
    """The model of a variant, with other sizes. A name that ends in _2scan has two orders."""
    named = MODELS[f"{variant}_tiny_patch16_224"]
    if not named.mlp_ratio:  # blocks that do an MLP's work too
        size["depth"] *= 2
    return replace(named, **size)


@register_recipe("digits.{variant}", variant=VARIANTS)
def digits(variant: str) -> Run:
    """1,797 handwritten digits of 8 x 8 pixels, a token for each 2 x 2: half a minute on two cores."""
    size = {"dim": 64, "depth": 4, "heads": 4, "patch_size": 2, "image_size": (8, 8)}
    model = _model(variant, **size, positions="learned", drop_path=0.05)
    task = ImageTask("digits", model=model, smoothing=0.1)
    return Run(task, Optim(lr=5e-3, weight_decay=0.05, warmup=0.1), epochs=30, batch=64, ema=0.99)


@register_recipe("mnist.{variant}", variant=VARIANTS)
def mnist(variant: str) -> Run:
    """MNIST, 28 x 28 pixels in patches of 2 x 2, 196 tokens, small enough for two cores."""
    size = {"dim": 64, "depth": 3, "heads": 8, "patch_size": 2, "image_size": (28, 28)}
    task = ImageTask("mnist", model=_model(variant, **size, positions="learned"), smoothing=0.1)
    return Run(task, Optim(lr=4e-3, warmup=0.1), epochs=5, batch=64, ema=0.995)


@register_recipe("cifar10.{variant}", variant=VARIANTS)
def cifar10(variant: str) -> Run:
    """CIFAR-10 in patches of 4 x 4, 64 tokens, small enough for two cores."""
    model = _model(variant, dim=64, depth=4, heads=4, patch_size=4, image_size=(32, 32))
    task = ImageTask("cifar10", model=model, augment=Augment(pad_crop=4, flip=True), smoothing=0.1)
    return Run(task, Optim(lr=3e-3, warmup=0.1), epochs=3, batch=64, ema=0.995)


def _deit(dataset: str, model: VisionConfig, *, batch: int, ema: float, workers: int) -> Run:
    """DeiT's training, on images of 224 pixels: its learning rate follows from the batch and falls to 1e-5, gradients
    are not clipped, and a batch has three copies of every image."""
    lr = 5e-4 * batch / 512
    task = ImageTask(
        dataset,
        image_size=224,
        model=replace(model, drop_path=0.1, init="deit"),
        augment=Augment(timm="rand-m9-mstd0.5-inc1", erase=0.25),
        mixup=Mixup(mixup=0.8, cutmix=1.0),
        smoothing=0.1,
    )
    optim = Optim(lr=lr, weight_decay=0.05, warmup=5 / 300, final=1e-5 / lr, clip=0.0)
    return Run(task, optim, epochs=300, batch=batch, repeats=3, ema=ema, precision="bfloat16", workers=workers)


@register_recipe("cifar100.{variant}", variant=VARIANTS)
def cifar100(variant: str) -> Run:
    """CIFAR-100 as in the paper's ablations: the tiny model on images of 224 pixels, trained as DeiT is on ImageNet."""
    return _deit("cifar100", MODELS[f"{variant}_tiny_patch16_224"], batch=512, ema=0.9999, workers=8)


@register_recipe("imagenet.{variant}_{size}", variant=VARIANTS, size=SIZES)
def imagenet(variant: str, size: str) -> Run:
    """ImageNet as DeiT trains it: 300 epochs, batches of 1,024, AdamW at 1e-3, RandAugment, mixup, cutmix, three copies
    of every image."""
    return _deit("imagenet", MODELS[f"{variant}_{size}_patch16_224"], batch=1024, ema=0.99996, workers=10)


DIRECTIONS = ("forward", "reverse", "alternating", "both")
ONE_WAY = {"class_token": False, "pool": "mean"}  # for all of them: going forward, a first token sees no other
# The paper's ablations on CIFAR-100, by what they change of LION-S.
ABLATIONS: dict[str, dict[str, Any]] = {
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
EXTENSIVE: dict[str, dict[str, Any]] = {
    "softmax_features": {"variant": "softmax", "features": "unit_silu"},  # [1]
    "softmax": {"variant": "softmax", "features": None},
    "softmax_features_no_positions": {"variant": "softmax", "features": "unit_silu", "positions": "none"},  # [3]
    "softmax_no_positions": {"variant": "softmax", "features": None, "positions": "none"},
    "lit": {},
    "lit_identity": {"features": "identity", "norm": "none"},
    "lit_no_positions": {"positions": "none"},
    "lit_identity_no_positions": {"features": "identity", "norm": "none", "positions": "none"},
}


BASES = {"": cifar100, "_cifar10": cifar10}  # of the paper's size, and of one that two cores can train


def _changed(make: Callable[[str], Run], variant: str, changes: dict[str, Any]) -> Run:
    """A recipe whose model has some fields changed."""
    run = make(variant)
    assert isinstance(run.task, ImageTask)
    return replace(run, task=replace(run.task, model=replace(run.task.model, **changes)))


@register_recipe(
    "ablation.{variant}_{direction}{base}", variant=("lion_s", "lion_s_2scan"), direction=DIRECTIONS, base=BASES
)
def ablation_of_direction(variant: str, direction: str, base: str) -> Run:
    """The paper's ablation of directions (table forward), on CIFAR-100; with _cifar10, at laptop scale."""
    return _changed(BASES[base], variant, {"direction": direction, **ONE_WAY})


@register_recipe("ablation.{change}{base}", change=ABLATIONS, base=BASES)
def ablation(change: str, base: str) -> Run:
    """The paper's ablations of LION-S (table ablation_lambda), on CIFAR-100; with _cifar10, at laptop scale."""
    return _changed(BASES[base], "lion_s", ABLATIONS[change])


@register_recipe("ablation.{change}{base}", change=EXTENSIVE, base=BASES)
def ablation_of_lit(change: str, base: str) -> Run:
    """The paper's ablations of LION-LIT (table ablation_extensive), on CIFAR-100; with _cifar10, at laptop scale."""
    return _changed(BASES[base], "lion_lit", EXTENSIVE[change])


TAUGHT = ("lion_lit", "lion_d", "lion_s", "softmax")  # softmax: DeiT itself
DEIT_TEACHER = "lion.integrations.timm:deit_teacher"
CONVOLUTIONS: dict[str, Any] = {"dim": 128, "depth": 0, "stem": "conv", "class_token": False, "pool": "mean"}


def _distilled(run: Run, teacher: str) -> Run:
    """DeiT's distillation: a token of its own learns the teacher's decisions, which are half of the loss."""
    assert isinstance(run.task, ImageTask)
    model = replace(run.task.model, distillation_token=True)
    return replace(run, task=replace(run.task, model=model, distill=Distill("hard", teacher, alpha=0.5)))


@register_recipe("distill.imagenet_{variant}_{size}", variant=TAUGHT, size=SIZES)
def distilled_imagenet(variant: str, size: str) -> Run:
    """DeiT's distillation on ImageNet (the paper's table destill). The teacher is timm's RegNetY-16GF, with weights
    from the hub; its classes are in the order of ImageNet's folders."""
    return _distilled(imagenet(variant, size), DEIT_TEACHER)


@register_recipe("distill.cifar10_teacher")
def cifar10_teacher() -> Run:
    """A convolutional network for CIFAR-10, for distill.cifar10_* to learn from. The paper's teacher is one, trained on
    the student's images; this is one, too: the convolutions that can embed patches, and no block behind them."""
    return _changed(cifar10, "lion_s", CONVOLUTIONS)


@register_recipe("distill.cifar10_{variant}", variant=TAUGHT)
def distilled_cifar10(variant: str) -> Run:
    """DeiT's distillation at laptop scale, on CIFAR-10. First the teacher: `lion train distill.cifar10_teacher`."""
    return _distilled(cifar10(variant), "runs/distill.cifar10_teacher")

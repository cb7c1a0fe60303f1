"""Image models by name: `lion_s_2scan_tiny_patch16_224` and the like."""

from dataclasses import fields, replace
from typing import Any

from torch import nn

from lion.legacy import current
from lion.models.baselines import BASELINES
from lion.models.vision import VisionConfig, VisionModel
from lion.nn.decay import DECAYS, NoDecay
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 192, "heads": 3},
    "small": {"dim": 384, "heads": 6},
    "base": {"dim": 768, "heads": 12},
}
TWO_SCANS = ("snake", "transposed_snake")


def _vision_models() -> dict[str, VisionConfig]:
    found: dict[str, VisionConfig] = {}
    for size, shape in SIZES.items():
        name = f"{{}}_{size}_patch16_224".format
        for variant in VARIANTS:
            config = VisionConfig(variant=variant, **shape, **OWN.get(variant, {}))
            decays = DECAYS[VARIANTS[variant].decay] is not NoDecay
            # Without decays, only learned positions tell the order of tokens.
            config = config if decays else replace(config, positions="learned")
            found[name(variant)] = config
            if decays:
                found[name(f"{variant}_2scan")] = replace(config, orders=TWO_SCANS)
        found[name("deit_distilled")] = replace(found[name("softmax")], distillation_token=True)
        for variant in BASELINES:  # their blocks replace MLPs too: twice as many blocks, without MLPs
            found[name(variant)] = VisionConfig(variant=variant, **shape, depth=24, mlp_ratio=0, **OWN.get(variant, {}))
    return found


VIM = {"positions": "learned", "class_token": False, "pool": "mean"}  # Vim's own class token is in the middle
# Fields that differ for some variants. (The paper's section on vision takes elu + 1 for LION-LIT.)
OWN: dict[str, dict[str, Any]] = {"lion_lit": {"features": "elu_plus_one"}, "vim": VIM}
MODELS: dict[str, VisionConfig] = _vision_models()


def names_without_size() -> list[str]:
    """The models' names without their sizes: lion_s, lion_s_2scan, hydra, ..."""
    ending = f"_{next(iter(SIZES))}_patch16_224"
    return [name.removesuffix(ending) for name in MODELS if name.endswith(ending)]


def model_config(name: str, **changes: Any) -> VisionConfig:
    """The config of a model by name, with some fields changed."""
    one_of("model", name, MODELS)
    known = {field.name for field in fields(VisionConfig)}
    changes = current(changes, known, warn=True)
    for field in changes:
        one_of("field", field, known)
    return replace(MODELS[name], **changes)


def create_model(name: str, **changes: Any) -> nn.Module:
    """A model by name (`lion.MODELS`), with some fields of its config changed: num_classes=10, image_size=(32, 32)."""
    return VisionModel(model_config(name, **changes))

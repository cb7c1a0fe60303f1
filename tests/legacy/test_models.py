"""Models that an earlier version saved, with its outputs beside them: they load, and compute the same."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import lion

HOME = Path(__file__).parent / "models"
SAVED = sorted(path.parent for path in HOME.glob("*/config.json"))


def check(model, folder):
    known = load_file(folder / "outputs.safetensors")
    with torch.no_grad():
        output = model.eval()(known["input"])
    torch.testing.assert_close(getattr(output, "logits", output), known["output"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", SAVED, ids=lambda path: path.name)
def test_saved_models(folder):
    assert '"mixer"' in (folder / "config.json").read_text()
    check(lion.load_model(folder), folder)


@pytest.mark.parametrize("folder", SAVED, ids=lambda path: path.name)
def test_saved_again(folder, tmp_path):
    lion.save_model(lion.load_model(folder), tmp_path / "again")
    assert '"variant"' in (tmp_path / "again" / "config.json").read_text()
    check(lion.load_model(tmp_path / "again"), folder)


@pytest.mark.parametrize("name", ["hf_causal", "hf_masked_lm", "hf_classifier"])
def test_their_module_imports_the_classes(name):
    """The file beside a model of transformers, for processes that have not imported lion."""
    found: dict = {}
    exec((HOME / name / "modeling_lion.py").read_text(), found)
    assert {"LionCausalConfig", "LionConfig"} & found.keys()


def test_converted_model_of_timm():
    from timm.models.vision_transformer import VisionTransformer

    from lion.integrations.timm import convert

    sizes = {"img_size": (12, 8), "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 2.0}
    vit = convert(VisionTransformer(**sizes, num_classes=3), "lion_s", orders=("snake", "transposed_snake"))
    folder = HOME / "timm_converted"
    vit.load_state_dict(load_file(folder / "model.safetensors"))
    check(vit, folder)

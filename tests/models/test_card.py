"""Model cards: the hub reads them, their code runs, and what a person has written stays."""

import pytest
import torch

import lion
from lion.models.card import CARD, FOLDER, card
from lion.models.long_range import LongConfig, LongModel
from lion.models.registry import model_config
from lion.models.saving import load_model, save_model
from lion.models.vision import VisionModel


def vision(**changes):
    sizes = {"dim": 24, "depth": 2, "heads": 3, "image_size": (32, 32), "num_classes": 5}
    return VisionModel(model_config("lion_s_tiny_patch16_224", **sizes | changes))


def text_models():
    hf = pytest.importorskip("lion.integrations.hf")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    encoder = hf.LionConfig("lion_d", intermediate_size=16, **sizes)
    causal = hf.LionCausalConfig(variant="gla", intermediate_size=16, **sizes)
    kinds = [getattr(hf, name) for name in hf.__all__ if name.startswith(("LionFor", "LionModel"))]
    return [kind(causal if kind is hf.LionForCausalLM else encoder) for kind in kinds]


def python_of(text):
    """The code block of a card, with the class that loads the model."""
    return text.split("```python\n")[1].split("```")[0]


def test_the_hub_reads_every_card_and_its_code_loads_the_model(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    long = LongModel(LongConfig(dim=16, depth=1, heads=2, vocab_size=4))
    tasks = {}
    for model in (vision(), vision(num_classes=0), long, *text_models()):
        save_model(model, tmp_path / "model")
        text = (tmp_path / "model" / CARD).read_text()
        names = {}
        exec(python_of(text).replace(FOLDER, str(tmp_path / "model")), names)
        assert type(names["model"]) is type(model)
        data = hub.ModelCard(text).data
        ours = model.__class__.__module__.startswith("lion.models")
        assert data.library_name == ("lion-attention" if ours else "transformers")
        assert {"lion", "linear-attention", model.config.variant} <= set(data.tags)
        assert data.license is None  # it is for who publishes the weights
        assert f"{sum(x.numel() for x in model.parameters()):,}" in text
        tasks[type(model).__name__, getattr(model.config, "num_classes", 0)] = data.pipeline_tag
    assert tasks == {
        ("VisionModel", 5): "image-classification",
        ("VisionModel", 0): "image-feature-extraction",
        ("LongModel", 0): None,
        ("LionModel", 0): "feature-extraction",
        ("LionForMaskedLM", 0): "fill-mask",
        ("LionForSequenceClassification", 0): "text-classification",
        ("LionForTokenClassification", 0): "token-classification",
        ("LionForCausalLM", 0): "text-generation",
    }


SAVERS = [
    (vision, save_model),
    (lambda: text_models()[0], save_model),
    (lambda: text_models()[0], lambda model, folder: model.save_pretrained(folder)),
]


@pytest.mark.parametrize(("make", "save"), SAVERS, ids=["own", "save_model", "save_pretrained"])
def test_a_readme_of_the_user_stays(make, save, tmp_path):
    model, path = make(), tmp_path / CARD
    save(model, tmp_path)
    written = path.read_text()
    model.to(torch.bfloat16)
    save(model, tmp_path)
    assert "| precision | float32 |" in written
    assert "| precision | bfloat16 |" in path.read_text()  # ours is replaced
    edited = written.replace("# license: whoever publishes the weights chooses one, for instance ", "license: ")
    for text in (edited, "my model", ""):
        path.write_text(text)
        save(model, tmp_path)
        assert path.read_text() == text
    assert edited != written


def test_rows_of_the_caller_and_softmax():
    text = card(vision(), {"examples": "10 | pictures\nof cats"})
    assert "## Training\n\n| | |\n|---|---|\n| examples | 10 \\| pictures of cats |\n" in text
    text = card(VisionModel(model_config("softmax_tiny_patch16_224", dim=24, depth=1, heads=3)), {})
    assert "linear" not in text
    assert "An image model with softmax attention." in text
    assert "## Training" not in text


def test_a_damaged_card_is_no_damaged_model(tmp_path):
    save_model(vision(), tmp_path)
    for damage in (b"\xff\xfe", b""):
        (tmp_path / CARD).write_bytes(damage)
        assert isinstance(load_model(tmp_path), VisionModel)
        lion.save_model(vision(), tmp_path)
        assert (tmp_path / CARD).read_bytes() == damage

"""Whoever the umask lets read a file may read what lion writes."""

import os

import pytest
import torch

from lion import files
from lion.models.registry import model_config
from lion.models.saving import save_model
from lion.models.vision import VisionModel


@pytest.fixture(params=["022", "077", "002"])
def allowed(request):
    """Permissions of a file and of a folder under a umask."""
    mask = int(request.param, 8)
    before = os.umask(mask)
    yield 0o666 & ~mask, 0o777 & ~mask
    os.umask(before)


def check(folder, allowed):
    written = [*folder.rglob("*")]
    assert any(path.suffix == ".safetensors" for path in written)
    found = {str(path.relative_to(folder)): oct(path.stat().st_mode & 0o777) for path in written}
    assert found == {str(path.relative_to(folder)): oct(allowed[path.is_dir()]) for path in written}


def test_tensors(tmp_path, allowed):
    files.replace_folder(
        tmp_path / "new", lambda folder: files.write_tensors(folder / "x.safetensors", {"x": torch.ones(3)})
    )
    files.write_tensors(tmp_path / "new" / "x.safetensors", {"x": torch.ones(4)})
    assert files.read_tensors(tmp_path / "new" / "x.safetensors")["x"].equal(torch.ones(4))
    check(tmp_path, allowed)


def test_models(tmp_path, allowed):
    tiny = {"dim": 8, "depth": 1, "heads": 1, "image_size": (16, 16), "num_classes": 2}
    save_model(VisionModel(model_config("lion_s_tiny_patch16_224", **tiny)), tmp_path / "image")
    check(tmp_path, allowed)


def test_models_of_text(tmp_path, allowed):
    pytest.importorskip("transformers")
    from lion.data.tokenizers import ByteTokenizer
    from lion.integrations.hf import LionCausalConfig, LionForCausalLM

    sizes = {"vocab_size": 260, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LionForCausalLM(LionCausalConfig(**sizes))
    save_model(model, tmp_path / "ours")
    ByteTokenizer().save(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "parts", max_shard_size="2KB")
    check(tmp_path, allowed)

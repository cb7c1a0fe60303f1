"""A model comes back as it was saved, or one is told why not."""

import json
import os
import re
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from lion import files
from lion.models import saving
from lion.models.registry import MODELS, model_config
from lion.models.saving import load_model, save_model
from lion.models.vision import VisionModel

SMALL = {"dim": 24, "depth": 2, "heads": 3, "image_size": (32, 48), "num_classes": 5}


def make(name="lion_s_2scan_tiny_patch16_224", **changes):
    return VisionModel(model_config(name, **SMALL | changes))


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and a[name].equal(b[name]) for name in a)


@pytest.mark.parametrize("name", [name for name in MODELS if "_tiny_" in name])
def test_every_model_comes_back(name, tmp_path):
    model = make(name)
    save_model(model, tmp_path / "new" / "folder")
    back = load_model(tmp_path / "new" / "folder")
    assert back.config == model.config
    assert same(back, model)
    assert all(x.requires_grad for x in back.parameters())
    files = sorted(x.name for x in (tmp_path / "new" / "folder").iterdir())
    assert files == ["README.md", "config.json", "model.safetensors"]


def test_outputs_are_the_same_to_the_bit(tmp_path):
    model, images = make().eval(), torch.randn(2, 3, 40, 40)
    save_model(model, tmp_path)
    assert load_model(str(tmp_path)).eval()(images).equal(model(images))


def test_precision_and_given_weights(tmp_path):
    model = make().to(torch.bfloat16)
    save_model(model, tmp_path)
    assert same(load_model(tmp_path), model)
    weights = {name: torch.full_like(x, 0.5) for name, x in model.state_dict().items()}
    save_model(model, tmp_path, weights=weights)
    assert all(x.eq(0.5).all() for x in load_model(tmp_path).state_dict().values())


def test_a_changed_model_is_saved_as_it_is(tmp_path):
    model = make("softmax_tiny_patch16_224", image_size=(32, 32))
    model.reset_classifier(3)
    model.set_input_size((64, 64))
    save_model(model, tmp_path)
    back = load_model(tmp_path)
    assert back.config.num_classes == 3
    assert back.config.image_size == (64, 64)
    assert same(back, model)


def test_strides_and_shared_weights(tmp_path):
    model = make()
    mlps = [block.mlp for block in model.blocks]
    mlps[1].fc1.weight = mlps[0].fc1.weight
    mlps[0].fc2.weight.data = mlps[0].fc2.weight.data.T.contiguous().T
    save_model(model, tmp_path)
    assert same(load_model(tmp_path), model)


def test_config_is_for_people_too(tmp_path):
    save_model(make(), tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    assert plain["kind"] == "vision"
    assert plain["config"]["orders"] == ["snake", "transposed_snake"]
    assert plain["config"]["image_size"] == [32, 48]
    assert plain["lion"]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_save_cut_short_leaves_the_old_model(steps, tmp_path, monkeypatch):
    old, new = make(), make("lion_d_tiny_patch16_224", depth=3)
    save_model(old, tmp_path)
    left = steps

    def replace(*paths):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return real(*paths)

    real = os.replace
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        save_model(new, tmp_path)
    back = load_model(tmp_path)
    assert back.config == old.config
    assert same(back, old)
    monkeypatch.setattr(os, "replace", real)
    save_model(new, tmp_path)
    assert same(load_model(tmp_path), new)


def test_config_of_other_weights_is_not_taken(tmp_path, caplog):
    model = make()
    save_model(model, tmp_path)
    save_model(make(depth=1), tmp_path / "other")
    os.replace(tmp_path / "other" / "config.json", tmp_path / "config.json")
    assert same(load_model(tmp_path), model)
    assert "config.json is not of the weights beside it" in caplog.text


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_file(name, tmp_path):
    save_model(make(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing; expected a folder that save_model has written"):
        load_model(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 300, -1])
def test_truncated_weights(size, tmp_path):
    save_model(make(), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(files.DamagedFile, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)


def test_one_flipped_bit(tmp_path):
    save_model(make(), tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(files.DamagedFile, match=r"model\.safetensors is damaged: its checksum is wrong"):
        load_model(tmp_path)


def test_a_changed_header(tmp_path):
    """The config that is in it, too."""
    save_model(make(), tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    assert content.count(rb"\"double_diagonal\": false") == 1
    path.write_bytes(content.replace(rb"\"double_diagonal\": false", rb"\"double_diagonal\": true "))
    with pytest.raises(files.DamagedFile, match=r"model\.safetensors is damaged: its checksum is wrong; get it again"):
        load_model(tmp_path)


@pytest.mark.parametrize("damaged", [False, True])
def test_checksums_of_before(damaged, tmp_path):
    """They were of the tensors alone, and among the config."""
    from safetensors.torch import save_file

    model = make()
    save_model(model, tmp_path)
    weights = model.state_dict()
    plain = json.loads((tmp_path / "config.json").read_text()) | {"crc32": saving._checksum_of_before(weights)}
    if damaged:
        weights = {name: x + 1 for name, x in weights.items()}
    save_file(weights, tmp_path / "model.safetensors", {"lion": json.dumps(plain)})
    if not damaged:
        assert same(load_model(tmp_path), model)
        return
    with pytest.raises(files.DamagedFile, match=r"model\.safetensors is damaged: its checksum is wrong; get it again"):
        load_model(tmp_path)


def test_damaged_config(tmp_path):
    save_model(make(), tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "vis')
    with pytest.raises(files.DamagedFile, match=r"config\.json is damaged"):
        load_model(tmp_path)


def written_elsewhere(tmp_path, model, changes=None, **fields):
    """Weights without our metadata, and a config that may have been changed."""
    from safetensors.torch import save_file

    save_model(model, tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text()) | fields
    plain["config"] |= changes or {}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    save_file(model.state_dict(), tmp_path / "model.safetensors")


def test_weights_written_elsewhere(tmp_path):
    model = make()
    written_elsewhere(tmp_path, model)
    assert same(load_model(tmp_path), model)


def test_missing_fields_keep_their_defaults(tmp_path):
    model = make()
    written_elsewhere(tmp_path, model)
    plain = json.loads((tmp_path / "config.json").read_text())
    del plain["config"]["drop_path"]
    (tmp_path / "config.json").write_text(json.dumps(plain))
    assert load_model(tmp_path).config == model.config


REFUSED = {
    "weights of a deeper model": ({"depth": 1}, {}, "Unexpected: blocks.1.* and 1[0-9] more"),
    "weights of a flatter one": ({"depth": 3}, {}, "Missing: blocks.2.*, blocks.2.*, blocks.2.* and 1[0-9] more"),
    "another number of classes": (
        {"num_classes": 7},
        {},
        r"shape: head.weight \(5, 24\), expected \(7, 24\), head.bias",
    ),
    "an unknown field": ({"dimm": 3}, {}, "'dimm'; expected one of .* Did you mean 'dim'?"),
    "a value that cannot be": ({"dim": 25}, {}, "makes no model .* dim is 25 and heads is 3"),
    "a value of another type": ({"dim": "wide"}, {}, "config.json makes no model"),
    "blocks without end": ({"depth": 10**9}, {}, "config.depth is 1000000000; expected a whole number from 0 to"),
    "no memory would be enough": ({"dim": 3 * 2**40}, {}, "config.dim is 3298534883328; expected a whole number"),
    "a size that cannot be": ({"patch_size": -1}, {}, "config.patch_size is -1; expected a whole number from 1 to"),
    "a list for a word": ({"direction": []}, {}, r"config.direction is \[\]; expected a text"),
    "a kind that is none": ({}, {"kind": {}}, "kind is {}; expected one of 'vision'"),
    "a kind of the future": (
        {},
        {"kind": "smell", "lion": "99.0"},
        "kind is 'smell'.* saved by lion 99.0, and this is",
    ),
    "no config": ({}, {"kind": None, "config": {}}, "kind is None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    changes, fields, text = REFUSED[case]
    written_elsewhere(tmp_path, make(), changes, **fields)
    with pytest.raises(ValueError, match=text) as problem:
        load_model(tmp_path)
    assert re.search(r"(config\.json|model\.safetensors)", str(problem.value))


def test_output_norms_of_before_are_named(tmp_path):
    """mamba2 once had a norm of each head."""
    from safetensors.torch import save_file

    model = make(variant="mamba2")
    save_model(model, tmp_path)
    weights = {name: x[:8].clone() if "output_norm" in name else x for name, x in model.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    text = r"output_norm.weight \(8,\), expected \(24,\).* have become those of their authors .*: train the model again"
    with pytest.raises(ValueError, match=text):
        load_model(tmp_path)


def test_output_norms_of_before_are_named_in_hugging_faces_folders(tmp_path):
    pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    from lion.integrations.hf import LionConfig, LionModel

    sizes = {"vocab_size": 9, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    save_model(LionModel(LionConfig(**sizes, num_hidden_layers=1, variant="mamba2")), tmp_path)
    path = tmp_path / "model.safetensors"
    weights = {name: x[:8].clone() if "output_norm" in name else x for name, x in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"Of another shape: .*output_norm.weight.* become those of their authors"):
        load_model(tmp_path)


def test_no_model_at_all(tmp_path):
    save_model(make(), tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"config\.json describes no model; expected an object with 'kind'"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="the model is a Linear; expected a VisionModel"):
        save_model(nn.Linear(2, 2), tmp_path)


def test_a_new_kind_is_a_row(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Config:
        sizes: tuple[int, ...] = (2, 3)

    class Model(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.linear = nn.Linear(*config.sizes)

    monkeypatch.setitem(saving.KINDS, "linear", (Config, Model))
    model = Model(Config((4, 5)))
    save_model(model, tmp_path)
    back = load_model(tmp_path)
    assert back.config == Config((4, 5))
    assert same(back, model)

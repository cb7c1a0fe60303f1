"""Weights of Hugging Face's kind get a checksum wherever they are saved; it is checked wherever they are loaded."""

import json
from unittest.mock import Mock

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion import checksums, files  # noqa: E402
from lion.integrations.hf import LionForCausalLM, LionForMaskedLM  # noqa: E402
from lion.models.saving import load_model, save_model  # noqa: E402
from tests.integrations.hf_small import KINDS, small, tokens  # noqa: E402

WRONG = r"{} is damaged: its checksum is wrong; get it again\.$"
AUTO = ("AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification", "AutoModelForTokenClassification")


def make(kind=LionForCausalLM):
    return small(kind).float()


def damage(path, place=-5):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def trainer_saves(model, folder):
    transformers.Trainer(model, transformers.TrainingArguments(folder / "runs", report_to="none")).save_model(folder)


SAVERS = {
    "save_pretrained": lambda model, folder: model.save_pretrained(folder),
    "save_model": save_model,
    "given weights": lambda model, folder: model.save_pretrained(folder, state_dict=model.state_dict()),
    "Trainer": trainer_saves,
}


@pytest.mark.parametrize("saver", SAVERS)
def test_every_saver_and_loader(saver, tmp_path):
    if saver == "Trainer":
        pytest.importorskip("accelerate")
    for kind, auto in zip(KINDS, (*AUTO, "AutoModelForCausalLM"), strict=True):
        model, folder = make(kind), tmp_path / auto
        SAVERS[saver](model, folder)
        path = folder / "model.safetensors"
        with safe_open(path, "pt") as file:
            assert file.metadata().keys() == {"format", checksums.MARK, checksums.KEY}
        loaders = (load_model, kind.from_pretrained, getattr(transformers, auto).from_pretrained)
        for load in loaders:
            assert load(folder).eval()(tokens(2, 9))[0].equal(model(tokens(2, 9))[0])
        damage(path)
        for load in loaders:
            with pytest.raises(files.DamagedFile, match=WRONG.format(path)):
                load(folder)


def test_the_header_is_covered(tmp_path):
    """Numbers of another type would be converted, without a word."""
    make().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"', 1))
    with pytest.raises(files.DamagedFile, match=WRONG.format(path)):
        LionForCausalLM.from_pretrained(tmp_path)


def test_a_checksum_that_is_lost(tmp_path):
    """With it, damage in two places would not be noticed."""
    make().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"lion_crc32", b"lion_crc33", 1))
    with pytest.raises(files.DamagedFile, match=WRONG.format(path)):
        LionForCausalLM.from_pretrained(tmp_path)


def test_several_files(tmp_path):
    model = make(LionForMaskedLM)
    model.save_pretrained(tmp_path)
    model.lion.encoder.layers[0].mlp.fc1.weight.data += 1
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(parts) > 3
    assert not (tmp_path / "model.safetensors").exists()  # the one before, which would be loaded
    loaders = (load_model, LionForMaskedLM.from_pretrained, transformers.AutoModelForMaskedLM.from_pretrained)
    for load in loaders:
        assert load(tmp_path).eval()(tokens(2, 9))[0].equal(model(tokens(2, 9))[0])
    damage(parts[2])
    for load in loaders:
        with pytest.raises(files.DamagedFile, match=WRONG.format(parts[2])):
            load(tmp_path)
    damage(parts[2])
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = {x: part for x, part in content["weight_map"].items() if part != parts[1].name}
    index.write_text(json.dumps(content))
    with pytest.raises(files.DamagedFile, match="has an index of other weights than its files have; get it again"):
        LionForMaskedLM.from_pretrained(tmp_path)
    parts[0].unlink()
    with pytest.raises(OSError, match=parts[0].name):
        LionForMaskedLM.from_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path).eval()(tokens(2, 9))[0].equal(model(tokens(2, 9))[0])


LOADING = {
    "another type": {"dtype": torch.bfloat16},
    "a device map": {"device_map": "cpu"},
    "weights from memory": {"disable_mmap": True},
    "another name": {"variant": "ours"},
    "a folder inside": {"subfolder": "inside"},
}


@pytest.mark.parametrize("case", LOADING)
def test_ways_to_load(case, tmp_path):
    if case == "a device map":
        pytest.importorskip("accelerate")
    make().save_pretrained(tmp_path / LOADING[case].get("subfolder", ""), variant=LOADING[case].get("variant"))
    LionForCausalLM.from_pretrained(tmp_path, **LOADING[case])
    (path,) = tmp_path.rglob("*.safetensors")
    damage(path)
    with pytest.raises(files.DamagedFile, match=WRONG.format(path)):
        LionForCausalLM.from_pretrained(tmp_path, **LOADING[case])


def test_weights_written_elsewhere(tmp_path):
    """Whoever changes weights on purpose writes them without our metadata."""
    model = make()
    model.save_pretrained(tmp_path)
    weights = {name: x + 1 for name, x in load_file(tmp_path / "model.safetensors").items()}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    back = LionForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(back[name].equal(x) for name, x in weights.items())
    state = LionForCausalLM.from_pretrained(None, config=model.config, state_dict=model.state_dict()).state_dict()
    assert all(state[name].equal(x) for name, x in model.state_dict().items())


def test_only_what_a_save_has_written_is_changed(tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({"x": torch.ones(3)}, other)
    content = other.read_bytes()
    make().save_pretrained(tmp_path, is_main_process=False)
    assert [path.name for path in tmp_path.iterdir()] == [other.name]
    make().save_pretrained(tmp_path)
    assert other.read_bytes() == content
    first = (tmp_path / "model.safetensors").read_bytes()
    make().save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == first


def test_what_is_uploaded_has_it_too(tmp_path, monkeypatch):
    seen = []

    def upload(self, folder, *args, **options):
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            seen.append(file.metadata())

    hub = Mock()  # instead of the network
    for name in ("hf_api", "create_and_tag_model_card"):
        monkeypatch.setattr(transformers.modeling_utils, name, hub)
    monkeypatch.setattr(transformers.utils.hub.PushToHubMixin, "_upload_modified_files", upload)
    make().save_pretrained(tmp_path, push_to_hub=True)
    assert [checksums.KEY in metadata for metadata in seen] == [True]


def test_it_is_any_safetensors_file(tmp_path):
    model = make()
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert all(x.equal(model.state_dict()[name]) for name, x in weights.items())
    content = (tmp_path / "model.safetensors").read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0

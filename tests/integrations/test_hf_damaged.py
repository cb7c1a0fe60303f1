"""Files of a model that are not what they should be are named in one line, and none of them is executed."""

import json
import pickle
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import (  # noqa: E402
    LionConfig,
    LionForCausalLM,
    LionForMaskedLM,
    LionModel,
)
from lion.models.saving import load_model  # noqa: E402
from tests.integrations.hf_small import small, tokens  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    small(LionForCausalLM).float().save_pretrained(tmp_path)
    return tmp_path


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


CONFIGS = {
    "a size that is a text": ({"hidden_size": "wide"}, "hidden_size is 'wide'; expected a whole number."),
    "no size": ({"vocab_size": None}, "vocab_size is None; expected a whole number."),
    "layers without end": (
        {"num_hidden_layers": 10**9},
        "num_hidden_layers is 1000000000; expected a whole number from 0 to 1,024.",
    ),
    "a negative size": ({"vocab_size": -1}, "vocab_size is -1; expected a whole number from 1 to 4,194,304."),
    "heads that do not fit": ({"num_attention_heads": 3}, "dim is 32 and heads is 3; expected dim to be a multiple"),
    "an unknown mode": ({"generation_mode": 3}, "generation_mode is 3; expected a text."),
    "a type that is none": ({"dtype": []}, r"dtype is []; expected a text or null."),
    "labels without names": ({"id2label": 7}, r"id2label is 7; expected an object or null."),
    "another size": ({"vocab_size": 2**22}, "model.embed.weight (50, 32), expected (4194304, 32)"),
    "tokens that are none": ({"max_new_tokens": []}, "max_new_tokens is []; expected a whole number or null."),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs(case, folder):
    fields, said = CONFIGS[case]
    change(folder / "config.json", **fields)
    for load in (load_model, LionForCausalLM.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
            load(folder)
        assert said in str(caught.value)
        assert str(folder) in str(caught.value)


@pytest.mark.parametrize("content", ["", "null", "[1]", '{"a": ', "[" * 100_000, "\udcff"])
def test_files_that_are_no_object(content, folder):
    for name in ("config.json", "generation_config.json"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content.encode(errors="surrogateescape"))
        for load in (load_model, LionForCausalLM.from_pretrained):
            with pytest.raises(ValueError, match=name):
                load(folder)
        (folder / name).write_bytes(before)


def test_a_config_that_is_missing(folder):
    """transformers would take the default one."""
    (folder / "config.json").unlink()
    for kind in (LionConfig, LionModel):
        with pytest.raises(FileNotFoundError, match=r"config\.json is missing; expected a folder that save_pretrained"):
            kind.from_pretrained(folder)


def test_how_to_generate(folder):
    change(folder / "generation_config.json", temperature="hot")
    with pytest.raises(ValueError, match=r"generation_config\.json: temperature is 'hot'; expected a number or null"):
        LionForCausalLM.from_pretrained(folder)
    (folder / "generation_config.json").unlink()  # nobody needs it
    LionForCausalLM.from_pretrained(folder)


INDICES = {
    "nothing in it": ({"weight_map": {}}, "has no weight_map and metadata"),
    "no names": ({"weight_map": {"x": 3}}, "has no weight_map and metadata"),
    "no metadata": ({"metadata": None}, "has no weight_map and metadata"),
    "another file": ({"weight_map": {"x": "y.safetensors"}}, "y.safetensors is missing, which model.safetensors.index"),
}


@pytest.mark.parametrize("case", INDICES)
def test_indices(case, tmp_path):
    fields, said = INDICES[case]
    small(LionForCausalLM).float().save_pretrained(tmp_path, max_shard_size="20KB")
    change(tmp_path / "model.safetensors.index.json", **fields)
    for load in (load_model, LionForCausalLM.from_pretrained):
        with pytest.raises((ValueError, OSError), match=said):
            load(tmp_path)


class Pickled:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_nothing_is_executed(folder):
    model, mark = small(LionForCausalLM).float(), folder / "ran"
    code = f"from pathlib import Path\n\nPath({str(mark)!r}).touch()\n"
    (folder / "custom_generate").mkdir()
    for name in ("modeling_lion.py", "custom_generate/generate.py"):
        (folder / name).write_text(code)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(mark)))
    change(folder / "config.json", attn_implementation="somebody/kernel", custom_generate="generate")
    for load in (load_model, LionForCausalLM.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        found = load(folder).eval()
        assert found(tokens(2, 9))[0].equal(model(tokens(2, 9))[0])
        assert found.config._attn_implementation != "somebody/kernel"
        found.generate(tokens(1, 3), max_new_tokens=2, pad_token_id=0)
    (folder / "model.safetensors").unlink()
    for load in (load_model, LionForCausalLM.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        with pytest.raises(OSError, match=r"model\.safetensors"):  # what is pickled is for those who ask for it
            load(folder)
    assert not mark.exists()


def test_calls_that_are_wrong(folder):
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        LionForCausalLM.from_pretrained(folder, nonsense=3)


def test_others_sizes_where_that_is_asked_for(tmp_path):
    small(LionForMaskedLM).float().save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match=r"Of another shape: .*words.weight \(50, 32\), expected \(60, 32\)"):
        LionForMaskedLM.from_pretrained(tmp_path, vocab_size=60)
    found = LionForMaskedLM.from_pretrained(tmp_path, vocab_size=60, ignore_mismatched_sizes=True)
    assert found.head.decoder.weight.shape == (60, 32)
    assert LionModel.from_pretrained(tmp_path).pooler is not None  # which those weights have not

"""Old names of fields, values and options: taken, with a warning that has the new name."""

import json
from dataclasses import replace

import pytest

import lion
from lion import configs, legacy, recipes
from lion.cli import main
from lion.models.causal import CausalConfig
from lion.models.encoder import EncoderConfig
from lion.models.long_range import LongConfig
from lion.models.vision import VisionConfig
from lion.tasks.text_distillation import TextDistillationTask
from lion.train import changes
from lion.train.config import Run

CONFIGS = [VisionConfig, EncoderConfig, CausalConfig, LongConfig, TextDistillationTask]


def old():
    return pytest.warns(FutureWarning, match="mixer is called variant now")


@pytest.mark.parametrize("kind", CONFIGS)
def test_configs(kind):
    with old():
        config = kind(mixer="lion_d")
    assert config == kind(variant="lion_d")
    with old():
        assert config.mixer == "lion_d"
    with old():
        assert replace(config, mixer="lion_s").variant == "lion_s"
    assert configs.from_json(kind, {"mixer": "lion_d"}) == config  # a file is read without a warning
    with old():
        assert configs.changed(config, {"mixer": "lion_s"}).variant == "lion_s"


def test_configs_of_transformers(tmp_path):
    from lion.integrations.hf import LionConfig
    from lion.integrations.hf_causal import LionCausalConfig

    for kind in (LionConfig, LionCausalConfig):
        with old():
            config = kind(mixer="lion_d")
        assert config.variant == "lion_d"
        assert "mixer" not in config.to_dict()
        with old():
            config.mixer = "lion_s"
        assert config.variant == "lion_s"
        config.save_pretrained(tmp_path)
        assert kind.from_pretrained(tmp_path, variant="lion_d").variant == "lion_d"
        plain = json.loads((tmp_path / "config.json").read_text())
        plain["mixer"] = plain.pop("variant")
        (tmp_path / "config.json").write_text(json.dumps(plain))
        assert kind.from_pretrained(tmp_path).variant == "lion_s"


def test_a_variant_of_the_weights_is_transformers_own(tmp_path):
    """from_pretrained(variant="fp16") loads model.fp16.safetensors."""
    from transformers import AutoModel

    from lion.integrations.hf import LionConfig, LionModel

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    LionModel(LionConfig("lion_d", vocab_size=9, **sizes)).save_pretrained(tmp_path, variant="fp16")
    assert (tmp_path / "model.fp16.safetensors").exists()
    for kind in (AutoModel, LionModel):
        assert kind.from_pretrained(tmp_path, variant="fp16").config.variant == "lion_d"


def test_models_by_name():
    import lion.integrations.timm  # before timm, which may need its help

    import timm  # isort: skip

    for make in (lion.create_model, timm.create_model):
        assert make("lion_s_tiny_patch16_224", depth=1, variant="lion_d").config.variant == "lion_d"
        with old():
            assert make("lion_s_tiny_patch16_224", depth=1, mixer="lion_d").config.variant == "lion_d"


def test_command_line(capsys, tmp_path):
    with old():
        assert main(["train", "digits.lion_s", "--show", "--json", "--model.mixer", "lion_d"]) == 0
    assert json.loads(capsys.readouterr().out)["task"]["model"]["variant"] == "lion_d"
    where = tmp_path / "generate.json"
    options = ["--sizes", "tiny", "--positions", "4", "--rounds", "1", "--no-softmax", "--json", str(where)]
    with pytest.warns(FutureWarning, match="--mixers is called --variants now"):
        assert main(["bench", "generate", "--mixers", "lion_d", *options]) == 0
    assert {x["variant"] for x in json.loads(where.read_text())["results"]} == {"lion_d"}


def test_runs_are_compared_by_new_names():
    run = lion.recipes.recipe("digits.lion_s")
    before = run.to_json()
    before["task"]["model"]["mixer"] = before["task"]["model"].pop("variant")
    assert not changes.of_fields(run, before)
    before["task"]["model"]["mixer"] = "lion_d"
    assert [x.words for x in changes.of_fields(run, before)] == ["model.variant is 'lion_s', was 'lion_d'"]


def test_values(monkeypatch):
    monkeypatch.setitem(legacy.VALUES, "features", {"old": "relu"})
    assert configs.from_json(LongConfig, {"features": "old"}).features == "relu"
    with pytest.warns(FutureWarning, match="features='old' is called features='relu' now"):
        assert LongConfig(features="old").features == "relu"
    nested = {"task": [{"features": "old", "mixer": "old"}], "features": ["old"]}
    assert legacy.current_everywhere(nested) == {
        "task": [{"features": "relu", "variant": "old"}],
        "features": ["old"],
    }


def test_names_that_are_somebody_elses():
    """Of a config that has no such field, an old name is as unknown as any."""
    assert legacy.current({"mixer": 1}, {"depth"}) == {"mixer": 1}
    assert legacy.current({"mixer": 1}, {"mixer", "variant"}) == {"mixer": 1}
    with pytest.raises(TypeError, match="unexpected keyword argument 'mixr'"):
        VisionConfig(mixr="lion_s")


def test_recipes():
    with pytest.warns(FutureWarning, match="ablation.lion_s_backward is called ablation.lion_s_reverse now"):
        assert recipes.recipe("ablation.lion_s_backward") == recipes.recipe("ablation.lion_s_reverse")


@pytest.mark.parametrize("kind", legacy.TASKS)
def test_kinds_of_tasks(kind):
    plain = {"task": {"kind": kind}, "steps": 1}
    assert Run.from_json(plain).task.kind == legacy.TASKS[kind]
    assert changes.of_fields(Run.from_json(plain), plain) == []

"""What the models share."""

import dataclasses

import pytest
import torch
from torch import nn

import lion
from lion.models.blocks import Backbone, ModelConfig, make_layer, no_weights
from lion.models.causal import CausalConfig
from lion.models.encoder import EncoderConfig
from lion.models.long_range import LongConfig
from lion.models.vision import VisionConfig

CONFIGS = [EncoderConfig, CausalConfig, LongConfig, VisionConfig]


@pytest.mark.parametrize("kind", CONFIGS)
def test_configs_begin_with_the_variant_and_name_the_rest(kind):
    assert kind("lion_d").variant == "lion_d"
    assert [field.name for field in dataclasses.fields(kind) if not field.kw_only] == ["variant"]
    with pytest.raises(TypeError, match="positional argument"):
        kind("lion_d", 64)


@pytest.mark.parametrize("kind", CONFIGS)
def test_two_sided_decays_are_an_option_of_bidirectional_models(kind):
    small = {"dim": 32, "heads": 2}
    assert not make_layer(kind(**small)).two_sided
    if kind is CausalConfig:
        with pytest.raises(TypeError, match="two_sided"):
            kind(two_sided=True)
    else:
        assert make_layer(kind(**small, two_sided=True)).two_sided


def test_decays_tell_order():
    told = {variant for variant in lion.VARIANTS if ModelConfig(variant).tells_order}
    assert not told & {"softmax", "lion_lit", "linatt", "linatt_scaled"}
    assert told >= {"lion_s", "lion_d", "mamba2", "deltanet"}
    assert ModelConfig("softmax", positions="learned").tells_order
    assert ModelConfig("lion_lit", decay="fixed").tells_order
    assert not ModelConfig("lion_s", decay="none").tells_order


def test_parameters_that_are_no_weights():
    layers = nn.ModuleDict({name: lion.LionAttention(32, 2, name) for name in ("lion_d", "rwkv6", "mamba2")})
    found = no_weights(layers)
    assert {"lion_d.decay.logit", "rwkv6.bonus", "mamba2.skip"} <= found
    assert not any(name.endswith("proj.weight") for name in found)


def test_blocks_are_run_again_for_their_gradient():
    class Counted(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model, block, x = Backbone(), Counted(3, 3), torch.randn(2, 3, requires_grad=True)
    model.set_grad_checkpointing()
    model.run(block, x).sum().backward()
    assert block.calls == 2
    with torch.no_grad():
        model.run(block, x)
    assert block.calls == 3

"""Layers against transformers' implementations of the same models, with the same weights.

What a layer leaves to the block around it is switched off there: convolutions pass their input on, without a SiLU.
transformers computes in float32 whatever the weights are, which is where the tolerance comes from.
"""

import pytest
import torch

import lion
from lion.optional import need_transformers

transformers = pytest.importorskip("transformers", reason="transformers has the models to compare with")
need_transformers()  # which has a torchvision for another torch out of the way

DIM, HEADS, TOKENS = 64, 4, 11


def build(variant):
    layer = lion.LionAttention(DIM, HEADS, variant, direction="forward", bias=False)
    with torch.no_grad():
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    return layer.eval()


def columns(layer):
    """The projection's weights by name: "q", "k", "v", "decay", "gate" ..."""
    return dict(zip(layer.columns, layer.in_proj.weight.split(list(layer.columns.values())), strict=True))


def pass_on(conv):
    """A causal convolution that gives back what it gets."""
    conv.weight.data.zero_()
    conv.weight.data[..., -1] = 1


def load(module, weights):
    module.load_state_dict({name: x.detach().clone() for name, x in weights.items()}, strict=False)
    missing = {name for name, _ in module.named_parameters()} - set(weights)
    assert missing <= {"conv1d.weight"}, missing
    return module.eval()


def assert_same(layer, module):
    x = torch.randn(2, TOKENS, DIM)
    with torch.no_grad():
        want = module(x)
        torch.testing.assert_close(layer(x), want[0] if isinstance(want, tuple) else want, rtol=1e-4, atol=1e-5)


def test_mamba2():
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = transformers.Mamba2Config(
        hidden_size=DIM,
        expand=1,
        num_heads=HEADS,
        head_dim=DIM // HEADS,
        state_size=DIM // HEADS,
        n_groups=1,
        hidden_act="linear",
        use_conv_bias=False,
        layer_norm_epsilon=1e-5,
        num_hidden_layers=1,
    )
    layer, mixer = build("mamba2"), Mamba2Mixer(config, 0)
    pass_on(mixer.conv1d)
    w = columns(layer)
    load(
        mixer,
        {
            "in_proj.weight": torch.cat([w["gate"], w["v"], w["k"], w["q"], w["decay"]]),
            "dt_bias": layer.decay.bias,
            "A_log": layer.decay.log_rate,
            "D": layer.skip,
            "norm.weight": layer.output_norm.weight,
            "out_proj.weight": layer.out_proj.weight,
        },
    )
    assert_same(layer, mixer)


def test_mamba():
    """There B, C and the steps are projections of x, which is one of the input: the layer has the products of both."""
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = transformers.MambaConfig(
        hidden_size=DIM,
        expand=1,
        state_size=16,
        time_step_rank=4,
        hidden_act="linear",
        use_conv_bias=False,
        num_hidden_layers=1,
    )
    layer, mixer = build("mamba"), MambaMixer(config, 0)
    pass_on(mixer.conv1d)
    w = columns(layer)
    load(
        mixer,
        {
            "in_proj.weight": torch.cat([w["v"], w["gate"]]),
            "x_proj.weight": mixer.x_proj.weight,
            "dt_proj.weight": mixer.dt_proj.weight,
            "dt_proj.bias": layer.decay.bias,
            "A_log": layer.decay.log_rate,
            "D": layer.skip,
            "out_proj.weight": layer.out_proj.weight,
        },
    )
    with torch.no_grad():
        low_rank, b, c = (mixer.x_proj.weight @ w["v"]).split([4, 16, 16])
        for name, x in {"q": c, "k": b, "decay": mixer.dt_proj.weight @ low_rank}.items():
            w[name].copy_(x)
    assert_same(layer, mixer)


def test_xlstm():
    from transformers.models.xlstm import modeling_xlstm

    if modeling_xlstm.external_xlstm:
        pytest.skip("transformers takes the layer from the package xlstm here")
    config = transformers.xLSTMConfig(
        hidden_size=DIM,
        num_heads=HEADS,
        num_hidden_layers=1,
        qk_dim_factor=1.0,
        gate_soft_cap=1e4,  # none, as in the first xLSTM
        eps=0.0,  # of the division, which has one there
        autocast_kernel_dtype="float32",
    )
    layer = build("xlstm")
    w = columns(layer)
    forget, let_in = w["decay"].chunk(2)
    module = load(
        modeling_xlstm.xLSTMLayer(config),
        {
            "q.weight": w["q"],
            "k.weight": w["k"],
            "v.weight": w["v"],
            "ogate_preact.weight": w["gate"],
            "fgate_preact.weight": forget,
            "fgate_preact.bias": layer.decay.bias[0],
            "igate_preact.weight": let_in,
            "igate_preact.bias": layer.decay.bias[1],
            "multihead_norm.weight": layer.output_norm.weight,
            "out_proj.weight": layer.out_proj.weight,
        },
    )
    assert_same(layer, module)

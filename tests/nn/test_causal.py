"""Causal layers: each against its own paper's equations, and token by token against all at once."""

import io

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

import lion
from tests.nn import naive

DIM, HEADS = 24, 3


def shifted_silu(x):
    y = x / (1 + (-x).exp()) + 0.5
    return y / y.square().sum(-1, keepdim=True).sqrt()


def elu1(x):
    return torch.where(x > 0, x + 1, x.exp())


def unit(x):
    return x / x.square().sum(-1, keepdim=True).sqrt()


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def softplus(x):
    return (1 + x.exp()).log()


def fourier(layer, x):
    directions = layer.features.directions / layer.features.log_width.exp()
    angles = unit(x) @ directions.T
    return torch.cat([angles.sin(), angles.cos()], -1) / directions.shape[0] ** 0.5


def every_channel(decay, q):
    return decay[..., None].expand(q.shape)


def rwkv6_decay(layer, x):
    return (-(x.tanh() @ layer.decay.up.weight.T + layer.decay.up.bias).exp()).exp().unflatten(-1, (HEADS, -1))


def gla_decay(layer, x):
    return sigmoid(x @ layer.decay.up.weight.T + layer.decay.up.bias).unflatten(-1, (HEADS, -1)) ** (1 / 16)


def hgrn2_decay(layer, x):
    bound = sigmoid(layer.decay.bound)
    return bound + (1 - bound) * sigmoid(x.unflatten(-1, (HEADS, -1)))


def mamba2(layer, q, k, v, x):
    a = -layer.decay.log_rate.exp()
    return naive.mamba2(v, softplus(x + layer.decay.bias), a, k[:, :, 0], q[:, :, 0], layer.skip)


def mamba(layer, q, k, v, x):
    a = -layer.decay.log_rate.exp()
    step = softplus(x + layer.decay.bias)
    return naive.mamba(v[..., 0], step, a, k[:, :, 0], q[:, :, 0], layer.skip)[..., None]


def xlstm(layer, q, k, v, x):
    forget, let_in = (x.unflatten(-1, (2, HEADS)) + layer.decay.bias).unbind(-2)
    k = k / k.shape[-1] ** 0.5
    plain = naive.mlstm(q, k, v, let_in, sigmoid(forget))
    torch.testing.assert_close(naive.mlstm_stabilised(q, k, v, let_in, sigmoid(forget).log()), plain)
    return plain


def selective(layer, q, k, v, x):
    q, k = shifted_silu(q), shifted_silu(k)
    return naive.selective_scaled(q, k, v, every_channel(sigmoid(x + layer.decay.bias), q))


def selective_hippo(layer, q, k, v, x):
    rates = 2 * sigmoid(x.unflatten(-1, (HEADS, -1))) * layer.decay.log_rate.exp()
    return naive.selective_scaled(shifted_silu(q), shifted_silu(k), v, (-rates).exp())


def fixed_hippo(layer, q, k, v, x):
    decay = (-layer.decay.log_rate.exp()).exp().expand(q.shape)
    return naive.selective_scaled(shifted_silu(q), shifted_silu(k), v, decay)


# (layer, q, k, v, columns of the gates) -> [B, T, H, V], before the output's norm, gate and projection
NAIVE = {
    "softmax": lambda layer, q, k, v, x: naive.softmax_attention(q, k, v),
    "lion_lit": lambda layer, q, k, v, x: naive.linear_attention_scaled(shifted_silu(q), shifted_silu(k), v),
    "lion_d": lambda layer, q, k, v, x: naive.retention_scaled(
        shifted_silu(q), shifted_silu(k), v, sigmoid(layer.decay.logit)
    ),
    "lion_s": selective,
    "lion_d_diag": fixed_hippo,
    "lion_s_diag": selective_hippo,
    "linatt": lambda layer, q, k, v, x: naive.linear_attention(elu1(q), elu1(k), v),
    "linatt_scaled": lambda layer, q, k, v, x: naive.linear_attention_scaled(elu1(q), elu1(k), v),
    "retnet": lambda layer, q, k, v, x: naive.retention(q / q.shape[-1] ** 0.5, k, v, sigmoid(layer.decay.logit)),
    "retnet_scaled": lambda layer, q, k, v, x: naive.retention_scaled(elu1(q), elu1(k), v, sigmoid(layer.decay.logit)),
    "grfa": lambda layer, q, k, v, x: naive.gated_rfa(
        fourier(layer, q), fourier(layer, k), v, sigmoid(x + layer.decay.bias)
    ),
    "mamba2": mamba2,
    "mamba": mamba,
    "rwkv6": lambda layer, q, k, v, x: naive.rwkv6(q, k, v, rwkv6_decay(layer, x), layer.bonus),
    "gla": lambda layer, q, k, v, x: naive.gla(q / q.shape[-1] ** 0.5, k, v, gla_decay(layer, x)),
    "hgrn2": lambda layer, q, k, v, x: naive.hgrn2(q, hgrn2_decay(layer, x), v),
    "xlstm": xlstm,
    "deltanet": lambda layer, q, k, v, x: naive.deltanet(unit(F.silu(q)), unit(F.silu(k)), v, sigmoid(x)),
}


def whole_layer(layer, x):
    """The layer as its paper has it, from its parameters alone."""
    variant = layer.variant
    projected = x @ layer.in_proj.weight.T + layer.in_proj.bias
    q, k, v, gates, beta, gate, _ = projected.split(list(layer.columns.values()), -1)
    heads = 1 if variant.keys == "shared" else HEADS
    q = q.unflatten(-1, (heads, -1))
    k = None if variant.keys == "complement" else k.unflatten(-1, (heads, -1))
    v = v.unflatten(-1, (-1, layer.value_channels))
    y = NAIVE[layer.name](layer, q, k, v, beta if variant.delta else gates)
    if variant.output_norm:
        y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.output_norm.weight
    y = y.flatten(-2)
    if variant.gate:
        y = y * {"silu": gate * sigmoid(gate), "sigmoid": sigmoid(gate)}[variant.gate]
    return y @ layer.out_proj.weight.T + layer.out_proj.bias


def build(variant, **options):
    layer = lion.LionAttention(DIM, HEADS, variant, direction="forward", **options).double()
    with torch.no_grad():  # so that nothing is at a special value
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    return layer


def test_every_variant_has_its_equations_here():
    assert set(NAIVE) == set(lion.VARIANTS)


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_the_causal_layer_is_its_papers(variant):
    layer, x = build(variant), torch.randn(2, 17, DIM).double()
    torch.testing.assert_close(layer(x), whole_layer(layer, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_token_by_token(variant):
    """The state may be saved in any way and loaded again, in the middle."""
    layer, x = build(variant), torch.randn(2, 17, DIM).double()
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t], state)
        outputs.append(y)
        if t == 5:
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        if t == 11:
            state = safetensors.torch.load(safetensors.torch.save({n: s.contiguous() for n, s in state.items()}))
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", [x for x in lion.VARIANTS if x != "softmax"])
def test_the_state_does_not_grow(variant):
    layer, state, sizes = build(variant), None, set()
    for _ in range(4):
        _, state = layer.step(torch.randn(2, DIM).double(), state)
        sizes.add(sum(x.numel() for x in state.values()))
    assert len(sizes) == 1


CHOICES = [{"double_diagonal": True}, {"features": "performer"}, {"norm": "max"}]
WITHOUT_NORM = ("deltanet", "rwkv6")


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        (variant, options)
        for variant in ("lion_s", "lion_s_diag", "xlstm", *WITHOUT_NORM)
        for options in CHOICES
        if not ("norm" in options and variant in WITHOUT_NORM)
    ],
    ids=str,
)
def test_token_by_token_with_other_choices(variant, options):
    layer, x = build(variant, **options), torch.randn(2, 9, DIM).double()
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t], state)
        outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x), rtol=1e-10, atol=1e-10)


def test_step_is_for_causal_layers():
    layer = lion.LionAttention(DIM, HEADS, "lion_s")
    with pytest.raises(
        ValueError, match="direction is 'both'; expected 'forward': only there a token's output is final"
    ):
        layer.step(torch.randn(1, DIM))

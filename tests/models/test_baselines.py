"""Hydra and Vim: the layers their papers describe, in every form, in either direction."""

import pytest
import torch
from torch import nn

import lion
from lion.models.baselines import Hydra, Vim
from lion.models.registry import create_model
from lion.ops.checks import DIRECTIONS
from tests.models import naive

DIM = 48


NAIVE = {Hydra: naive.hydra, Vim: naive.vim}


def build(kind, direction="both"):
    layer = kind(DIM, direction).double()
    with torch.no_grad():  # so that nothing is at a special value
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    return layer


def output_and_gradients(layer, x):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * torch.linspace(-1, 1, y.numel()).to(y).reshape(y.shape)).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]


@pytest.mark.parametrize("tokens", [1, 2, 17])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", NAIVE)
def test_the_layer_is_its_papers(kind, direction, tokens):
    layer, x = build(kind, direction), torch.randn(2, tokens, DIM).double()
    torch.testing.assert_close(layer(x), NAIVE[kind](layer.state_dict(), x, direction), rtol=1e-10, atol=1e-10)


def test_the_naive_hydra_tells_the_order_of_norm_and_gate():
    layer, x = build(Hydra), torch.randn(2, 9, DIM).double()
    want = naive.hydra(layer.state_dict(), x, "both")
    norm, layer.norm = layer.norm, nn.Identity()
    layer.norm.weight = norm.weight
    layer.out_proj.register_forward_pre_hook(lambda module, inputs: norm(inputs[0]))  # behind the gate
    assert (layer(x) - want).abs().max() > 0.01


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", NAIVE)
def test_every_form_is_the_same(kind, direction):
    layer, x = build(kind, direction), torch.randn(2, 23, DIM).double()
    want = output_and_gradients(layer, x)
    for form in ("rnn", "scan", "full"):
        for got, same in zip(output_and_gradients(lion.set_form(layer, form), x), want, strict=True):
            torch.testing.assert_close(got, same, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", NAIVE)
def test_masked_tokens_change_nothing(kind, direction):
    """Wherever they are; nor do sequences in the same row. A token's neighbours are those of its sequence alone."""
    layer, x = build(kind, direction), torch.randn(3, 16, DIM).double()
    mask = torch.ones(3, 16, dtype=torch.bool)
    mask[0, 9:] = mask[1, :5] = mask[2, [2, 3, 4, 10, 15]] = False
    alone = [NAIVE[kind](layer.state_dict(), x[i : i + 1, mask[i]], direction)[0] for i in range(3)]
    for hidden in (0.0, 100.0):  # what stands there
        given = x.masked_fill(~mask[..., None], hidden).requires_grad_()
        y = layer(given, mask)
        for i in range(3):
            torch.testing.assert_close(y[i, mask[i]], alone[i], rtol=1e-10, atol=1e-10)
        assert not y[~mask].any()
        y.sum().backward()
        assert not given.grad[~mask].any()
        assert given.grad[mask].any(-1).all()
    lengths = torch.tensor([0, *mask.sum(1).tolist()])
    packed = layer(x[mask][None], cu_seqlens=lengths.cumsum(0))
    torch.testing.assert_close(packed[0], torch.cat(alone), rtol=1e-10, atol=1e-10)
    borders = torch.tensor([0, 16, 16, 32, 48]).int()  # with an empty sequence, and padding within the row
    row = layer(x.reshape(1, 48, DIM), mask.reshape(1, 48), borders)
    torch.testing.assert_close(row[mask.reshape(1, 48)], torch.cat(alone), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", NAIVE)
def test_a_row_without_tokens(kind):
    layer, mask = build(kind), torch.arange(6) < torch.tensor([[6], [0]])
    y = layer(torch.randn(2, 6, DIM).double(), mask)
    assert y.isfinite().all()
    assert not y[1].any()


def test_what_a_layer_refuses():
    layer, x = Hydra(DIM), torch.randn(2, 6, DIM)
    with pytest.raises(ValueError, match="has batch size 2; expected 1"):
        layer(x, cu_seqlens=torch.tensor([0, 6]))
    with pytest.raises(ValueError, match="form is 'scna'; expected one of 'auto'"):
        layer.set_form("scna")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", NAIVE)
def test_every_parameter_gets_a_gradient(kind, direction):
    layer = kind(DIM, direction)
    output_and_gradients(layer, torch.randn(2, 9, DIM))
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("kind", NAIVE)
def test_one_direction_sees_one_side(kind):
    x = torch.randn(1, 12, DIM).double()
    other = x.clone()
    other[:, 6] += 1
    for direction, unmoved in (("forward", slice(0, 6)), ("reverse", slice(7, 12)), ("both", slice(0, 0))):
        layer = build(kind, direction)
        moved = (layer(other) - layer(x)).abs().amax(-1)[0] > 1e-12
        assert not moved[unmoved].any()
        assert moved.sum() == 12 - len(moved[unmoved])


@pytest.mark.parametrize("kind", NAIVE)
def test_in_bfloat16(kind):
    layer, x = kind(DIM, "both"), torch.randn(2, 9, DIM)
    want = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(x).float(), want, rtol=0.05, atol=0.02)
    got = layer.bfloat16()(x.bfloat16())
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, rtol=0.05, atol=0.02)


def test_heads_of_64_channels_or_the_most_that_divide():
    assert [Hydra(dim, "both").heads for dim in (192, 48, 40)] == [6, 2, 2]


def test_set_form_reaches_the_layers_of_a_model():
    for name in ("hydra_tiny_patch16_224", "vim_tiny_patch16_224"):
        model = lion.set_form(create_model(name, depth=2), "rnn", backend="torch")
        scans = [module for module in model.modules() if hasattr(module, "form")]
        assert {(scan.form, scan.backend) for scan in scans} == {("rnn", "torch")}
        assert len(scans) == (2 if "hydra" in name else 4)


@pytest.mark.parametrize("name", ["hydra", "vim"])
def test_decays_and_skips_are_no_weights(name):
    model = create_model(f"{name}_tiny_patch16_224", depth=1)
    kept = {name.rpartition("attn.")[2] for name in model.no_weight_decay() if "attn" in name}
    own = {"decay.log_rate", "decay.bias", "skip"}
    assert kept == (own if name == "hydra" else {f"ways.{way}.{x}" for way in range(2) for x in own})


def test_an_unknown_direction_is_refused():
    for kind in NAIVE:
        with pytest.raises(ValueError, match="direction is 'up'; expected one of"):
            kind(DIM, "up")


MILLIONS = {  # as the LION paper's tables have them
    ("hydra", "base"): 91,
    ("vim", "tiny"): 7,
    ("vim", "small"): 26,
    ("vim", "base"): 98,
}


@pytest.mark.parametrize(("name", "size"), MILLIONS)
def test_sizes(name, size):
    count = count_parameters(f"{name}_{size}_patch16_224")
    assert count == pytest.approx(MILLIONS[name, size] * 1e6, rel=0.04)


def test_the_size_of_a_small_hydra():
    """The paper says 22M, and 91M for the base: no one depth gives both, as x, the gate and the output alone take
    21.9M in 24 small blocks. 21 small blocks have 22M."""
    assert count_parameters("hydra_small_patch16_224") == pytest.approx(25e6, rel=0.04)
    assert count_parameters("hydra_small_patch16_224", depth=21) == pytest.approx(22e6, rel=0.04)


def count_parameters(name, **changes):
    return sum(p.numel() for p in create_model(name, **changes).parameters())

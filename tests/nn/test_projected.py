"""One operator from a layer's projection to its mixed values is the same as many."""

import pytest
import torch

import lion
from lion.nn.decay import DECAYS
from lion.nn.fused import projected as from_projection
from lion.ops.cpu import projected
from lion.ops.kernels import fused

pytestmark = pytest.mark.skipif(not projected.available(torch.rand(1, 1, 1), "auto"), reason="no compiled kernels")

LAYERS = {
    "lion_lit": {"variant": "lion_lit"},
    "lion_d": {"variant": "lion_d"},
    "lion_s": {"variant": "lion_s"},
    "a decay per channel": {"variant": "lion_s_diag"},
    "elu, not scaled": {"variant": "linatt"},
    "no features": {"variant": "lion_s", "features": "identity", "norm": "none"},
    "the diagonal twice": {"variant": "lion_s", "double_diagonal": True},
    "reverse": {"variant": "lion_s", "direction": "reverse"},
    "two-sided": {"variant": "lion_s", "two_sided": True},
    "two-sided, per channel": {"variant": "lion_s_diag", "two_sided": True},
    "orders": {"variant": "lion_s", "orders": ("snake", "transposed_snake"), "grid": (3, 3)},
}


def gradients(layer, x, *where):
    x = x.clone().requires_grad_()
    out = layer(x, *where)
    along = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return out, *torch.autograd.grad(out, [x, *layer.parameters()], along)


@pytest.mark.parametrize("where", ["plain", "masked", "packed"])
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_same(name, where):
    layer = lion.LionAttention(24, 3, **LAYERS[name]).double()
    assert layer.paths == (from_projection,)
    if where == "packed" and layer.order_names:
        pytest.skip("orders of packed sequences are the caller's")
    x = torch.randn(1 if where == "packed" else 2, 10, 24).double()
    given = {"plain": (), "masked": (torch.rand(2, 10) > 0.3,), "packed": (None, torch.tensor([0, 4, 10]))}[where]
    at_once = gradients(layer, x, *given)
    layer.paths = ()
    for got, want in zip(at_once, gradients(layer, x, *given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


def test_what_it_leaves_to_others():
    """What has gates, keys of another kind or a form of its own goes the long way."""
    gated = [name for name, make in DECAYS.items() if make(2, 4).gates]
    assert gated
    assert not any(lion.LionAttention(8, 2, decay=name).paths for name in gated)
    layer = lion.LionAttention(8, 2, norm="unmasked")
    assert not layer.paths
    assert torch.isfinite(layer(torch.randn(2, 5, 8))).all()
    assert not projected.available(torch.rand(2, 5, 24), "rnn")
    assert not list(fused("torch"))
    assert not projected.available(torch.rand(2, 5, 24, dtype=torch.float16), "auto")


def test_frozen_parts():
    """Only what wants a gradient gets one."""
    layer = lion.LionAttention(16, 2)
    layer.in_proj.requires_grad_(False)
    layer(torch.randn(2, 7, 16)).sum().backward()
    assert layer.decay.bias.grad.abs().sum() > 0
    assert layer.in_proj.weight.grad is None


@pytest.mark.filterwarnings("ignore:Anomaly")
def test_hooks_and_anomalies():
    """Nothing undefined is ever seen, neither by torch's search for NaN nor by a gradient used twice."""
    layer = lion.LionAttention(16, 2, variant="lion_s")
    x = torch.randn(2, 7, 16, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        out = layer(x)
        first = torch.autograd.grad(out.square().sum(), x, retain_graph=True)[0]
    second = torch.autograd.grad(out.square().sum(), x)[0]
    assert torch.equal(first, second)


def test_autocast():
    layer, x = lion.LionAttention(32, 2), torch.randn(2, 50, 32)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
        out.float().square().sum().backward()
    assert out.dtype == torch.bfloat16
    assert (out - layer(x)).abs().max() < 0.02
    assert layer.in_proj.weight.grad.dtype == torch.float32


def test_it_is_an_operator():
    y = torch.randn(2, 6, 3 * 8 + 8, requires_grad=True)
    log_decay = (-torch.rand(2, 6, 2)).requires_grad_()
    for features in projected.FEATURES.values():
        how = 2, 4, features, 1, 3, 0, False
        torch.library.opcheck(projected.projected_op, (y, log_decay, None, None, None, None, None, *how))

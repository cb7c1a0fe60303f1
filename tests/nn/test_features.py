"""The compiled feature maps are the plain ones."""

import functools

import pytest
import torch
import torch.nn.functional as F

from lion.nn.feature_maps import FEATURE_MAPS
from lion.ops.cpu import features

pytestmark = pytest.mark.skipif(not features.available(torch.rand(1, 1, 1, 1)), reason="no compiled kernels")
LAYOUTS = {
    "contiguous": lambda x: x,
    "a slice of a projection": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "channels apart": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "one head for all": lambda x: x[:, :, :1].expand_as(x),
}


PLAIN = {"unit_silu": lambda x: F.normalize(F.silu(x) + 0.5, dim=-1), "elu_plus_one": lambda x: F.elu(x) + 1}
maps = pytest.mark.parametrize("name", PLAIN)


def compiled(name, x):
    return features.features_op(torch.zeros_like(x), x, features.MAPS[name])[1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("D", [1, 3, 8, 21, 64])
@maps
def test_compiled(name, D, layout):
    x = 5 * torch.randn(2, 70, 3, D).double()
    x[0, 0] = torch.linspace(-800, 800, D).double()
    x = LAYOUTS[layout](x)
    along = torch.randn(x.shape).double()
    results = []
    for function in (PLAIN[name], functools.partial(compiled, name)):
        leaf = x.detach().requires_grad_()
        out = function(leaf)
        results.append((out, *torch.autograd.grad(out, leaf, along)))
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@maps
def test_precision(name):
    """float32 at most twice as far from float64 as torch's own, bfloat16 rounded once."""
    x = 3 * torch.randn(4, 50, 2, 64)
    plain = PLAIN[name]
    want = plain(x.double())
    error, allowed = (((y - want) / want).abs().max() for y in (compiled(name, x), plain(x)))
    assert error <= 2 * allowed
    half = x.bfloat16()
    want = plain(half.double())
    assert ((compiled(name, half).double() - want).abs() <= 2**-8 * want.abs() + 1e-30).all()


@maps
def test_it_is_an_operator(name):
    q, k = (torch.randn(2, 9, 2, 5, requires_grad=True) for _ in range(2))
    torch.library.opcheck(features.features_op, (q, k, features.MAPS[name]))
    for empty in ((0, 9, 2, 5), (2, 0, 2, 5), (2, 9, 0, 5)):
        assert compiled(name, torch.rand(empty)).shape == empty
    feature_map = FEATURE_MAPS[name](5)
    (out, _), _ = torch.compile(feature_map.both, fullgraph=True)(q, k)
    torch.testing.assert_close(out, PLAIN[name](q))


@maps
def test_exported_graphs_have_torchs_operators(name):
    class Map(torch.nn.Module):
        def forward(self, x):
            return FEATURE_MAPS[name](5).both(x, x)[0][0]

    program = torch.export.export(Map(), (torch.rand(2, 9, 2, 5),))
    assert not any("lion" in str(node.target) for node in program.graph.nodes)

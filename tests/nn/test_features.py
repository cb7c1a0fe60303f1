"""The compiled feature map is the plain one."""

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


def plain(x):
    return F.normalize(F.silu(x) + 0.5, dim=-1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("D", [1, 3, 8, 21, 64])
def test_unit_silu(D, layout):
    x = 5 * torch.randn(2, 70, 3, D).double()
    x[0, 0] = torch.linspace(-800, 800, D).double()
    x = LAYOUTS[layout](x)
    along = torch.randn(x.shape).double()
    results = []
    for function in (plain, lambda y: features.unit_silu_op(torch.zeros_like(y), y)[1]):
        leaf = x.detach().requires_grad_()
        out = function(leaf)
        results.append((out, *torch.autograd.grad(out, leaf, along)))
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_precision():
    """float32 at most twice as far from float64 as torch's own, bfloat16 rounded once."""
    x = 3 * torch.randn(4, 50, 2, 64)
    want = plain(x.double())
    error, allowed = ((y - want).abs().max() for y in (features.unit_silu_op(x, x)[0], plain(x)))
    assert error <= 2 * allowed
    half = x.bfloat16()
    assert (features.unit_silu_op(half, half)[0].double() - plain(half.double())).abs().max() <= 2**-9


def test_it_is_an_operator():
    q, k = (torch.randn(2, 9, 2, 5, requires_grad=True) for _ in range(2))
    torch.library.opcheck(features.unit_silu_op, (q, k))
    for empty in ((0, 9, 2, 5), (2, 0, 2, 5), (2, 9, 0, 5)):
        assert features.unit_silu_op(torch.rand(empty), torch.rand(empty))[0].shape == empty
    feature_map = FEATURE_MAPS["silu"](5)
    (compiled, _), _ = torch.compile(feature_map.both, fullgraph=True)(q, k)
    torch.testing.assert_close(compiled, plain(q))


def test_exported_graphs_have_torchs_operators():
    class Map(torch.nn.Module):
        def forward(self, x):
            return FEATURE_MAPS["silu"](5).both(x, x)[0][0]

    program = torch.export.export(Map(), (torch.rand(2, 9, 2, 5),))
    assert not any("lion" in str(node.target) for node in program.graph.nodes)

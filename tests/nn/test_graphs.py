"""Layers as graphs: exported, traced and fake, for every batch size and length."""

import io

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export

import lion
from tests import THOROUGH

# Sizes are compared in checks, which a trace leaves out; that it holds for others is what is tested here.
traces = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
every_variant = pytest.mark.parametrize("variant", lion.VARIANTS)
SIZES = [(1, 1), (2, 5), (5, 65), (1, 1100)]  # other batches, fewer chunks and more


def inputs(B, T):
    return torch.randn(B, T, 16), torch.rand(B, T) > 0.2


# Those whose graphs differ; the others are made of the same parts.
FEW = ("softmax", "lion_lit", "rwkv6", "deltanet")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, from inside its scan
@pytest.mark.parametrize(
    ("variant", "direction"),
    [*((x, "both") for x in (lion.VARIANTS if THOROUGH else FEW)), ("lion_s", "forward")],
)
def test_export(variant, direction):
    """One graph, of torch's operators only."""
    layer = lion.LionAttention(16, 2, variant, direction=direction).eval()
    free = {0: Dim("B"), 1: Dim("T")}
    program = export(layer, inputs(3, 70), dynamic_shapes=(free, free))
    assert not any("lion." in str(node.target) for node in program.graph.nodes)
    for size in [(3, 70), *SIZES]:
        x, mask = inputs(*size)
        torch.testing.assert_close(program.module()(x, mask), layer(x, mask), rtol=1e-4, atol=1e-5)


@traces
@pytest.mark.parametrize("direction", ["both", "forward"])
@every_variant
def test_trace(variant, direction):
    layer = lion.LionAttention(16, 2, variant, direction=direction).eval()
    traced = torch.jit.trace(layer, inputs(2, 20)[0], check_trace=False)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    for size in [(2, 20), *SIZES]:
        x, _ = inputs(*size)
        torch.testing.assert_close(loaded(x), layer(x), rtol=1e-4, atol=1e-5)


@traces
def test_a_traced_delta_rule_of_any_length():
    """Which works through long sequences by the slab."""
    layer = lion.LionAttention(16, 2, "deltanet").eval()
    traced = torch.jit.trace(layer, inputs(1, 20)[0], check_trace=False)
    x, _ = inputs(1, 20_000)
    torch.testing.assert_close(traced(x), layer(x), rtol=1e-4, atol=1e-5)


@every_variant
def test_fake_tensors(variant):
    """Shapes without numbers, as tools that plan memory have them; in training, too."""
    with FakeTensorMode():
        x = torch.randn(2, 70, 16, requires_grad=True)
        out = lion.LionAttention(16, 2, variant)(x)
        out.sum().backward()
    assert out.shape == x.grad.shape == (2, 70, 16)

"""torch.compile and torch.export take the operator, for every length, and give the same numbers."""

import pytest
import torch

import lion
from lion.ops.cpu.library import DIRECTIONS, NO_OUTPUT, NORMS, RAW
from lion.ops.torch import dense, scan
from tests import SEED
from tests.ops.problems import assert_same, kernels, output_and_gradients, problem


class Layer(torch.nn.Module):
    """Keyword options bound, so that only tensors go in."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v, log_decay=None, log_gain=None, mask=None):
        return lion.attention(q, k, v, log_decay, log_gain=log_gain, mask=mask, **self.options)


def tensors(decay, T, **options):
    kwargs = problem(decay, T=T, **options)
    return {name: kwargs[name] for name in ("q", "k", "v", "log_decay", "log_gain", "mask") if kwargs[name] is not None}


@pytest.mark.parametrize(
    ("decay", "backend"),
    [
        (decay, x["backend"])
        for decay in ("none", "per token", "diagonal")
        for x in kernels(decay)
        if x["form"] == "scan"
    ],
)
def test_compile(decay, backend):
    layer = Layer(form="scan", backend=backend)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for T in (70, 197, 33):
        kwargs = tensors(decay, T, mask=True)
        assert_same(output_and_gradients(compiled, kwargs), output_and_gradients(layer, kwargs), 1e-12, T)


def test_compile_with_gates_and_auto():
    layer = Layer(norm="max")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for T in (150, 200, 100):  # both sides of where auto changes its mind
        kwargs = tensors("per token", T, gain=True)
        assert_same(output_and_gradients(compiled, kwargs), output_and_gradients(layer, kwargs), 1e-12, T)


@pytest.mark.parametrize(
    ("decay", "gain", "mask", "direction"),
    [
        ("none", False, True, "both"),
        ("per token", True, True, "both"),
        ("diagonal", False, True, "reverse"),
    ],
)
def test_export_for_every_length(decay, gain, mask, direction):
    layer = Layer(direction=direction)
    example = tensors(decay, 300, gain=gain, mask=mask)
    length = torch.export.Dim("T", min=2, max=1 << 20)
    shapes = {name: {1: length} if x.dim() > 1 else None for name, x in example.items()}
    program = torch.export.export(layer, (), example, dynamic_shapes=shapes)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not any("lion" in name for name in targets)  # plain torch operators only: any runtime can have it
    module = program.module()
    for T in (2, 64, 65, 300, 5000):
        kwargs = tensors(decay, T, gain=gain, mask=mask)
        assert_same({"output": module(**kwargs)}, {"output": layer(**kwargs)}, 1e-11, T)


def test_export_of_the_compiled_kernel():
    """Asked for by name it is an operator of the graph, one graph for every length."""
    layer = Layer(backend="cpu")
    example = tensors("per token", 300, gain=True, mask=True)
    shapes = {name: {1: torch.export.Dim("T", min=2, max=1 << 20)} for name in example}
    program = torch.export.export(layer, (), example, dynamic_shapes=shapes)
    assert "lion.cpu_scan.default" in {str(node.target) for node in program.graph.nodes}
    for T in (2, 65, 1000):
        kwargs = tensors("per token", T, gain=True, mask=True)
        assert_same({"output": program.module()(**kwargs)}, {"output": layer(**kwargs)}, 1e-14, T)


def for_operator(kwargs):
    q, k, v, log_decay, *others = kwargs.values()
    return q, k, v, *(log_decay if isinstance(log_decay, tuple) else (log_decay, None)), *others


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("decay", ["none", "fixed", "per token"])
def test_opcheck_of_the_compiled_kernel(decay, everything):
    kwargs = problem(decay, T=70, gain=everything, self_weight=everything, mask=everything, orders=2 * everything)
    for name in ("q", "k", "v", "log_decay", "log_gain", "self_weight"):
        kwargs[name] = kwargs[name] if kwargs[name] is None else kwargs[name].requires_grad_()
    for norm, direction in ((NORMS["sum"], "both"), (NORMS["none"], "forward"), (RAW, "reverse")):
        how = norm, DIRECTIONS[direction], 0, norm == RAW, False, False, [], False
        torch.library.opcheck(torch.ops.lion.cpu_scan, (*for_operator(kwargs), *how))


@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_opcheck_of_states(decay, gain):
    kwargs = problem(decay, T=40, gain=gain and decay != "diagonal", mask=gain)
    leaves = {name: x.requires_grad_() for name, x in kwargs.items() if name in "qkv"}
    nothing = [torch.empty(0)] * 3
    scale = nothing[0] if kwargs["log_gain"] is None else torch.randn(2, 2, 1).double().requires_grad_()
    forward = [torch.randn(2, 2, 3, 4).double().requires_grad_(), torch.rand(2, 2, 3).double(), scale]
    for norm, direction, states in (("sum", "both", [*forward, *nothing]), ("none", "forward", [])):
        how = NORMS[norm], DIRECTIONS[direction], 0, False, False, False, states, True
        torch.library.opcheck(torch.ops.lion.cpu_scan, (*for_operator(kwargs | leaves), *how))
    how = NO_OUTPUT, DIRECTIONS["reverse"], 0, False, False, False, [*nothing, *forward], True
    torch.library.opcheck(torch.ops.lion.cpu_scan, (*for_operator(kwargs | leaves), *how))


@pytest.mark.parametrize("decay", ["fixed", "per token", "diagonal"])
def test_opcheck(decay):
    kwargs = problem(decay, T=70)
    q, k, v = (kwargs[name].requires_grad_() for name in ("q", "k", "v"))
    x = kwargs["log_decay"]
    x = x[None, None, :, None] if x.dim() == 1 else x[..., None] if x.dim() == 3 else x
    f, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    for direction, with_den in (("both", True), ("forward", False)):
        torch.library.opcheck(scan.scan_op, (q, k, v, f, b, direction, True, with_den, None))
    block = [x.detach().expand(-1, 70, 2, -1).transpose(1, 2).requires_grad_() for x in (q, k, f, b)]
    torch.library.opcheck(dense.scores_op, (*block, "both", True))


def test_autocast_keeps_the_sums_in_float32():
    """Under autocast, as torch's own attention: inputs are cast, sums are not."""
    q, k = (torch.rand(1, 300, 2, 8) for _ in range(2))
    v, log_decay = torch.randn(1, 300, 2, 8), -0.01 * torch.rand(1, 300, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = lion.attention(q, k, v.bfloat16(), log_decay)  # mixed dtypes, as layers under autocast give them
    assert out.dtype == torch.bfloat16
    want = lion.attention(*(x.bfloat16().float() for x in (q, k, v)), log_decay)
    assert (out - want).abs().max() <= 2**-8 * want.abs().max()


def test_backward_inside_autocast_keeps_the_sums_in_float32():
    kwargs = {name: x.float() for name, x in tensors("per token", 300).items()}
    want = output_and_gradients(lion.attention, kwargs)
    q, k, v, log_decay = (kwargs[name].detach().requires_grad_() for name in ("q", "k", "v", "log_decay"))
    out = lion.attention(q, k, v, log_decay, form="scan")
    along = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED + 1)).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (grad,) = torch.autograd.grad(out, log_decay, along)
    assert (grad - want["log_decay"]).abs().max() <= 1e-5 * want["log_decay"].abs().max()

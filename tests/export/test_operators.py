"""The operator's ONNX functions in ONNX Runtime, beside the kernels that they stand for."""

import pytest
import torch
import torch.nn.functional as F

from lion.ops.torch.options import Options
from lion.ops.torch.scan import scan as torch_scan
from tests import SEED

LENGTHS = (1, 2, 63, 64, 65, 300)


@pytest.fixture(scope="module")
def run():
    """The function of what is asked, run on tensors."""
    onnxruntime, ir = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx_ir")
    from lion.export.diagonal import diagonal_scan
    from lion.export.onnx_files import OPSET
    from lion.export.operators import Scanned, scan

    sessions = {}

    def session(asked):
        function = (diagonal_scan if asked.diagonal else scan)(asked, OPSET)
        kind = ir.TensorType(asked.dtype)
        given = [ir.Value(name=name, type=kind, shape=ir.Shape([None] * 4)) for name in "qkvfb"]
        node = ir.Node("lion", asked.name, given, num_outputs=2)
        for x, name in zip(node.outputs, ("num", "den"), strict=True):
            x.name, x.type, x.shape = name, kind, ir.Shape([None] * 4)
        graph = ir.Graph(given, node.outputs, nodes=[node], opset_imports={"": OPSET, "lion": 1}, name="test")
        model = ir.Model(graph, ir_version=10, functions=[function])
        return onnxruntime.InferenceSession(ir.serde.serialize_model(model).SerializeToString())

    def call(q, k, v, f, b, options):
        dtype = ir.DataType.DOUBLE if f.dtype == torch.float64 else ir.DataType.FLOAT
        asked = Scanned(*options, dtype, f.shape[-1] > 1)
        if asked not in sessions:
            sessions[asked] = session(asked)
        feed = {name: x.numpy() for name, x in zip("qkvfb", (q, k, v, f, b), strict=True)}
        return [torch.from_numpy(x) for x in sessions[asked].run(None, feed)]

    return call


def problem(B, T, channels, *, fixed=False, dtype=torch.float64, H=2, D=8, V=5):
    generator = torch.Generator().manual_seed(SEED + T)

    def some(*size):
        return torch.randn(*size, generator=generator, dtype=dtype)

    costs = [F.logsigmoid(some(1 if fixed else B, 1 if fixed else T, H, channels) + 2) for _ in range(2)]
    if not fixed:  # resets, and decays of all strengths
        for cost in costs:
            cost[some(*cost.shape) > 1.5] = -torch.inf
            cost[some(*cost.shape) > 1.5] *= 30
    return some(B, T, H, D).exp(), some(B, T, H, D).exp(), some(B, T, H, V), *costs


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize(
    "options",
    [
        Options("both", True, True, None),
        Options("both", False, False, None),
        Options("forward", True, False, None),
        Options("reverse", False, True, 16),
        Options("reverse", True, False, None),
    ],
    ids=str,
)
def test_as_in_torch(run, channels, options):
    """At every length, with resets, and fixed decays that are the same for all tokens."""
    for B, T, fixed in [*((2, T, False) for T in LENGTHS), (1, 65, True)]:
        given = problem(B, T, channels, fixed=fixed)
        num, den = torch_scan(*given, options)
        got = run(*given, options)
        torch.testing.assert_close(got[0], num, rtol=1e-10, atol=1e-12, msg=lambda m, at=T: f"{at} tokens: {m}")
        if options.with_den:
            torch.testing.assert_close(got[1], den, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 8])
def test_float32(run, channels):
    """Rounding does not grow with the length."""
    options = Options("both", True, True, None)
    given = problem(1, 3000, channels, dtype=torch.float32)
    num, den = run(*given, options)
    want_num, want_den = torch_scan(*(x.double() for x in given), options)
    torch.testing.assert_close((num / den).double(), want_num / want_den, rtol=1e-5, atol=1e-5)

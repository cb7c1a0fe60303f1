"""On a GPU: `pytest -m gpu tests/ops/triton`. Skipped without one; docs/gpu.md says what to send back.

`LION_TEST_DEVICE=cpu TRITON_INTERPRET=1` runs what is short here, to test the tests.
"""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lion
from tests.ops.problems import DECAYS, log_decays, output_and_gradients, problem

DEVICE = torch.device(os.environ.get("LION_TEST_DEVICE", "cuda"))
TRITON = {"backend": "triton", "form": "scan"}
TORCH = {"backend": "torch", "form": "scan"}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="there is no GPU here"),
]
large = pytest.mark.skipif(DEVICE.type == "cpu", reason="would take hours in the interpreter")


def on_device(kwargs, dtype=None):
    """A problem on the device, its numbers in a dtype, decays in float32 at least; a copy for each call."""

    def moved(name, x):
        if isinstance(x, tuple):
            return tuple(moved(name, y) for y in x)
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().to(DEVICE, copy=True)
        wide = dtype if dtype == torch.float64 or name in ("q", "k", "v") else torch.float32
        return x.to(wide) if dtype is not None and x.is_floating_point() else x

    return {name: moved(name, x) for name, x in kwargs.items()}


def assert_as_exact(kwargs, dtype, factor=2.0, **options):
    """No worse than twice plain torch on the same device, for the numbers that the dtype has; float64 is the judge."""
    rounded = on_device(kwargs, dtype)
    want = output_and_gradients(lion.attention, on_device(rounded, torch.float64), **TORCH, **options)
    got = output_and_gradients(lion.attention, on_device(rounded), **TRITON, **options)
    form = TORCH | {"form": "full"} if dtype in (torch.bfloat16, torch.float16) else TORCH
    plain = output_and_gradients(lion.attention, on_device(rounded), **form, **options)
    for name, x in want.items():
        assert torch.isfinite(got[name]).all(), (name, options)
        size = x.abs().max().clamp(min=1e-3) if x.numel() else 1.0
        error, allowed = ((y[name] - x).abs().max() / size if x.numel() else 0.0 for y in (got, plain))
        assert error <= factor * allowed + 8 * torch.finfo(dtype).eps, (name, options, float(error), float(allowed))


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("decay", DECAYS)
def test_table(decay, direction):
    for norm, gain, mask, packed in itertools.product(("sum", "max", "none", "unmasked"), *[(False, True)] * 3):
        if DEVICE.type == "cpu" and (norm != "sum" or gain or packed):
            continue
        kwargs = problem(decay, T=37, D=5, gain=gain, mask=mask, packed=packed, two_sided=gain)
        assert_as_exact(kwargs, torch.float32, norm=norm, direction=direction)


@large
@pytest.mark.parametrize("D", [16, 33, 64, 128, 200, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_channels(dtype, D):
    for decay, T in itertools.product(("none", "per token", "diagonal"), (1, 63, 64, 65, 197)):
        assert_as_exact(problem(decay, T=T, D=D, V=D, H=3), dtype)


def inputs(decay, B, T, H, D, dtype):
    q, k = (torch.nn.functional.normalize(torch.rand(B, T, H, D) + 0.1, dim=-1) for _ in range(2))
    log_decay = log_decays(decay, B, T, H, D, extremes=False)
    kwargs = {
        "q": q,
        "k": k,
        "v": torch.randn(B, T, H, D),
        "log_decay": log_decay if log_decay is None else log_decay / 9,
    }
    return on_device(kwargs, dtype)


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_the_same_bits_twenty_times(decay):
    small = DEVICE.type == "cpu"
    kwargs = inputs(decay, *((1, 20, 1, 16) if small else (4, 1000, 8, 64)), torch.bfloat16)
    first = output_and_gradients(lion.attention, kwargs, **TRITON)
    for _ in range(2 if small else 20):
        again = output_and_gradients(lion.attention, kwargs, **TRITON)
        for name, x in first.items():
            assert torch.equal(again[name], x), name


@large
@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_a_hundred_thousand_tokens(decay):
    assert_as_exact(inputs(decay, 1, 131_072, 1, 64, torch.float32), torch.float32)


@large
def test_more_heads_than_a_grid_has_rows():
    assert_as_exact(inputs("per token", 2, 70, 40_000, 16, torch.float32), torch.float32)


@large
def test_compiled_whole():
    run = torch.compile(lambda **x: lion.attention(**x, **TRITON), fullgraph=True, dynamic=True)
    for T in (100, 333):
        kwargs = inputs("per token", 2, T, 4, 64, torch.bfloat16)
        want = output_and_gradients(lion.attention, kwargs, **TRITON)
        for name, x in output_and_gradients(run, kwargs).items():
            assert torch.equal(x, want[name]), name


@large
def test_nothing_is_read_or_written_beyond_a_tensor():
    """NVIDIA's compute-sanitizer, on the table's smallest part."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        pytest.skip("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    tests = [sys.executable, "-m", "pytest", "-m", "gpu", __file__, "-k", "table and forward"]
    command = [tool, "--error-exitcode", "9", *tests]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[3])
    assert run.returncode == 0, run.stdout[-5_000:]

"""Triton's kernels compiled for GPUs that are not there: what `lion bench compile` tables."""

import pytest
import torch

from lion.bench import compile as bench
from lion.bench.assembly import compiled
from lion.ops.triton import available
from lion.ops.triton.configurations import configuration

needs_triton = pytest.mark.skipif(
    not available.INSTALLED or available.interpreting(),
    reason="Triton is not installed: pip install 'lion-attention[triton]'",
)

# Instructions that spill, of the kernels at D = 64 in bfloat16: docs/gpu.md states it.
LIMITS = {"gradients": 8}


@needs_triton
@pytest.mark.parametrize(("architecture", "backward"), [("sm_80", True), ("sm_90", False)])
def test_no_more_spills_than_stated(architecture, backward, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = list(compiled(architecture, "scalar", 64, torch.bfloat16, backward=backward))
    names = ["states", "values"]
    if backward:
        names += ["divisors", "states transposed", "values transposed", "gradients", "gradients transposed"]
    assert [x.name for x in kernels] == names
    for x in kernels:
        assert x.spills <= LIMITS.get(x.name, 0), x
        assert x.registers <= 255
        assert x.shared <= 48 << 10, x  # of 99 KiB on the smallest of these GPUs: two programs at once
        assert (x.products > 0) == (x.name != "divisors"), x


@needs_triton
def test_no_spills_in_one_direction(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for x in compiled("sm_80", "scalar", 64, torch.bfloat16, direction="forward", masked=True):
        assert x.spills <= LIMITS.get(x.name, 0), x


@needs_triton
def test_more_heads_than_a_grid_has_rows(monkeypatch):
    """Every launch is in the grid's first dimension, which may have 2^31 - 1 programs; the others have 65,535."""
    from lion.ops.triton import launch

    heads, tokens = 80_000, 130
    q = torch.empty(2, tokens, heads, 16, device="meta", dtype=torch.bfloat16)
    f = q[..., :1].float()
    grids = []
    monkeypatch.setattr(launch, "launch", lambda kernel, programs, arguments: grids.append(programs))
    use = configuration(q, q, f, None, False, architecture="sm_80")
    x = launch.Launches(q, q, q, f, f, None, None, "both", True, False, False, use)
    out, den, saved, _ = launch.forward(x, "sum", True, False, q.dtype, True)
    launch.backward(x, out, None, None, saved, den, "sum", True)
    chunks = -(-tokens // use.C)
    walks, rows = 2 * 2 * heads, chunks * 2 * heads  # two walks of every head, every chunk of every head
    assert grids == [walks, rows, rows, walks, walks, rows, rows, rows]


def test_bytes_and_flops_per_token():
    """The formulas of the table; tests/ops/triton/interpreted counts the kernels' own."""
    moved = bench.traffic("scalar", 64, 64, torch.bfloat16)
    assert moved.forward == pytest.approx(1544, rel=0.1)
    assert moved.backward == pytest.approx(4680, rel=0.1)
    forward, backward = bench.work("scalar", 4096, 64)
    assert forward == 2 * (64 * 128 + 4 * 64 * 64)  # a row of scores, their product with values, states out and in
    assert backward > 2.5 * forward


def test_the_roofline_grows_with_the_length_for_softmax_alone():
    records = bench.roofline([1024, 16384], torch.bfloat16)
    short, long = (next(x for x in records if x["tokens"] == T)["microseconds"] for T in (1024, 16384))
    assert long["flash"] == pytest.approx(16 * short["flash"])
    assert long["triton"] == pytest.approx(short["triton"], rel=0.05)
    assert long["triton"] < long["causal twice"]


def test_without_triton(monkeypatch):
    monkeypatch.setattr("lion.bench.assembly.INSTALLED", False)
    with pytest.raises(ValueError, match="Triton is not installed; expected it: pip install 'lion-attention"):
        bench.run()

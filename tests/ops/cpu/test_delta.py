"""The delta rule compiled: any shape, stride and dtype; as exact as torch; the same bits from any number of threads."""

import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_map_only

import lion
from lion.ops import reference
from lion.ops.cpu import library
from tests import THOROUGH
from tests.ops.cpu.test_kernel import LAYOUTS
from tests.ops.problems import assert_same, output_and_gradients
from tests.ops.test_delta import problem

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

DECAYS = ("none", "fixed", "per token")
DIRECTIONS = ("both", "forward", "reverse")


def as_floats(kwargs: dict) -> dict:
    return tree_map_only(torch.Tensor, lambda x: x.detach().float() if x.is_floating_point() else x, kwargs)


@settings(
    max_examples=600 if THOROUGH else 80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    decay=st.sampled_from(DECAYS),
    B=st.integers(1, 3),
    T=st.integers(0, 90),
    H=st.integers(1, 5),
    D=st.sampled_from([1, 3, 8, 16, 17, 24]),
    V=st.sampled_from([1, 2, 8, 16, 19]),
    options=st.fixed_dictionaries(dict.fromkeys(("self_weight", "mask", "packed"), st.booleans())),
    orders=st.integers(0, 2),
    direction=st.sampled_from(DIRECTIONS),
    chunk_size=st.none() | st.integers(1, 100),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 3),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_fuzz(decay, B, T, H, D, V, options, orders, direction, chunk_size, layouts, threads, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    kwargs = problem(decay, B=B, T=T, H=H, D=D, V=V, orders=orders, **options)
    for name, layout in zip("qkv", layouts, strict=True):
        kwargs[name] = LAYOUTS[layout](kwargs[name])
    want = output_and_gradients(reference.attention, kwargs, direction=direction)
    how = {"backend": "cpu", "chunk_size": chunk_size, "direction": direction}
    assert_same(output_and_gradients(lion.attention, kwargs, **how), want, 1e-10)
    single = output_and_gradients(lion.attention, as_floats(kwargs), **how)
    for name, x in want.items():
        assert x.numel() == 0 or (single[name] - x).abs().max() <= 1e-4 * max(1, x.abs().max()), name


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("B", "H", "T"), [(1, 1, 700), (2, 5, 197), (3, 7, 20)])
def test_the_same_bits_from_any_number_of_threads(decay, B, H, T):
    kwargs = as_floats(problem(decay, B=B, T=T, H=H, D=16, V=16))
    runs = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        runs.append(output_and_gradients(lion.attention, kwargs, backend="cpu"))
    for run in runs[1:]:
        assert all(torch.equal(run[name], x) for name, x in runs[0].items())


@pytest.mark.parametrize("T", [197, 2048])
@pytest.mark.parametrize("strength", [None, 1e-2, 1.0])
def test_float32_is_as_exact_as_plain_torch(T, strength):
    """At most twice the error of the torch scan, outputs and gradients; float64 is the judge."""
    kwargs = problem("none", B=1, T=T, H=8, D=16, V=16)
    if strength:
        kwargs["log_decay"] = -strength * torch.rand(1, T, 8).double()
    want = output_and_gradients(lion.attention, kwargs, backend="torch")
    got, plain = (output_and_gradients(lion.attention, as_floats(kwargs), backend=name) for name in ("cpu", "torch"))
    for name, x in want.items():
        error, allowed = ((y[name] - x).square().mean().sqrt() / x.square().mean().sqrt() for y in (got, plain))
        assert error <= 2 * allowed + 1e-7, (name, error, allowed)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_bfloat16_is_computed_in_float32(direction):
    kwargs = as_floats(problem("per token", T=100, D=8, V=8, mask=True, orders=2))
    half = {n: x.bfloat16() if n in "qkv" else x for n, x in kwargs.items()}
    single = {n: x.float() if n in "qkv" else x for n, x in half.items()}
    want, got = (output_and_gradients(lion.attention, x, backend="cpu", direction=direction) for x in (single, half))
    for name, x in want.items():
        assert got[name].dtype == half.get(name, half["v"]).dtype
        assert (got[name].float() - x).abs().max() <= 2**-6 * x.abs().max(), name


def test_bad_values_are_seen_where_python_does_not_look():
    """In a compiled graph nothing is checked at the door."""
    q = torch.rand(1, 9, 1, 4)
    beta = torch.rand(1, 9, 1)
    call = torch.compile(lambda q, decay: lion.attention(q, q, q, decay, beta=beta, norm="none"), fullgraph=True)
    call(q, -torch.rand(1, 9, 1))
    with pytest.raises(ValueError, match="log_decay"):
        call(q, torch.full((1, 9, 1), 2.0))


@pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="torch.compile needs a C++ compiler")
def test_a_compiled_graph_of_every_length():
    def run(q, k, v, beta, log_decay):
        return lion.attention(q, k, v, log_decay, beta=beta, norm="none", backend="cpu")

    compiled = torch.compile(run, fullgraph=True, dynamic=True)
    for T in (40, 70):
        kwargs = problem("per token", T=T)
        inputs = [kwargs[name].detach().requires_grad_() for name in ("q", "k", "v", "beta", "log_decay")]
        inputs[-1].data[:, 2] = -1.0
        outputs = [function(*inputs) for function in (compiled, run)]
        torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-12)
        for x, y in zip(*(torch.autograd.grad(out.sin().sum(), inputs) for out in outputs), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def test_second_derivatives():
    kwargs = problem("fixed", B=1, T=5, H=1, D=2, V=2)
    names = ("q", "k", "v", "beta", "log_decay")
    inputs = [kwargs[name].detach().requires_grad_() for name in names]

    def run(*x):
        return lion.attention(**dict(zip(names, x, strict=True)), norm="none", backend="cpu", chunk_size=2)

    assert torch.autograd.gradgradcheck(run, inputs)


def test_flops_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v = (torch.rand(1, 64, 2, 8, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        lion.attention(q, k, v, beta=torch.rand(1, 64, 2), norm="none").sum().backward()
    found = {str(name): n for name, n in counter.get_flop_counts()["Global"].items()}
    assert found["lion.cpu_delta_backward"] > 2 * found["lion.cpu_delta"] > 0

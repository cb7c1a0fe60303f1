"""The compiled kernel: any shape, stride and dtype; the same bits from any number of threads; little memory."""

import itertools
import json
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_map_only

import lion
from lion.ops import reference
from lion.ops.cpu import library
from tests import THOROUGH
from tests.ops.problems import DECAYS, assert_same, log_decays, output_and_gradients, problem

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

flag = st.booleans()
LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "heads first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "inside a wider tensor": lambda x: torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : x.shape[-1]],
    "every second token": lambda x: torch.stack([x, torch.full_like(x, torch.nan)], 2).flatten(1, 2)[:, ::2],
    "channels apart": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "reversed twice": lambda x: x.flip(1).contiguous().flip(1),
    "one head for all": lambda x: x[:, :, :1].expand_as(x),
}


@settings(
    max_examples=1000 if THOROUGH else 150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    decay=st.sampled_from(DECAYS),
    B=st.integers(1, 3),
    T=st.integers(0, 90),
    H=st.integers(1, 5),
    D=st.sampled_from([1, 3, 4, 7, 8, 16, 17, 24]),
    V=st.sampled_from([1, 2, 5, 8, 16, 19]),
    options=st.fixed_dictionaries(dict.fromkeys(("gain", "self_weight", "mask", "packed", "two_sided"), flag)),
    orders=st.integers(0, 3),
    norm=st.sampled_from(["sum", "max", "none", "unmasked"]),
    direction=st.sampled_from(["both", "forward", "reverse"]),
    chunk_size=st.none() | st.integers(1, 100),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 3),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_fuzz(
    decay, B, T, H, D, V, options, orders, norm, direction, chunk_size, layouts, dtype, threads, seed
):  # fmt: skip
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    kwargs = problem(decay, B=B, T=T, H=H, D=D, V=V, orders=orders, **options)
    for name, layout in zip("qkv", layouts, strict=True):
        kwargs[name] = LAYOUTS[layout](kwargs[name])
    how = {"norm": norm, "direction": direction}
    want = output_and_gradients(reference.attention, kwargs, **how)
    cast = tree_map_only(torch.Tensor, lambda x: x.detach().to(dtype) if x.is_floating_point() else x, kwargs)
    got = output_and_gradients(lion.attention, cast, backend="cpu", chunk_size=chunk_size, **how)
    if dtype == torch.float64:
        assert_same(got, want, 1e-10)
    else:  # some gradients are 0 but for rounding
        for name, x in want.items():
            assert x.numel() == 0 or (got[name] - x).abs().max() <= 1e-4 * max(1, x.abs().max()), name


def outputs_with(threads: int, kwargs: dict, **options) -> dict[str, torch.Tensor]:
    torch.set_num_threads(threads)
    return output_and_gradients(lion.attention, kwargs, backend="cpu", **options)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("B", "H", "T"), [(1, 1, 1000), (1, 3, 700), (2, 5, 197), (1, 1, 20)])
def test_the_same_bits_from_any_number_of_threads(decay, B, H, T):
    for gain, orders, direction in itertools.product((False, True), (0, 2), ("both", "forward")):
        if gain and "diagonal" in decay:
            continue
        kwargs = problem(decay, B=B, T=T, H=H, D=16, V=16, gain=gain, orders=orders)
        kwargs = {n: x.float() if x is not None and x.is_floating_point() else x for n, x in kwargs.items()}
        want = outputs_with(1, kwargs, direction=direction)
        for threads in (1, 2, 3, 8):
            got = outputs_with(threads, kwargs, direction=direction)
            for name, x in want.items():
                assert torch.equal(got[name], x), (name, threads, gain, orders, direction)


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("chunk_size", [1, 7, 300, None])
@pytest.mark.parametrize("decay", ["per token", "diagonal"])
def test_many_chunks(decay, direction, chunk_size):
    """The flow over the borders, from which decays get their gradients, begins anew every 8 chunks."""
    two_sided = chunk_size in (7, None)
    kwargs = problem(decay, B=1, T=2311, H=1, gain=decay == "per token", two_sided=two_sided)
    want = output_and_gradients(lion.attention, kwargs, backend="torch", form="full", direction=direction)
    got = output_and_gradients(lion.attention, kwargs, backend="cpu", chunk_size=chunk_size, direction=direction)
    assert_same(got, want, 1e-10)


@pytest.mark.parametrize("orders", [0, 2])
@pytest.mark.parametrize("norm", ["sum", "none"])
@pytest.mark.parametrize("decay", ["fixed diagonal", "diagonal"])
def test_few_values_to_a_head(decay, norm, orders):
    """Mamba's heads have one: states go from token to token, without a norm for as many heads at once as a vector has
    lanes; on the way back in segments."""
    kwargs = problem(decay, B=1, T=300, H=19, D=16, V=1, orders=orders, per_order=True, two_sided=norm == "none")
    want = output_and_gradients(lion.attention, kwargs, backend="torch", form="full", norm=norm)
    assert_same(output_and_gradients(lion.attention, kwargs, backend="cpu", norm=norm), want, 1e-10)
    kwargs = tree_map_only(torch.Tensor, lambda x: x.detach().float() if x.is_floating_point() else x, kwargs)
    one, three = (outputs_with(threads, kwargs, norm=norm) for threads in (1, 3))
    assert all(torch.equal(three[name], x) for name, x in one.items())


@pytest.mark.parametrize(("T", "strength"), [(197, 1.0), (1024, 1e-2), (1024, 1.0), (8192, 1e-4), (8192, 1e-2)])
@pytest.mark.parametrize(("kind", "V"), [*((kind, 16) for kind in DECAYS), ("diagonal", 1)])
def test_float32_is_as_exact_as_plain_torch(T, strength, kind, V):
    """At most twice the error of the torch scan, outputs and gradients; float64 is the judge."""
    # Of few decays, the gradients' errors are chance: they differ by a factor of ten from draw to draw.
    count = {"fixed": 3, "fixed diagonal": 12}.get(kind, 1) if strength == 1 else 1
    draws = [errors_of_one_draw(T, strength, kind, V) for _ in range(count)]
    for name in draws[0]:
        error, allowed = (sum(x[name][backend] for x in draws) / len(draws) for backend in ("cpu", "torch"))
        assert error <= 2 * allowed + 1e-7, (name, error, allowed)


def errors_of_one_draw(T, strength, kind, V):
    """Root mean squares, relative, by name and backend."""
    H = 32 if kind == "fixed" else 8
    shape = {"fixed": (H,), "fixed diagonal": (H, 16), "per token": (1, T, H), "diagonal": (1, T, H, 16)}
    q, k = (torch.rand(1, T, H, 16) for _ in range(2))
    inputs = {"q": q, "k": k, "v": torch.randn(1, T, H, V)}
    if kind != "none":
        inputs["log_decay"] = -strength * torch.rand(shape[kind])
    exact = output_and_gradients(lion.attention, {n: x.double() for n, x in inputs.items()}, backend="torch")
    runs = {
        name: output_and_gradients(lion.attention, dict(inputs), backend=name, form="scan") for name in ("cpu", "torch")
    }

    def error(got, want):
        return ((got - want).square().mean().sqrt() / want.square().mean().sqrt()).item()

    return {name: {backend: error(run[name], x) for backend, run in runs.items()} for name, x in exact.items()}


def test_bfloat16_is_computed_in_float32():
    kwargs = problem("per token", T=300, D=8, V=8, gain=True, mask=True, orders=2)
    half = {n: x.bfloat16() if n in "qkv" else x for n, x in kwargs.items()}
    half = {n: x.float() if x is not None and x.dtype == torch.float64 else x for n, x in half.items()}
    single = {n: x.float() if n in "qkv" else x for n, x in half.items()}
    want = output_and_gradients(lion.attention, single, backend="cpu")
    got = output_and_gradients(lion.attention, half, backend="cpu")
    for name, x in want.items():
        assert got[name].dtype == half.get(name, half["v"]).dtype
        assert (got[name].float() - x).abs().max() <= 2**-6 * x.abs().max(), name


@pytest.mark.parametrize("V", [3, 16, 37])
def test_bfloat16_is_read_and_rounded_as_torch_does(V):
    """Whole vectors and what is left of a row: to nearest even, infinite and not a number where that is so."""
    q = torch.ones(1, 50, 1, 1, dtype=torch.bfloat16)
    v = torch.randn(1, 50, 1, V).bfloat16()
    v[0, 3], v[0, 7, 0, -1], v[0, 9, 0, 0], v[0, 11] = torch.inf, torch.nan, -torch.inf, 1e-39
    weight = torch.rand(1, 50, 1) + 0.5
    cu_seqlens = torch.arange(51)  # every token by itself
    got = lion.attention(q, q, v, norm="none", self_weight=weight, cu_seqlens=cu_seqlens, backend="cpu")
    want = (v.float() * weight[..., None]).bfloat16()
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_training_keeps_its_inputs_and_outputs_and_nothing_else():
    kwargs = {"q": torch.rand(1, 500, 2, 8), "k": torch.rand(1, 500, 2, 8), "v": torch.rand(1, 500, 2, 8)}
    kwargs |= {"log_decay": -torch.rand(1, 500, 2)}
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = lion.attention(**{name: x.requires_grad_() for name, x in kwargs.items()}, backend="cpu")
    known = {x.data_ptr() for x in (*kwargs.values(), out)}
    assert [tuple(x.shape) for x in kept if x.data_ptr() not in known] == [(1, 500, 2)]  # den


MEMORY = """
import json, torch, lion
from lion.bench.peak_memory import peak_memory
torch.set_num_threads(2)
q, k, v = (torch.rand(1, 65536, 4, 64) for _ in range(3))
log_decay = -torch.rand(1, 65536, 4)
kept = []
work = lambda: kept.append(lion.attention(q, k, v, log_decay, backend="cpu"))
work(), kept.clear()
print(json.dumps([peak_memory(work), q.nbytes, kept[0].nbytes + log_decay.nbytes]))
"""


def test_forward_needs_hardly_any_memory():
    """Beyond inputs and outputs (den among them), at most 5% of q at 65,536 tokens."""
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    peak, q, outputs = json.loads(run.stdout)
    assert peak - outputs <= 0.05 * q


def test_bad_values_are_seen_where_python_does_not_look():
    """In a compiled graph nothing is checked at the door."""
    call = torch.compile(lambda q, log_decay: lion.attention(q, q, q, log_decay), fullgraph=True)
    q = torch.rand(1, 9, 1, 4)
    call(q, -torch.rand(1, 9, 1))
    with pytest.raises(ValueError, match="log_decay is 2 at"):
        call(q, torch.full((1, 9, 1), 2.0))


WRONG = {
    "an order with a token outside": {"orders": torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 99]])},
    "an order that leaves tokens out": {"orders": torch.zeros(1, 9, dtype=torch.long)},
    "an order that leaves its sequence": {"cu_seqlens": torch.tensor([0, 4, 9]), "orders": torch.arange(9).flip(0)},
    "sequences that end early": {"cu_seqlens": torch.tensor([0, 4])},
    "sequences that start late": {"cu_seqlens": torch.tensor([2, 9])},
    "sequences that go on too long": {"cu_seqlens": torch.tensor([0, 99])},
    "sequences that fall": {"cu_seqlens": torch.tensor([0, 7, 4, 9])},
}


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
@pytest.mark.parametrize("wrong", WRONG)
def test_orders_and_borders_are_checked_in_a_compiled_graph(wrong, decay):
    """Or tokens would be left as they were in memory."""

    def attend(q, log_decay, where):
        return lion.attention(q, q, q, log_decay, backend="cpu", **where)

    torch._dynamo.reset()  # which compiles a function anew only so many times
    call = torch.compile(attend, fullgraph=True, backend="aot_eager")
    q = torch.rand(1, 9, 1, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="orders are no permutations, or cu_seqlens do not run from 0 to T"):
        call(q, log_decays(decay, 1, 9, 1, 4), WRONG[wrong])

"""Mamba's scan compiled: the layer as on torch, as exact, and the same bits from any number of threads."""

import pytest
import torch

import lion
from lion.ops.cpu import library
from lion.ops.cpu.selective import Selective, plainly_computed
from tests.ops.problems import permutations

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

DIRECTIONS = ("both", "forward", "reverse")
OPTIONS = {
    "plain": {},
    "two-sided": {"two_sided": True},
    "forward": {"direction": "forward"},
    "reverse": {"direction": "reverse"},
    "orders": {"orders": permutations(33, 2)},
    "form": {"form": "scan"},
}


def results(layer: torch.nn.Module, x: torch.Tensor, **where) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x, **where)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], weights)]


def operators_of(layer: torch.nn.Module, x: torch.Tensor) -> set[str]:
    with torch.profiler.profile() as profile:
        layer(x)
    return {event.name for event in profile.events()}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("where", ["whole", "mask", "packed"])
def test_the_layer_is_what_it_is_on_torch(options, where):
    torch.manual_seed(0)
    layer = lion.LionAttention(72, 2, "mamba", **OPTIONS[options]).double()  # 72 channels: a block and a bit
    tokens = {"mask": torch.rand(2, 33) > 0.3, "packed": torch.tensor([0, 5, 5, 33])}.get(where)
    if options == "orders" and where == "packed":
        layer.orders = permutations(33, 2, tokens)
    x = torch.randn(1 if where == "packed" else 2, 33, 72).double()
    given = {} if tokens is None else {"mask" if where == "mask" else "cu_seqlens": tokens}
    assert "lion::cpu_selective" in operators_of(layer, x)
    got = results(layer, x, **given)
    layer.set_form("scan", backend="torch")
    assert "lion::cpu_selective" not in operators_of(layer, x)
    for y, z in zip(got, results(layer, x, **given), strict=True):
        torch.testing.assert_close(y, z, rtol=1e-9, atol=1e-10)


def call(T: int, *, strength: float = 1.0, B: int = 2, H: int = 70, D: int = 16) -> Selective:
    torch.manual_seed(0)
    q, k, v = torch.randn(B, T, D), torch.randn(B, T, D), torch.randn(B, T, H)
    step, rate = strength * torch.rand(B, T, H), torch.arange(1.0, D + 1).expand(H, D).clone()
    return Selective(q, k, v, step, None, rate, None, None, None, None, 3)


def with_gradients(x: Selective, run=lambda x: torch.ops.lion.cpu_selective(*x)) -> dict[str, torch.Tensor]:
    names = ("q", "k", "v", "step", "rate")
    x = x._replace(**{name: getattr(x, name).clone().requires_grad_() for name in names})
    out = run(x)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    grads = torch.autograd.grad(out, [getattr(x, name) for name in names], weights)
    return {"out": out.detach()} | dict(zip(names, grads, strict=True))


@pytest.mark.parametrize(("B", "T"), [(1, 300), (3, 40)])
def test_the_same_bits_from_any_number_of_threads(B, T):
    runs = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        runs.append(with_gradients(call(T, B=B)))
    for run in runs[1:]:
        assert all(torch.equal(run[name], x) for name, x in runs[0].items())


@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0, 30.0])
def test_float32_is_as_exact_as_plain_torch(strength):
    """At most twice the error of the torch scan, outputs and gradients; float64 is the judge."""
    x = call(1024, strength=strength, B=1, H=33, D=8)
    double = x._replace(**{name: getattr(x, name).double() for name in ("q", "k", "v", "step", "rate")})
    want, got, plain = with_gradients(double, plainly_computed), with_gradients(x), with_gradients(x, plainly_computed)
    for name, y in want.items():
        error, allowed = ((z[name] - y).square().mean().sqrt() / y.square().mean().sqrt() for z in (got, plain))
        assert error <= 2 * allowed + 1e-7, (name, error, allowed)


def test_a_channel_that_forgets_at_once():
    """Decays below the smallest number: only the token itself is left."""
    x = call(20, strength=0)._replace(step=torch.full((2, 20, 70), 1e4))
    own = (x.q * x.k).sum(-1, keepdim=True) * x.v
    torch.testing.assert_close(torch.ops.lion.cpu_selective(*x), own)


@pytest.mark.parametrize("wrong", [-0.5, torch.inf, torch.nan])
@pytest.mark.parametrize("name", ["step", "rate"])
def test_bad_values_are_refused(name, wrong):
    x = call(9)
    getattr(x, name)[..., -1, 0] = wrong
    with pytest.raises(
        ValueError, match="step or rate is negative, infinite or NaN; expected finite numbers from 0 on"
    ):
        torch.ops.lion.cpu_selective(*x)


def test_bfloat16_is_computed_in_float32():
    layer, x = lion.LionAttention(64, 2, "mamba").bfloat16(), torch.randn(2, 50, 64).bfloat16()
    got = layer(x)
    assert got.dtype == torch.bfloat16
    want = layer.set_form("scan", backend="torch").float()(x.float())
    assert (got.float() - want).abs().max() <= 2**-5 * want.abs().max()


def test_no_memory_of_channels_times_states():
    """A layer's training step allocates less than one tensor of tokens x channels x states."""
    from torch.profiler import ProfilerActivity, profile

    layer, x = lion.LionAttention(64, 2, "mamba"), torch.randn(1, 512, 64, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        layer(x).sum().backward()
    assert max(event.cpu_memory_usage for event in found.events()) < 512 * 64 * 16 * 4


def test_second_derivatives():
    x = call(5, B=1, H=2, D=2)
    names = ("q", "k", "v", "step", "rate")
    inputs = [getattr(x, name).double().requires_grad_() for name in names]

    def run(*tensors):
        return torch.ops.lion.cpu_selective(*x._replace(**dict(zip(names, tensors, strict=True))))

    assert torch.autograd.gradgradcheck(run, inputs)

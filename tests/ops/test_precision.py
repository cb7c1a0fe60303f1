"""Half precision, long sequences and extreme numbers."""

import itertools
import json
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import lion
import lion.ops.kernels
from lion.ops import reference
from lion.ops.cpu import library, projected
from tests.ops.problems import ALL_KERNELS, DECAYS, kernels, log_decays, output_and_gradients, problem


def plain_formula(q, k, v, log_decay):
    """Scale(QK^T * M) V, as one would write it in PyTorch, in the dtype of the inputs."""
    T = q.shape[1]
    sums = log_decay.double().cumsum(1).transpose(1, 2)  # [B, H, T]
    before = torch.cat([torch.zeros_like(sums[..., :1]), sums[..., :-1]], -1)
    lower = (before[..., :, None] - before[..., None, :]).tril().exp()
    upper = (sums[..., None, :] - sums[..., :, None]).triu().exp()
    mask = torch.where(torch.ones(T, T).tril().bool(), lower, upper).to(q.dtype)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * mask
    num = torch.einsum("bhij,bjhv->bihv", scores, v)
    return num / scores.sum(-1).transpose(1, 2).unsqueeze(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("strength", [1e-3, 1.0])
def test_half_precision(dtype, strength):
    """At most twice the error of the plain formula in the same dtype, outputs and gradients."""
    B, T, H, D = 1, 2048, 1, 16
    feature = torch.nn.functional.normalize
    q, k = (feature(torch.randn(B, T, H, D), dim=-1).abs().to(dtype) for _ in range(2))
    v = torch.randn(B, T, H, D).to(dtype)
    log_decay = (-strength * torch.rand(B, T, H)).to(dtype)
    inputs = {"q": q, "k": k, "v": v, "log_decay": log_decay}
    exact = output_and_gradients(plain_formula, {name: x.double() for name, x in inputs.items()})
    plain = output_and_gradients(plain_formula, dict(inputs))
    for kernel in kernels("per token"):
        if lion.ops.kernels.BACKENDS[kernel["backend"]].missing(q.device, dtype):
            continue
        got = output_and_gradients(lion.attention, dict(inputs), **kernel)
        for name, x in got.items():
            assert x.dtype == dtype
            size = exact[name].abs().max()
            error, allowed = ((y[name].double() - exact[name]).abs().max() / size for y in (got, plain))
            assert error <= 2 * allowed + 1e-6, (kernel, name, error.item(), allowed.item())


@pytest.mark.parametrize("offset", [0, 1, 4, 16])
@pytest.mark.parametrize("decay", DECAYS)
def test_half_precision_of_values_with_an_offset(decay, offset):
    """The gradient of a quotient is a small difference where all values share an offset: at most twice the error of
    torch, whose autograd keeps the quotient in float32."""
    for norm in ("sum", "max"):
        kwargs = problem(decay, T=150, D=16, V=16)
        kwargs["v"] = kwargs["v"] + offset
        if kwargs["log_decay"] is not None:
            kwargs["log_decay"] = 0.1 * log_decays(decay, 2, 150, 2, 16, extremes=False).float()
        inputs = {name: x if name == "log_decay" else x.bfloat16() for name, x in kwargs.items() if x is not None}
        exact = output_and_gradients(lion.attention, {name: x.double() for name, x in inputs.items()}, norm=norm)
        plain = output_and_gradients(lion.attention, dict(inputs), norm=norm, form="full", backend="torch")
        for kernel in kernels(decay):
            got = output_and_gradients(lion.attention, dict(inputs), norm=norm, **kernel)
            for name, want in exact.items():
                error, allowed = (relative_error(x[name], want) for x in (got, plain))
                assert error <= 2 * allowed, (kernel, norm, name)


@pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")
@pytest.mark.parametrize("features", ["unit_silu", "identity"])
def test_half_precision_of_a_layer_with_an_offset(features):
    """From the projection on, too."""
    B, T, H, D = 2, 150, 2, 16
    y = torch.rand(B, T, 3 * H * D) + 0.1
    y[..., 2 * H * D :] += 4
    y, log_decay = y.bfloat16(), -0.1 * torch.rand(B, T, H)

    def attend(y, log_decay):
        q, k, v = y.unflatten(-1, (3, H, D)).unbind(2)
        q, k = (F.normalize(F.silu(x) + 0.5, dim=-1) if features == "unit_silu" else x for x in (q, k))
        return lion.attention(q, k, v, log_decay, form="full", backend="torch")

    def fused(y, log_decay):
        tokens = dict.fromkeys(("self_weight", "mask", "cu_seqlens", "orders", "chunk_size"))
        return projected.attention(y, H, D, features, log_decay, norm="sum", direction="both", **tokens)

    inputs = {"y": y, "log_decay": log_decay}
    exact = output_and_gradients(attend, {name: x.double() for name, x in inputs.items()})
    plain, got = (output_and_gradients(function, dict(inputs)) for function in (attend, fused))
    for name, want in exact.items():
        assert relative_error(got[name], want) <= 2 * relative_error(plain[name], want), name


@pytest.mark.parametrize("decay", ["per token", "diagonal"])
def test_float32_near_resets(decay):
    """Strong decays next to weak ones: nothing cancels, so float32 keeps float32's accuracy."""
    kwargs = problem(decay, T=197, D=8, V=8)
    want = reference.attention(**kwargs)
    single = {name: x.float() if x is not None else x for name, x in kwargs.items()}
    for kernel in kernels(decay):
        got = lion.attention(**single, **kernel)
        assert (got - want).abs().max() <= 2e-6 * want.abs().max(), kernel


@pytest.mark.parametrize(
    ("decay", "kernel"),
    [(decay, kernel) for decay in ("none", "fixed", "per token", "diagonal") for kernel in kernels(decay, gain=True)],
    ids=str,
)
def test_gates_beyond_the_range_of_floats(decay, kernel):
    """exp(log_gain) overflows float32 from 89 on; the output of "sum" and "max" does not depend on that."""
    for direction, norm in itertools.product(("both", "forward", "reverse"), ("sum", "max", "unmasked")):
        kwargs = problem(decay, T=70, gain=True)
        kwargs["log_gain"] = (kwargs["log_gain"] * 20 * 1024).round() / 1024  # so that float32 holds it exactly
        want = reference.attention(**kwargs, norm=norm, direction=direction)
        single = {name: x.float() if x is not None else x for name, x in kwargs.items()}
        single["log_gain"] = single["log_gain"] + 200
        if norm == "max":  # far above the threshold max(|den|, 1) is |den|
            want = reference.attention(**kwargs, norm="sum", direction=direction)
        got = output_and_gradients(lion.attention, single, norm=norm, direction=direction, **kernel)
        assert all(torch.isfinite(x).all() for x in got.values())
        assert (got["output"] - want).abs().max() <= 2e-5 * want.abs().max(), (direction, norm)


def test_a_gate_that_was_huge_long_ago():
    """A gate of e^300 at token 0 and a decay that has since forgotten it: later tokens keep their detail."""
    kwargs = problem("fixed", T=400, gain=True)
    kwargs["log_decay"] = torch.tensor([-1.0, -2.0]).double()
    kwargs["log_gain"][:, 0] = 300
    want = reference.attention(**kwargs)
    for kernel in kernels("fixed"):
        got = lion.attention(**{name: x.float() if x is not None else x for name, x in kwargs.items()}, **kernel)
        assert (got - want).abs().max() <= 2e-5 * want.abs().max()


def test_channels_that_forget_at_different_times():
    """The slowest channel of every step forgets nothing, while every single channel forgets all."""
    kwargs = problem("diagonal", T=90, D=2, gain=True)
    kwargs["log_decay"] = (
        torch.tensor([[0.0, -50.0], [-50.0, 0.0]]).double().repeat(45, 1)[None, :, None].repeat(2, 1, 2, 1)
    )
    kwargs["log_gain"][:, 0] = 150
    want = reference.attention(**kwargs)
    for kernel in kernels("diagonal", gain=True):
        single = {name: x.float() if x is not None else x for name, x in kwargs.items()}
        got = output_and_gradients(lion.attention, single, **kernel)
        assert all(torch.isfinite(x).all() for x in got.values())
        assert (got["output"] - want).abs().max() <= 2e-5 * want.abs().max()


def test_masked_tokens_are_zero_at_any_scale():
    kwargs = {name: x.float() if x is not None else x for name, x in problem("fixed", gain=True).items()}
    kwargs["log_gain"] += 100
    kwargs["v"] *= 1e-30
    kwargs["mask"] = torch.rand(2, 11) > 0.5
    for kernel, norm in itertools.product(ALL_KERNELS, ("sum", "max", "none", "unmasked")):
        out = lion.attention(**kwargs, **kernel, norm=norm)
        assert (out[~kwargs["mask"]] == 0).all(), (kernel, norm)


MILLION = """
import json, sys, torch, lion, tests
from lion.bench.peak_memory import peak_memory
T = int(sys.argv[1])
torch.set_num_threads(2)
torch.manual_seed(tests.SEED)
q, k = (torch.rand(1, T, 1, 16).requires_grad_() for _ in range(2))
v = torch.randn(1, T, 1, 16, requires_grad=True)
log_decay = (-1e-3 * torch.rand(1, T, 1)).requires_grad_()
kept = []
def work():
    kept.append(lion.attention(q, k, v, log_decay, form="scan", backend=sys.argv[2]))
    kept[0].backward(torch.ones_like(kept[0]))
peak = peak_memory(work)
out = kept[0]
error = 0.0
for i in (0, 1, T // 3, T // 2 + 1, T - 2, T - 1):
    x = log_decay.detach().double()[0, :, 0]
    log_m = torch.cat([x[:i].flip(0).cumsum(0).flip(0), torch.zeros(1).double(), x[i + 1 :].cumsum(0)])
    p = log_m.exp() * (k.detach().double()[0, :, 0] @ q.detach().double()[0, i, 0])
    want = p @ v.detach().double()[0, :, 0] / p.sum()
    error = max(error, ((out.detach()[0, i, 0].double() - want).abs().max() / want.abs().max()).item())
finite = all(bool(x.grad.isfinite().all()) for x in (q, k, v, log_decay))
print(json.dumps({"bytes": peak, "error": error, "finite": finite}))
"""


LONGEST = {"torch": 1 << 16}  # where a million would take a minute


@pytest.mark.parametrize("backend", [x["backend"] for x in ALL_KERNELS if x["form"] == "scan"])
def test_a_million_tokens(backend):
    """Forward and backward; memory grows linearly; sampled outputs match float64."""
    found = {}
    longest = LONGEST.get(backend, 1 << 20)
    for T in (longest >> 4, longest):
        command = [sys.executable, "-c", MILLION, str(T), backend]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found[T] = json.loads(run.stdout)
        assert found[T]["finite"]
        assert found[T]["error"] <= 1e-5
    per_token = {T: x["bytes"] / T for T, x in found.items()}
    assert per_token[longest] <= 1.1 * per_token[longest >> 4]


LONG = 16_384


def extreme_channels(D):
    """Log decays of D channels, from 1 - 1e-6 to 1e-6."""
    slow = torch.log1p(-torch.logspace(-6, -1, D - D // 2).double())
    return torch.cat([slow, torch.logspace(-1, -6, D // 2).double().log()])


def relative_error(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_extreme_channels_over_a_long_sequence(backend, per_token):
    """Decays from 1 - 1e-6 to 1e-6 side by side, 16,384 tokens, float32: outputs and gradients as float64's."""
    D = 8
    log_decay = extreme_channels(D).expand(1, D)
    if per_token:
        log_decay = torch.stack([log_decay[:, torch.randperm(D)] for _ in range(LONG)])[None]
    q, k = (torch.rand(1, LONG, 1, D).double() for _ in range(2))
    kwargs = {"q": q, "k": k, "v": torch.randn(1, LONG, 1, 8).double(), "log_decay": log_decay}
    single = {name: x.float() for name, x in kwargs.items()}
    exact = {name: x.double() for name, x in single.items()}  # of the same numbers
    want = output_and_gradients(lion.attention, exact, form="scan", backend="torch")
    got = output_and_gradients(lion.attention, single, form="scan", backend=backend)
    for name, x in want.items():
        assert got[name].isfinite().all(), name
        assert relative_error(got[name], x) <= 1e-4, name


@pytest.mark.parametrize("decay", [0.0, math.log1p(-1e-6), math.log(0.5), math.log(1e-6)])
def test_the_delta_rule_over_a_long_sequence(decay):
    q, v = torch.randn(1, LONG, 1, 8), torch.randn(1, LONG, 1, 8)
    k = F.normalize(torch.randn(1, LONG, 1, 8), dim=-1)
    kwargs = {"q": q, "k": k, "v": v, "beta": torch.rand(1, LONG, 1), "log_decay": torch.full((1,), decay)}
    want = output_and_gradients(lion.attention, {name: x.double() for name, x in kwargs.items()}, norm="none")
    got = output_and_gradients(lion.attention, kwargs, norm="none")
    for name, x in want.items():
        assert got[name].isfinite().all(), name
        assert relative_error(got[name], x) <= 1e-4, name


def test_the_papers_factored_form_overflows():
    """Q * L times K / L, with L the product of all decays so far: L is 0 long before the sequence ends."""
    D = 8
    log_decay = extreme_channels(D)
    L = (torch.arange(LONG)[:, None] * log_decay).exp().float()
    q, k = torch.rand(2, LONG, D)
    rows = slice(LONG - 64, LONG)
    assert not ((q * L)[rows] @ (k / L)[rows].T).isfinite().all()
    # Every decay between neighbours is a harmless number, and so is the output.
    out = lion.attention(q[None, :, None], k[None, :, None], torch.randn(1, LONG, 1, 4), log_decay[None].float())
    assert out.isfinite().all()

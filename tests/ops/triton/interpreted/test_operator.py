"""The operators of `torch.ops.lion` that run Triton's kernels: registration, precision, bytes, FLOPs, determinism."""

import itertools

import pytest
import torch
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

import lion
from lion.bench.compile import traffic
from lion.ops.triton.operators import Arguments
from tests.ops.problems import log_decays, output_and_gradients, problem
from tests.ops.test_precision import plain_formula
from tests.ops.triton.interpreted.counting import counted

TRITON = {"backend": "triton", "form": "scan"}


def inputs(decay="per token", dtype=torch.float32, B=1, T=128, H=1, D=16):
    """Features of length 1, values, and decays of every strength but 0 and -inf."""
    q, k = (torch.nn.functional.normalize(torch.rand(B, T, H, D).double() + 0.1, dim=-1).to(dtype) for _ in range(2))
    v = torch.randn(B, T, H, D).double().to(dtype)
    log_decay = log_decays(decay, B, T, H, D, extremes=False)
    return {"q": q, "k": k, "v": v, "log_decay": log_decay if log_decay is None else 0.1 * log_decay.float()}


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_opcheck(decay):
    kwargs = inputs(decay, T=17, D=3)
    f = None if decay == "none" else kwargs["log_decay"].reshape(1, 17, 1, -1)
    tensors = [x.requires_grad_() for x in (kwargs["q"], kwargs["k"], kwargs["v"])]
    f, b = (None, None) if f is None else (f.requires_grad_(), (0.5 * f).detach().requires_grad_())
    plain = Arguments(*tensors, f, b, chunk_size=16)
    entering = torch.randn(2, 1, 1, 3, 3).requires_grad_(), torch.randn(2, 1, 1, 3).requires_grad_()
    piece = plain._replace(norm="none", wide=True, sums=entering[0], keys=entering[1], leaves=True)
    for arguments in (plain, piece._replace(mask=torch.arange(17)[None] < 15)):
        opcheck(torch.ops.lion.triton_scan.default, (*arguments, False))


def test_the_operator_alone_in_half_precision():
    """Called directly, it may be differentiated without the output in float32."""
    q = inputs(T=17)["q"].bfloat16().requires_grad_()
    for save in (False, True):
        out, _, saved, *_ = torch.ops.lion.triton_scan(*Arguments(q, q, q, None, None, chunk_size=16), save)
        assert saved.shape == (out.shape if save else (0,))
        (grad,) = torch.autograd.grad(out.sum(), q)
        assert grad.dtype == torch.bfloat16
        assert grad.isfinite().all()


def test_compiled_whole():
    """torch.compile(fullgraph=True, dynamic=True), forward and backward, with a state that comes from before."""
    state = lion.attention_states(*(torch.rand(1, 5, 1, 16) for _ in range(2)), torch.zeros(1)).forward

    def attend(**x):
        out, states = lion.attention(**x, **TRITON, direction="forward", forward_state=state, return_states=True)
        return out + states.forward.sums.sum(2)[:, None]

    run = torch.compile(attend, fullgraph=True, dynamic=True, backend="aot_eager")
    for T in (17, 21):
        kwargs = inputs(T=T)
        want = output_and_gradients(attend, dict(kwargs))
        got = output_and_gradients(run, dict(kwargs))
        for name, x in want.items():
            assert torch.equal(got[name], x), name


def test_autocast():
    kwargs = inputs(T=17)
    with torch.autocast("cpu", torch.bfloat16):
        out = lion.attention(**kwargs, **TRITON)
    assert out.dtype == torch.bfloat16
    half = {name: x.bfloat16() if name != "log_decay" else x for name, x in kwargs.items()}
    assert torch.equal(out, lion.attention(**half, **TRITON))


def test_second_derivatives():
    kwargs = {name: x.double() for name, x in problem("per token", B=1, T=5, H=1, D=2, V=2).items() if x is not None}
    kwargs["log_decay"] = log_decays("per token", 1, 5, 1, 2, extremes=False) - 0.1
    tensors = [x.requires_grad_() for x in kwargs.values()]

    def gradients(backend):
        out = lion.attention(*tensors, backend=backend, form="scan")
        first = torch.autograd.grad(out.pow(2).sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(x.pow(2).sum() for x in first), tensors)

    for got, want in zip(gradients("triton"), gradients("torch"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_float32_is_as_exact_as_the_torch_scan(decay):
    kwargs = inputs(decay, T=192)
    exact = output_and_gradients(lion.attention, {n: x if x is None else x.double() for n, x in kwargs.items()})
    got, plain = (
        output_and_gradients(lion.attention, dict(kwargs), form="scan", backend=b) for b in ("triton", "torch")
    )
    for name, want in exact.items():
        mine, allowed = ((x[name] - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt() for x in (got, plain))
        assert mine <= 2 * allowed + 1e-8, (name, mine, allowed)


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float16, 0), (torch.bfloat16, 0), (torch.bfloat16, 16)])
def test_half_precision(dtype, offset):
    """At most twice the error of the plain formula in the same dtype; states cross two borders of chunks. Where all
    values share an offset, the gradient of the quotient is a small difference."""
    kwargs = inputs(dtype=dtype, T=192)
    kwargs["v"] = kwargs["v"] + offset
    kwargs["log_decay"] = kwargs["log_decay"].to(dtype)
    exact = output_and_gradients(plain_formula, {name: x.double() for name, x in kwargs.items()})
    got = output_and_gradients(lion.attention, dict(kwargs), **TRITON)
    plain = output_and_gradients(plain_formula, dict(kwargs))
    for name, want in exact.items():
        assert got[name].dtype == dtype
        error, allowed = ((x[name].double() - want).abs().max() / want.abs().max() for x in (got, plain))
        assert error <= 2 * allowed + 1e-6, (name, error.item(), allowed.item())


def test_the_same_bits_again_and_at_any_place_of_a_batch():
    kwargs = inputs(B=2, T=20, H=2, D=3)
    want, again = (output_and_gradients(lion.attention, dict(kwargs), **TRITON, chunk_size=16) for _ in range(2))
    swapped = {name: x.flip(0, 2).contiguous() for name, x in kwargs.items()}
    out = lion.attention(**swapped, **TRITON, chunk_size=16).flip(0, 2)
    assert torch.equal(out, want["output"])
    for name, x in want.items():
        assert torch.equal(again[name], x), name
    alone = {name: x[1:].detach().clone() for name, x in kwargs.items()}
    assert torch.equal(lion.attention(**alone, **TRITON, chunk_size=16), want["output"][1:])


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_flops_are_those_of_the_products(decay):
    for direction, norm in itertools.product(("both", "forward"), ("sum",)):
        kwargs = inputs(decay, T=32)
        for x in kwargs.values():
            if x is not None:
                x.requires_grad_()
        options = {"direction": direction, "norm": norm, "chunk_size": 16, **TRITON}
        with FlopCounterMode(display=False) as formula, counted() as counts:
            lion.attention(**kwargs, **options).sum().backward()
        assert formula.get_total_flops() == counts.flops, (decay, direction)


FORWARD, BACKWARD = 1544, 4680  # bytes per token and head, D = V = 64, bfloat16


def test_bytes_per_token():
    """Of reading and writing, for a per-token decay and both directions: at most 1.1 times what was planned."""
    T = 256
    kwargs = {name: x.bfloat16() if name != "log_decay" else x for name, x in inputs(T=T, D=64).items()}
    with torch.no_grad(), counted() as forward:
        lion.attention(**kwargs, **TRITON)
    for x in kwargs.values():
        x.requires_grad_()
    out = lion.attention(**kwargs, **TRITON)
    with counted() as backward:
        out.backward(torch.ones_like(out))
    assert forward.launches == ["states", "values"]
    assert backward.launches == ["divisors", "states", "states", "values", "gradients", "gradients"]
    assert forward.bytes / T <= 1.1 * FORWARD
    assert backward.bytes / T <= 1.1 * BACKWARD
    table = traffic("scalar", 64, 64, torch.bfloat16)
    assert (forward.bytes / T, backward.bytes / T) == pytest.approx(table, rel=0.02)


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({"mask": torch.ones(1, 128, dtype=torch.bool)}, 1572 + 7, 4912 + 26),
        ({"direction": "forward"}, 1172, 3944),
        ({"cu_seqlens": torch.tensor([0, 100, 128])}, 1700, 5296),
    ],
    ids=["mask", "forward", "packed"],
)
def test_bytes_of_options(options, forward, backward):
    """No more launches, and the bytes that docs/gpu.md names."""
    kwargs = {name: x.bfloat16() if name != "log_decay" else x for name, x in inputs(T=128, D=64).items()}
    with torch.no_grad(), counted() as one:
        lion.attention(**kwargs, **TRITON, **options)
    for x in kwargs.values():
        x.requires_grad_()
    out = lion.attention(**kwargs, **TRITON, **options)
    with counted() as other:
        out.backward(torch.ones_like(out))
    assert one.launches == ["states", "values"]
    assert len(other.launches) == 6
    assert (one.bytes / 128, other.bytes / 128) == pytest.approx((forward, backward), rel=0.01)


def test_too_many_channels():
    q = torch.rand(1, 4, 1, 257)
    with pytest.raises(ValueError, match=r"backend 'triton' cannot run this: it has at most 256 channels of keys or"):
        lion.attention(q, q, q, backend="triton")
    operator = torch.ops.lion.triton_scan.default
    with pytest.raises(ValueError, match="a head has 257 channels; expected at most 256"):
        operator(*Arguments(q, q, q, None, None), False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "most"}, "norm is 'most'; expected one of 'none', 'sum', 'max'"),
        ({"f": torch.zeros(1, 1, 1, 1)}, "one of f and b is None; expected both or neither"),
        ({"wide": True}, "wide is True with norm 'sum'; expected 'none'"),
        ({"with_den": False}, "with_den is False with norm 'sum'; expected True"),
        ({"k": torch.rand(1, 4, 1, 3)}, r"k has shape \(1, 4, 1, 3\)"),
        ({"v": torch.rand(1, 4, 1, 2).double()}, "expected float64"),
    ],
)
def test_operators_refuse_what_does_not_fit(changes, message):
    q = torch.rand(1, 4, 1, 2)
    given = Arguments(q, q, q, None, None)._replace(**changes)
    with pytest.raises((ValueError, TypeError), match=message):
        torch.ops.lion.triton_scan(*given, False)

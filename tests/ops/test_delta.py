"""The delta rule: every form is the definition, and stays so where decays are extreme."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

import lion
from lion.ops import reference
from lion.ops.kernels import CHUNKED
from lion.ops.torch import delta
from tests.ops.problems import assert_same, kernels, leaves, output_and_gradients, packing, permutations

KERNELS = kernels("delta")
DECAYS = ("none", "fixed", "per token")


def problem(decay="none", *, B=2, T=11, H=2, D=3, V=4, self_weight=False, mask=False, packed=False, orders=0):
    B = 1 if packed else B
    q, k, v = (torch.randn(B, T, H, n).double() for n in (D, D, V))
    kwargs = {"q": q, "k": F.normalize(k, dim=-1), "v": v, "beta": torch.rand(B, T, H).double(), "norm": "none"}
    if decay != "none":
        kwargs["log_decay"] = -torch.rand((H,) if decay == "fixed" else (B, T, H)).double()
    if decay == "per token" and T > 4:
        kwargs["log_decay"][:, 2] = -torch.inf
    if self_weight:
        kwargs["self_weight"] = torch.rand(H, D).double()
    if mask:
        kwargs["mask"] = torch.rand(B, T) > 0.3
    if packed:
        kwargs["cu_seqlens"] = packing(T)
    if orders:
        kwargs["orders"] = permutations(T, orders, kwargs.get("cu_seqlens"))
    return kwargs


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("decay", DECAYS)
def test_every_form_is_the_definition(decay, direction):
    for self_weight, mask, packed, orders in itertools.product((False, True), (False, True), (False, True), (0, 2)):
        kwargs = problem(decay, T=19, self_weight=self_weight, mask=mask, packed=packed, orders=orders)
        want = output_and_gradients(reference.attention, kwargs, direction=direction)
        for kernel in KERNELS:
            size = 4 if kernel["form"] in CHUNKED else None
            got = output_and_gradients(lion.attention, kwargs, direction=direction, **kernel, chunk_size=size)
            assert_same(got, want, 1e-10, (kernel, decay, self_weight, mask, packed, orders))


def test_every_direction_with_its_own_decays():
    for decay, packed, direction in itertools.product(DECAYS[1:], (False, True), ("both", "reverse")):
        kwargs = problem(decay, T=19, packed=packed)
        kwargs["log_decay"] = kwargs["log_decay"], problem(decay, T=19, packed=packed)["log_decay"]
        want = output_and_gradients(reference.attention, kwargs, direction=direction)
        for kernel in KERNELS:
            assert_same(output_and_gradients(lion.attention, kwargs, direction=direction, **kernel), want, 1e-10)


@pytest.mark.parametrize("T", [0, 1, 64, 65, 300])
def test_lengths(T):
    kwargs = problem("per token", T=T)
    want = output_and_gradients(reference.attention, kwargs)
    for kernel in KERNELS:
        assert_same(output_and_gradients(lion.attention, kwargs, **kernel), want, 1e-10, kernel)


def test_slabs(monkeypatch):
    """A long sequence is handled a piece at a time."""
    kwargs = problem("per token", T=70)
    want = output_and_gradients(lion.attention, kwargs)
    monkeypatch.setattr(delta, "SLAB_ELEMENTS", 500)
    assert_same(output_and_gradients(lion.attention, kwargs, chunk_size=8), want, 1e-12)


def test_gradcheck():
    kwargs = problem("fixed", B=1, T=5, H=1, D=2, V=2)
    names, inputs = zip(*leaves(kwargs).items(), strict=True)
    assert gradcheck(lambda *x: lion.attention(**kwargs | dict(zip(names, x, strict=True)), chunk_size=2), inputs)


def test_masked_tokens_may_hold_anything():
    kwargs = problem(mask=True)
    want = lion.attention(**kwargs)
    for name in ("q", "k", "v", "beta"):
        kwargs[name] = kwargs[name].clone()
        kwargs[name][~kwargs["mask"]] = torch.nan
    assert torch.equal(lion.attention(**kwargs), want)
    assert (want[~kwargs["mask"]] == 0).all()


def test_it_overwrites():
    """With beta = 1 and a key seen before, the old value is gone: what linear attention cannot do."""
    k = F.normalize(torch.ones(1, 2, 1, 4), dim=-1)
    v = torch.tensor([[1.0], [5.0]]).reshape(1, 2, 1, 1)
    beta = torch.ones(1, 2, 1)
    out = lion.attention(k, k, v, beta=beta, norm="none", direction="forward")
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, 5.0]))


def test_operators_and_compilation():
    carry = [torch.randn(2, 3, 4, n, requires_grad=True) for n in (6, 5, 5, 5, 4)]
    state = torch.randn(3, 5, 6, requires_grad=True)
    torch.library.opcheck(delta.carry_op, (state, *carry, torch.rand(2, 3, requires_grad=True)))
    kwargs = {name: x.float() for name, x in problem("fixed", T=70).items() if name != "norm"}
    compiled = torch.compile(lambda **x: lion.attention(**x, norm="none"), fullgraph=True)
    torch.testing.assert_close(compiled(**kwargs), lion.attention(**kwargs, norm="none"))


@pytest.mark.parametrize("C", [1, 2, 7, 32, 33])
def test_inverse_by_products(C):
    """What an ONNX graph has in place of a triangular system."""
    from lion.ops.torch.delta import _unit_inverse

    A = torch.randn(3, C, C, dtype=torch.float64).tril(-1)
    torch.testing.assert_close(_unit_inverse(A) @ (torch.eye(C) + A), torch.eye(C).expand_as(A).double())

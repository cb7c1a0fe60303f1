"""gradcheck in float64, and gradients that stay finite where decays are infinite or rows are empty."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck

import lion
from lion.ops.kernels import CHUNKED
from tests.ops.problems import DECAYS, kernels, leaves, log_decays, output_and_gradients, problem


def with_gradients_of_their_own(decays):
    """The kernels with gradients of their own; the others are autograd's."""
    return [(kernel, decay) for decay in decays for kernel in kernels(decay) if kernel["form"] in ("scan", "full")]


@pytest.mark.parametrize(("kernel", "decay"), with_gradients_of_their_own(DECAYS), ids=str)
def test_gradcheck(kernel, decay):
    for norm, direction in itertools.product(("sum", "max", "unmasked"), ("both", "forward", "reverse")):
        kwargs = problem(decay, B=1, T=5, H=1, D=2, V=2, gain=kernel in kernels(decay, gain=True), self_weight=True)
        # Finite differences cannot step over 0, nor see anything at -1e4.
        kwargs["log_decay"] = log_decays(decay, 1, 5, 1, 2, extremes=False)
        if kwargs["log_decay"] is not None:
            kwargs["log_decay"] -= 0.01
        names, inputs = zip(*leaves(kwargs).items(), strict=True)

        def run(*tensors, names=names, kwargs=kwargs, norm=norm, direction=direction):
            given = kwargs | dict(zip(names, tensors, strict=True))
            size = 2 if kernel["form"] in CHUNKED else None
            return lion.attention(**given, **kernel, chunk_size=size, norm=norm, direction=direction)

        assert gradcheck(run, inputs)


@pytest.mark.parametrize(("kernel", "decay"), with_gradients_of_their_own(["per token", "diagonal"]), ids=str)
def test_gradcheck_beside_masked_tokens(kernel, decay):
    """Through the decays of the neighbours of masked tokens, and across them."""
    kwargs = problem(decay, B=1, T=6, H=1, D=2, V=2)
    kwargs["log_decay"] = log_decays(decay, 1, 6, 1, 2, extremes=False) - 0.01
    kwargs["mask"] = torch.tensor([[False, True, False, False, True, True]])
    names, inputs = zip(*leaves(kwargs).items(), strict=True)
    assert gradcheck(lambda *x: lion.attention(**kwargs | dict(zip(names, x, strict=True)), **kernel), inputs)
    grads = output_and_gradients(lion.attention, kwargs, **kernel)
    for name in names:
        assert (grads[name][~kwargs["mask"]] == 0).all(), name
        assert (grads[name][kwargs["mask"]] != 0).any(), name


@pytest.mark.parametrize("decay", ["fixed", "fixed diagonal", "per token", "diagonal"])
def test_infinite_decays_have_finite_gradients(decay):
    """log_decay = -inf everywhere: every token sees itself alone, and nothing depends on the decay."""
    for kernel, norm, gain in itertools.product(kernels(decay), ("sum", "max", "none", "unmasked"), (False, True)):
        if kernel not in kernels(decay, gain):
            continue
        kwargs = problem(decay, T=70, gain=gain)
        kwargs["log_decay"] = torch.full_like(kwargs["log_decay"], -torch.inf)
        grads = output_and_gradients(lion.attention, kwargs, **kernel, norm=norm)
        assert all(torch.isfinite(x).all() for x in grads.values())
        assert (grads["log_decay"].abs() < 1e-12).all()
        if norm == "sum":
            torch.testing.assert_close(grads["output"], kwargs["v"])


@pytest.mark.parametrize("decay", DECAYS)
def test_fully_masked_rows_output_zero(decay):
    for kernel, norm in itertools.product(kernels(decay), ("sum", "max", "none", "unmasked")):
        kwargs = problem(decay, gain=kernel in kernels(decay, gain=True), self_weight=True)
        kwargs["mask"] = torch.tensor([[True] * 11, [False] * 11])
        for name in ("q", "k", "v"):
            kwargs[name][1] = torch.nan  # what stands in padding may be anything
        grads = output_and_gradients(lion.attention, kwargs, **kernel, norm=norm)
        assert (grads["output"][1] == 0).all()
        for name, x in grads.items():
            assert torch.isfinite(x).all(), (name, kernel, norm)
            if x.dim() == 4:
                assert (x[1] == 0).all(), (name, kernel, norm)


def test_every_gate_closed():
    """log_gain = -inf for every token: nothing arrives anywhere, num is exactly 0, gradients are finite."""
    kwargs = problem("per token", gain=True)
    kwargs["log_gain"] = torch.full_like(kwargs["log_gain"], -torch.inf)
    for kernel, norm in itertools.product(kernels("per token"), ("max", "none")):
        grads = output_and_gradients(lion.attention, kwargs, **kernel, norm=norm)
        assert (grads["output"] == 0).all()
        assert all(torch.isfinite(x).all() for x in grads.values())

"""Padding and packing never change a real token's output, nor its gradient."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import lion
from tests.ops.problems import DECAYS, assert_same, kernels, output_and_gradients, problem

PATTERNS = {
    "right": lambda T: torch.cat([torch.ones(T), torch.zeros(7)]),
    "left": lambda T: torch.cat([torch.zeros(7), torch.ones(T)]),
    "holes": lambda T: torch.cat([torch.ones(T // 2), torch.zeros(4), torch.ones(T - T // 2), torch.zeros(3)]),
    "everywhere": lambda T: torch.tensor([0.0, 1.0]).repeat(T),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("decay", DECAYS)
def test_padding_changes_nothing(decay, pattern):
    for norm, direction, gain in itertools.product(("sum", "unmasked"), ("both", "forward", "reverse"), (False, True)):
        kwargs = problem(decay, T=20, gain=gain)
        mask = PATTERNS[pattern](20).bool()
        padded = dict(kwargs, mask=mask.expand(2, -1))
        for name in ("q", "k", "v", "log_decay", "log_gain"):
            x = kwargs[name]
            if x is not None and x.dim() > 2:
                padded[name] = torch.full((2, len(mask), *x.shape[2:]), torch.nan if name in "qkv" else -0.5).double()
                padded[name][:, mask] = x.detach()
        for kernel in kernels(decay, gain):
            along = torch.randn_like(kwargs["v"])
            options = {**kernel, "norm": norm, "direction": direction}
            want = _run(kwargs, along, options)
            got = _run(
                padded, torch.zeros(2, len(mask), 2, 4).double().index_copy(1, mask.nonzero()[:, 0], along), options
            )
            for name, x in got.items():
                if x.dim() > 2:
                    assert (x[:, ~mask] == 0).all(), (name, options)
                    got[name] = x[:, mask]
            assert_same(got, want, 1e-12, options)


def _run(kwargs, along, options):
    inputs = {
        name: x.detach().requires_grad_() for name, x in kwargs.items() if x is not None and x.is_floating_point()
    }
    out = lion.attention(**kwargs | inputs, **options)
    grads = torch.autograd.grad(out, tuple(inputs.values()), along)
    return {"output": out.detach(), **dict(zip(inputs, grads, strict=True))}


@pytest.mark.parametrize(("decay", "kernel"), [(decay, x) for decay in DECAYS for x in kernels(decay)], ids=str)
def test_packing_equals_each_sequence_alone(decay, kernel):
    lengths = [5, 1, 70, 0, 13]
    borders = F.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    for norm, gain in itertools.product(("sum", "unmasked"), (False, True)):
        if kernel not in kernels(decay, gain):
            continue
        kwargs = problem(decay, B=1, T=sum(lengths), gain=gain)
        packed = output_and_gradients(lion.attention, kwargs | {"cu_seqlens": borders}, **kernel, norm=norm)
        for first, last in itertools.pairwise(borders.tolist()):
            alone = {
                name: x[:, first:last].detach() if isinstance(x, torch.Tensor) and x.dim() > 2 else x
                for name, x in kwargs.items()
            }
            out = lion.attention(**alone, **kernel, norm=norm)
            torch.testing.assert_close(packed["output"][:, first:last], out, rtol=1e-12, atol=1e-12)


def test_packed_gradients_stay_in_their_sequence():
    kwargs = problem("per token", B=1, T=12)
    borders = torch.tensor([0, 5, 12])
    for kernel in kernels("per token"):
        inputs = {name: kwargs[name].detach().requires_grad_() for name in ("q", "k", "v", "log_decay")}
        out = lion.attention(**inputs, cu_seqlens=borders, **kernel)
        grads = torch.autograd.grad(out[:, :5].sum(), tuple(inputs.values()))
        for name, grad in zip(inputs, grads, strict=True):
            assert (grad[:, 5:] == 0).all(), (name, kernel)


EVERY = [(decay, x) for decay in DECAYS for x in kernels(decay)] + [("delta", x) for x in kernels("delta")]


def spoilable(decay, T, **options):
    """A problem, and the names of what a token may spoil for others."""
    if decay != "delta":
        return problem(decay, T=T, **options), ("k", "v")
    kwargs = problem("per token", T=T, **options)
    kwargs |= {"beta": torch.rand(*kwargs["q"].shape[:3], dtype=torch.float64), "norm": "none"}
    return kwargs | {"k": F.normalize(kwargs["k"], dim=-1)}, ("k", "v")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(("decay", "kernel"), EVERY, ids=str)
def test_what_is_not_finite_stays_in_its_packed_sequence(decay, kernel, value):
    for direction in ("both", "forward", "reverse"):
        kwargs, names = spoilable(decay, 80, packed=True)
        _, start, _, stop, _ = kwargs["cu_seqlens"].tolist()
        options = {**kernel, "direction": direction}
        want = lion.attention(**kwargs, **options)
        for name in names:
            wrong = kwargs | {name: kwargs[name].index_fill(1, torch.tensor([start + 3]), value)}
            got = lion.attention(**wrong, **options)
            assert not torch.isfinite(got[:, start + 3]).any(), (name, options)
            others = [*range(start), *range(stop, 80)]
            torch.testing.assert_close(got[:, others], want[:, others], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(("decay", "kernel"), EVERY, ids=str)
def test_what_is_not_finite_does_not_go_back_in_time(decay, kernel, value):
    for direction, unseen in (("forward", range(37)), ("reverse", range(38, 80))):
        kwargs, names = spoilable(decay, 80)
        if kwargs["log_decay"] is not None:
            kwargs["log_decay"] = kwargs["log_decay"].clamp(min=-1)  # what a reset makes of it is another matter
        options = {**kernel, "direction": direction}
        want = lion.attention(**kwargs, **options)
        for name in names:
            wrong = kwargs | {name: kwargs[name].index_fill(1, torch.tensor([37]), value)}
            got = lion.attention(**wrong, **options)
            torch.testing.assert_close(got[:, unseen], want[:, unseen], rtol=1e-12, atol=1e-12)
            seen = 79 if direction == "forward" else 0
            assert not torch.isfinite(got[:, [37, seen]]).any(), (name, options)

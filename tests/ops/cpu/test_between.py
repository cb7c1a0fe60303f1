"""RWKV's reading of a decay in one call of the compiled kernel: as two calls of the torch backend have it."""

import itertools
import random

import pytest
import torch

from lion.nn.between import attention_between
from lion.ops.cpu import library
from lion.ops.state import State
from tests import SEED
from tests.ops.problems import leaves, problem

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

FLAGS = ("mask", "self_weight", "packed", "two_sided")


def everything(kwargs, states, weights, **options):
    """Outputs and states behind, and all gradients along fixed directions."""
    kwargs = {n: x for n, x in kwargs.items() if n != "log_gain"}
    given = {
        name: State(*(x if x is None else x.clone().requires_grad_() for x in state)) for name, state in states.items()
    }
    parts = {f"{n} {i}": x for n, state in given.items() for i, x in enumerate(state[:2])}
    inputs = leaves(kwargs) | parts
    results = attention_between(**kwargs, **given, **options)
    out, behind = results if options.get("return_states") else (results, ())
    found = {"output": out, **{f"state {i}": x.sums for i, x in enumerate(behind) if x is not None}}
    generator = torch.Generator().manual_seed(weights)
    along = [torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x.dtype) for x in found.values()]
    grads = torch.autograd.grad(list(found.values()), list(inputs.values()), along, allow_unused=True)
    found |= {f"d {n}": torch.zeros_like(inputs[n]) if g is None else g for n, g in zip(inputs, grads, strict=True)}
    return {name: x.detach() for name, x in found.items()}


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("decay", ["fixed diagonal", "diagonal"])
def test_one_call_is_two(decay, direction):
    draw = random.Random(f"{SEED} {decay} {direction}")
    for flags, orders in itertools.product(itertools.product((False, True), repeat=4), (0, 2)):
        T, D, V = draw.choice(((1, 3, 4), (11, 17, 1), (40, 16, 9), (150, 5, 4)))
        kwargs = problem(decay, T=T, D=D, V=V, orders=orders, **dict(zip(FLAGS, flags, strict=True)))
        options, states = {"direction": direction}, {}
        if not orders and kwargs["cu_seqlens"] is None:
            B, _, H, _ = kwargs["q"].shape
            options["return_states"] = draw.random() < 0.7
            for way in ("forward", "reverse"):
                if direction in ("both", way) and draw.random() < 0.6:
                    sums, keys = torch.randn(B, H, D, V).double(), torch.rand(B, H, D).double()
                    states[f"{way}_state"] = State(sums, keys, -torch.rand(B, H, D).double(), None)
        want = everything(kwargs, states, 1, **options, backend="torch", form="scan")
        got = everything(kwargs, states, 1, **options, chunk_size=draw.choice((None, 1, 7, 33)))
        assert got.keys() == want.keys()
        for name, x in want.items():
            if name.startswith("d ") and name.endswith(" 1"):
                continue  # keys of states: without a norm nobody reads them
            size = max(1e-3, x.abs().max().item()) if x.numel() else 1.0
            assert ((got[name] - x).abs().max() / size if x.numel() else 0) <= 1e-10, (name, flags, orders, T)


def test_second_derivatives():
    kwargs = problem("diagonal", B=1, T=5, H=1, D=2, V=2)
    kwargs["log_decay"] = -torch.rand(1, 5, 1, 2).double()
    names = ("q", "k", "v", "log_decay")
    inputs = [kwargs[name].detach().requires_grad_() for name in names]
    assert torch.autograd.gradgradcheck(lambda *x: attention_between(*x), inputs)


def test_autocast_rounds_as_the_torch_backend():
    kwargs = {n: x.float() for n, x in problem("diagonal", T=30, D=8, V=8).items() if n in ("q", "k", "v", "log_decay")}
    kwargs["log_decay"] = -torch.rand(2, 30, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = (attention_between(**kwargs, backend=name) for name in ("auto", "torch"))
    assert (got.float() - want.float()).abs().max() <= 2**-6 * want.abs().max()

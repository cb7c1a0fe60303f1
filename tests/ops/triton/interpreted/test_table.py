"""The backend `triton` against the definition, in float64 through the kernels that a GPU runs."""

import itertools
import random

import pytest
import torch

import lion
from lion.ops import reference
from tests import SEED
from tests.ops.problems import DECAYS, assert_same, kernels, output_and_gradients, problem

NORMS = ("sum", "max", "none", "unmasked")
DIRECTIONS = ("both", "forward", "reverse")
TRITON = {"backend": "triton", "form": "scan"}


def compare(kwargs, **options):
    """Outputs and gradients, in chunks of 16 tokens."""
    want = output_and_gradients(reference.attention, kwargs, **options)
    got = output_and_gradients(lion.attention, kwargs, **TRITON, chunk_size=16, **options)
    given = {name for name, x in kwargs.items() if x is not None and name not in ("q", "k", "v")}
    assert_same(got, want, 1e-10, (options, sorted(given)))


@pytest.mark.parametrize("decay", DECAYS)
def test_the_table_has_the_kernel(decay):
    for gain in (False, True):
        assert TRITON in kernels(decay, gain=gain, needs=("states", "two-sided decays"))


@pytest.mark.parametrize(("norm", "direction"), list(itertools.product(NORMS, DIRECTIONS)))
@pytest.mark.parametrize("decay", DECAYS)
def test_without_options_and_with_some(decay, norm, direction):
    draw = random.Random(f"{SEED} {decay} {norm} {direction}")
    compare(problem(decay, B=1, T=19, H=1, two_sided=draw.random() < 0.5), norm=norm, direction=direction)
    if draw.random() < 0.4:
        flags = {name: draw.random() < 0.5 for name in ("gain", "self_weight", "mask", "packed", "two_sided")}
        compare(problem(decay, B=1, T=19, H=1, **flags), norm=norm, direction=direction)


@pytest.mark.parametrize("decay", ["none", "per token", "fixed diagonal"])
def test_masks(decay):
    """Padding may hold anything; a row that is all padding is 0."""
    for norm in ("sum", "max"):
        kwargs = problem(decay, T=19, H=1, mask=True)
        compare(kwargs, norm=norm)
    for name in ("q", "k", "v"):
        kwargs[name].data[~kwargs["mask"]] = torch.nan
    got = output_and_gradients(lion.attention, kwargs, **TRITON)
    assert (got["output"][~kwargs["mask"]] == 0).all()
    for name, x in got.items():
        assert torch.isfinite(x).all(), name


@pytest.mark.parametrize("decay", DECAYS)
def test_orders_with_everything(decay):
    flags = dict.fromkeys(("gain", "self_weight", "mask", "per_order", "two_sided"), True)
    compare(problem(decay, T=19, H=1, orders=2, **flags))


@pytest.mark.parametrize("T", [0, 1, 63, 64, 65, 197])
def test_lengths(T):
    for decay in ("none", "per token", "diagonal"):
        kwargs = problem(decay, B=1, T=T, H=1, D=2, V=3)
        want = output_and_gradients(reference.attention, kwargs)
        assert_same(output_and_gradients(lion.attention, kwargs, **TRITON), want, 1e-10, (decay, T))


@pytest.mark.parametrize(
    ("B", "H", "D", "V"), [(1, 1, 1, 1), (2, 3, 5, 2), (0, 2, 3, 4), (2, 1, 3, 0), (1, 1, 70, 66), (1, 1, 130, 2)]
)
def test_shapes(B, H, D, V):
    """Channels that are no power of 2, and more than a tile has."""
    for decay in ("none", "per token", "diagonal"):
        compare(problem(decay, B=B, T=17, H=H, D=D, V=V))


def test_no_values():
    """What the norm "unmasked" asks for: the sums alone."""
    kwargs = problem("per token", V=0, T=17, B=1)
    out = lion.attention(**kwargs, **TRITON, norm="unmasked")
    assert out.shape == (1, 17, 2, 0)


@pytest.mark.parametrize("decay", ["fixed", "fixed diagonal", "per token", "diagonal"])
def test_infinite_decays_have_finite_gradients(decay):
    kwargs = problem(decay, T=17, B=1)
    kwargs["log_decay"] = torch.full_like(kwargs["log_decay"], -torch.inf)
    for norm in ("sum", "none"):
        grads = output_and_gradients(lion.attention, kwargs, **TRITON, chunk_size=16, norm=norm)
        assert all(torch.isfinite(x).all() for x in grads.values())
        assert (grads["log_decay"] == 0).all()
        if norm == "sum":
            torch.testing.assert_close(grads["output"], kwargs["v"])


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_pieces_of_a_sequence(decay):
    kwargs = problem(decay, B=1, T=37, H=1)
    whole = lion.attention(**kwargs, **TRITON)
    cut = lambda at: {n: x[:, at] if x is not None and x.dim() > 2 else x for n, x in kwargs.items()}  # noqa: E731
    first, second = cut(slice(0, 20)), cut(slice(20, 37))
    names = ("k", "v", "log_decay")
    behind, ahead = (lion.attention_states(**{n: piece[n] for n in names}) for piece in (first, second))
    a, states = lion.attention(**first, **TRITON, reverse_state=ahead.reverse, return_states=True)
    b = lion.attention(**second, **TRITON, forward_state=behind.forward)
    torch.testing.assert_close(torch.cat([a, b], 1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(states.forward.sums, behind.forward.sums)

"""Every kernel against the definition, in float64: outputs and gradients."""

import itertools

import pytest
import torch

import lion
from lion.ops import reference
from lion.ops.kernels import CHUNKED, FORMS, KERNELS
from lion.ops.torch import scan
from tests import THOROUGH
from tests.ops.problems import ALL_KERNELS, DECAYS, assert_same, kernels, output_and_gradients, problem

NORMS = ("sum", "max", "none", "unmasked")
DIRECTIONS = ("both", "forward", "reverse")


def compare(kwargs, chunk_size=None, **options):
    """All kernels against the reference."""
    want = output_and_gradients(reference.attention, kwargs, **options)
    rank = {1: "fixed", 2: "fixed diagonal", 3: "per token", 4: "diagonal"}
    pair = isinstance(kwargs["log_decay"], tuple)
    first = kwargs["log_decay"][0] if pair else kwargs["log_decay"]
    decay = "none" if first is None else rank[first.dim()]
    needs = ("two-sided decays",) if pair else ()
    for kernel in kernels(decay, gain=kwargs["log_gain"] is not None, needs=needs):
        size = chunk_size if kernel["form"] in CHUNKED else None
        got = output_and_gradients(lion.attention, kwargs, **kernel, chunk_size=size, **options)
        given = {name: x for name, x in kwargs.items() if x is not None and name not in ("q", "k", "v")}
        assert_same(got, want, 1e-10, (kernel, options, sorted(given)))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("decay", DECAYS)
def test_all_options_together(decay, norm, direction):
    """Of the 32 combinations of the other options a quarter, in turn; or half: any four of them in every combination.
    Chunks are much shorter than the sequence."""
    flags = (False, True)
    turn = list(NORMS).index(norm) + list(DIRECTIONS).index(direction)
    for gain, self_weight, mask, packed, orders in itertools.product(flags, flags, flags, flags, (0, 2)):
        if (gain + self_weight + mask + packed + orders // 2 + turn) % 2:
            continue
        if not THOROUGH and (gain + mask + turn // 2) % 2:
            continue
        kwargs = problem(decay, gain=gain, self_weight=self_weight, mask=mask, packed=packed, orders=orders)
        compare(kwargs, chunk_size=4, norm=norm, direction=direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("decay", DECAYS[1:])
def test_every_direction_with_its_own_decays(decay, direction):
    flags = (False, True)
    for gain, mask, packed, orders in itertools.product(flags, flags, flags, (0, 2)):
        kwargs = problem(decay, gain=gain, mask=mask, packed=packed, orders=orders, per_order=gain, two_sided=True)
        for chunk_size, norm in ((4, "sum"), (None, "none"), (4, "unmasked")):
            compare(kwargs, chunk_size=chunk_size, direction=direction, norm=norm)


def test_a_fixed_decay_one_way_and_one_per_token_the_other():
    for first, second in (("fixed", "per token"), ("diagonal", "fixed diagonal")):
        kwargs = problem(first, mask=True)
        kwargs["log_decay"] = kwargs["log_decay"], problem(second)["log_decay"]
        compare(kwargs, chunk_size=4)


@pytest.mark.parametrize("decay", DECAYS[1:])
def test_every_order_with_its_own_decays(decay):
    flags = (False, True)
    for gain, mask, packed, orders in itertools.product(flags, flags, flags, (1, 2, 3)):
        kwargs = problem(decay, gain=gain, mask=mask, packed=packed, orders=orders, per_order=True)
        for chunk_size in (4, None):
            compare(kwargs, chunk_size=chunk_size)


@pytest.mark.parametrize("T", [0, 1, 2, 63, 64, 65, 197])
@pytest.mark.parametrize("decay", DECAYS)
def test_lengths(decay, T):
    for norm, direction in itertools.product(("sum", "none"), DIRECTIONS):
        compare(problem(decay, B=1, T=T, H=1, D=2, V=3), norm=norm, direction=direction)


@pytest.mark.parametrize("T", [1, 2, 65, 197])
def test_lengths_with_everything(T):
    for decay, packed in itertools.product(DECAYS, (False, True)):
        kwargs = problem(
            decay, B=1, T=T, H=2, D=2, V=1, gain=True, self_weight=True, mask=True, packed=packed, orders=2
        )
        compare(kwargs)


@pytest.mark.parametrize(("B", "H", "D", "V"), [(1, 1, 1, 1), (1, 3, 5, 2), (3, 1, 2, 7), (0, 2, 3, 4), (2, 2, 3, 0)])
@pytest.mark.parametrize("decay", DECAYS)
def test_shapes(decay, B, H, D, V):
    compare(problem(decay, B=B, T=9, H=H, D=D, V=V), chunk_size=4)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 8, 100])
def test_chunk_sizes(decay, chunk_size):
    compare(problem(decay, T=13), chunk_size=chunk_size)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("group", "slab"), [(2, 1), (3, 200), (2, 10**9)])
def test_scan_slab_by_slab(decay, group, slab, monkeypatch):
    """Long sequences go slab by slab, and many chunks of a slab by groups: here at small sizes."""
    monkeypatch.setattr(scan, "GROUP", group)
    monkeypatch.setattr(scan, "SLAB_ELEMENTS", slab)
    monkeypatch.setattr(scan, "SLAB_CHUNKS", 1)
    for direction, mask in itertools.product(DIRECTIONS, (False, True)):
        compare(problem(decay, T=41, mask=mask), chunk_size=3, direction=direction)


def test_carrying_many_states_by_groups(monkeypatch):
    monkeypatch.setattr(scan, "GROUP", 3)
    n, W = 25, 4
    added, initial = torch.randn(2, n, W).double(), torch.randn(2, W).double()
    total = -torch.rand(2, n, 1).double()
    for reverse in (False, True):
        states, last = scan._carry(added, total, initial, reverse=reverse)
        state = initial
        for place in reversed(range(n)) if reverse else range(n):
            torch.testing.assert_close(states[:, place], state)
            state = total[:, place].exp() * state + added[:, place]
        torch.testing.assert_close(last, state)


@pytest.mark.parametrize("weight", [0.0, 2, "[H]", "[H, D]", "[B, T, H]", "[B, T, H, D]"])
def test_self_weights(weight):
    sizes = {"B": 2, "T": 11, "H": 2, "D": 3}
    for decay in DECAYS:
        kwargs = problem(decay, mask=True)
        if isinstance(weight, str):
            kwargs["self_weight"] = torch.rand([sizes[x] for x in weight.strip("[]").split(", ")]).double()
        else:
            kwargs["self_weight"] = weight
        compare(kwargs, norm="none")


def test_every_form_has_a_kernel_for_every_decay_on_torch():
    assert {form for backend, form, _ in KERNELS if backend == "torch"} == set(FORMS)
    for decay in DECAYS:
        assert len([x for x in kernels(decay) if x["backend"] == "torch"]) == len(FORMS)


def test_inputs_are_never_written():
    for decay, kernel in [(kind, x) for kind in DECAYS for x in kernels(kind)]:
        kwargs = problem(decay, gain=kernel in kernels(decay, gain=True), self_weight=True, mask=True, orders=2)
        before = {name: x.clone() for name, x in kwargs.items() if x is not None}
        output_and_gradients(lion.attention, kwargs, **kernel)
        for name, x in before.items():
            assert torch.equal(kwargs[name], x), (name, decay, kernel)


def test_views_and_shared_storage_are_read_in_place():
    """q, k and v as slices of one projection, and q passed as k too."""
    qkv = torch.rand(2, 11, 3, 2, 4).double()
    q, k, v = qkv.unbind(2)
    for kernel in ALL_KERNELS:
        want = lion.attention(q.contiguous(), k.contiguous(), v.contiguous(), **kernel)
        torch.testing.assert_close(lion.attention(q, k, v, **kernel), want, rtol=0, atol=1e-14)
        assert lion.attention(q, q, q, **kernel).isfinite().all()

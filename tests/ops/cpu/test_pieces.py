"""States in the compiled kernel: as the torch backend has them, for any shape, and their gradients both ways."""

import random

import pytest
import torch
from torch.utils._pytree import tree_map_only

import lion
from lion.ops import kernels
from lion.ops.cpu import library
from lion.ops.state import State
from tests import SEED, THOROUGH
from tests.ops.problems import DECAYS, problem
from tests.ops.problems import leaves as leaves_of
from tests.ops.test_states import DIRECTIONS, NORMS, assert_close, cut, in_pieces, with_gradients

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

SIZES = ((3, 4), (16, 1), (8, 8), (17, 9), (16, 16), (5, 20))
WAYS = {"both": ("forward", "reverse"), "forward": ("forward",), "reverse": ("reverse",)}


def drawn(draw, lengths):
    """A problem, and the options of its call."""
    decay = draw.choice(DECAYS)
    D, V = draw.choice(SIZES)
    kwargs = problem(
        decay,
        B=draw.choice((1, 2)),
        T=draw.choice(lengths),
        H=draw.choice((1, 2, 5)),
        D=D,
        V=V,
        gain="diagonal" not in decay and draw.random() < 0.4,
        mask=draw.random() < 0.3,
        self_weight=draw.random() < 0.4,
        two_sided=draw.random() < 0.4,
    )
    return kwargs, {"norm": draw.choice(NORMS), "direction": draw.choice(DIRECTIONS)}


def states_for(kwargs, direction, draw):
    """States of any numbers, as they may come in; not of every walk."""
    B, _, H, D = kwargs["q"].shape
    decay, found = kwargs["log_decay"], {}
    decay = decay[0] if isinstance(decay, tuple) else decay
    channels = D if decay is not None and decay.dim() in (2, 4) else 1
    for way in WAYS[direction]:
        if draw.random() < 0.3:
            continue
        sums, keys = torch.randn(B, H, D, kwargs["v"].shape[-1]), torch.rand(B, H, D) + 0.1
        scale = torch.randn(B, H, 1).double() if kwargs["log_gain"] is not None and draw.random() < 0.7 else None
        found[f"{way}_state"] = State(sums.double(), keys.double(), -torch.rand(B, H, channels).double(), scale)
    return found


def everything(backend, kwargs, states, options, only_states, weights):
    """Outputs and states, and the gradients of all that comes in, along fixed directions."""
    kwargs = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), kwargs)
    leaves = leaves_of(kwargs)
    given = {
        name: State(*(x if x is None else x.clone().requires_grad_() for x in state)) for name, state in states.items()
    }
    parts = {f"{n} {part}": x for n, state in given.items() for part, x in state._asdict().items() if x is not None}
    found = {}
    if only_states:
        inputs = {n: kwargs[n] for n in ("k", "v", "log_decay", "log_gain", "mask")}
        left = backend(**inputs, direction=options["direction"], **given)
    else:
        found["output"], left = backend(**kwargs, **options, **given, return_states=True)
    for way, state in left._asdict().items():
        if state is not None:
            found |= {f"{way} {part}": x for part, x in state._asdict().items() if x is not None}
    differentiated = [x for x in found.values() if x.requires_grad]
    along = [torch.randn(x.shape, generator=weights, dtype=x.dtype) for x in differentiated]
    inputs = leaves | parts
    grads = torch.autograd.grad(differentiated, list(inputs.values()), along, allow_unused=True)
    for name, x, grad in zip(inputs, inputs.values(), grads, strict=True):
        found[f"d {name}"] = torch.zeros_like(x) if grad is None else grad
    return {name: x.detach() for name, x in found.items()}


@pytest.mark.parametrize("only_states", [False, True])
@pytest.mark.parametrize("seed", range(200 if THOROUGH else 40))
def test_states_are_those_of_torch(seed, only_states, monkeypatch):
    draw = random.Random(f"{SEED} {seed}")
    kwargs, options = drawn(draw, (0, 1, 2, 7, 33, 70, 200))
    states = states_for(kwargs, options["direction"], draw)
    torch.set_num_threads(draw.choice((1, 2, 3)))
    chunk_size = {} if only_states else {"chunk_size": draw.choice((None, None, 1, 7, 64))}
    results = []
    for backend in ("cpu", "torch"):
        if only_states:  # which takes the fastest backend that there is
            rows = {name: row for name, row in kernels.BACKENDS.items() if backend in ("cpu", name)}
            monkeypatch.setattr(kernels, "BACKENDS", rows)
            lion.ops.attention._chosen.cache_clear()
            function, how = lion.attention_states, options
        else:
            function, how = lion.attention, options | {"backend": backend} | chunk_size
        weights = torch.Generator().manual_seed(seed)
        results.append(everything(function, kwargs, states, how, only_states, weights))
    lion.ops.attention._chosen.cache_clear()
    got, want = results
    assert got.keys() == want.keys()
    for x in results:  # a scale of nothing
        for name in [n for n in x if n.endswith(("log_scale", "log_decay"))]:
            x[name] = x[name].nan_to_num(neginf=-1e6)
    assert_close(got, want, 1e-9)


@pytest.mark.parametrize("seed", range(100 if THOROUGH else 20))
def test_long_pieces_are_the_whole(seed):
    draw = random.Random(f"{SEED} {seed}")
    kwargs, options = drawn(draw, (200, 611))
    options |= {"backend": "cpu", "chunk_size": draw.choice((None, 7, 64))}
    T = kwargs["q"].shape[1]
    borders = [0, *sorted(draw.randint(0, T) for _ in range(draw.randint(1, 3))), T]
    weights = torch.randn(kwargs["v"].shape, dtype=torch.float64)
    want = with_gradients(lambda **x: lion.attention(**x, **options), kwargs, weights)
    assert_close(with_gradients(in_pieces(borders, **options), kwargs, weights), want, 1e-10)


def test_half_precision_keeps_states_in_float32():
    kwargs = problem("per token", B=1, T=90, H=2, D=16, V=16, gain=True)
    half = {n: x.bfloat16() if n in "qkv" else x if x is None else x.float() for n, x in kwargs.items()}
    single = {n: x.float() if n in "qkv" else x for n, x in half.items()}
    for options in ({"direction": "both"}, {"direction": "forward"}):
        first, second = (cut(x, [0, 40, 90]) for x in (half, single))
        outs = []
        for pieces in (first, second):
            _, states = lion.attention(**pieces[0], **options, backend="cpu", return_states=True)
            assert states.forward.sums.dtype == states.forward.log_scale.dtype == torch.float32
            outs.append(lion.attention(**pieces[1], **options, backend="cpu", forward_state=states.forward))
        assert outs[0].dtype == torch.bfloat16
        assert (outs[0].float() - outs[1]).abs().max() <= 2**-6 * outs[1].abs().max()


def test_the_same_bits_from_any_number_of_threads():
    for decay, gain in (("per token", True), ("diagonal", False), ("none", False)):
        kwargs = problem(decay, B=1, T=700, H=3, D=16, V=16, gain=gain)
        states = states_for(kwargs, "both", random.Random(3))
        found = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            weights = torch.Generator().manual_seed(1)
            options = {"norm": "sum", "direction": "both", "backend": "cpu"}
            found.append(everything(lion.attention, kwargs, states, options, False, weights))
        for x in found[1:]:
            assert all(torch.equal(x[name], y) for name, y in found[0].items())


def test_gates_of_any_size():
    """What comes from one side may be e^1000 times what comes from the other; both states go on all the same."""
    kwargs = problem("per token", T=30, gain=True)
    kwargs["log_gain"] = kwargs["log_gain"] * 300
    options = {"norm": "sum", "direction": "both", "backend": "cpu"}
    whole = lion.attention(**kwargs, **options)
    got = in_pieces([0, 7, 7, 19, 30], **options)(**kwargs)
    torch.testing.assert_close(got, whole, rtol=1e-10, atol=1e-12)
    loud = State(torch.ones(2, 2, 3, 4).double(), torch.ones(2, 2, 3).double(), torch.zeros(2, 2, 1).double())
    loud = loud._replace(log_scale=torch.full((2, 2, 1), 1e4).double())
    _, alone = lion.attention(**kwargs, **options, return_states=True)
    _, beside = lion.attention(**kwargs, **options, reverse_state=loud, return_states=True)
    torch.testing.assert_close(beside.forward.sums, alone.forward.sums)


def test_second_derivatives():
    kwargs = problem("per token", B=1, T=9, H=1, gain=True)
    states = states_for(kwargs, "both", random.Random(5))

    def run(sums, log_decay, q):
        forward = states["forward_state"]._replace(sums=sums)
        call = {**kwargs, "q": q, "log_decay": log_decay}
        out, left = lion.attention(**call, forward_state=forward, return_states=True, norm="max", backend="cpu")
        return out, left.forward.sums * left.forward.log_scale.exp()[..., None]

    log_decay = -torch.rand(1, 9, 1, dtype=torch.float64) - 0.1
    inputs = [x.clone().requires_grad_() for x in (states["forward_state"].sums, log_decay, kwargs["q"])]
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_compiled(decay):
    kwargs = problem(decay, T=40, mask=True)
    names = ("q", "k", "v", "log_decay")
    mask = kwargs["mask"]

    def run(q, k, v, log_decay, state):
        out, left = lion.attention(
            q, k, v, log_decay, mask=mask[:, : q.shape[1]], forward_state=state, return_states=True, backend="cpu"
        )
        sent = lion.attention_states(k, v, log_decay, reverse_state=left.reverse)
        return out, left.forward, sent.reverse

    compiled = torch.compile(run, fullgraph=True, dynamic=True)
    state = lion.attention_states(kwargs["k"], kwargs["v"], kwargs["log_decay"], direction="forward").forward
    for T in (40, 33):
        given = [kwargs[n] if kwargs[n] is None else kwargs[n][:, :T].detach().requires_grad_() for n in names]
        got, want = (function(*given, state) for function in (compiled, run))
        for x, y in zip([got[0], *got[1][:3], *got[2][:3]], [want[0], *want[1][:3], *want[2][:3]], strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)
        leaves = [x for x in given if x is not None]
        totals = (x[0].sum() + x[1].sums.sum() + x[2].keys.sum() for x in (got, want))
        for x, y in zip(*(torch.autograd.grad(total, leaves) for total in totals), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)

"""A sequence in pieces, with states passed along, is the sequence in one: outputs, gradients, and states that join."""

import functools
import itertools
import random

import pytest
import torch

import lion
from lion.ops import reference
from lion.ops.state import State, States, state_behind
from tests import SEED
from tests.ops.problems import DECAYS, kernels, leaves, problem

NEEDS = ("states", "two-sided decays")
PER_TOKEN = ("q", "k", "v", "log_gain", "beta", "mask")
NORMS, DIRECTIONS = ("sum", "max", "none"), ("both", "forward", "reverse")


def cut(kwargs, borders):
    """The arguments of each piece."""

    def part(name, x, tokens):
        if isinstance(x, tuple):
            return tuple(part(name, y, tokens) for y in x)
        per_token = x is not None and (name in PER_TOKEN or (name == "log_decay" and x.dim() > 2))
        return x[:, tokens] if per_token else x

    pieces = [slice(*ends) for ends in itertools.pairwise(borders)]
    return [{name: part(name, x, tokens) for name, x in kwargs.items()} for tokens in pieces]


def borders_of(T, draw):
    """One to seven pieces, some of them empty."""
    inner = sorted(draw.randint(0, T) for _ in range(draw.randint(0, 6)))
    return [0, *inner, T]


def arriving(pieces, direction):
    """The states that arrive at each piece: those of the ones before and after it, walked one after the other."""
    forward, reverse = [None], [None]
    for piece in pieces[:-1]:
        forward.append(carried(piece, direction="forward", forward_state=forward[-1]).forward)
    for piece in reversed(pieces[1:]):
        reverse.append(carried(piece, direction="reverse", reverse_state=reverse[-1]).reverse)
    none = [None] * len(pieces)
    return forward if direction != "reverse" else none, reverse[::-1] if direction != "forward" else none


def carried(piece, **options):
    given = {name: x for name, x in piece.items() if name in ("k", "v", "log_decay", "log_gain", "beta", "mask")}
    return lion.attention_states(**given, **options)


def in_pieces(borders, **options):
    def attention(**kwargs):
        pieces = cut(kwargs, borders)
        states = zip(pieces, *arriving(pieces, options["direction"]), strict=True)
        return torch.cat(
            [lion.attention(**piece, **options, forward_state=f, reverse_state=r) for piece, f, r in states], 1
        )

    return attention


def with_gradients(function, kwargs, weights):
    inputs = leaves(kwargs)
    out = function(**kwargs)
    grads = torch.autograd.grad((out * weights).sum(), list(inputs.values()), allow_unused=True)
    return {"output": out.detach(), **{n: g for n, g in zip(inputs, grads, strict=True) if g is not None}}


def assert_close(got, want, tolerance):
    for name, x in want.items():
        size = max(1e-3, x.abs().max().item()) if x.numel() else 1.0
        assert ((got[name] - x).abs().max() / size if x.numel() else 0) <= tolerance, name


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("decay", DECAYS)
def test_pieces_are_the_whole(decay, gain, norm, direction):
    draw = random.Random(f"{SEED} {decay} {gain} {norm} {direction}")
    for kernel, two_sided in itertools.product(kernels(decay, gain, needs=NEEDS), (False, True)):
        T = draw.choice((5, 11, 70))
        flags = {name: draw.random() < 0.5 for name in ("mask", "self_weight")}
        kwargs = problem(decay, T=T, gain=gain, two_sided=two_sided, **flags)
        options = {"norm": norm, "direction": direction, **kernel}
        borders = borders_of(T, draw)
        weights = torch.randn(kwargs["v"].shape, dtype=torch.float64)
        want = with_gradients(functools.partial(lion.attention, **options), kwargs, weights)
        assert_close(with_gradients(in_pieces(borders, **options), kwargs, weights), want, 1e-10)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("decay", ["none", "fixed", "per token"])
def test_pieces_of_the_delta_rule(decay, direction):
    draw = random.Random(f"{SEED} {decay} {direction}")
    for kernel, two_sided in itertools.product(kernels("delta"), (False, True)):
        T = draw.choice((5, 11, 70))
        kwargs = delta_problem(decay, T, mask=draw.random() < 0.5, two_sided=two_sided)
        options = {"norm": "none", "direction": direction, **kernel}
        weights = torch.randn(kwargs["v"].shape, dtype=torch.float64)
        want = with_gradients(functools.partial(lion.attention, **options), kwargs, weights)
        got = with_gradients(in_pieces(borders_of(T, draw), **options), kwargs, weights)
        assert_close(got, want, 1e-10)
        # What a call with outputs returns is what one without them does.
        first = cut(kwargs, [0, T // 2])[0]
        _, states = lion.attention(**first, **options, return_states=True)
        for a, b in zip(states, carried(first, direction=direction), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a.sums, b.sums, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", [x["backend"] for x in kernels("none", needs=NEEDS) if x["form"] == "scan"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("decay", DECAYS)
def test_float32_is_as_exact_in_pieces(decay, norm, backend):
    """At most twice the error of the whole; float64 is the judge."""
    kwargs = problem(decay, B=1, T=700, H=2, D=16, V=16)
    weights = torch.randn(kwargs["v"].shape, dtype=torch.float64)
    options = {"norm": norm, "direction": "both", "backend": backend, "form": "scan"}
    want = with_gradients(lambda **x: lion.attention(**x, **options), kwargs, weights)
    single = {n: x.float() if x is not None and x.is_floating_point() else x for n, x in kwargs.items()}
    whole = with_gradients(lambda **x: lion.attention(**x, **options), single, weights.float())
    pieces = with_gradients(in_pieces([0, 150, 401, 700], **options), single, weights.float())
    for name, x in want.items():
        mine, allowed = ((y[name] - x).pow(2).mean().sqrt() / x.pow(2).mean().sqrt() for y in (pieces, whole))
        assert mine <= 2 * allowed + 1e-7, (name, mine, allowed)


def delta_problem(decay, T, **options):
    kwargs = problem(decay, T=T, **options)
    k = torch.nn.functional.normalize(torch.randn(kwargs["k"].shape, dtype=torch.float64), dim=-1)
    return {**kwargs, "k": k, "beta": 2 * torch.rand(k.shape[:3], dtype=torch.float64)}


CASES = [(decay, kind) for decay in DECAYS for kind in ("", "gain")]
CASES += [(decay, "delta") for decay in ("none", "fixed", "per token")]


@pytest.mark.parametrize(("decay", "kind"), CASES)
def test_states_join_in_any_bracketing(decay, kind):
    draw = random.Random(f"{SEED} {decay} {kind}")
    flags = {name: draw.random() < 0.5 for name in ("mask", "two_sided")}
    kwargs = delta_problem(decay, 23, **flags) if kind == "delta" else problem(decay, T=23, gain=kind != "", **flags)
    pieces = cut(kwargs, borders_of(23, draw))

    def joined(states):
        if len(states) == 1:
            return states[0]
        at = draw.randint(1, len(states) - 1)
        return joined(states[:at]).join(joined(states[at:]))

    whole, parts = carried(kwargs), [carried(piece) for piece in pieces]
    same_state(joined([x.forward for x in parts]), whole.forward)
    same_state(joined([x.reverse for x in reversed(parts)]), whole.reverse)


def same_state(got, want):
    """In value: scales may differ."""
    got, want = (
        (x.sums, x.keys) if x.log_scale is None else (x.sums * _factor(x)[..., None], x.keys * _factor(x))
        for x in (got, want)
    )
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= 1e-10 * max(1.0, b.abs().max())


def _factor(state):
    return state.log_scale.exp()


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("decay", DECAYS)
def test_the_reference(decay, gain, mask):
    """States and outputs are as the definition has them."""
    first, second = (problem(decay, T=T, gain=gain, mask=mask) for T in (6, 9))
    if decay != "none" and first["log_decay"].dim() < 3:  # fixed decays are those of the whole sequence
        second["log_decay"] = first["log_decay"]
    names = ("k", "v", "log_decay", "log_gain", "mask")
    want = reference.states(**{name: first[name] for name in names})
    got = carried(first)
    for a, b in zip(got, want, strict=True):
        same_state(a, State(*b, a.log_decay))
    for direction in DIRECTIONS:
        given = dict(zip(("forward_state", "reverse_state"), want, strict=True))
        given.pop({"forward": "reverse_state", "reverse": "forward_state"}.get(direction), None)
        own = {name: getattr(got, name.split("_")[0]) for name in given}
        out = lion.attention(**second, direction=direction, backend="torch", **own)
        torch.testing.assert_close(out, reference.attention(**second, direction=direction, **given), rtol=0, atol=1e-10)


def test_gates_of_any_size():
    kwargs = problem("per token", T=30, gain=True)
    kwargs["log_gain"] = kwargs["log_gain"] * 300
    for direction in DIRECTIONS:
        options = {"norm": "sum", "direction": direction, "backend": "torch"}
        whole = lion.attention(**kwargs, **options)
        got = in_pieces([0, 7, 7, 19, 30], **options)(**kwargs)
        assert torch.isfinite(got).all()
        torch.testing.assert_close(got, whole, rtol=1e-10, atol=1e-12)


def test_gradients_of_states():
    kwargs = problem("per token", T=9, gain=True)
    states = lion.attention(**problem("per token", T=6, gain=True), backend="torch", return_states=True)[1]

    def run(sums, keys, sums_back, keys_back):
        forward = states.forward._replace(sums=sums, keys=keys)
        reverse = states.reverse._replace(sums=sums_back, keys=keys_back)
        out, after = lion.attention(
            **kwargs, backend="torch", forward_state=forward, reverse_state=reverse, return_states=True
        )
        return out, after.forward.sums, after.reverse.keys

    inputs = [x.clone().requires_grad_() for s in (states.forward, states.reverse) for x in (s.sums, s.keys)]
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"norm": "unmasked"},
            "norm='unmasked'; expected one of the two: its divisor is of the sequence without",
        ),
        ({"orders": torch.arange(5)[None]}, "with orders; expected one of the two: other orders cross"),
        ({"cu_seqlens": torch.tensor([0, 5])}, "with cu_seqlens; expected one of the two: a packed row has many"),
    ],
)
def test_what_cannot_be(options, message):
    q = torch.rand(1, 5, 2, 3)
    with pytest.raises(ValueError, match=message):
        lion.attention(q, q, q, return_states=True, **options)


def test_states_that_do_not_fit():
    q = torch.rand(1, 5, 2, 3)
    _, states = lion.attention(q, q, q, return_states=True)
    with pytest.raises(ValueError, match=r"forward_state is given, and direction is 'reverse'; expected None"):
        lion.attention(q, q, q, forward_state=states.forward, direction="reverse")
    with pytest.raises(ValueError, match=r"forward_state.sums has shape \(1, 2, 3, 3\); expected \(2, 2, 3, 3\)"):
        lion.attention(*[q.expand(2, -1, -1, -1)] * 3, forward_state=states.forward)
    with pytest.raises(ValueError, match="forward_state has a log_scale, from gates; expected log_gain with it"):
        lion.attention(q, q, q, forward_state=states.forward._replace(log_scale=torch.zeros(1, 2, 1)))


def test_a_state_without_its_transition_does_not_join():
    kwargs = delta_problem("none", 6)
    _, states = lion.attention(**kwargs, norm="none", return_states=True)
    with pytest.raises(ValueError, match=r"has no transition; expected one of lion\.attention_states"):
        carried(kwargs).forward.join(states.forward)
    joined = states.forward.join(carried(kwargs).forward)
    same_state(joined, carried(kwargs, forward_state=states.forward).forward)


def test_states_are_plain_tensors(tmp_path):
    from safetensors.torch import load_file, save_file

    q = torch.rand(1, 5, 2, 3)
    _, states = lion.attention(q, q, q, -torch.rand(1, 5, 2), return_states=True)
    given = {name: x.contiguous() for name, x in states.forward._asdict().items() if x is not None}
    save_file(given, tmp_path / "state.safetensors")
    again = State(**load_file(tmp_path / "state.safetensors"))
    a, b = (lion.attention(q, q, q, forward_state=x) for x in (states.forward, again))
    assert torch.equal(a, b)


def test_compiled():
    q, log_decay = torch.rand(2, 40, 2, 4), -torch.rand(2, 40, 2)
    _, states = lion.attention(q, q, q, log_decay, return_states=True)

    def run(q, log_decay, state):
        return lion.attention(q, q, q, log_decay, forward_state=state, return_states=True)

    out, after = torch.compile(run, fullgraph=True)(q, log_decay, states.forward)
    want, want_after = run(q, log_decay, states.forward)
    torch.testing.assert_close(out, want)
    assert isinstance(after, States)
    torch.testing.assert_close(after.forward.sums, want_after.forward.sums)


def test_of_nothing():
    """The state of no tokens changes nothing."""
    q, gain = torch.rand(1, 4, 2, 3), torch.randn(1, 4, 2)
    empty = state_behind(q[:, :0], q[:, :0], torch.zeros(1, 1, 1, 1), gain[:, :0, :, None], None, reverse=False)
    torch.testing.assert_close(
        lion.attention(q, q, q, log_gain=gain, forward_state=empty, backend="torch"),
        lion.attention(q, q, q, log_gain=gain, backend="torch"),
    )

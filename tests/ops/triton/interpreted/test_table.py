"""The backend `triton` against the definition, in float64 through the kernels that a GPU runs."""

import itertools
import random

import pytest
import torch

import lion
from lion.ops import reference
from lion.ops.call import Call
from lion.ops.triton.scan import states_behind
from tests import SEED
from tests.ops.problems import DECAYS, assert_same, kernels, output_and_gradients, problem
from tests.ops.test_states import cut

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
    ("B", "H", "D", "V"), [(1, 1, 1, 1), (2, 2, 5, 2), (0, 2, 3, 4), (2, 1, 3, 0), (1, 1, 70, 66), (1, 1, 130, 2)]
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


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_pieces_of_a_sequence(decay, direction):
    """States in, states out, and states alone: outputs and gradients are those of the whole sequence."""
    draw = random.Random(f"{SEED} {decay} {direction}")
    options = {"direction": direction, "norm": draw.choice(("sum", "max", "none"))}
    kwargs = problem(decay, B=1, T=37, H=1, mask=draw.random() < 0.5, two_sided=True)

    def in_two(**kwargs):
        first, second = cut(kwargs, [0, 20, 37])
        forward, reverse = second.pop("log_decay") if decay != "none" else (None, None)
        pieces, ahead, behind = TRITON | options | {"chunk_size": 16}, None, None
        if direction != "forward":
            call = Call(
                second["q"], second["k"], second["v"], forward, reverse, mask=second["mask"], direction="reverse"
            )
            ahead = states_behind(call).reverse
        a = lion.attention(**first, **pieces, reverse_state=ahead, return_states=direction != "reverse")
        if direction != "reverse":
            a, (behind, _) = a
        second["log_decay"] = None if forward is None else (forward, reverse)
        return torch.cat([a, lion.attention(**second, **pieces, forward_state=behind)], 1)

    want = output_and_gradients(reference.attention, kwargs, **options)
    assert_same(output_and_gradients(in_two, kwargs), want, 1e-10, options)


@pytest.mark.parametrize("decay", ["none", "fixed diagonal"])
def test_states_go_through_a_piece_without_tokens(decay):
    """What enters leaves, and so do its gradients."""
    whole = problem(decay, B=1, T=5, H=1)
    behind = lion.attention_states(whole["k"], whole["v"], whole["log_decay"])
    empty = {name: x[:, :0] for name, x in whole.items() if name in ("q", "k", "v")}
    entering = behind.forward._replace(sums=behind.forward.sums.requires_grad_())
    _, states = lion.attention(
        **empty, **TRITON, log_decay=whole["log_decay"], forward_state=entering, return_states=True
    )
    assert torch.equal(states.forward.sums, entering.sums)
    assert (states.reverse.keys == 0).all()
    (grad,) = torch.autograd.grad(states.forward.sums.sum(), entering.sums)
    assert (grad == 1).all()


@pytest.mark.parametrize(("packed", "direction"), [(True, "both"), (False, "forward"), (False, "reverse")])
@pytest.mark.parametrize("decay", ["none", "per token", "fixed diagonal"])
def test_what_is_not_finite_stays_where_it_may_be(decay, packed, direction):
    """In its packed sequence; in one direction with the tokens that it reaches. Gradients of the others, too."""
    kwargs = problem(decay, B=1, T=45, H=1, packed=packed)
    if kwargs["log_decay"] is not None:
        kwargs["log_decay"] = kwargs["log_decay"].clamp(min=-1)
    bad, others = 17, {"both": [*range(15), *range(22, 45)], "forward": range(17), "reverse": range(18, 45)}[direction]

    def attention(**kwargs):
        out = lion.attention(**kwargs, **TRITON, direction=direction, chunk_size=16)
        seen.append(out.detach())
        return out[:, others]

    seen: list[torch.Tensor] = []
    want = output_and_gradients(attention, kwargs)
    values = {"k": torch.nan, "v": torch.inf}
    for name in {"both": ("k", "v"), "forward": "k", "reverse": "v"}[direction]:
        value = values[name]
        wrong = kwargs | {name: kwargs[name].detach().index_fill(1, torch.tensor([bad]), value)}
        got = output_and_gradients(attention, wrong)
        assert not torch.isfinite(seen[-1][:, bad]).any()
        torch.testing.assert_close(got.pop("output"), want["output"], rtol=1e-10, atol=1e-10)
        for key, x in got.items():
            if x.dim() > 2:
                torch.testing.assert_close(x[:, others], want[key][:, others], rtol=1e-10, atol=1e-10)

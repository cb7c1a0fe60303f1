"""Tokens that follow a state, read at once: the same outputs, and the same state, as if all had come together."""

import pytest
import torch

import lion
from lion.nn.prefill import prefill
from lion.nn.variants import VARIANTS

LINEAR = [name for name, variant in VARIANTS.items() if not variant.softmax]
FIRST, ALL = 20, 60


def made(name: str) -> tuple[lion.LionAttention, torch.Tensor]:
    layer = lion.LionAttention(32, 2, name, direction="forward").double()
    return layer, torch.randn(2, ALL, 32).double()


def in_true_scale(state: lion.State) -> list[torch.Tensor]:
    scale = torch.ones_like(state.log_decay) if state.log_scale is None else state.log_scale.exp()
    return [state.sums * scale[..., None], state.keys * scale, state.log_decay]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_at_once_is_one_by_one(name, masked):
    layer, x = made(name)
    mask = torch.rand(2, ALL) > 0.3 if masked else torch.ones(2, ALL, dtype=torch.bool)
    mask[:, 0] = True
    given = mask if masked else None
    whole, wanted = prefill(layer, x, given, None, "recurrence")
    parts = [slice(0, FIRST), slice(FIRST, ALL)]
    state, outs = None, []
    for part in parts:
        out, state = prefill(layer, x[:, part], given if given is None else given[:, part], state, "recurrence")
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1)[mask], whole[mask], rtol=1e-10, atol=1e-12)
    for got, right in zip(in_true_scale(state), in_true_scale(wanted), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["lion_s", "lion_d_diag", "gla", "xlstm"])
def test_behind_nothing_but_padding(name):
    layer, x = made(name)
    mask = torch.arange(ALL).expand(2, -1) >= FIRST
    _, nothing = prefill(layer, x[:, :FIRST], mask[:, :FIRST], None, "recurrence")
    got, _ = prefill(layer, x[:, FIRST:], mask[:, FIRST:], nothing, "recurrence")
    wanted, _ = prefill(layer, x[:, FIRST:], None, None, "recurrence")
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LINEAR)
def test_at_once_and_not_one_by_one(name, monkeypatch):
    """A few tokens, too; only a single one is a step."""
    layer, x = made(name)
    monkeypatch.setattr(layer, "step", None)
    _, state = prefill(layer, x[:, :FIRST], None, None, "recurrence")
    prefill(layer, x[:, FIRST : FIRST + 2], None, state, "recurrence")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_behind_a_cache(name, masked):
    layer, x = made(name)
    mask = torch.rand(2, ALL) > 0.3 if masked else torch.ones(2, ALL, dtype=torch.bool)
    mask[:, 0] = True
    whole = layer(x, mask)
    first, cache = prefill(layer, x[:, :FIRST], mask[:, :FIRST], None, "cache")
    rest, cache = prefill(layer, x[:, FIRST:], mask[:, FIRST:], cache, "cache")
    torch.testing.assert_close(torch.cat([first, rest], 1)[mask], whole[mask], rtol=1e-9, atol=1e-10)
    assert cache.k.shape[1] == ALL

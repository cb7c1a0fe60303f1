"""Tokens that follow a state, read at once: the same outputs, and the same state, as if all had come together."""

import pytest
import torch

import lion
from lion.nn import extending
from lion.nn.extending import extend
from lion.nn.variants import VARIANTS

LINEAR = [name for name, variant in VARIANTS.items() if not variant.softmax]
FIRST, ALL = 20, 60


def made(name: str) -> tuple[lion.LionAttention, torch.Tensor]:
    layer = lion.LionAttention(32, 2, name, direction="forward").double()
    return layer, torch.randn(2, ALL, 32).double()


def in_true_scale(state: dict) -> list[torch.Tensor]:
    scale = state["log_scale"].exp()
    return [state["state"] * scale[..., None], state["sum"] * scale]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_at_once_is_one_by_one(name, masked):
    layer, x = made(name)
    mask = torch.rand(2, ALL) > 0.3 if masked else torch.ones(2, ALL, dtype=torch.bool)
    mask[:, 0] = True
    given = mask if masked else None
    whole, wanted = extend(layer, x, given, None, "recurrence")
    parts = [slice(0, FIRST), slice(FIRST, ALL)]
    state, outs = None, []
    for part in parts:
        out, state = extend(layer, x[:, part], given if given is None else given[:, part], state, "recurrence")
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1)[mask], whole[mask], rtol=1e-10, atol=1e-12)
    for got, right in zip(in_true_scale(state), in_true_scale(wanted), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["lion_s", "lion_d_diag", "gla", "xlstm"])
def test_behind_nothing_but_padding(name):
    layer, x = made(name)
    mask = torch.arange(ALL).expand(2, -1) >= FIRST
    _, nothing = extend(layer, x[:, :FIRST], mask[:, :FIRST], None, "recurrence")
    got, _ = extend(layer, x[:, FIRST:], mask[:, FIRST:], nothing, "recurrence")
    wanted, _ = extend(layer, x[:, FIRST:], None, None, "recurrence")
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_it_is_at_once(monkeypatch):
    """And not so for a few, nor where the state is more than a sum."""
    read = []
    at_once = extending._extend_at_once

    def counted(layer, x, mask, state):
        read.append((layer.name, x.shape[1]))
        return at_once(layer, x, mask, state)

    monkeypatch.setattr(extending, "_extend_at_once", counted)
    for name in ("lion_s", "deltanet", "rwkv6"):
        layer, x = made(name)
        for count in (40, 3):
            _, state = extend(layer, x[:, :FIRST], None, None, "recurrence")
            extend(layer, x[:, FIRST : FIRST + count], None, state, "recurrence")
    assert read == [("lion_s", 40)]

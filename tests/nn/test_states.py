"""Layers on pieces of a sequence: the same outputs as of the whole, for every variant that has states."""

import itertools

import pytest
import torch

import lion
from lion.nn.variants import VARIANTS

LINEAR = [name for name, variant in VARIANTS.items() if not variant.softmax and variant.norm != "unmasked"]
BORDERS = (0, 5, 5, 6, 17, 23)  # an empty piece, and one of a token


def arriving(layer, pieces):
    """By piece, the states of all before it and of all after it."""
    forward, reverse = [None] * len(pieces), [None] * len(pieces)
    for i in range(1, len(pieces)) if layer.direction != "reverse" else ():
        forward[i] = layer(*pieces[i - 1], forward_state=forward[i - 1], return_states=True)[1].forward
    for i in reversed(range(len(pieces) - 1)) if layer.direction != "forward" else ():
        reverse[i] = layer(*pieces[i + 1], reverse_state=reverse[i + 1], return_states=True)[1].reverse
    return forward, reverse


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("variant", LINEAR)
def test_pieces_are_the_whole(variant, direction):
    layer = lion.LionAttention(8, 2, variant, direction=direction).double()
    x = torch.randn(2, BORDERS[-1], 8, dtype=torch.float64)
    mask = torch.rand(x.shape[:2]) > 0.3
    mask[1] = False  # nothing but padding
    for real in (None, mask):
        pieces = [(x[:, a:b], None if real is None else real[:, a:b]) for a, b in itertools.pairwise(BORDERS)]
        states = zip(pieces, *arriving(layer, pieces), strict=True)
        got = [layer(*piece, forward_state=f, reverse_state=r) for piece, f, r in states]
        torch.testing.assert_close(torch.cat(got, 1), layer(x, real), rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ["lion_d", "lion_s", "gla", "mamba2"])
def test_states_of_layers_join(variant):
    """Decays on arrival, too: a piece's way begins before its first token."""
    layer = lion.LionAttention(8, 2, variant, direction="forward").double()
    x = torch.randn(2, 12, 8, dtype=torch.float64)
    alone = [layer(part, return_states=True)[1].forward for part in x.split([5, 3, 4], 1)]
    whole = layer(x, return_states=True)[1].forward
    for joined in (alone[0].join(alone[1]).join(alone[2]), alone[0].join(alone[1].join(alone[2]))):
        scale = 1 if joined.log_scale is None else (joined.log_scale - whole.log_scale).exp()
        torch.testing.assert_close(joined.keys * scale, whole.keys, rtol=0, atol=1e-10)
        torch.testing.assert_close(joined.log_decay, whole.log_decay, rtol=0, atol=1e-10)


def test_softmax_has_none():
    with pytest.raises(ValueError, match="'softmax', which has no state but its tokens; expected another variant"):
        lion.LionAttention(8, 2, "softmax")(torch.randn(1, 3, 8), return_states=True)

"""Causal layers: token by token against all at once. (Against their papers: test_blocks.py.)"""

import io

import pytest
import safetensors.torch
import torch

import lion

DIM, HEADS = 24, 3


def build(variant, **options):
    layer = lion.LionAttention(DIM, HEADS, variant, direction="forward", **options).double()
    with torch.no_grad():  # so that nothing is at a special value
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    return layer


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_token_by_token(variant):
    """The state may be saved in any way and loaded again, in the middle."""
    layer, x = build(variant), torch.randn(2, 17, DIM).double()
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t], state)
        outputs.append(y)
        if t == 5:
            file = io.BytesIO()
            torch.save(state._asdict(), file)
            file.seek(0)
            state = type(state)(**torch.load(file, weights_only=True))
        if t == 11:
            given = {n: s.contiguous() for n, s in state._asdict().items() if s is not None}
            state = type(state)(**safetensors.torch.load(safetensors.torch.save(given)))
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", [x for x in lion.VARIANTS if x != "softmax"])
def test_the_state_does_not_grow(variant):
    layer, state, sizes = build(variant), None, set()
    for _ in range(4):
        _, state = layer.step(torch.randn(2, DIM).double(), state)
        sizes.add(sum(x.numel() for x in state.tensors().values()))
    assert len(sizes) == 1


CHOICES = [{"double_diagonal": True}, {"features": "performer"}, {"norm": "max"}]
WITHOUT_NORM = ("deltanet", "rwkv6")


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        (variant, options)
        for variant in ("lion_s", "lion_s_diag", "xlstm", *WITHOUT_NORM)
        for options in CHOICES
        if not ("norm" in options and variant in WITHOUT_NORM)
    ],
    ids=str,
)
def test_token_by_token_with_other_choices(variant, options):
    layer, x = build(variant, **options), torch.randn(2, 9, DIM).double()
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t], state)
        outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x), rtol=1e-10, atol=1e-10)


def test_step_is_for_causal_layers():
    layer = lion.LionAttention(DIM, HEADS, "lion_s")
    with pytest.raises(
        ValueError, match="direction is 'both'; expected 'forward': only there a token's output is final"
    ):
        layer.step(torch.randn(1, DIM))

"""Every variant against the whole block that its own paper writes, the tail included."""

import dataclasses

import pytest
import torch

import lion
from lion.nn.tails import GATES, OUTPUT_NORMS
from lion.ops.checks import DIRECTIONS
from tests.nn.naive_blocks import BLOCKS

DIM, HEADS = 24, 3


def build(variant, direction):
    layer = lion.LionAttention(DIM, HEADS, variant, direction=direction).double()
    with torch.no_grad():  # so that nothing is at a special value
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    return layer


def block(layer, x):
    """The naive block with the layer's parameters; a layer that walks backward is the mirror image of a causal one."""
    flip = (lambda y: y.flip(1)) if layer.direction == "reverse" else (lambda y: y)
    way = "both" if layer.direction == "both" else "forward"
    return flip(BLOCKS[layer.name](layer.state_dict(), flip(x), HEADS, way))


def test_every_variant_has_a_block():
    assert set(BLOCKS) == set(lion.VARIANTS)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("variant", BLOCKS)
def test_the_layer_is_its_papers_block(variant, direction):
    layer = build(variant, direction)
    for tokens in (1, 2, 17):
        x = torch.randn(2, tokens, DIM).double()
        torch.testing.assert_close(layer(x), block(layer, x), rtol=1e-10, atol=1e-10)


def test_a_tail_has_at_most_one_norm_and_one_gate():
    for name, variant in lion.VARIANTS.items():
        for table in (OUTPUT_NORMS, GATES):
            assert sum(step in table for step in variant.tail) <= 1, name
        assert all(step in OUTPUT_NORMS or step in GATES for step in variant.tail), name


@pytest.mark.parametrize("variant", [name for name, x in lion.VARIANTS.items() if len(x.tail) == 2])
def test_the_blocks_tell_the_order_of_norm_and_gate(variant):
    layer, x = build(variant, "both"), torch.randn(2, 9, DIM).double()
    layer.variant = dataclasses.replace(layer.variant, tail=layer.variant.tail[::-1])
    assert (layer(x) - block(layer, x)).abs().max() > 0.01


NORMED = [name for name, x in lion.VARIANTS.items() if set(x.tail) & set(OUTPUT_NORMS)]


@pytest.mark.parametrize("variant", NORMED)
def test_the_blocks_tell_one_norm_from_another(variant):
    """Each head or all channels, with or without the mean, another eps: none passes for the variant's own."""
    layer, x = build(variant, "both"), torch.randn(2, 9, DIM).double()
    want, weight = block(layer, x), layer.output_norm.weight
    for other in set(OUTPUT_NORMS) - set(layer.variant.tail):
        layer.output_norm = OUTPUT_NORMS[other](HEADS, DIM // HEADS).double()
        with torch.no_grad():
            layer.output_norm.weight.copy_(weight.repeat(HEADS)[: layer.output_norm.weight.numel()])
        assert not torch.allclose(layer(x), want, rtol=1e-10, atol=1e-10), other

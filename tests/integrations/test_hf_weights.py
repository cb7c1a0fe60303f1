"""output_attentions: the weights that layers mix by, and the same outputs with them as without."""

import pytest
import torch
import torch.nn.functional as F

import lion

pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import MODES, LionForCausalLM, LionForSequenceClassification, LionModel
from tests.integrations.hf_small import KINDS, small, tokens

MASK = torch.tensor([[1] * 9, [0] * 3 + [1] * 6]).bool()


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def attention_layers(model):
    return [module for module in model.modules() if isinstance(module, lion.LionAttention)]


@pytest.mark.parametrize("variant", lion.VARIANTS)
@pytest.mark.parametrize("kind", [LionModel, LionForCausalLM])
def test_every_variant(kind, variant):
    """They are those of LionAttention.weights, for what the layer reads."""
    model, ids, read = small(kind, variant), tokens(2, 9), []
    for layer in attention_layers(model):
        layer.in_proj.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    want = model(ids, MASK, output_hidden_states=True)
    read.clear()
    got = model(ids, MASK, output_hidden_states=True, output_attentions=True)
    assert_same(got[0][MASK], want[0][MASK])
    for x, y in zip(got.hidden_states, want.hidden_states, strict=True):
        assert_same(x[MASK], y[MASK])
    causal = kind is LionForCausalLM
    inputs = read[1::2] if causal else read[:]  # a causal one's state is made of them first
    for layer, x, weights in zip(attention_layers(model), inputs, got.attentions, strict=True):
        assert weights.shape == (2, layer.heads, 9, 9)
        assert_same(weights, layer.weights(x, MASK))
        assert not weights[1, :, :, :3].any()
        assert not weights[1, :, :3].any()
        assert weights.triu(1).any() != causal


@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind):
    model, ids = small(kind), tokens(2, 9)
    want = model(ids)
    assert want.get("attentions") is None
    got = model(ids, output_attentions=True)
    assert_same(got[0], want[0])
    assert len(got.attentions) == 2
    model.config.output_attentions = True
    assert_same(model(ids).attentions, got.attentions)
    assert model(ids, output_attentions=False).get("attentions") is None
    got.attentions[0].retain_grad()
    got[0].sum().backward()
    assert got.attentions[0].grad.any()


@pytest.mark.parametrize("kind", [LionForSequenceClassification, LionForCausalLM])
def test_packed_sequences_do_not_see_each_other(kind):
    model, ids, borders = small(kind), tokens(1, 9), torch.tensor([0, 4, 9])
    got = model(ids, cu_seqlens=borders, output_attentions=True)
    assert_same(got[0], model(ids, cu_seqlens=borders)[0])
    apart = [model(part, output_attentions=True).attentions for part in ids.split([4, 5], 1)]
    for weights, first, second in zip(got.attentions, *apart, strict=True):
        assert_same(weights, F.pad(first, (0, 5, 0, 5)) + F.pad(second, (4, 0, 4, 0)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", ["lion_s", "rwkv6", "deltanet", "xlstm", "softmax"])
def test_generation(variant, mode):
    """A token's weights of all before it, whatever is kept of them."""
    model, ids = small(LionForCausalLM, variant, generation_mode=mode), tokens(2, 9)
    options = {"attention_mask": MASK.long(), "max_new_tokens": 3, "pad_token_id": 0}
    asked = {"output_attentions": True, "return_dict_in_generate": True}
    got = model.generate(ids, **options, **asked)
    assert torch.equal(got.sequences, model.generate(ids, **options))
    whole = model(got.sequences[:, :-1], F.pad(MASK, (0, 2), value=True), output_attentions=True, use_cache=False)
    for step, found in enumerate(got.attentions):
        rows = slice(8 + step, 9 + step) if step and mode != "attention" else slice(9 + step)
        for weights, want in zip(found, whole.attentions, strict=True):
            assert_same(weights, want[:, :, rows, : 9 + step])
    beams = model.generate(ids, **options, **asked, num_beams=2)
    assert torch.equal(beams.sequences, model.generate(ids, **options, num_beams=2))


def test_a_state_that_has_forgotten():
    model, ids = small(LionForCausalLM), tokens(2, 9)
    kept = model(ids[:, :5]).past_key_values
    with pytest.raises(
        ValueError, match="weights are asked for, but the state has none of the tokens before; expected"
    ):
        model(ids[:, 5:], past_key_values=kept, output_attentions=True)
    for mode in ("recurrence", "cache"):
        model.generation_mode = mode
        kept = model(ids[:, :5], output_attentions=True).past_key_values
        got = model(ids[:, 5:], past_key_values=kept, output_attentions=True)
        want = model(ids, output_attentions=True, use_cache=False)
        assert_same(got.logits, want.logits[:, 5:])
        for weights, whole in zip(got.attentions, want.attentions, strict=True):
            assert_same(weights, whole[:, :, 5:])
        assert_same(
            model(ids[:, :2], past_key_values=kept).logits, model(torch.cat([ids, ids[:, :2]], 1)).logits[:, 9:]
        )

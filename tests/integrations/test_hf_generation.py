"""What transformers' tests of generation check (its GenerationTesterMixin, of a checkout only), for ours."""

import pytest
import torch
import torch.nn.functional as F

transformers = pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import MODES, LionCache, LionCausalConfig, LionForCausalLM  # noqa: E402
from tests import SEED  # noqa: E402
from tests.integrations.hf_small import SIZES, WORDS, small, tokens  # noqa: E402

variants = pytest.mark.parametrize("variant", ["lion_s", "lion_lit", "rwkv6", "deltanet", "softmax"])
modes = pytest.mark.parametrize("mode", MODES)
LAYERS, HEADS, DIM = 2, 2, 16
WAYS = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "do_sample": True},
}


def model_of(variant, mode="recurrence", **options):
    return small(LionForCausalLM, variant, generation_mode=mode, **options)


def generate(model, ids=None, length=4, **options):
    torch.manual_seed(SEED + 2)
    return model.generate(ids, max_new_tokens=length, min_new_tokens=length, **{"pad_token_id": 0, **options})


def padding(ids, *counts):
    """0 for so many tokens on the left of each sequence."""
    return (torch.arange(ids.shape[1]) >= torch.tensor(counts)[:, None]).long()


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def check_cache(cache, mode, variant, rows, length):
    """Layers as transformers has them, of the right sizes."""
    assert (type(cache), len(cache), cache.batch_size, cache.get_seq_length()) == (LionCache, LAYERS, rows, length)
    assert cache.get_mask_sizes(3, 0) == (length + 3, 0)
    linear = variant != "softmax" and mode == "recurrence"
    assert cache.is_linear == [linear] * LAYERS
    assert cache.is_croppable is not linear
    assert not any(cache.is_sliding)
    assert not cache.is_compileable
    for i, layer in enumerate(cache.layers):
        assert layer.batch_size == rows
        if linear:
            assert cache.has_previous_state(i)
            shapes = [tuple(x.shape) for x in layer.recurrent_states.values()]
            assert shapes[:2] == [(rows, HEADS, DIM, DIM), (rows, HEADS, DIM)]
        else:
            assert layer.keys.shape == layer.values.shape == (rows, HEADS, length, DIM)
            assert layer.get_seq_length() == length


@pytest.mark.parametrize("way", WAYS)
@modes
@variants
def test_what_generate_returns(variant, mode, way):
    """With a cache or without, the same; and all that it can be asked for, of the right sizes."""
    model, ids = model_of(variant, mode), tokens(2, 5)
    rows = 2 * WAYS[way].get("num_beams", 1)
    asked = ("scores", "logits", "attentions", "hidden_states")
    options = WAYS[way] | {f"output_{name}": True for name in asked} | {"return_dict_in_generate": True}
    found = generate(model, ids, **options)
    without = generate(model, ids, **options, use_cache=False)
    assert torch.equal(found.sequences, without.sequences)
    assert without.past_key_values is None
    assert_same(found.scores, without.scores)
    assert_same(found.logits, without.logits)
    assert all(x.shape == (rows, WORDS) for x in (*found.scores, *found.logits))
    assert [len(found[name]) for name in asked] == [4] * 4
    for step, (states, weights) in enumerate(zip(found.hidden_states, found.attentions, strict=True)):
        new = 1 if step and mode != "attention" else 5 + step
        assert {tuple(x.shape) for x in states} == {(rows, new, 32)}
        assert {tuple(x.shape) for x in weights} == {(rows, HEADS, new, 5 + step)}
        for x, y in zip((*states, *weights), (*without.hidden_states[step], *without.attentions[step]), strict=True):
            assert_same(x, y[..., -new:, :])
    if mode == "attention":
        assert found.past_key_values is None
    else:
        check_cache(found.past_key_values, mode, variant, rows, 8)


@pytest.mark.parametrize("mode", ["recurrence", "cache"])
@variants
def test_caches(variant, mode):
    model, ids = model_of(variant, mode), tokens(3, 6)
    cache = model(ids).past_key_values
    check_cache(cache, mode, variant, 3, 6)
    more = tokens(3, 8)[:, 6:]
    want = model(torch.cat([ids, more], 1)).logits[:, 6:]
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    assert_same(model(more[[2, 0, 1]], past_key_values=cache).logits, want[[2, 0, 1]])
    cache = model(ids).past_key_values
    cache.batch_select_indices(torch.tensor([1]))
    cache.batch_repeat_interleave(2)
    check_cache(cache, mode, variant, 2, 6)
    assert_same(model(more[[1, 1]], past_key_values=cache).logits, want[[1, 1]])
    if cache.is_croppable:
        cache.crop(-2)
        check_cache(cache, mode, variant, 2, 6)
        assert_same(model(more[[1, 1]], past_key_values=cache).logits, want[[1, 1]])
    else:
        with pytest.raises(ValueError, match="a state has all tokens in one sum, none to be taken back; expected"):
            cache.crop(-2)
    cache.reset()
    assert (len(cache), cache.get_seq_length(), cache.is_initialized, cache.batch_size) == (0, 0, False, -1)
    assert_same(model(ids, past_key_values=cache).logits, model(ids).logits)


@modes
@variants
def test_left_padding(variant, mode):
    model, ids = model_of(variant, mode, positions="learned"), tokens(2, 7)
    mask = padding(ids, 0, 3)
    got = generate(model, ids, attention_mask=mask)
    assert torch.equal(got[:1], generate(model, ids[:1]))
    assert torch.equal(got[1:, 3:], generate(model, ids[1:, 3:]))


@modes
@variants
def test_position_ids(variant, mode):
    """As generate would make them: they change nothing."""
    for positions in ("none", "learned"):
        model, ids = model_of(variant, mode, positions=positions), tokens(2, 7)
        mask = padding(ids, 0, 3)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        got = generate(model, ids, attention_mask=mask, position_ids=places)
        assert torch.equal(got, generate(model, ids, attention_mask=mask))


@pytest.mark.parametrize("mode", ["recurrence", "cache"])
@variants
def test_going_on(variant, mode):
    """By ids or by embeddings, from what was kept: the tokens, and the cache in the end."""
    model, ids = model_of(variant, mode), tokens(2, 5)
    embed = model.get_input_embeddings()
    options = {"return_dict_in_generate": True}
    want = generate(model, ids, 4, **options)
    first = generate(model, ids, 3, **options)
    real = torch.ones_like(first.sequences)  # whatever was generated
    rest = generate(model, first.sequences, 1, past_key_values=first.past_key_values, attention_mask=real, **options)
    assert torch.equal(rest.sequences, want.sequences)
    assert_same(rest.past_key_values.states._asdict(), want.past_key_values.states._asdict())

    first = generate(model, None, 3, inputs_embeds=embed(ids), **options)
    both = torch.cat([embed(ids), embed(first.sequences)], 1)
    rest = generate(model, None, 1, inputs_embeds=both, past_key_values=first.past_key_values, **options)
    assert torch.equal(torch.cat([ids, first.sequences, rest.sequences], 1), want.sequences)
    assert_same(rest.past_key_values.states._asdict(), want.past_key_values.states._asdict())
    beams = {"num_beams": 2}
    got = generate(model, None, inputs_embeds=embed(ids), **beams)
    assert torch.equal(got, generate(model, ids, **beams)[:, 5:])


@pytest.mark.parametrize("mode", ["recurrence", "cache"])
@variants
def test_padding_of_a_later_turn(variant, mode):
    model, ids = model_of(variant, mode, positions="learned"), tokens(2, 9)
    mask = torch.ones_like(ids)
    mask[1, 5:8] = 0
    want = model(ids, mask, use_cache=False).logits
    kept = model(ids[:, :5], mask[:, :5]).past_key_values
    got = model(ids[:, 5:], mask, past_key_values=kept).logits
    assert_same(got[mask[:, 5:].bool()], want[:, 5:][mask[:, 5:].bool()])


@variants
def test_logits_to_keep(variant):
    """generate asks for the last one only."""
    model, ids = model_of(variant), tokens(2, 5)
    kept = []
    model.lm_head.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0].shape[1]))
    generate(model, ids)
    assert kept == [1] * 4
    assert_same(model(ids, logits_to_keep=1).logits, model(ids).logits[:, -1:])


def test_without_a_prompt():
    model = model_of("lion_s", bos_token_id=1)
    assert torch.equal(generate(model), generate(model, torch.tensor([[1]])))


def test_options_that_are_saved(tmp_path):
    model, ids = small(LionForCausalLM).float(), tokens(2, 5)
    model.generation_config.update(max_new_tokens=3, num_beams=2, pad_token_id=0)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again.generate(ids), model.generate(ids))
    assert again.generate(ids).shape == (2, 8)


def test_pipeline():
    model, tokenizers = small(LionForCausalLM).float(), pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="w0", padding_side="left")
    write = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    options = transformers.GenerationConfig(max_new_tokens=4, do_sample=False, pad_token_id=0)
    found = write(["w5 w6 w7", "w8"], batch_size=2, generation_config=options, return_tensors=True)
    for text, [row] in zip(("w5 w6 w7", "w8"), found, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        want = model.generate(ids, generation_config=options)[0].tolist()
        assert row["generated_token_ids"][-len(want) :] == want  # behind padding


@variants
def test_layer_types(variant):
    """transformers' words, by which it tells what a cache of such a model is."""
    kind = "full_attention" if variant == "softmax" else "linear_attention"
    assert LionCausalConfig(variant, **SIZES).layer_types == [kind] * LAYERS


def test_labels_that_are_shifted_already():
    model, ids = small(LionForCausalLM), tokens(2, 6)
    shifted = F.pad(ids[:, 1:], (0, 1), value=-100)
    assert_same(model(ids, shift_labels=shifted).loss, model(ids, labels=ids).loss)
    assert_same(model(ids, labels=ids % 7, shift_labels=shifted).loss, model(ids, labels=ids).loss)

"""transformers' generate in each mode, saving and loading, the loss; and GPT-2 itself."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import lion
from lion.models.causal import CausalModel
from lion.train.config import Optim
from lion.train.optim import make_optimizer

transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("lion.integrations.hf")
from tests import SEED  # noqa: E402
from tests.integrations.hf_small import checkpointing  # noqa: E402

SMALL = {"vocab_size": 13, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SOME = ("softmax", "lion_s", "gla", "rwkv6", "xlstm", "deltanet")  # one of each kind
every_variant = pytest.mark.parametrize("variant", lion.VARIANTS)
some = pytest.mark.parametrize("variant", SOME)
few = pytest.mark.parametrize("variant", ["softmax", "lion_s", "xlstm", "deltanet"])


def small(variant="lion_s", **changes):
    """With nothing at a special value; in double precision, so that no mode finds another token by rounding."""
    torch.manual_seed(SEED)
    model = hf.LionForCausalLM(hf.LionCausalConfig(variant=variant, **SMALL | changes)).double().eval()
    with torch.no_grad():
        for x in model.parameters():
            x += 0.3 * torch.randn_like(x)
    return model


def tokens(*size):
    return torch.randint(1, SMALL["vocab_size"], size, generator=torch.Generator().manual_seed(SEED + 1))


def generate(model, mode, ids, length=8, **options):
    model.generation_mode = mode
    torch.manual_seed(SEED + 2)
    return model.generate(ids, max_new_tokens=length, pad_token_id=0, **options)


def left_padded(*texts):
    longest = max(len(text) for text in texts)
    ids = torch.stack([F.pad(text, (longest - len(text), 0)) for text in texts])
    return ids, (ids != 0).long()


def numel(cache):
    return sum(x.numel() for layer in cache.states.layers for x in layer.tensors().values())


# The modes.


@every_variant
def test_the_modes_find_the_same_tokens(variant):
    """Also for a batch padded on the left: what each text has by itself."""
    model, texts = small(variant), (tokens(4), tokens(7), tokens(5))
    ids, mask = left_padded(*texts)
    alone = [generate(model, "attention", text[None])[0, len(text) :] for text in texts]
    for mode in hf.MODES:
        for got, want in zip(generate(model, mode, ids, attention_mask=mask), alone, strict=True):
            torch.testing.assert_close(got[7:], want)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 2},
        {"num_beams": 3, "do_sample": True, "top_k": 5},
        {"repetition_penalty": 1.5, "eos_token_id": 3},
    ],
    ids=str,
)
@few
def test_the_modes_agree_on_beams_and_samples(variant, options):
    model = small(variant)
    ids, mask = left_padded(tokens(4), tokens(7))
    found = [generate(model, mode, ids, attention_mask=mask, **options) for mode in hf.MODES]
    for got in found:
        torch.testing.assert_close(got, found[0])


def test_the_mode_is_part_of_the_config(tmp_path):
    model = small(generation_mode="cache")
    assert model.generation_mode == "cache"
    assert hf.LionCausalConfig().generation_mode == "recurrence"
    model.generation_mode = "attention"
    model.save_pretrained(tmp_path)
    assert hf.LionForCausalLM.from_pretrained(tmp_path).generation_mode == "attention"
    assert hf.LionForCausalLM.from_pretrained(tmp_path, generation_mode="cache").generation_mode == "cache"


def test_what_each_mode_keeps():
    model, ids = small(), tokens(1, 4)
    sizes = {}
    for mode in hf.MODES:
        for length in (5, 61):  # the last token has not been read
            kept = generate(model, mode, ids, length, return_dict_in_generate=True).past_key_values
            sizes[mode, length] = 0 if kept is None else numel(kept)
            if kept is not None:
                assert kept.mode == mode
                assert kept.get_seq_length() == 4 + length - 1
    assert sizes["recurrence", 61] == sizes["recurrence", 5] > 0
    assert sizes["cache", 61] == 8 * sizes["cache", 5]
    assert sizes["attention", 61] == 0
    assert generate(model, "cache", ids, use_cache=False, return_dict_in_generate=True).past_key_values is None


@pytest.mark.parametrize("mode", ["recurrence", "cache"])
@few
def test_generation_goes_on(variant, mode):
    """From what was kept, by all ids or by the new ones, as many as there are; and for a prompt read in parts."""
    model = small(variant)
    ids, mask = left_padded(tokens(4), tokens(7))
    want = generate(model, "attention", ids, 12, attention_mask=mask)
    first = generate(model, mode, ids, 5, attention_mask=mask, return_dict_in_generate=True)
    longer = F.pad(mask, (0, 5), value=1)
    rest = {"attention_mask": longer, "past_key_values": first.past_key_values}
    torch.testing.assert_close(generate(model, mode, first.sequences, 7, **rest), want)

    kept = model(ids[:, :3], attention_mask=mask[:, :3]).past_key_values
    got = generate(model, mode, ids[:, 3:], 12, attention_mask=mask, past_key_values=kept)
    torch.testing.assert_close(got, want[:, 3:])

    got = generate(model, mode, ids, 12, attention_mask=mask, prefill_chunk_size=2)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("mode", ["recurrence", "cache"])
def test_generation_from_embeddings(mode):
    model, ids = small(), tokens(2, 5)
    want = generate(model, "attention", ids)
    model.generation_mode = mode
    got = model.generate(inputs_embeds=model.get_input_embeddings()(ids), max_new_tokens=8, pad_token_id=0)
    torch.testing.assert_close(got, want[:, 5:])


@some
def test_candidates_are_taken_back(variant):
    """Of tokens that were guessed, by looking up the prompt or by another model, those that are wrong."""
    model, ids = small(variant), tokens(1, 5).repeat(1, 3)
    want = generate(model, "attention", ids, 20)
    for mode in hf.MODES:  # whatever it is, all tokens are kept then
        torch.testing.assert_close(generate(model, mode, ids, 20, prompt_lookup_num_tokens=3), want)
        torch.testing.assert_close(generate(model, mode, ids, 20, assistant_model=small("lion_d")), want)
    model.generation_mode = "recurrence"
    kept = model(ids[:, :-1]).past_key_values
    if variant != "softmax":  # whose state is all keys and values
        with pytest.raises(ValueError, match="past_key_values has mode 'recurrence', but candidates are to be taken"):
            generate(model, "recurrence", ids, prompt_lookup_num_tokens=3, past_key_values=kept)


@pytest.mark.parametrize("mode", hf.MODES)
def test_streams(mode):
    class Streamer(transformers.generation.streamers.BaseStreamer):
        found, ended = (), False

        def put(self, value):
            self.found += tuple(value.flatten().tolist())

        def end(self):
            self.ended = True

    model, streamer = small(), Streamer()
    ids = generate(model, mode, tokens(1, 4), streamer=streamer)
    assert streamer.ended
    assert list(streamer.found) == ids[0].tolist()


def test_what_a_cache_can_do():
    model, ids = small(), tokens(2, 6)
    cache = hf.LionCache("cache")
    assert (len(cache), cache.batch_size, cache.is_initialized, cache.is_croppable) == (0, -1, False, True)
    want = model(ids, past_key_values=cache).logits
    assert (len(cache), cache.batch_size, cache.is_initialized, cache.is_croppable) == (2, 2, True, True)
    assert (cache.get_max_length(), cache.get_mask_sizes(3)) == (-1, (9, 0))
    cache.crop(0)
    cache.crop(-2)
    torch.testing.assert_close(model(ids[:, 4:], past_key_values=cache).logits, want[:, 4:])
    cache.crop(-2)
    cache.batch_repeat_interleave(2)
    torch.testing.assert_close(model(ids[[0, 0, 1, 1], 4:], past_key_values=cache).logits, want[[0, 0, 1, 1], 4:])
    with pytest.raises(ValueError, match="tokens_to_remove is 2; expected minus the number of tokens"):
        cache.crop(2)
    cache.reset()
    assert (len(cache), cache.get_seq_length()) == (0, 0)
    with pytest.raises(ValueError, match="mode is 'attention'; expected one of 'recurrence', 'cache'"):
        hf.LionCache("attention")


# The model.


@every_variant
def test_saved_and_loaded(variant, tmp_path):
    model, ids = small(variant).float(), tokens(2, 6)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is hf.LionForCausalLM
    assert again.lm_head.weight is again.get_input_embeddings().weight
    saved = model.state_dict()
    assert set(saved) == set(again.state_dict())
    for name, x in again.state_dict().items():
        assert torch.equal(x, saved[name]), name
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    half = hf.LionForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.lm_head.weight.dtype == torch.bfloat16
    assert half(ids).logits.isfinite().all()


@pytest.mark.parametrize("variant", ["lion_d", "grfa", "lion_s_diag", "rwkv6"])
def test_what_a_checkpoint_lacks_begins_anew(variant, tmp_path):
    torch.manual_seed(SEED)
    model = hf.LionForCausalLM(hf.LionCausalConfig(variant=variant, **SMALL))
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    lacking = ("decay", "features", "bonus", "norm2", "mlp.fc1")
    weights = load_file(path)
    kept = {name: x + 1 for name, x in weights.items() if not any(part in name for part in lacking)}
    assert len(kept) < len(weights)
    save_file(kept, path, metadata={"format": "pt"})
    again = hf.LionForCausalLM.from_pretrained(tmp_path)
    random = ("mlp.fc1.weight", "directions", "up.weight")
    for name, x in again.state_dict().items():
        if name in kept:
            assert torch.equal(x, kept[name]), name
        elif name.endswith(random):
            assert x.std().item() == pytest.approx(weights[name].std().item(), rel=0.5), name
        elif name != "lm_head.weight":
            assert torch.equal(x, weights[name]), name


def test_new_models_begin_as_ours():
    torch.manual_seed(SEED)
    config = hf.LionCausalConfig(variant="rwkv6", **SMALL)
    model = hf.LionForCausalLM(config)
    torch.manual_seed(SEED)
    ours = CausalModel(config.causal())
    for name, x in ours.state_dict().items():
        assert torch.equal(x, model.model.state_dict()[name]), name
    same = transformers.AutoModelForCausalLM.from_config(config)
    assert same.lm_head.weight is same.model.embed.weight


def test_weights_that_are_not_tied(tmp_path):
    model = small(tie_word_embeddings=False).float()
    assert model.lm_head.weight is not model.model.embed.weight
    model.save_pretrained(tmp_path)
    again = hf.LionForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again(tokens(1, 4)).logits, model(tokens(1, 4)).logits)


def test_a_larger_vocabulary():
    model = small()
    model.resize_token_embeddings(20, mean_resizing=False)
    assert model.lm_head.weight is model.model.embed.weight
    assert model(tokens(1, 4)).logits.shape == (1, 4, 20)


def test_the_loss():
    model, ids = small(), tokens(2, 6)
    labels = ids.clone()
    labels[0, 3] = -100
    out = model(ids, labels=labels)
    chances = out.logits.float().log_softmax(-1)
    wanted = [(i, t) for i in range(2) for t in range(1, 6) if (i, t) != (0, 3)]
    by_hand = -sum(chances[i, t - 1, ids[i, t]] for i, t in wanted)
    torch.testing.assert_close(out.loss, by_hand / len(wanted))
    torch.testing.assert_close(model(ids, labels=labels, num_items_in_batch=3).loss, by_hand / 3)


@some
def test_every_parameter_learns(variant):
    model, ids = small(variant, positions="learned").train(), tokens(2, 9)
    model(ids, labels=ids).loss.backward()
    for name, x in model.named_parameters():
        assert x.grad is not None, name
        assert x.grad.isfinite().all(), name
        assert (x.grad != 0).any(), name


def test_decays_are_no_weights():
    model = small("lion_d")
    names = {id(x): name for name, x in model.named_parameters()}
    weights, others = make_optimizer(model, Optim(weight_decay=0.1)).param_groups
    assert (weights["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert "model.blocks.0.attn.decay.logit" in {names[id(x)] for x in others["params"]}
    assert model.no_weight_decay() == {f"model.blocks.{i}.attn.decay.logit" for i in range(2)}


def test_checkpointing_changes_nothing():
    model, ids = small().train(), tokens(2, 9)
    found = []
    for on in (False, True):
        if on:
            checkpointing(model)
        found.append(torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters())))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


def test_outputs():
    model, ids = small(), tokens(2, 6)
    out = model(ids, output_hidden_states=True)
    assert [x.shape for x in out.hidden_states] == 3 * [(2, 6, 16)]
    torch.testing.assert_close(model.lm_head(out.hidden_states[-1]), out.logits)
    assert out.past_key_values.get_seq_length() == 6
    torch.testing.assert_close(model(ids, logits_to_keep=2).logits, out.logits[:, -2:])
    torch.testing.assert_close(model(ids, logits_to_keep=torch.tensor([1, 4])).logits, out.logits[:, [1, 4]])
    torch.testing.assert_close(model(ids, use_cache=False, return_dict=False)[0], out.logits)
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None


def test_a_mask_of_either_length():
    """Of the new tokens, or of those before them too, as generate has it."""
    model, ids = small(), tokens(2, 6)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    want = model(ids, attention_mask=mask).logits
    for length in (slice(None), slice(3, None)):
        kept = model(ids[:, :3], attention_mask=mask[:, :3]).past_key_values
        got = model(ids[:, 3:], attention_mask=mask[:, length], past_key_values=kept).logits
        torch.testing.assert_close(got, want[:, 3:])


def test_it_is_gpt2():
    """With softmax and learned positions, and GPT-2's weights."""
    torch.manual_seed(SEED)
    sizes = {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    with torch.no_grad():
        for x in gpt2.parameters():
            x += 0.3 * torch.randn_like(x)
    model = small("softmax", positions="learned", max_position_embeddings=12).float()
    weights = {"embed.weight": gpt2.transformer.wte.weight, "positions.weight": gpt2.transformer.wpe.weight}
    names = {"ln_1": "norm1", "attn.c_attn": "attn.in_proj", "attn.c_proj": "attn.out_proj", "ln_2": "norm2"}
    names |= {"mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
    parts = {f"h.{i}.{old}": f"blocks.{i}.{new}" for i in range(2) for old, new in names.items()}
    for old, new in (parts | {"ln_f": "norm"}).items():
        for kind, x in gpt2.transformer.get_submodule(old).named_parameters():
            weights[f"{new}.{kind}"] = x.t()  # its linear layers have them the other way round
    model.model.load_state_dict(weights)
    ids = tokens(2, 8)
    torch.testing.assert_close(model(ids).logits, gpt2(ids).logits, rtol=1e-4, atol=1e-5)
    assert sum(x.numel() for x in model.parameters()) == sum(x.numel() for x in gpt2.parameters())
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    for mode in hf.MODES:
        want = gpt2.generate(ids, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, pad_token_id=0)
        got = generate(model, mode, ids, 4, attention_mask=mask, min_new_tokens=4, eos_token_id=0)
        torch.testing.assert_close(got, want)


# What is refused.


def test_configs_that_are_none(tmp_path):
    for changes, message in (
        ({"generation_mode": "recurrent"}, "generation_mode is 'recurrent'; expected .* Did you mean 'recurrence'?"),
        ({"variant": "lion_t"}, "variant is 'lion_t'; expected one of"),
        ({"positions": "rotary"}, "positions is 'rotary'; expected one of 'learned', 'none'"),
    ):
        with pytest.raises(ValueError, match=message):
            hf.LionCausalConfig(**changes)
    model = small()
    with pytest.raises(ValueError, match="generation_mode is 'kv'; expected one of 'recurrence', 'cache', 'attention'"):
        model.generation_mode = "kv"
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="generation_mode is 'kv'"):
        hf.LionForCausalLM.from_pretrained(tmp_path, generation_mode="kv")


def test_what_is_refused():
    model, ids = small(), tokens(2, 4)
    with pytest.raises(TypeError, match="past_key_values is a DynamicCache; expected a LionCache, or None to make one"):
        generate(model, "cache", ids, past_key_values=transformers.DynamicCache())
    with pytest.raises(ValueError, match="cache_implementation is 'static'; expected None: model"):
        generate(model, "cache", ids, cache_implementation="static")
    with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 1, 4, 4\); expected \(2, 4\) = \[B, T\]"):
        model(ids, attention_mask=torch.ones(2, 1, 4, 4))
    with pytest.raises(ValueError, match="neither input_ids nor inputs_embeds is given"):
        model()
    model.generation_mode = "attention"
    with pytest.raises(ValueError, match="generation_mode is 'attention', which reads all tokens again by their ids"):
        model.generate(inputs_embeds=model.get_input_embeddings()(ids), max_new_tokens=2, pad_token_id=0)


@every_variant
def test_modules_kept_in_single_precision_exist(variant):
    model = small(variant)
    kept = {"decay"} if any(".decay." in name for name in model.state_dict()) else set()
    assert model._keep_in_fp32_modules_strict == kept
    assert model._no_split_modules == {"LionBlock"}
    assert {type(block).__name__ for block in model.model.blocks} == {"LionBlock"}


def test_half_precision_keeps_decays(tmp_path):
    for variant in ("lion_d", "lion_s", "mamba2"):
        small(variant).save_pretrained(tmp_path)
        model = hf.LionForCausalLM.from_pretrained(pretrained_model_name_or_path=tmp_path, dtype=torch.bfloat16)
        for name, parameter in model.named_parameters():
            assert parameter.dtype == (torch.float32 if ".decay." in name else torch.bfloat16), name
        assert model(tokens(2, 9)).logits.dtype == torch.bfloat16
        assert generate(model, "recurrence", tokens(2, 5)).shape == (2, 13)

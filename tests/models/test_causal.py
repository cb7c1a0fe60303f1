"""Causal models: a prompt at once and then token by token against all at once, padding, positions, learning."""

import pytest
import torch

import lion
from lion.models.causal import MEMORIES, CausalConfig, CausalModel
from tests import SEED

SMALL = {"vocab_size": 11, "dim": 16, "depth": 2, "heads": 2}
SOME = ("softmax", "lion_s", "gla", "rwkv6", "xlstm", "deltanet")  # one of each kind
every_variant = pytest.mark.parametrize("variant", lion.VARIANTS)
every_memory = pytest.mark.parametrize("memory", MEMORIES)
some = pytest.mark.parametrize("variant", SOME)


def small(variant="lion_s", **changes):
    """With nothing at a special value."""
    torch.manual_seed(SEED)
    model = CausalModel(CausalConfig(variant, **SMALL | changes)).double().eval()
    with torch.no_grad():
        for x in model.parameters():
            x += 0.1 * torch.randn_like(x)
    return model


def tokens(*size):
    return torch.randint(SMALL["vocab_size"], size, generator=torch.Generator().manual_seed(SEED + 1))


def generate(model, ids, prompt, memory):
    """[B, T, dim]: the prompt at once, then some tokens one by one, and the others after these."""
    middle = (prompt + ids.shape[1] + 1) // 2
    hidden, states = model.prefill(ids[:, :prompt], memory=memory)
    outputs = [hidden]
    for t in range(prompt, middle):
        hidden, states = model.step(ids[:, t], states)
        outputs.append(hidden[:, None])
    return torch.cat([*outputs, model.prefill(ids[:, middle:], None, states)[0]], 1)


def assert_equal(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@every_memory
@every_variant
def test_token_by_token(variant, memory):
    model, ids = small(variant), tokens(2, 13)
    want = model(ids)
    for prompt in (1, 7):
        assert_equal(generate(model, ids, prompt, memory), want)


@pytest.mark.parametrize(
    "choices",
    [
        {"features": "performer"},
        {"variant": "retnet", "features": "performer"},  # the factors of the features matter to the output
        {"variant": "xlstm", "features": "performer", "norm": "sum"},
        {"variant": "lion_s_diag", "norm": "max"},
        {"variant": "xlstm", "norm": "none"},
        {"variant": "grfa", "decay": "softplus_diagonal"},
        {"variant": "deltanet", "decay": "selective"},
        {"variant": "deltanet", "decay": "fixed"},
        {"variant": "rwkv6", "decay": "none"},
        {"variant": "rwkv6", "decay": "fixed"},
        {"positions": "learned", "max_tokens": 13},
        {"variant": "softmax", "positions": "learned", "max_tokens": 13},
    ],
    ids=str,
)
@every_memory
def test_token_by_token_with_other_choices(choices, memory):
    model, ids = small(**choices), tokens(2, 13)
    assert_equal(generate(model, ids, 7, memory), model(ids))


@every_memory
def test_gates_of_any_size(memory):
    model, ids = small("xlstm"), tokens(2, 13)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.in_proj.weight *= 3000
    first = model.blocks[0]
    gates = first.attn.tokens(first.norm1(model.embed(ids))).log_gain
    assert gates.max() > 800  # whose exponential is more than a double holds
    want = model(ids)
    assert want.isfinite().all()
    assert_equal(generate(model, ids, 7, memory), want)


@every_memory
@every_variant
def test_padding(variant, memory):
    """Wherever it is, and whatever it holds, nothing changes for the sequences."""
    model = small(variant, positions="learned", max_tokens=16)
    texts = [tokens(1, n)[:, :n] for n in (3, 8, 5)]
    alone = [model(text)[0] for text in texts]
    for side in ("left", "right", "between"):
        ids, mask = tokens(3, 9).flip(1), torch.zeros(3, 9, dtype=torch.bool)
        for i, text in enumerate(texts):
            n = text.shape[1] - 1
            place = {"left": slice(9 - n, 9), "right": slice(n), "between": torch.arange(9).roll(4 + i)[:n].sort()[0]}
            mask[i, place[side]] = True
            ids[i, place[side]] = text[0, :n]
        outputs = model(ids, mask)
        hidden, states = model.prefill(ids, mask, memory=memory)
        assert states.tokens.tolist() == [2, 7, 4]
        # The same in two parts, of which the second follows token by token.
        first, halfway = model.prefill(ids[:, :4], mask[:, :4], memory=memory)
        second, whole = model.prefill(ids[:, 4:], mask[:, 4:], halfway, memory=memory)
        last = torch.stack([text[0, -1] for text in texts])
        (next_hidden, _), (next_after_parts, _) = model.step(last, states), model.step(last, whole)
        for i, want in enumerate(alone):
            for got in (outputs, hidden, torch.cat([first, second], 1)):
                assert_equal(got[i, mask[i]], want[:-1])
            assert_equal(next_hidden[i], want[-1])
            assert_equal(next_after_parts[i], want[-1])


@every_variant
def test_the_state_does_not_grow(variant):
    model = small(variant)

    def size(length, memory):
        states = model.prefill(tokens(2, length - 2), memory=memory)[1]
        for _ in range(2):
            states = model.step(tokens(2), states)[1]
        return sum(x.numel() for layer in states.layers for x in layer.tensors().values())

    assert size(64, "cache") == 8 * size(8, "cache")
    if variant != "softmax":
        assert size(64, "recurrence") == size(8, "recurrence")


@some
def test_states_of_some_sequences(variant):
    model, ids = small(variant), tokens(3, 8)
    rows = torch.tensor([2, 0, 2])
    for memory in MEMORIES:
        states = model.prefill(ids[:, :-1], memory=memory)[1].select(rows)
        assert_equal(model.step(ids[rows, -1], states)[0], model(ids[rows])[:, -1])


@some
def test_tokens_taken_back(variant):
    model, ids = small(variant, positions="learned", max_tokens=8), tokens(2, 8)
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[0, 4:6] = False  # these do not count
    states = model.prefill(ids, mask, memory="cache")[1].without_last(3)
    assert states.tokens.tolist() == [4, 5]
    want = model.prefill(ids[:, :5], mask[:, :5], memory="cache")[1]
    assert_equal(model.step(ids[:, 0], states)[0], model.step(ids[:, 0], want)[0])
    if variant != "softmax":
        with pytest.raises(ValueError, match="none to be taken back; expected memory='cache'"):
            model.prefill(ids)[1].without_last(3)


@some
@every_memory
def test_in_half_precision(variant, memory):
    """Token by token as near to the truth as all at once."""
    model, ids = small(variant), tokens(2, 24)
    with torch.no_grad():
        truth = model(ids)
        model.bfloat16()
        at_once, one_by_one = (x.double() - truth for x in (model(ids), generate(model, ids, 12, memory)))
    assert one_by_one.abs().max() <= 2 * at_once.abs().max() + 1e-3


@every_variant
def test_every_parameter_learns(variant):
    model = small(variant, positions="learned", max_tokens=9).train()
    ids = tokens(2, 9)
    logits = model.logits(model(ids))
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    for name, x in model.named_parameters():
        assert x.grad is not None, name
        assert x.grad.isfinite().all(), name
        assert (x.grad != 0).any(), name


@some
@every_memory
def test_gradients_pass_through_states(variant, memory):
    model, ids = small(variant), tokens(2, 9)
    weight = torch.randn(2, 9, SMALL["dim"]).double()
    outputs = model(ids), generate(model, ids, 4, memory)
    found = [torch.autograd.grad((hidden * weight).sum(), list(model.parameters())) for hidden in outputs]
    for got, want in zip(*found, strict=True):
        assert_equal(got, want)


def test_checkpointing_changes_nothing():
    model, ids = small().train(), tokens(2, 9)
    found = []
    for on in (False, True):
        model.set_grad_checkpointing(on)
        found.append(torch.autograd.grad(model(ids).square().sum(), list(model.parameters())))
    for got, want in zip(*found, strict=True):
        assert_equal(got, want)


def test_it_begins_as_gpt2():
    model = CausalModel(CausalConfig(vocab_size=500, dim=64, depth=8, heads=4))
    block = model.blocks[0]
    for weight, std in (
        (model.embed.weight, 0.02),
        (block.attn.in_proj.weight, 0.02),
        (block.attn.out_proj.weight, 0.02 / 4),
        (block.mlp.fc1.weight, 0.02),
        (block.mlp.fc2.weight, 0.02 / 4),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.1)
    hippo = CausalModel(CausalConfig("lion_s_diag", vocab_size=500, dim=64, depth=8, heads=4)).blocks[0].attn
    q, *_ = hippo.in_proj.weight.split(list(hippo.columns.values()))
    assert q.std().item() == pytest.approx(0.1, rel=0.1)  # its own beginning


def test_the_size_of_gpt2():
    for changes in ({}, {"variant": "softmax", "positions": "learned"}):
        with torch.device("meta"):
            model = CausalModel(CausalConfig(**changes))
        assert sum(x.numel() for x in model.parameters()) / 1e6 == pytest.approx(124, rel=0.01)


def test_decays_are_no_weights():
    model = small("lion_d", positions="learned")
    kept = model.no_weight_decay()
    assert kept == {"positions.weight", *(f"blocks.{i}.attn.decay.logit" for i in range(2))}
    assert kept < {name for name, _ in model.named_parameters()}


def test_what_enters_each_block():
    model, ids = small(), tokens(2, 5)
    trace, same = [], []
    model(ids, trace=trace)
    model.prefill(ids, trace=same)
    assert len(trace) == 2
    torch.testing.assert_close(trace, same)
    assert_equal(trace[0], model.embed(ids))
    assert_equal(model(embeddings=model.embed(ids)), model(ids))


@pytest.mark.parametrize("positions", ["none", "learned"])
@some
def test_packed_sequences(variant, positions):
    model, ids = small(variant, positions=positions), tokens(1, 13)
    want = torch.cat([model(part) for part in ids.split((5, 1, 7), 1)], 1)
    assert_equal(model(ids, cu_seqlens=torch.tensor([0, 5, 6, 13])), want)


@every_memory
@some
def test_weights(variant, memory):
    """Of all tokens, whatever is kept of them; the outputs computed by them are the same."""
    model, ids, weights, same = small(variant), tokens(2, 9), [], []
    want = model(ids)
    assert_equal(model(ids, weights=weights), want)
    first, states = model.prefill(ids[:, :5], memory=memory, weights=same)
    assert_equal(first, want[:, :5])
    assert_equal(same, [x[:, :, :5, :5] for x in weights])
    same.clear()
    second, states = model.prefill(ids[:, 5:], None, states, memory=memory, weights=same)
    assert_equal(second, want[:, 5:])
    assert_equal(same, [x[:, :, 5:] for x in weights])
    _, states = model.prefill(ids[:, :1], None, states, memory=memory)  # not asked for: no longer kept
    with pytest.raises(
        ValueError, match="weights are asked for, but the state has none of the tokens before; expected"
    ):
        model.prefill(ids[:, :1], None, states, memory=memory, weights=[])


def test_given_positions():
    model, ids = small(positions="learned"), tokens(2, 5)
    place = torch.tensor([[3, 1, 4, 0, 2]])
    shifted = model.embed(ids) + model.positions(place) - model.positions(torch.arange(5))
    assert_equal(model(ids, position_ids=place), model(embeddings=shifted))
    assert_equal(model.prefill(ids, position_ids=place)[0], model(embeddings=shifted))
    with pytest.raises(
        ValueError, match="position_ids is given, but positions is 'none'; expected none: leave them out"
    ):
        small()(ids, position_ids=place)


def test_learned_positions_end():
    model, ids = small(positions="learned", max_tokens=6), tokens(2, 7)
    message = "there are 7 tokens in a sequence; expected at most 6, the max_tokens of the learned positions"
    with pytest.raises(ValueError, match=message):
        model(ids)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, 0] = mask[1, -1] = False
    states = model.prefill(ids, mask)[1]  # padding has no position
    with pytest.raises(ValueError, match=message):
        model.step(ids[:, 0], states)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "lion_t"}, "variant is 'lion_t'; expected one of .* Did you mean 'lion_"),
        ({"positions": "rotary"}, "positions is 'rotary'; expected one of 'learned', 'none'"),
    ],
)
def test_configs_that_are_none(changes, message):
    with pytest.raises(ValueError, match=message):
        CausalConfig(**changes)


def test_what_is_refused():
    model, ids = small(), tokens(2, 5)
    with pytest.raises(ValueError, match=r"mask has shape \(2, 5\) and dtype int64; expected \(2, 5\) and bool"):
        model(ids, torch.ones_like(ids))
    with pytest.raises(ValueError, match="expected either ids or embeddings"):
        model()
    with pytest.raises(ValueError, match="memory is 'caches'; expected one of 'recurrence', 'cache'"):
        model.prefill(ids, memory="caches")
    with pytest.raises(ValueError, match="norm is 'unmasked'; expected 'sum', 'max' or 'none'"):
        small(norm="unmasked").prefill(ids)

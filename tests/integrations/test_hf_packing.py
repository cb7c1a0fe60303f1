"""Sequences packed into one row, by our names and by transformers', and position_ids that change nothing."""

import inspect

import pytest
import torch
import torch.nn.functional as F

import lion

transformers = pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import (  # noqa: E402
    LionForCausalLM,
    LionForMaskedLM,
    LionForSequenceClassification,
    LionModel,
)
from tests.integrations.hf_small import KINDS, small, tokens  # noqa: E402

LENGTHS = (6, 1, 9)
TOTAL = sum(LENGTHS)
BORDERS = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)])
PLACES = torch.cat([torch.arange(n) for n in LENGTHS])[None]
NAMES = {
    "cu_seqlens": {"cu_seqlens": BORDERS},
    "cu_seq_lens": {
        "cu_seq_lens_q": BORDERS.int(),
        "cu_seq_lens_k": BORDERS.int(),
        "max_length_q": 9,
        "max_length_k": 9,
    },
    "position_ids": {"position_ids": PLACES},
    "position_ids from 2": {"position_ids": PLACES + 2},
    "seq_idx": {"seq_idx": torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))[None].int()},
    "all, and a mask that hides nothing": {
        "position_ids": PLACES,
        "cu_seq_lens_q": BORDERS,
        "attention_mask": torch.ones(1, TOTAL),
    },
}


def alone(model, ids, **options):
    """What each sequence gives by itself, end to end."""
    outputs = [model(part, **options)[0] for part in ids.split(LENGTHS, 1)]
    return torch.cat(outputs, 1 if outputs[0].dim() == 3 else 0)


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_have_the_names(kind):
    """Trainer drops the columns of a data set that it does not find there: sequences would run into each other."""
    names = inspect.signature(small(kind).forward).parameters
    assert {name for inputs in NAMES.values() for name in inputs} <= set(names)
    assert not any(x.kind == x.VAR_KEYWORD for x in names.values())


@pytest.mark.parametrize("variant", lion.VARIANTS)
@pytest.mark.parametrize("kind", [LionModel, LionForCausalLM])
def test_every_variant(kind, variant):
    model, ids = small(kind, variant), tokens(1, TOTAL)
    want = alone(model, ids)
    assert_same(model(ids, position_ids=PLACES)[0], want)
    assert not torch.allclose(model(ids)[0], want, rtol=1e-3)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_name(kind, names):
    model, ids = small(kind), tokens(1, TOTAL)
    assert_same(model(ids, **NAMES[names])[0], alone(model, ids))
    embeddings = model.get_input_embeddings()(ids)
    assert_same(model(inputs_embeds=embeddings, **NAMES[names])[0], alone(model, ids))


@pytest.mark.parametrize("names", [name for name in NAMES if "2" not in name])
@pytest.mark.parametrize("kind", [LionModel, LionForCausalLM])
def test_learned_positions(kind, names):
    model, ids = small(kind, positions="learned", max_position_embeddings=12), tokens(1, TOTAL)
    assert_same(model(ids, **NAMES[names])[0], alone(model, ids))


@pytest.mark.parametrize("kind", [LionForMaskedLM, LionForCausalLM])
def test_gradients(kind):
    model, ids = small(kind, hidden_dropout_prob=0.0).train(), tokens(1, TOTAL)
    weights = torch.randn_like(model(ids)[0])
    names, parameters = zip(*model.named_parameters(), strict=True)
    got = torch.autograd.grad((model(ids, position_ids=PLACES)[0] * weights).sum(), parameters)
    want = torch.autograd.grad((alone(model, ids) * weights).sum(), parameters)
    for name, one, other in zip(names, got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8, msg=name)


@pytest.mark.parametrize("options", [{}, {"return_flash_attn_kwargs": True}, {"return_seq_idx": True}], ids=str)
@pytest.mark.parametrize("kind", [LionForMaskedLM, LionForCausalLM])
def test_flattening_collator(kind, options):
    """transformers' own. The causal loss is that of the sequences, each by itself."""
    model, ids = small(kind), tokens(1, TOTAL)
    collator = transformers.DataCollatorWithFlattening(return_tensors="pt", **options)
    parts = ids.split(LENGTHS, 1)
    batch = collator([{"input_ids": part[0].tolist()} for part in parts])
    output = model(**batch)
    assert_same(output.logits, alone(model, ids))
    if kind is LionForCausalLM:
        pairs = [(model(part).logits[0, :-1], part[0, 1:]) for part in parts]
        want = F.cross_entropy(*(torch.cat(both) for both in zip(*pairs, strict=True)))
        torch.testing.assert_close(output.loss.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [LionForMaskedLM, LionForCausalLM])
def test_training_packed_is_training_padded(kind, tmp_path):
    """By the Trainer: packed micro-batches, three to a step, and padded batches of the same examples."""
    examples = [{"input_ids": part[0].tolist()} for part in tokens(1, 4 * TOTAL).split(LENGTHS * 4, 1)]
    packing = transformers.DataCollatorWithFlattening(return_tensors="pt")
    found = []
    for collator, size, parts in ((packing, 2, 3), (pad, 6, 1)):
        model = small(kind, hidden_dropout_prob=0.0)
        arguments = transformers.TrainingArguments(
            tmp_path,
            max_steps=2,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            optim="sgd",
            learning_rate=0.1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
        )
        transformers.Trainer(model, arguments, collator, train_dataset=examples).train()
        found.append(model.state_dict())
    before = small(kind).state_dict()
    for name, x in found[0].items():
        torch.testing.assert_close(x, found[1][name], rtol=1e-6, atol=1e-6, msg=name)
    assert sum(not torch.equal(x, before[name]) for name, x in found[0].items()) > len(before) / 2


def pad(examples):
    longest = max(len(example["input_ids"]) for example in examples)
    rows = [torch.tensor(example["input_ids"]) for example in examples]
    ids = torch.stack([F.pad(row, (0, longest - len(row)), value=0) for row in rows])
    mask = torch.stack([torch.arange(longest) < len(row) for row in rows])
    labels = ids.where(mask, -100)
    labels[:, 0] = -100  # as transformers separates packed ones
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


# position_ids that are none of packed sequences.


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("kind", KINDS)
def test_counting_changes_nothing(kind, positions):
    model, ids = small(kind, positions=positions), tokens(3, 9)
    place = torch.arange(9)
    mask = torch.stack([place < 6, place >= 2, place < 9]).long()
    for given, position_ids in (
        (None, place[None]),
        (None, place.expand(3, 9)),
        (mask, (mask.cumsum(1) - 1).clamp(min=0)),
        (mask, (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)),
    ):
        got, want = model(ids, given, position_ids=position_ids)[0], model(ids, given)[0]
        real = ... if given is None or got.dim() == 2 else given.bool()
        assert_same(got[real], want[real])


def test_other_positions_that_are_learned():
    for kind in (LionModel, LionForCausalLM):
        model, ids = small(kind, positions="learned"), tokens(2, 4)
        place = torch.tensor([[7, 3, 4, 9]])
        places = model.base_model.encoder.embeddings.positions if kind is LionModel else model.model.positions
        want = model(inputs_embeds=model.get_input_embeddings()(ids) + places(place) - places(torch.arange(4)))[0]
        assert_same(model(ids, position_ids=place)[0], want)


@pytest.mark.parametrize("kind", [LionModel, LionForSequenceClassification, LionForCausalLM])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"position_ids": torch.tensor([[0, 2, 1, 3]])}, "position_ids do not count .*; expected 0, 1, 2, ..., anew"),
        (
            {"position_ids": torch.tensor([[0, 2, 1, 3]]), "attention_mask": torch.tensor([[1, 1, 1, 0]] * 2)},
            "position_ids do not count the tokens of a sequence one by one",
        ),
        ({"position_ids": torch.tensor([[0, 1, 0, 1]])}, "position_ids packs several .* 2 rows; expected one row: fl"),
        ({"seq_idx": torch.tensor([[0, 0, 1, 1]] * 2)}, r"seq_idx packs several .* flatten the batch to \[1, B \* T\]"),
        ({"position_ids": torch.arange(3)[None]}, r"position_ids has shape \(1, 3\); expected \(2, 4\) or \(1, 4\)"),
        (
            {"cu_seq_lens_q": torch.tensor([0, 4]), "cu_seq_lens_k": torch.tensor([0, 1, 4])},
            r"cu_seq_lens_k is \[0, 1, 4\], and cu_seq_lens_q \[0, 4\]; expected the same borders",
        ),
        (
            {"cu_seq_lens_q": torch.tensor([0, 4]), "attention_mask": torch.tensor([[1, 1, 1, 0]] * 2)},
            "attention_mask hides tokens, but cu_seq_lens_q is given; expected one of them: pack sequences without",
        ),
    ],
)
def test_what_is_refused(kind, inputs, message):
    with pytest.raises(ValueError, match=message):
        small(kind)(tokens(2, 4), **inputs)


def test_packed_rows_have_no_cache():
    model, ids = small(LionForCausalLM), tokens(1, TOTAL)
    assert model(ids, position_ids=PLACES).past_key_values is None
    with pytest.raises(ValueError, match="use_cache is True, but sequences are packed; expected none: a cache has one"):
        model(ids, position_ids=PLACES, use_cache=True)
    with pytest.raises(ValueError, match="past_key_values is given, but sequences are packed"):
        model(ids, position_ids=PLACES, past_key_values=model(ids).past_key_values)


def test_compiled():
    """Values cannot be looked at: borders are given, or position_ids do not begin anew."""
    model, ids = small(LionForMaskedLM, num_hidden_layers=1), tokens(1, TOTAL)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_same(compiled(ids, cu_seq_lens_q=BORDERS).logits, alone(model, ids))
    assert_same(compiled(ids, position_ids=torch.arange(TOTAL)[None]).logits, model(ids).logits)
    with pytest.raises(
        RuntimeError, match=r"position_ids begin anew, .*; expected the borders of the packed sequences"
    ):
        compiled(ids, position_ids=PLACES)

"""What transformers' own tests check of a model (those of its tests/test_modeling_common.py), for ours; pipelines and
the Trainer; and BERTs with our attention."""

import copy
import importlib
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

import lion
from lion.models.encoder import EncoderConfig
from lion.nn.layers import LionAttention
from lion.ops.kernels import FORMS

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
hf = pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf.conversion import CONVERTED  # noqa: E402
from tests import SEED  # noqa: E402
from tests.integrations.hf_small import checkpointing  # noqa: E402

WORDS, LABELS = 50, 3
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
AUTO = {
    hf.LionModel: transformers.AutoModel,
    hf.LionForMaskedLM: transformers.AutoModelForMaskedLM,
    hf.LionForSequenceClassification: transformers.AutoModelForSequenceClassification,
    hf.LionForTokenClassification: transformers.AutoModelForTokenClassification,
}
HEADS = [kind for kind in AUTO if kind is not hf.LionModel]
every_kind = pytest.mark.parametrize("kind", AUTO)
every_head = pytest.mark.parametrize("kind", HEADS)
every_variant = pytest.mark.parametrize("variant", lion.VARIANTS)


def small(kind=hf.LionForMaskedLM, variant="lion_s", **options):
    """With weights so large that tokens and layers make a difference."""
    torch.manual_seed(SEED)
    return kind(hf.LionConfig(variant, **{**SMALL, "num_labels": LABELS, "initializer_range": 0.2, **options})).eval()


def tokens(*shape):
    return torch.randint(5, WORDS, shape, generator=torch.Generator().manual_seed(SEED + 1))


def labels_for(kind, ids):
    labels = ids if kind is hf.LionForMaskedLM else ids % LABELS
    return labels[:, 0] if kind is hf.LionForSequenceClassification else labels


def gradients(model, **inputs):
    model.zero_grad()
    output = model(**inputs)
    if "labels" in inputs:
        output.loss.backward()
    else:
        (output[0].square().sum() + output.pooler_output.square().sum()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


# Configs, weights, files.


def test_config(tmp_path):
    assert hf.LionConfig().encoder() == EncoderConfig()
    changed = EncoderConfig("lion_d", dim=64, heads=4, norm_eps=1e-6, init_std=0.1, dropout=0.3, two_sided=True)
    assert hf.LionConfig.of(changed).encoder() == changed
    same = {
        "positions": "learned",
        "features": "elu_plus_one",
        "decay": "fixed",
        "norm": "none",
        "attention_norm": True,
    }
    config = hf.LionConfig("lion_d", hidden_size=64, pad_token_id=None, **same, num_labels=4, form="scan")
    config.save_pretrained(tmp_path)
    reloaded = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(reloaded) is hf.LionConfig
    assert {**reloaded.to_dict(), "_name_or_path": ""} == config.to_dict()
    assert reloaded.encoder() == EncoderConfig("lion_d", dim=64, pad_token=None, **same)
    assert (reloaded.num_labels, reloaded.form) == (4, "scan")


@every_variant
def test_saved_and_reloaded_to_the_bit(variant, tmp_path):
    model, ids = small(variant=variant), tokens(2, 9)
    model.save_pretrained(tmp_path)
    reloaded, info = hf.LionForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, x in model.state_dict().items():
        assert torch.equal(x, reloaded.state_dict()[name]), name
    assert torch.equal(model(ids).logits, reloaded(ids).logits)
    assert reloaded.lion.encoder.layers[0].attention.name == variant
    assert not reloaded.training


@every_kind
def test_auto_classes(kind, tmp_path):
    model, ids = small(kind, positions="learned"), tokens(2, 9)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    reloaded = AUTO[kind].from_pretrained(tmp_path)
    assert type(reloaded) is kind
    assert torch.equal(reloaded(ids)[0], model(ids)[0])
    assert type(AUTO[kind].from_config(model.config)) is kind


@every_variant
def test_what_a_checkpoint_lacks_begins_as_new(variant):
    """As in a new model: decays and positions, too, and what some variants have a beginning of their own for."""
    config = hf.LionConfig(variant, positions="learned", **SMALL)
    torch.manual_seed(SEED)
    new = hf.LionForSequenceClassification(config)
    some = {name: x + 1 for name, x in new.state_dict().items() if "layers.1" in name}
    loaded = hf.LionForSequenceClassification.from_pretrained(None, config=config, state_dict=some)
    for name, x in loaded.state_dict().items():
        if name in some:
            assert torch.equal(x, some[name]), name
        elif x.numel() > 1:
            want = new.state_dict()[name]
            assert x.mean().item() == pytest.approx(want.mean().item(), abs=0.5 * want.std().item() + 1e-6), name
            assert x.std().item() == pytest.approx(want.std().item(), rel=0.5), name
    assert torch.equal(*(model.lion.encoder.embeddings.positions.weight for model in (loaded, new)))
    fresh = LionAttention(32, 2, variant)
    [layer, _] = loaded.lion.encoder.layers
    for name, x in fresh.decay.named_parameters():
        if not name.startswith("up."):  # which is random
            assert torch.equal(layer.attention.decay.get_parameter(name), x), name


def test_one_head_after_another(tmp_path):
    """Fine-tuning: the encoder comes from the file, the head is new."""
    pretrained = small()
    pretrained.save_pretrained(tmp_path)
    kind = hf.LionForSequenceClassification
    model, info = kind.from_pretrained(tmp_path, num_labels=5, output_loading_info=True)
    assert_close(model.lion.encoder.state_dict(), pretrained.lion.encoder.state_dict(), 0)
    new = {f"{name}.{which}" for name in ("lion.pooler", "classifier") for which in ("weight", "bias")}
    assert info["missing_keys"] == new
    assert all(name.startswith("head.") for name in info["unexpected_keys"])
    assert model(tokens(2, 9)).logits.shape == (2, 5)

    model.save_pretrained(tmp_path)
    other = kind.from_pretrained(tmp_path, num_labels=2, ignore_mismatched_sizes=True)
    assert other(tokens(2, 9)).logits.shape == (2, 2)
    assert_close(other.lion.state_dict(), model.lion.state_dict(), 0)


@every_variant
def test_modules_kept_in_single_precision_exist(variant):
    model = small(variant=variant)
    kept = {"decay"} if any(".decay." in name for name in model.state_dict()) else set()
    assert model._keep_in_fp32_modules_strict == kept
    assert model._no_split_modules == {"LionLayer"}
    assert {type(layer).__name__ for layer in model.lion.encoder.layers} == {"LionLayer"}


def test_half_precision_keeps_decays(tmp_path):
    for variant in ("lion_d", "lion_s", "rwkv6", "mamba2"):
        small(variant=variant).save_pretrained(tmp_path)
        model = hf.LionForMaskedLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        for name, parameter in model.named_parameters():
            assert parameter.dtype == (torch.float32 if ".decay." in name else torch.bfloat16), name
        assert model(tokens(2, 9)).logits.dtype == torch.bfloat16
        assert hf.LionForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).dtype == torch.float64


def test_tied_weights(tmp_path):
    model = small()
    assert model.head.decoder.weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert "head.decoder.weight" not in file.keys()  # noqa: SIM118
    reloaded = hf.LionForMaskedLM.from_pretrained(tmp_path)
    assert reloaded.head.decoder.weight is reloaded.get_input_embeddings().weight

    apart, ids = small(tie_word_embeddings=False), tokens(2, 9)
    assert apart.head.decoder.weight is not apart.get_input_embeddings().weight
    apart.save_pretrained(tmp_path)
    assert torch.equal(hf.LionForMaskedLM.from_pretrained(tmp_path)(ids).logits, apart(ids).logits)


@pytest.mark.parametrize("tied", [True, False])
@every_kind
def test_resized_embeddings(kind, tied, tmp_path):
    model, ids = small(kind, tie_word_embeddings=tied), tokens(2, 9)
    want = model(ids)[0]
    for size in (WORDS + 10, WORDS - 2):
        ids = ids.clamp(max=size - 1)
        model.resize_token_embeddings(size)
        assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == size
        assert model.base_model.encoder.config.vocab_size == size
        got = model(ids)[0]
        if kind is hf.LionForMaskedLM:
            assert got.shape[-1] == size
            assert (model.head.decoder.weight is model.get_input_embeddings().weight) == tied
            got, want = got[..., : WORDS - 2], want[..., : WORDS - 2]
        if size > WORDS:
            assert_close(got, want)
    model.save_pretrained(tmp_path)
    assert torch.equal(kind.from_pretrained(tmp_path)(ids)[0], model(ids)[0])
    other = torch.nn.Embedding(WORDS, 32)
    model.set_input_embeddings(other)
    assert model.get_input_embeddings() is model.base_model.encoder.embeddings.words is other


# Outputs.


@every_kind
def test_shapes_and_determinism(kind):
    model, ids = small(kind), tokens(2, 9)
    shapes = {"logits": (2, 9, LABELS), "last_hidden_state": (2, 9, 32), "pooler_output": (2, 32)}
    shapes |= {"logits": (2, 9, WORDS)} if kind is hf.LionForMaskedLM else {}
    shapes |= {"logits": (2, LABELS)} if kind is hf.LionForSequenceClassification else {}
    output = model(ids)
    assert {name: x.shape for name, x in output.items()} == {name: shapes[name] for name in output}
    assert_close(output.to_tuple(), model(ids).to_tuple(), 0)
    assert_close(copy.deepcopy(model)(ids).to_tuple(), output.to_tuple(), 0)
    model.train()
    assert not torch.allclose(model(ids)[0], model(ids)[0])  # dropout
    assert hf.LionModel(model.config, add_pooling_layer=False)(ids).pooler_output is None


@every_kind
def test_hidden_states_and_tuples(kind):
    model, ids = small(kind), tokens(2, 9)
    inputs = {"input_ids": ids} if kind is hf.LionModel else {"input_ids": ids, "labels": labels_for(kind, ids)}
    output = model(**inputs, output_hidden_states=True)
    assert [x.shape for x in output.hidden_states] == [(2, 9, 32)] * 3
    assert_close(output.hidden_states[-1], model.base_model(ids).last_hidden_state, 0)
    assert model(**inputs).get("hidden_states") is None
    as_tuple = model(**inputs, output_hidden_states=True, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert_close(as_tuple, output.to_tuple(), 0)
    for x in output.hidden_states:
        x.retain_grad()
    (output[0] * torch.randn_like(output[0])).sum().backward()  # a plain sum of what was normed is constant
    assert all(x.grad.any() for x in output.hidden_states[:-1])

    model.config.output_hidden_states, model.config.return_dict = True, False
    assert_close(model(**inputs), as_tuple, 0)


@every_kind
def test_embeddings_in_place_of_tokens(kind):
    model, ids = small(kind), tokens(2, 9)
    assert_close(model(inputs_embeds=model.get_input_embeddings()(ids))[0], model(ids)[0], 0)


@every_kind
def test_forms_agree(kind):
    model, ids = small(kind).double(), tokens(2, 23)
    mask = (torch.arange(23) < torch.tensor([[23], [17]])).long()
    want = model(ids, mask)[0]
    for form in FORMS:
        assert lion.set_form(model, form) is model
        assert model.config.form == model.base_model.encoder.layers[1].attention.form == form
        assert_close(model(ids, mask)[0], want, 1e-9)
    assert model.set_form("full", backend="torch").base_model.encoder.layers[0].attention.backend == "torch"


def test_the_form_is_saved(tmp_path):
    lion.set_form(small(), "rnn").save_pretrained(tmp_path)
    assert hf.LionForMaskedLM.from_pretrained(tmp_path).lion.encoder.layers[0].attention.form == "rnn"


@pytest.mark.parametrize("positions", ["none", "learned"])
@every_kind
def test_batches_change_nothing(kind, positions):
    """Sequences padded on either side, or packed, give what each of them gives alone."""
    model, ids = small(kind, positions=positions).double(), tokens(3, 9)
    place = torch.arange(9)
    mask = torch.stack([place < 6, place >= 2, place < 9])
    alone = [model(ids[i : i + 1, mask[i]]).to_tuple() for i in range(3)]
    for given in (mask, mask.long(), mask.double()):
        for i, whole in enumerate(zip(*model(ids, given).to_tuple(), strict=True)):
            for got, want in zip(whole, alone[i], strict=True):
                assert_close(got[mask[i]] if got.dim() == 2 else got, want[0], 1e-9)
    packed = model(ids[mask][None], cu_seqlens=torch.tensor([0, 6, 13, 22])).to_tuple()
    for got, *parts in zip(packed, *alone, strict=True):
        assert_close(got, torch.cat(parts, 1 if got.dim() == 3 else 0), 1e-9)


@pytest.mark.parametrize("ones", [None, torch.ones(2, 9), torch.ones(2, 9).long(), torch.ones(2, 9).bool()])
def test_a_mask_that_hides_nothing_is_none(ones):
    model, masks = small(), []
    model.lion.encoder.register_forward_pre_hook(lambda module, inputs: masks.append(inputs[1]))
    model(tokens(2, 9), ones)
    assert masks == [None]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"attention_mask": torch.ones(2, 1, 9, 9)}, r"shape \(2, 1, 9, 9\); expected \(2, 9\) = \[B, T\]"),
        ({"attention_mask": torch.ones(1, 3)}, r"attention_mask has shape \(1, 3\); expected \(2, 9\)"),
        (
            {"attention_mask": torch.eye(9)[:2], "cu_seqlens": torch.tensor([0, 9])},
            "attention_mask hides tokens, but cu_seqlens is given; expected one of them",
        ),
        ({"position_ids": tokens(2, 9)}, "position_ids do not count .* but positions is 'none'; expected 0, 1, 2"),
        ({"inputs_embeds": torch.randn(2, 9, 32)}, "input_ids and inputs_embeds are given"),
    ],
)
def test_errors(inputs, message):
    with pytest.raises(ValueError, match=message):
        small()(tokens(2, 9), **inputs)


# Training.


@pytest.mark.parametrize("variant", ["lion_s", "lion_lit", "lion_d_diag"])
@every_kind
def test_every_parameter_gets_a_gradient(kind, variant):
    model, ids = small(kind, variant, positions="learned").train(), tokens(2, 9)
    inputs = {} if kind is hf.LionModel else {"labels": labels_for(kind, ids)}
    for name, gradient in gradients(model, input_ids=ids, **inputs).items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert (gradient != 0).any(), name


@pytest.mark.parametrize("reentrant", [None, True, False])
@every_kind
def test_checkpointing_changes_nothing(kind, reentrant):
    model, ids = small(kind).train(), tokens(2, 9)
    inputs = {"input_ids": ids} if kind is hf.LionModel else {"input_ids": ids, "labels": labels_for(kind, ids)}
    runs = []
    model.base_model.encoder.layers[0].norm1.register_forward_pre_hook(lambda *_: runs.append(1))

    def found():
        runs.clear()
        torch.manual_seed(SEED + 1)
        return gradients(model, **inputs)

    want = found()
    assert len(runs) == 1
    checkpointing(model, None if reentrant is None else {"use_reentrant": reentrant})
    assert_close(found(), want)
    assert len(runs) == 2  # once more on the way back
    checkpointing(model, enable=False)
    found()
    assert len(runs) == 1


@every_head
def test_losses(kind):
    model, ids = small(kind), tokens(2, 9)
    labels = labels_for(kind, ids).clone()
    if labels.dim() == 2:
        labels[0, 3:] = -100  # not to be told
    output = model(ids, labels=labels)
    assert_close(output.loss, F.cross_entropy(output.logits.flatten(0, -2), labels.flatten()))
    if kind is hf.LionForSequenceClassification:
        assert model.config.problem_type == "single_label_classification"


@pytest.mark.parametrize(
    ("options", "labels", "want", "kind"),
    [
        ({"num_labels": 1}, torch.tensor([0.5, 2]), F.mse_loss, "regression"),
        ({"num_labels": 1}, torch.tensor([1, 2]), F.mse_loss, "regression"),
        ({"num_labels": 3, "problem_type": "regression"}, torch.randn(2, 3), F.mse_loss, "regression"),
        (
            {"num_labels": 3},
            torch.tensor([[0.0, 1, 1], [1, 0, 0]]),
            F.binary_cross_entropy_with_logits,
            "multi_label_classification",
        ),
        (
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            torch.tensor([[0, 1, 1], [1, 0, 0]]),
            F.binary_cross_entropy_with_logits,
            "multi_label_classification",
        ),
    ],
)
def test_other_losses(options, labels, want, kind):
    model = small(hf.LionForSequenceClassification, **options)
    output = model(tokens(2, 9), labels=labels)
    assert_close(output.loss, want(output.logits, labels.float().view(2, -1)))
    assert model.config.problem_type == kind


@every_head
def test_losses_of_parts_add_up(kind):
    """With num_items_in_batch: micro-batches of other sizes are not worth the same."""
    model, ids = small(kind), tokens(4, 9)
    labels = labels_for(kind, ids).clone()
    if labels.dim() == 2:
        labels[0, 2:] = -100
    labelled = (labels != -100).sum()
    whole = model(ids, labels=labels).loss
    for items in (labelled, labelled.item()):
        parts = [model(ids[rows], labels=labels[rows], num_items_in_batch=items).loss for rows in ([0], [1, 2, 3])]
        assert_close(sum(parts), whole)
    assert model.accepts_loss_kwargs


@pytest.mark.parametrize("labels", [torch.rand(4, 1), torch.tensor([[0.0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]])])
def test_other_losses_of_parts_add_up(labels):
    model, ids = small(hf.LionForSequenceClassification, num_labels=labels.shape[1]), tokens(4, 9)
    whole = model(ids, labels=labels).loss
    items = labels.numel()
    parts = [model(ids[rows], labels=labels[rows], num_items_in_batch=items).loss for rows in ([0], [1, 2, 3])]
    assert_close(sum(parts), whole)


@pytest.mark.parametrize("kind", [hf.LionForMaskedLM, hf.LionForTokenClassification])
def test_logits_of_some_tokens(kind):
    model, ids = small(kind), tokens(2, 9)
    labels = torch.where(tokens(2, 9) % 2 == 0, ids % LABELS, -100)
    wanted, whole = labels != -100, model(ids, labels=labels)
    for asked in (True, wanted):
        found = model(ids, labels=labels, sparse_logits=asked)
        assert_close(found.logits, whole.logits[wanted])
        assert_close(found.loss, whole.loss)
    found = model(ids, sparse_logits=wanted)  # without labels there is no loss to compute
    assert_close(found.logits, whole.logits[wanted])
    assert found.loss is None
    for options, message in (
        ({"sparse_logits": True}, "sparse_logits is given, but there are no labels; expected"),
        ({"sparse_logits": True, "labels": labels[:, 1:]}, r"labels has shape \(2, 8\); expected \[B, T\]"),
        ({"sparse_logits": wanted[0]}, r"sparse_logits has shape \(9,\); expected \[B, T\]"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, **options)


@every_kind
def test_arguments_that_are_none(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        small(kind)(tokens(1, 4), nonsense=None)


def test_losses_of_half_precision_are_in_single():
    model, ids = small().bfloat16(), tokens(2, 9)
    output = model(ids, labels=ids)
    assert output.loss.dtype == torch.float32
    assert_close(output.loss, F.cross_entropy(output.logits.float().flatten(0, 1), ids.flatten()))


def test_parameters_without_weight_decay():
    model = small(variant="rwkv6")
    names = {name for name, _ in model.named_parameters()}
    assert model.no_weight_decay() == {n for n in names if ".decay." in n or n.endswith(".bonus")}
    assert model.lion.no_weight_decay() == {n.removeprefix("lion.") for n in model.no_weight_decay()}


# Pipelines and the Trainer.

TEXT = ["the", "lion", "sleeps", "and", "the", "mouse", "runs", "over", "the", "lion", "while", "it", "sleeps"]
SPECIAL = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}


@pytest.fixture(scope="module")
def tokenizer():
    vocab = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL.values(), *TEXT, "##s"]))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece()
    special = [(name, vocab[name]) for name in ("[CLS]", "[SEP]")]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=special
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


def test_fill_mask(tokenizer):
    model = small()
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")
    found = fill("the [MASK] sleeps", top_k=3)
    ids = tokenizer("the [MASK] sleeps", return_tensors="pt")
    scores = model(**ids).logits[0, 2].softmax(-1)
    assert [row["token"] for row in found] == scores.topk(3).indices.tolist()
    assert [row["score"] for row in found] == pytest.approx(scores.topk(3).values.tolist())


def test_text_classification(tokenizer):
    names = {"id2label": {0: "cat", 1: "lion"}, "label2id": {"cat": 0, "lion": 1}, "num_labels": 2}
    model = small(hf.LionForSequenceClassification, **names)
    classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    texts = ["the lion", "the mouse runs over the lion"]
    for row, text in zip(classify(texts, batch_size=2), texts, strict=True):
        scores = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
        assert row["label"] == ("cat", "lion")[scores.argmax()]
        assert row["score"] == pytest.approx(scores.max().item())


def test_feature_extraction(tokenizer, tmp_path):
    """From a folder, by name."""
    model = small(hf.LionModel)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    extract = transformers.pipeline("feature-extraction", model=str(tmp_path), device="cpu")
    assert type(extract.model) is hf.LionModel
    want = model(**tokenizer("the lion sleeps", return_tensors="pt")).last_hidden_state
    assert_close(extract("the lion sleeps", return_tensors=True), want)


@every_head
def test_trainer(kind, tokenizer, tmp_path):
    model = small(kind, vocab_size=len(tokenizer))
    texts = [" ".join(TEXT[i : i + n]) for i, n in ((0, 4), (2, 8), (5, 3), (1, 6))]
    examples = [dict(tokenizer(text)) for text in texts]
    for i, example in enumerate(examples):
        if kind is hf.LionForSequenceClassification:
            example["label"] = i % LABELS
        elif kind is hf.LionForTokenClassification:
            example["labels"] = [token % LABELS for token in example["input_ids"]]
    collator = {
        hf.LionForMaskedLM: transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5),
        hf.LionForSequenceClassification: transformers.DataCollatorWithPadding(tokenizer),
        hf.LionForTokenClassification: transformers.DataCollatorForTokenClassification(tokenizer),
    }[kind]
    arguments = transformers.TrainingArguments(
        tmp_path,
        max_steps=2,
        per_device_train_batch_size=2,
        save_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    before = copy.deepcopy(model.state_dict())
    trainer = transformers.Trainer(model, arguments, collator, train_dataset=examples, eval_dataset=examples)
    result = trainer.train()
    assert result.global_step == 2
    assert result.training_loss > 0
    changed = [name for name, x in model.state_dict().items() if not torch.equal(x, before[name])]
    assert len(changed) == len(before)
    assert trainer.evaluate()["eval_loss"] > 0
    reloaded, ids = kind.from_pretrained(tmp_path / "checkpoint-2"), tokens(2, 9) % len(tokenizer)
    assert torch.equal(reloaded(ids).logits, model.eval()(ids).logits)


# BERTs.


def small_bert(kind=transformers.BertForMaskedLM, **options):
    torch.manual_seed(SEED)
    model = kind(kind.config_class(**{**SMALL, **options})).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("bert", CONVERTED)
def test_converted_to_softmax_is_the_same(bert, tmp_path):
    old, ids = small_bert(bert), tokens(2, 9)
    new = hf.convert(old, "softmax")
    assert type(new) is CONVERTED[bert][1]
    assert not new.training
    inputs = {"attention_mask": (torch.arange(9) < torch.tensor([[9], [6]])).long(), "token_type_ids": ids % 2}
    real = inputs["attention_mask"].bool()
    for given in ({}, inputs):
        got, want = new(ids, **given), old(ids, **given)
        assert set(got) == set(want)
        for name, x in got.items():
            per_token = bool(given) and x.dim() == 3
            assert_close(x[real] if per_token else x, want[name][real] if per_token else want[name])
    new.save_pretrained(tmp_path)
    assert torch.equal(AUTO[type(new)].from_pretrained(tmp_path)(ids)[0], new(ids)[0])


def test_converted_without_a_pooler():
    bert = transformers.BertModel(transformers.BertConfig(**SMALL), add_pooling_layer=False).double().train()
    model = hf.convert(bert)
    assert model.pooler is None
    assert model.training
    assert {x.dtype for x in model.parameters()} == {torch.float64}
    half = hf.convert(bert.bfloat16())
    for name, x in half.named_parameters():
        assert x.dtype == (torch.float32 if ".decay." in name else torch.bfloat16), name
    assert half(tokens(2, 9)).last_hidden_state.dtype == torch.bfloat16


@every_variant
def test_conversion_keeps_what_fits(variant, tmp_path):
    old, ids = small_bert(), tokens(2, 9)
    before = copy.deepcopy(old.state_dict())
    new = hf.convert(old, variant)
    kept = {"own": "qkv", "shared": "v", "complement": "qv"}[lion.VARIANTS[variant].keys]
    for old_layer, new_layer in zip(old.bert.encoder.layer, new.lion.encoder.layers, strict=True):
        attention, fresh = new_layer.attention, LionAttention(32, 2, variant)
        for parameter in ("weight", "bias"):
            rows = getattr(attention.in_proj, parameter).split(list(attention.columns.values()))
            rows = dict(zip(attention.columns, rows, strict=True))
            for name, part in zip("qkv", ("query", "key", "value"), strict=True):
                want = old_layer.attention.self.get_parameter(f"{part}.{parameter}")
                assert torch.equal(rows[name], want) == (name in kept), name
            assert torch.equal(
                getattr(attention.out_proj, parameter), getattr(old_layer.attention.output.dense, parameter)
            )
        for name, x in fresh.decay.named_parameters():
            if not name.startswith("up."):
                assert torch.equal(attention.decay.get_parameter(name), x), name
    assert_close(old.state_dict(), before, 0)
    assert new.head.decoder.weight is new.get_input_embeddings().weight
    assert torch.allclose(new(ids).logits, old(ids).logits, atol=1e-3) == (variant == "softmax")
    new.save_pretrained(tmp_path)
    reloaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert reloaded.config.variant == variant
    assert torch.equal(reloaded(ids).logits, new(ids).logits)


def test_conversion_options():
    names = {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}, "problem_type": "single_label_classification"}
    options = {"pad_token_id": 3, "layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.2, "classifier_dropout": 0.3}
    bert = small_bert(transformers.BertForSequenceClassification, **names, **options, tie_word_embeddings=False)
    model = hf.convert(
        bert, "lion_lit", features="elu_plus_one", decay="fixed", norm="none", attention_norm=False, form="full"
    )
    [layer, _] = model.lion.encoder.layers
    chosen = layer.attention.variant
    assert (chosen.features, chosen.decay, chosen.norm, layer.attention.form) == (
        "elu_plus_one",
        "fixed",
        "none",
        "full",
    )
    assert isinstance(layer.attention_norm, torch.nn.Identity)
    assert {name: getattr(model.config, name) for name in names | options} == names | options
    assert model.config.positions == "learned"
    assert not model.config.tie_word_embeddings
    assert (layer.norm1.eps, layer.dropout.p, model.dropout.p) == (1e-6, 0.2, 0.3)
    assert model.get_input_embeddings().padding_idx == 3


def test_conversion_without_positions():
    """What they have in common stays; the model has no longest text any more."""
    old, ids = small_bert(transformers.BertModel), tokens(2, 9)
    positions = old.embeddings.position_embeddings.weight
    before = positions.detach().clone()
    with torch.no_grad():
        positions.copy_(positions.mean(0).expand_as(positions))
    new = hf.convert(old, "softmax", positions="none")
    assert_close(new(ids).last_hidden_state, old(ids).last_hidden_state, 1e-5)
    assert new(tokens(1, len(positions) + 1)).last_hidden_state.isfinite().all()
    with torch.no_grad():
        positions.copy_(before)
    again = hf.convert(old, "softmax", positions="none")
    assert_close(again(ids).last_hidden_state, new(ids).last_hidden_state, 1e-5)


def test_what_cannot_be_converted():
    known = "BertModel, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification"
    for model in (small(), transformers.BertForQuestionAnswering(transformers.BertConfig(**SMALL))):
        with pytest.raises(TypeError, match=f"the model is a {type(model).__name__}; expected one of {known}"):
            hf.convert(model)
    for options, message in (
        ({"is_decoder": True}, "the model's is_decoder is True; expected False"),
        ({"is_decoder": True, "add_cross_attention": True}, "the model's is_decoder is True; expected False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'; expected 'absolute'"),
        ({"hidden_act": "relu"}, "the model's hidden_act is 'relu'; expected 'gelu'"),
    ):
        with pytest.raises(ValueError, match=message):
            hf.convert(small_bert(transformers.BertModel, **options))
    with pytest.raises(ValueError, match="variant is 'lion'; expected one of"):
        hf.convert(small_bert(), "lion")


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"transformers is needed for this: pip install 'lion-attention\[hf\]'"):
        importlib.reload(hf)

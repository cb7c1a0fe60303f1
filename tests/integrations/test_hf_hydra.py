"""Hydra as an encoder among transformers' models: what is different where attention has no variant."""

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")

import transformers

import lion
from lion.integrations import hf
from lion.models.baselines import BASELINES
from lion.models.encoder import EncoderConfig
from tests import SEED
from tests.integrations import hf_small

every_baseline = pytest.mark.parametrize("variant", BASELINES)
HYDRA = {"intermediate_size": 0}


def encoder(kind=hf.LionForMaskedLM, variant="hydra", **options):
    return hf_small.small(kind, variant, **HYDRA, **options)


def test_config(tmp_path):
    own = EncoderConfig("hydra", dim=64, depth=3, heads=4, mlp_dim=0, norm_eps=1e-5)
    config = hf.LionConfig.of(own)
    assert (config.encoder(), config.intermediate_size) == (own, 0)
    config.save_pretrained(tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).encoder() == own
    assert hf.LionConfig.from_pretrained(tmp_path, variant="vim").variant == "vim"
    with pytest.raises(ValueError, match="variant is 'hydra', which has no features to choose"):
        hf.LionConfig("hydra", features="relu")


@every_baseline
def test_saved_and_reloaded_to_the_bit(variant, tmp_path):
    model, ids = encoder(variant=variant).float(), hf_small.tokens(2, 9)
    model.save_pretrained(tmp_path)
    for kind in (hf.LionForMaskedLM, transformers.AutoModelForMaskedLM):
        reloaded, info = kind.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        for name, x in model.state_dict().items():
            assert torch.equal(x, reloaded.state_dict()[name]), name
        torch.testing.assert_close(reloaded(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    classifier = hf.LionForSequenceClassification.from_pretrained(tmp_path)
    for name, x in model.lion.encoder.state_dict().items():
        assert torch.equal(x, classifier.lion.encoder.state_dict()[name]), name


@every_baseline
def test_what_a_checkpoint_lacks_begins_as_new(variant):
    config = hf_small.config(hf.LionForMaskedLM, variant, **HYDRA)
    torch.manual_seed(SEED)
    new = hf.LionForMaskedLM(config)
    some = {name: x + 1 for name, x in new.state_dict().items() if "layers.1" in name}
    loaded = hf.LionForMaskedLM.from_pretrained(None, config=config, state_dict=some)
    [layer, _], fresh = loaded.lion.encoder.layers, BASELINES[variant](32, "both")
    for name, x in loaded.state_dict().items():
        assert torch.equal(x, some[name]) if name in some else x.isfinite().all(), name
    for name, x in fresh.named_parameters():
        if name.endswith(("log_rate", "decay.bias", "skip")):
            assert torch.equal(layer.attention.get_parameter(name), x), name
    weight = layer.attention.in_proj.weight
    assert weight.std().item() == pytest.approx(config.initializer_range, rel=0.1)


def test_half_precision_keeps_decays(tmp_path):
    encoder().float().save_pretrained(tmp_path)
    model = hf.LionForMaskedLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if ".decay." in name else torch.bfloat16), name
    assert model(hf_small.tokens(2, 9)).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [hf.LionForMaskedLM, hf.LionForSequenceClassification])
@every_baseline
def test_batches_change_nothing(variant, kind):
    """Sequences with padding anywhere, or packed, give what each of them gives alone."""
    model, ids = encoder(kind, variant), hf_small.tokens(3, 9)
    place = torch.arange(9)
    mask = torch.stack([place < 6, place >= 2, (place != 3) & (place != 7)])
    alone = [model(ids[i : i + 1, mask[i]]).logits[0] for i in range(3)]
    logits = model(ids, mask.long()).logits
    for i in range(3):
        got = logits[i, mask[i]] if logits.dim() == 3 else logits[i]
        torch.testing.assert_close(got, alone[i], rtol=1e-9, atol=1e-9)
    packed = model(ids[mask][None], cu_seqlens=torch.tensor([0, 6, 13, 20])).logits
    want = torch.cat(alone)[None] if logits.dim() == 3 else torch.stack(alone)
    torch.testing.assert_close(packed, want, rtol=1e-9, atol=1e-9)


@every_baseline
def test_the_form_reaches_the_layers_and_is_saved(variant, tmp_path):
    model, ids = encoder(variant=variant), hf_small.tokens(2, 23)
    want = model(ids).logits
    for form in ("full", "rnn", "scan"):
        assert lion.set_form(model, form) is model
        torch.testing.assert_close(model(ids).logits, want, rtol=1e-9, atol=1e-9)
    lion.set_form(model, "rnn").save_pretrained(tmp_path)
    reloaded = hf.LionForMaskedLM.from_pretrained(tmp_path)
    assert {module.form for module in reloaded.modules() if hasattr(module, "form")} == {"rnn"}


def test_checkpointing_changes_nothing():
    model, ids = encoder().train(), hf_small.tokens(2, 9)
    mask, found = torch.arange(9) < torch.tensor([[9], [5]]), []
    for enable in (False, True):
        hf_small.checkpointing(model, enable=enable)
        model.zero_grad()
        torch.manual_seed(SEED)
        model(ids, mask, labels=ids).loss.backward()
        found.append({name: x.grad for name, x in model.named_parameters()})
    assert all((x != 0).any() for x in found[0].values())
    torch.testing.assert_close(found[1], found[0])


def test_there_are_no_weights_of_attention():
    model, ids = encoder(), hf_small.tokens(2, 9)
    assert len(model(ids, output_hidden_states=True).hidden_states) == 3
    with pytest.raises(ValueError, match="the weights of attention are asked for, but Hydra has none; expected"):
        model(ids, output_attentions=True)


@every_baseline
def test_no_bert_becomes_one(variant):
    config = transformers.BertConfig(**hf_small.SIZES, intermediate_size=64)
    bert = transformers.BertForMaskedLM(config)
    with pytest.raises(ValueError, match=f"variant is '{variant}', whose layers have no place for a BERT's queries"):
        hf.convert(bert, variant)

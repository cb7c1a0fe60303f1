"""The encoder of text: sizes, forms, padding, packing, positions, checkpointing."""

import dataclasses
import logging

import pytest
import torch

import lion
from lion.models.baselines import BASELINES
from lion.models.encoder import ENCODERS, HYDRA_DEPTH, SIZES, Encoder, EncoderConfig, encoder_config
from lion.models.positions import waves
from lion.ops.kernels import CHUNKED, FORMS, KERNELS
from tests import SEED

WORDS = 50
SOME = [
    "softmax",
    "lion_lit",
    "lion_d",
    "lion_s",
    "lion_s_diag",
    "mamba2",
    "xlstm",
    "deltanet",
    "hydra",
]  # of each kind
ALL = [*lion.VARIANTS, *BASELINES]


def tiny(**changes) -> Encoder:
    torch.manual_seed(SEED)
    model = Encoder(dataclasses.replace(ENCODERS["tiny"], vocab_size=WORDS, **changes)).double().eval()
    for parameter in model.embeddings.parameters():
        torch.nn.init.normal_(parameter)  # so that no token is like another
    return model


def tokens(*shape):
    return torch.randint(1, WORDS, shape, generator=torch.Generator().manual_seed(SEED + 1))


def gradients(model, *inputs, **options):
    model.zero_grad()
    out = model(*inputs, **options)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("size", "millions"), [("tiny", 1.0), ("small", 11), ("base", 109), ("large", 334)])
def test_sizes(size, millions):
    for variant in ("softmax", "lion_lit", "lion_d", "lion_s"):
        with torch.device("meta"):
            model = Encoder(dataclasses.replace(ENCODERS[size], variant=variant))
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01), variant


@pytest.mark.parametrize("size", HYDRA_DEPTH)
def test_hydras_without_mlps_are_as_large(size):
    """The paper: 110M with Hydra's own 23 layers, and with 45 as many as BERT's large model."""
    assert (HYDRA_DEPTH["base"], HYDRA_DEPTH["large"]) == (23, 45)
    counts = []
    for variant in ("softmax", "hydra"):
        with torch.device("meta"):
            model = Encoder(encoder_config(size, variant))
        counts.append(sum(p.numel() for p in model.parameters()))
    assert counts[1] == pytest.approx(counts[0], rel=0.03)
    assert not any("mlp" in name or "norm2" in name for name, _ in model.named_parameters())


def test_configs_by_size_and_variant():
    assert encoder_config("base", "lion_s") == EncoderConfig()
    assert encoder_config("large", "softmax") == dataclasses.replace(
        SIZES["large"], variant="softmax", positions="learned"
    )
    assert encoder_config("base", "hydra") == ENCODERS["hydra_base"]


@pytest.mark.parametrize("variant", [name for name in ALL if name != "softmax"])
def test_forms_agree_on_the_whole_model(variant):
    model, ids = tiny(variant=variant), tokens(2, 23)
    mask = torch.ones(2, 23, dtype=torch.bool)
    mask[1, 17:] = False
    delta = variant in lion.VARIANTS and lion.VARIANTS[variant].delta
    forms = [form for form in FORMS if ("torch", form, "delta" if delta else "scalar") in KERNELS]
    with torch.no_grad():
        for given in (None, mask):
            want = lion.set_form(model, "auto")(ids, given)
            for form in forms:
                got = lion.set_form(model, form, chunk_size=5 if form in CHUNKED else None)(ids, given)
                assert_same(got, want)


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("variant", ALL)
def test_padding_and_packing_change_nothing(variant, positions):
    """Wherever the padding is, and whatever stands there."""
    model, ids, types = tiny(variant=variant, positions=positions), tokens(3, 12), tokens(3, 12) % 2
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, 7:] = mask[1, :4] = mask[2, 5:8] = False
    with torch.no_grad():
        alone = [model(ids[i : i + 1, mask[i]], token_type_ids=types[i : i + 1, mask[i]])[0] for i in range(3)]
        padded = model(ids, mask, token_type_ids=types)
        for i in range(3):
            assert_same(padded[i, mask[i]], alone[i])
        packed = ids[mask][None]
        borders = torch.tensor([0, 7, 15, 24])
        together = model(packed, cu_seqlens=borders, token_type_ids=types[mask][None])
        assert_same(together[0], torch.cat(alone))
        assert_same(model(packed, cu_seqlens=borders.int(), token_type_ids=types[mask][None]), together)


@pytest.mark.parametrize("variant", ["lion_s", "hydra"])
def test_packing_with_padding_in_it(variant):
    model, ids = tiny(variant=variant, positions="learned"), tokens(1, 12)
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, [0, 4, 5, 11]] = False
    together = model(ids, mask, torch.tensor([0, 5, 12]))
    for part in (slice(0, 5), slice(5, 12)):
        assert_same(together[:, part][mask[:, part]], model(ids[:, part][mask[:, part]][None])[0])


@pytest.mark.parametrize("variant", ALL)
def test_every_parameter_gets_a_gradient(variant):
    found = gradients(tiny(variant=variant, positions="learned").train(), tokens(2, 9))
    for name, gradient in found.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert (gradient != 0).any(), name


@pytest.mark.parametrize("variant", SOME)
def test_checkpointing_changes_nothing(variant):
    model, ids = tiny(variant=variant, dropout=0.1).train(), tokens(2, 9)
    found = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        torch.manual_seed(SEED + 1)
        found.append(gradients(model, ids))
    assert_same(found[1], found[0])


def test_weights():
    """Of all layers; the outputs computed by them are the same."""
    model, ids, weights = tiny(depth=3), tokens(2, 9), []
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    states = model(ids, mask, all_states=True)
    assert_same(model(ids, mask, weights=weights)[mask], states[-1][mask])
    for before, layer, found in zip(states, model.layers, weights, strict=False):
        assert_same(found, layer.attention.weights(before, mask))
    assert len(weights) == 3


def test_all_states():
    model, ids = tiny(depth=3), tokens(2, 9)
    states = model(ids, all_states=True)
    assert len(states) == 4
    assert_same(states[0], model.embeddings(ids, *[None] * 5))
    for before, layer, after in zip(states, model.layers, states[1:], strict=False):
        assert_same(layer(before, None, None)[0], after)
    assert_same(states[-1], model(ids))


def test_embeddings_in_place_of_tokens():
    model, ids = tiny(positions="learned"), tokens(2, 9)
    assert_same(model(inputs_embeds=model.embeddings.words(ids)), model(ids))
    assert_same(model(ids, token_type_ids=torch.zeros_like(ids)), model(ids))
    assert_same(model(ids, position_ids=torch.arange(9)[None]), model(ids))
    assert not torch.allclose(model(ids, token_type_ids=torch.ones_like(ids)), model(ids))
    assert not torch.allclose(model(ids, position_ids=torch.arange(1, 10)[None]), model(ids))


def test_positions_begin_as_waves():
    """As large as words, and places as far apart are as alike, wherever they are."""
    config = dataclasses.replace(ENCODERS["tiny"], positions="learned", init_std=0.3)
    weight = Encoder(config).embeddings.positions.weight
    assert weight.square().mean().sqrt().item() == pytest.approx(0.3, rel=1e-3)
    for distance in (1, 7, 100):
        alike = (weight[distance:] * weight[:-distance]).sum(1)
        torch.testing.assert_close(alike, alike[:1].expand_as(alike), rtol=1e-3, atol=1e-3)
    assert waves(5, 7).shape == (5, 7)


def test_any_length_without_positions():
    assert tiny(max_tokens=8)(tokens(1, 700)).shape == (1, 700, 32)


def test_learned_positions_end_somewhere():
    model, message = tiny(positions="learned", max_tokens=8), "there are 9 tokens in a sequence; expected at most 8"
    assert model(tokens(1, 8)).shape == (1, 8, 32)
    with pytest.raises(ValueError, match=f"{message}, the max_tokens .* cut the sequence, or take a model with posit"):
        model(tokens(1, 9))
    mask = torch.ones(1, 12, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        model(tokens(1, 12), mask.scatter(1, torch.tensor([[0, 2, 9]]), False))
    with pytest.raises(ValueError, match=message):
        model(tokens(1, 12), cu_seqlens=torch.tensor([0, 3, 12]))
    # More tokens than that, but not in one sequence.
    assert model(tokens(1, 12), mask.scatter(1, torch.tensor([[0, 2, 9, 11]]), False)).isfinite().all()
    assert model(tokens(1, 12), cu_seqlens=torch.tensor([0, 4, 12])).isfinite().all()


@pytest.mark.parametrize("variant", ["softmax", "lion_lit", "lion_s", "deltanet", "hydra"])
def test_order_makes_a_difference_or_is_warned_of(variant, caplog):
    ids, shuffled = tokens(1, 9), torch.randperm(9, generator=torch.Generator().manual_seed(SEED))
    with caplog.at_level(logging.WARNING, "lion"):
        model = tiny(variant=variant)
    same = torch.allclose(model(ids)[:, shuffled], model(ids[:, shuffled]))
    assert same == (variant in ("softmax", "lion_lit"))
    assert (f"{variant} has no decay, and positions is 'none'" in caplog.text) == same
    learned = tiny(variant=variant, positions="learned")
    assert not torch.allclose(learned(ids)[:, shuffled], learned(ids[:, shuffled]))


def test_choices():
    lit = tiny(variant="lion_lit", features="elu_plus_one", decay="fixed_diagonal", norm="none", token_types=0)
    assert lit.embeddings.types is None
    for layer in lit.layers:
        chosen = layer.attention.variant
        assert (chosen.features, chosen.decay, chosen.norm) == ("elu_plus_one", "fixed_diagonal", "none")
        assert isinstance(layer.attention_norm, torch.nn.LayerNorm)
    assert lit.no_weight_decay() == {f"layers.{i}.attention.decay.logit" for i in range(2)}
    for variant, given, want in (("lion_s", None, False), ("lion_s", True, True), ("lion_lit", False, False)):
        [layer, _] = tiny(variant=variant, attention_norm=given).layers
        assert isinstance(layer.attention_norm, torch.nn.LayerNorm) == want


def test_blocks_without_mlps():
    ids = tokens(2, 9)
    for variant in ("lion_s", "hydra"):
        model = tiny(variant=variant, mlp_dim=0)
        assert not any("mlp" in name or "norm2" in name for name in model.state_dict())
        layer, x = model.layers[0], model.embeddings(ids, *[None] * 5)
        assert_same(layer(x, None, None)[0], layer.norm1(x + layer.attention(x)))


def test_a_hydra_begins_as_its_authors():
    """Weights as BERT's; the rest as the layer's own; dropout of the embeddings alone."""
    config = dataclasses.replace(ENCODERS["hydra_small"], vocab_size=100)
    torch.manual_seed(SEED)
    model = Encoder(config)
    layer, fresh = model.layers[0], BASELINES["hydra"](config.dim, "both")
    for name in ("in_proj", "out_proj", "diagonal"):
        assert layer.attention.get_submodule(name).weight.std().item() == pytest.approx(0.02, rel=0.1), name
    for name in ("decay.log_rate", "decay.bias", "skip", "norm.weight"):
        torch.testing.assert_close(layer.attention.get_parameter(name), fresh.get_parameter(name), msg=name)
    assert (model.embeddings.dropout.p, layer.dropout.p, layer.norm1.eps) == (0.1, 0.0, 1e-5)
    assert model.no_weight_decay() == {
        f"layers.{i}.attention.{name}" for i in range(config.depth) for name in ("decay.log_rate", "decay.bias", "skip")
    }


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_weights_begin_as_berts(variant):
    torch.manual_seed(SEED)
    config = EncoderConfig(variant=variant, vocab_size=100, dim=64, depth=1, heads=2, mlp_dim=128, positions="learned")
    model = Encoder(config)
    own = {"attention.in_proj"} if lion.VARIANTS[variant].state_space_init else set()
    [layer] = model.layers
    for name in {"attention.in_proj", "attention.out_proj", "mlp.fc1", "mlp.fc2"} - own:
        linear = layer.get_submodule(name)
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1), name
        assert not linear.bias.any(), name
    assert model.embeddings.words.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not model.embeddings.words.weight[0].any()
    fresh = lion.LionAttention(64, 2, variant)
    for name, parameter in fresh.decay.named_parameters():
        if not name.startswith("up."):  # which is random
            torch.testing.assert_close(layer.attention.decay.get_parameter(name), parameter, msg=name)


IDS = tokens(1, 4)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({"input_ids": None}, {}, "neither input_ids nor inputs_embeds is given; expected one of them"),
        ({"inputs_embeds": torch.randn(1, 4, 32)}, {}, "input_ids and inputs_embeds are given; expected one of them"),
        ({"input_ids": IDS[0]}, {}, r"input_ids has shape \(4,\); expected \[B, T\]"),
        (
            {"mask": torch.ones(1, 4)},
            {},
            r"mask has shape \(1, 4\) and dtype float32; expected \(1, 4\) and bool",
        ),
        (
            {"mask": IDS.T > 0},
            {},
            r"mask has shape \(4, 1\) and dtype bool; expected \(1, 4\) and bool",
        ),
        ({"position_ids": IDS}, {}, "position_ids is given, but positions is 'none'; expected none: leave them out"),
        ({"token_type_ids": IDS}, {"token_types": 0}, "token_type_ids is given, but token_types is 0; expected none"),
        ({"cu_seqlens": torch.tensor([1, 4])}, {}, "cu_seqlens runs from 1 to 4; expected 0"),
        (
            {"cu_seqlens": torch.tensor([1, 4])},
            {"positions": "learned"},
            "cu_seqlens runs from 1 to 4; expected 0",
        ),
        ({"input_ids": IDS.expand(2, 4), "cu_seqlens": torch.tensor([0, 4])}, {}, "has batch size 2; expected 1"),
        ({}, {"variant": "lion"}, "variant is 'lion'; expected one of"),
        ({}, {"positions": "sines"}, "positions is 'sines'; expected one of"),
        ({}, {"variant": "softmax", "decay": "fixed"}, "variant is 'softmax', which has no decay to choose"),
        ({}, {"variant": "hydra", "decay": "fixed"}, "variant is 'hydra', which has no decay to choose"),
        ({}, {"variant": "hydra", "two_sided": True}, "variant is 'hydra', which has no two_sided to choose"),
        ({"cu_seqlens": torch.tensor([1, 4])}, {"variant": "hydra"}, "cu_seqlens runs from 1 to 4; expected 0"),
        ({"weights": []}, {"variant": "hydra"}, "the weights of attention are asked for, but Hydra has none"),
    ],
)
def test_errors(inputs, options, message):
    with pytest.raises(ValueError, match=message):
        tiny(**options)(**{"input_ids": IDS, **inputs})

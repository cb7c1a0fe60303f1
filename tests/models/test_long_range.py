"""Classifiers of long sequences: forms, padding, pairs, positions, saving, and gradients far apart."""

from dataclasses import replace

import pytest
import torch

import lion
from lion.models.long_range import LONG_MODELS, LongConfig, LongModel, fitted
from lion.models.saving import load_model, save_model
from lion.nn.layers import set_form
from lion.recipes.long_range import MODELS
from tests import SEED

TINY = LongConfig(dim=16, depth=2, heads=2, vocab_size=9, classes=3)
SEQUENCE = torch.arange(40).remainder(9)[None]


def made(**changes) -> LongModel:
    torch.manual_seed(SEED + 1)
    return LongModel(replace(TINY, **changes)).double().eval()


def different_positions(name: str) -> dict:
    fields = MODELS[name]
    return fields if replace(TINY, **fields).tells_order else fields | {"positions": "learned"}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "softmax"])
def test_forms_agree(name):
    model = made(**different_positions(name))
    ids = torch.randint(1, 9, (2, 70))
    expected = model(ids)
    for form in ("full", "rnn", "chunk", "scan"):
        torch.testing.assert_close(set_form(model, form)(ids), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("answer", ["sequence", "token"])
def test_padding_changes_nothing(name, answer):
    model = made(answer=answer, **different_positions(name))
    ids = torch.randint(1, 9, (1, 30))
    padded, mask = torch.zeros(1, 40, dtype=torch.long), torch.zeros(1, 40, dtype=torch.bool)
    padded[:, 4:34], mask[:, 4:34] = ids, True
    got = model(padded, mask)
    got = got[:, 4:34] if answer == "token" else got
    torch.testing.assert_close(got, model(ids), rtol=1e-9, atol=1e-11)


def test_a_pair_is_told_from_each_alone():
    model = made(answer="pair")
    ids = torch.randint(1, 9, (4, 2, 20))
    both = model(ids)
    assert both.shape == (4, 3)
    torch.testing.assert_close(model(ids[2:3]), both[2:3])
    assert not torch.allclose(model(ids.flip(1)), both)
    longer, mask = torch.zeros(4, 2, 24, dtype=torch.long), torch.zeros(4, 2, 24, dtype=torch.bool)
    longer[..., :20], mask[..., :20] = ids, True
    torch.testing.assert_close(model(longer, mask), both, rtol=1e-9, atol=1e-11)


def test_numbers():
    model = made(vocab_size=0)
    assert model(torch.randn(2, 50, dtype=torch.double)).shape == (2, 3)


@pytest.mark.parametrize("answer", ["sequence", "token", "pair"])
def test_numbers_of_several_channels(answer):
    model = made(vocab_size=0, channels=4, answer=answer)
    x = torch.randn(2, *((2,) if answer == "pair" else ()), 30, 4, dtype=torch.double)
    padded = torch.full((*x.shape[:-2], 40, 4), float("nan")).double()
    mask = torch.zeros(padded.shape[:-1], dtype=torch.bool)
    padded[..., :30, :], mask[..., :30] = x, True
    got = model(padded, mask)
    torch.testing.assert_close(got[:, :30] if answer == "token" else got, model(x), rtol=1e-9, atol=1e-11)
    assert not torch.allclose(model(x.flip(-1)), model(x))


def test_order_makes_a_difference(caplog):
    ids, order = torch.randint(1, 9, (1, 40)), torch.randperm(40)
    for changes in ({"variant": "lion_s_diag"}, {"variant": "lion_lit", "positions": "learned"}):
        model = made(**changes)
        assert not torch.allclose(model(ids), model(ids[:, order]))
    with caplog.at_level("WARNING", logger="lion"):
        alike = made(variant="lion_lit")
    assert "makes no difference to this model" in caplog.text
    torch.testing.assert_close(alike(ids), alike(ids[:, order]))


def test_backwards_is_the_same_but_for_a_stem():
    """Both walks have the same decays: read from the other end, tokens are the same neighbours."""
    ids = torch.randint(1, 9, (1, 40))
    plain, told = made(answer="token"), made(answer="token", stem=5)
    torch.testing.assert_close(plain(ids.flip(1)), plain(ids).flip(1))
    assert not torch.allclose(told(ids.flip(1)), told(ids).flip(1))


@pytest.mark.parametrize("depth", [0, 3])
def test_a_stem_takes_padding_for_nothing(depth):
    model = made(stem=5, stem_depth=depth)
    ids = torch.randint(1, 9, (1, 30))
    padded, mask = torch.full((1, 40), 7), torch.zeros(1, 40, dtype=torch.bool)
    padded[:, 4:34], mask[:, 4:34] = ids, True
    torch.testing.assert_close(model(padded, mask), model(ids), rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match="stem is 4; expected an odd width"):
        made(stem=4)
    with pytest.raises(ValueError, match="stem_depth is 2, and stem 0; expected the width"):
        made(stem_depth=2)


def test_summaries_know_places():
    model, mean = (made(stem=5, positions="learned", max_tokens=40, summaries=n) for n in (2, 0))
    assert model.head.in_features == 2 * mean.head.in_features
    padded, mask = torch.full((1, 40), 7), torch.arange(40)[None] < 31
    padded[:, :31] = SEQUENCE[:, :31]
    torch.testing.assert_close(model(padded, mask), model(SEQUENCE[:, :31]), rtol=1e-9, atol=1e-11)
    for wrong in ({"positions": "none"}, {"answer": "pair"}):
        with pytest.raises(ValueError, match="summaries is 2; expected 0, or positions='learned'"):
            made(**{"positions": "learned", "summaries": 2, **wrong})


def test_a_stride_leaves_fewer_tokens_and_takes_padding_for_nothing():
    model = made(stem=5, stem_depth=2, stride=3, positions="learned", max_tokens=14)
    ids = torch.randint(1, 9, (1, 31))
    padded, mask = torch.full((1, 40), 7), torch.arange(40)[None] < 31
    padded[:, :31] = ids
    assert model.features(ids)[0].shape == (1, 11, 16)
    torch.testing.assert_close(model(padded, mask), model(ids), rtol=1e-9, atol=1e-11)
    last = ids.clone()
    last[:, -1] += 1  # every input is read
    assert not torch.allclose(model(last), model(ids))
    for wrong in ({"stride": 6}, {"stride": 0}, {"stride": 2, "stem_depth": 0}, {"stride": 2, "answer": "token"}):
        with pytest.raises(ValueError, match=f"stride is {wrong['stride']}; expected 1, or 2 to 5"):
            made(**{"stem": 5, "stem_depth": 2, **wrong})


@pytest.mark.parametrize(("longest", "stride", "tokens"), [(100, 1, 100), (161, 2, 81), (480, 3, 160), (9000, 5, 1800)])
def test_a_stride_that_fits_the_longest(longest, stride, tokens):
    found = fitted(replace(TINY, stem=5, stem_depth=2), longest, 160, aligned=True)
    assert (found.stride, found.max_tokens, found.positions, found.summaries) == (stride, tokens, "learned", 4)
    assert fitted(replace(TINY, stem=5, stem_depth=2), longest, 0, aligned=False).stride == 1


def test_checkpointing_changes_no_gradient():
    model = made().train()
    wanted = torch.autograd.grad(model(SEQUENCE).sum(), list(model.parameters()))
    model.set_grad_checkpointing()
    got = torch.autograd.grad(model(SEQUENCE).sum(), list(model.parameters()))
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize(
    "changes",
    [
        *({"answer": "pair"}, {"stem": 3, "positions": "learned"}, {"vocab_size": 0}, {"vocab_size": 0, "channels": 3}),
        *map(different_positions, MODELS),
    ],
    ids=str,
)
def test_every_parameter_learns(changes):
    model = made(**changes).train()
    shape = (3, 2, 12) if changes.get("answer") == "pair" else (3, 12, 3) if "channels" in changes else (3, 12)
    x = torch.randint(0, 9, shape) if model.config.vocab_size else torch.randn(shape).double()
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_saving(tmp_path):
    model = made(variant="lion_d_diag", decay="fixed_random")  # whose decays are random, and learned
    save_model(model, tmp_path)
    assert torch.equal(load_model(tmp_path).eval()(SEQUENCE), model(SEQUENCE))


def test_decays_are_no_weights():
    assert made().no_weight_decay() == {f"blocks.{i}.attention.decay.log_rate" for i in range(2)}


@pytest.mark.parametrize(
    ("changes", "x", "mask", "message"),
    [
        ({}, torch.zeros(2, 2, 5).long(), None, r"shape \(2, 2, 5\); expected \[B, T\], as answer is 'sequence'"),
        ({"answer": "pair"}, torch.zeros(2, 5).long(), None, r"expected \[B, 2, T\]"),
        ({"answer": "pair"}, torch.zeros(2, 3, 5).long(), None, r"expected \[B, 2, T\]"),
        ({"vocab_size": 0, "channels": 4}, torch.zeros(2, 5, 3), None, r"\[B, T, 4\], as .* and channels is 4"),
        ({"vocab_size": 0, "channels": 4}, torch.zeros(2, 5), None, r"shape \(2, 5\); expected \[B, T, 4\]"),
        ({}, SEQUENCE, torch.ones(1, 40), r"dtype float32; expected \(1, 40\) and bool"),
        ({"positions": "learned", "max_tokens": 30}, SEQUENCE, None, "expected at most 30"),
    ],
)
def test_what_is_refused(changes, x, mask, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)(x, mask)
    with pytest.raises(ValueError, match="answer is 'all'; expected one of 'sequence', 'pair', 'token'"):
        LongConfig(answer="all")
    with pytest.raises(ValueError, match="channels is 2, but the inputs are tokens; expected 1"):
        LongConfig(vocab_size=8, channels=2)


def test_sizes_are_s5s():
    sizes = {name: (config.dim, config.depth) for name, config in LONG_MODELS.items()}
    assert sizes == {
        "listops": (128, 8),
        "text": (256, 6),
        "retrieval": (128, 6),
        "image": (512, 6),
        "pathfinder": (192, 6),
        "pathx": (128, 6),
    }
    assert all(config.dim == 32 * config.heads for config in LONG_MODELS.values())


@pytest.mark.parametrize("decay", ["fixed_hippo", "selective_hippo"])
def test_gradients_at_both_ends_of_a_long_sequence(decay):
    """Path-X's length, HIPPO's decays, one layer, beside float64: float32; and bfloat16 by autocast, as runs train with
    it, which may be as far off as twice what plain torch is."""
    torch.manual_seed(SEED)
    layer = lion.LionAttention(32, 2, "lion_s_diag", decay=decay).double()
    x, weight = torch.randn(1, 16384, 32).double(), torch.randn(1, 16384, 32).double()

    def gradients(dtype: torch.dtype, *, half: bool = False, **options) -> list[torch.Tensor]:
        given = x.to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = layer.to(dtype).set_form("scan", **options)(given)
        loss = (y.to(dtype) * weight.to(dtype)).sum()
        return [grad.double() for grad in torch.autograd.grad(loss, [given, *layer.parameters()])]

    wanted = gradients(torch.float64)
    single, half, plain = (
        errors(gradients(torch.float32, **options), wanted)
        for options in ({}, {"half": True}, {"half": True, "backend": "torch"})
    )
    assert max(single) < 1e-4
    assert all(got <= 2 * right + 1e-3 for got, right in zip(half, plain, strict=True))


def errors(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> list[float]:
    """Of the input's gradients at either end, and of every parameter's, in terms of the largest."""
    ends = [[x[0][:, :64], x[0][:, -64:], *x[1:]] for x in (got, wanted)]
    assert all(right.abs().max() > 0 for right in ends[1])
    return [float((x - right).abs().max() / right.abs().max()) for x, right in zip(*ends, strict=True)]

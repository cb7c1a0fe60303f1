"""A sequence through a model block by block: the outputs are those of the whole, whatever the blocks are."""

import pytest
import torch

from lion.models.encoder import Encoder, EncoderConfig
from lion.models.long_range import LongConfig, LongModel
from lion.nn.variants import VARIANTS
from lion.streaming import answered, stream

SMALL = {"dim": 8, "depth": 2, "heads": 2, "vocab_size": 7}
PLACES = {"positions": "learned", "max_tokens": 40}
T = 23
SIZES = ([T], [7, 0, 1, 10, 5], [1] * T)
LINEAR = [name for name, variant in VARIANTS.items() if not variant.softmax]


def model_of(variant="lion_s", **options):
    return LongModel(LongConfig(variant, classes=3, **SMALL, **options)).double().eval()


def assert_the_same(model, *, masked, answer=False, **how):
    ids = torch.randint(1, 7, (2, T))
    mask = torch.rand(2, T) > 0.3 if masked else None
    with torch.no_grad():
        want = model(ids, mask) if answer or isinstance(model, Encoder) else model.features(ids, mask)[0]
    for sizes in SIZES:
        masks = None if mask is None else mask.split(sizes, 1)
        got = list(model.stream(ids.split(sizes, 1), masks, answer=answer, memory=2000, **how))
        assert len(got) == len(sizes)
        if want.dim() == 3:
            torch.testing.assert_close(torch.cat(got, 1), want, rtol=0, atol=1e-12)
        else:  # the same for every block: the answer to the whole
            for one in got:
                torch.testing.assert_close(one, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", LINEAR)
def test_blocks_are_the_whole(variant):
    assert_the_same(model_of(variant, stem=5), masked=True)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"stem": 5, "stem_depth": 2, "stride": 3, **PLACES},
        {"answer": "token", "two_sided": True},
        {"summaries": 2, **PLACES},
        {"stem": 9},
    ],
)
def test_answers(options, masked):
    assert_the_same(model_of(**options), masked=masked, answer=True)


def test_text():
    config = EncoderConfig("gla", mlp_dim=16, pad_token=None, **SMALL, **PLACES)
    assert_the_same(Encoder(config).double().eval(), masked=True)


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    model = model_of(stem=5, answer="token")
    ids = torch.randint(1, 7, (1, T))
    blocks = ids.split([7, 6, 10], 1)
    with torch.no_grad():
        want = model(ids)
    steps = []

    def stop(*done):
        steps.append(done)
        if len(steps) == stop.at:
            raise KeyboardInterrupt

    for stop.at in (8, 10, 0):
        before, steps = len(steps), []
        stream_of = model.stream(blocks, answer=True, folder=tmp_path / "kept", progress=stop)
        if stop.at:
            with pytest.raises(KeyboardInterrupt):
                list(stream_of)
            assert before == 0 or steps[0][0] > 0, "layers that are done are not run again"
        else:
            torch.testing.assert_close(torch.cat(list(stream_of), 1), want, rtol=0, atol=1e-12)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("answer", ["token", "sequence"])
def test_long_inputs_are_answered_block_by_block(answer, monkeypatch):
    model, ids, mask = model_of(answer=answer, stem=5), torch.randint(1, 7, (2, T)), torch.rand(2, T) > 0.3
    with torch.no_grad():
        want = model(ids, mask)
        monkeypatch.setattr(LongModel, "forward", None)  # which would take all at once
        torch.testing.assert_close(answered(model, ids, mask, block=5), want, rtol=0, atol=1e-12)


def test_outputs_from_a_block_on():
    model = model_of(answer="token")
    blocks = torch.randint(1, 7, (1, T)).split([7, 6, 10], 1)
    every = list(model.stream(blocks, answer=True))
    for got, want in zip(model.stream(blocks, answer=True, begin=1), every[1:], strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_what_is_refused(tmp_path):
    blocks = [torch.randint(1, 7, (1, 5))]
    with pytest.raises(
        ValueError, match=r"cannot be run block by block. LionAttention: variant 'softmax' has no state"
    ):
        stream(model_of("softmax"), blocks)
    with pytest.raises(ValueError, match=r"expected model.eval\(\)"):
        stream(model_of().train(), blocks)
    with pytest.raises(ValueError, match="there are no blocks; expected one, at least"):
        list(stream(model_of(), []))
    with pytest.raises(ValueError, match="KmerWeights: it counts the tokens of the whole text"):
        stream(model_of(kmers=2), blocks)

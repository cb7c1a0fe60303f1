"""Models whose sequence is cut over processes: outputs and gradients are those of one process."""

import functools

import pytest

from lion.models.causal import CausalConfig, CausalModel
from lion.models.encoder import Encoder, EncoderConfig
from lion.models.long_range import LongConfig, LongModel
from tests.parallel import cases

SMALL = {"dim": 8, "depth": 2, "heads": 2, "vocab_size": 7}
PLACES = {"positions": "learned", "max_tokens": 40}


def long(variant="lion_s", **options):
    return functools.partial(made, LongModel, LongConfig(variant, classes=3, **SMALL, **options))


def text(variant="lion_s", **options):
    config = EncoderConfig(variant, mlp_dim=16, dropout=0.0, pad_token=None, **SMALL, **options)
    return functools.partial(made, Encoder, config)


def made(model, config):
    return model(config)


SETTINGS = [  # name, model, masked, recomputed
    ("a stem", long(stem=5), True, False),
    ("as DNA", long(stem=9, answer="token", two_sided=True), False, True),
    ("strides", long("gla", stem=5, stem_depth=2, stride=3, **PLACES), True, False),
    ("places", long("lion_lit", **PLACES), True, True),
    ("summaries", long("lion_d", summaries=2, **PLACES), False, False),
    ("text", text(**PLACES), True, True),
    ("text by the delta rule", text("gated_deltanet"), False, False),
    ("causal", functools.partial(made, CausalModel, CausalConfig("lion_s", **SMALL, **PLACES)), True, False),
]


@pytest.mark.parametrize(("ranks", "kind"), [(2, "even"), (3, "empty first"), (4, "empty last")])
def test_pieces_are_the_whole(processes, ranks, kind):
    for found in processes.run(cases.models, SETTINGS, 23, kind, ranks=ranks):
        assert all(error <= 1e-12 for error, _ in found.values()), found


IMAGES = [
    ("a class token", {}),
    ("two of them", {"distillation_token": True}),
    ("the mean", {"pool": "mean", "positions": "learned"}),
    ("places", {"positions": "learned", "two_sided": True}),
]


@pytest.mark.parametrize("rows", [(2, 1), (0, 3, 1), (1, 0, 2, 0)])
def test_images_in_bands(processes, rows):
    for found in processes.run(cases.images, IMAGES, rows, ranks=len(rows)):
        assert all(error <= 1e-12 for error, _ in found.values()), found

"""transformers' own tests of models (its ModelTesterMixin, and of a checkout its GenerationTesterMixin), for ours.

What does not apply, transformers skips, and says why.
"""

import itertools
import unittest

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations import hf
from lion.integrations.hf import LionForCausalLM
from tests import THOROUGH, transformers_tests
from tests.integrations import hf_small

if why := transformers_tests.why_not():
    pytest.skip(f"transformers' tests cannot be had: {why}", allow_module_level=True)
common, GenerationTesterMixin = transformers_tests.load()

VARIANTS = ("lion_s", "lion_lit", "rwkv6", "deltanet", "softmax")
# transformers' decorators for flaky tests return what these do, which unittest does not like.
pytestmark = pytest.mark.filterwarnings("ignore:It is deprecated to return a value:DeprecationWarning")

# By these transformers' tests know what labels a class takes.
NAMES = {
    "MODEL_MAPPING_NAMES": hf.LionModel,
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": hf.LionForMaskedLM,
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": hf.LionForSequenceClassification,
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": hf.LionForTokenClassification,
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": LionForCausalLM,
}
for table, kind in NAMES.items():
    names = getattr(common, table)
    setattr(common, table, {**names, kind.config_class.model_type: kind.__name__})


class ModelTester:
    """What the mixins ask for: sizes, a config and a batch."""

    __test__ = False
    batch_size, seq_length, is_training = 3, 7, True

    def __init__(self, kind, variant):
        self.kind, self.variant = kind, variant
        vars(self).update(hf_small.SIZES)

    def get_config(self):
        options = {"initializer_range": 0.02, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return hf_small.config(self.kind, self.variant, **options)

    def prepare_config_and_inputs_for_common(self):
        ids = hf_small.tokens(self.batch_size, self.seq_length)
        return self.get_config(), {"input_ids": ids, "attention_mask": common.random_attention_mask(ids.shape)}


class Ours:
    def setUp(self):
        self.model_tester = ModelTester(*self.of)

    def _check_past_key_values_for_generate(self, batch_size, past_key_values, seq_length, config):
        """Theirs wants linear attention to have convolutions."""
        cache, H = past_key_values, config.num_attention_heads
        D = config.hidden_size // H
        assert (len(cache), cache.batch_size) == (config.num_hidden_layers, batch_size)
        assert cache.get_seq_length() == seq_length
        for layer, linear in zip(cache.layers, cache.is_linear, strict=True):
            assert linear == (cache.mode == "recurrence" and config.variant != "softmax")
            if linear:
                state, total, _ = layer.recurrent_states.values()
                assert (state.shape, total.shape) == ((batch_size, H, D, D), (batch_size, H, D))
            else:
                assert layer.keys.shape == layer.values.shape == (batch_size, H, seq_length, D)

    def _check_caches_are_equal(self, one, other):
        torch.testing.assert_close(one.states._asdict(), other.states._asdict())


def make_case(kind, variant):
    mixins = (common.ModelTesterMixin, *((GenerationTesterMixin,) if kind is LionForCausalLM else ()))
    fields = {"of": (kind, variant), "all_model_classes": (kind,)}
    return type(f"Test{kind.__name__}_{variant}", (Ours, *mixins, unittest.TestCase), fields)


for kind, variant in itertools.product(hf_small.KINDS, VARIANTS):
    # The heads are the same for every variant.
    if THOROUGH or variant == "lion_s" or kind in (hf.LionModel, LionForCausalLM):
        case = make_case(kind, variant)
        globals()[case.__name__] = case
del case, kind, names, table, variant

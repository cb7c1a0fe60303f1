"""Hugging Face transformers: lion's encoders and causal models among its models, and BERTs turned into encoders.

Importing this registers them: AutoModel and the other Auto classes load what their `save_pretrained` has written.
"""

from lion.optional import need_transformers

need_transformers()  # before any module of this package imports it

from lion.integrations.hf.cache import LionCache  # noqa: E402
from lion.integrations.hf.causal import LionForCausalLM  # noqa: E402
from lion.integrations.hf.config import MODES, LionCausalConfig, LionConfig  # noqa: E402
from lion.integrations.hf.conversion import convert  # noqa: E402
from lion.integrations.hf.encoder import (  # noqa: E402
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    LionPreTrainedModel,
)

__all__ = [
    "MODES",
    "LionCache",
    "LionCausalConfig",
    "LionConfig",
    "LionForCausalLM",
    "LionForMaskedLM",
    "LionForSequenceClassification",
    "LionForTokenClassification",
    "LionModel",
    "LionPreTrainedModel",
    "convert",
]

"""Hugging Face transformers: lion's encoders among its models, and its BERTs turned into them."""

from lion.integrations.hf_config import LionConfig
from lion.integrations.hf_convert import convert
from lion.integrations.hf_encoder import (
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    LionPreTrainedModel,
)

__all__ = [
    "LionConfig",
    "LionForMaskedLM",
    "LionForSequenceClassification",
    "LionForTokenClassification",
    "LionModel",
    "LionPreTrainedModel",
    "convert",
]

"""Small models for transformers, and what several tests do with them."""

import torch

from lion.integrations import hf
from tests import SEED

WORDS, LABELS = 50, 3
SIZES = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = (
    hf.LionModel,
    hf.LionForMaskedLM,
    hf.LionForSequenceClassification,
    hf.LionForTokenClassification,
    hf.LionForCausalLM,
)


def config(kind, variant="lion_s", **options):
    """With weights so large that tokens and layers make a difference."""
    options = {**SIZES, "intermediate_size": 64, "initializer_range": 0.2, **options}
    if kind is hf.LionForCausalLM:
        return hf.LionCausalConfig(variant, **options)
    return hf.LionConfig(variant, **{"num_labels": LABELS, **options})


def small(kind, variant="lion_s", **options):
    """In double precision."""
    torch.manual_seed(SEED)
    model = kind(config(kind, variant, **options)).double().eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if ".decay." in name:  # which begin alike
                x += 0.3 * torch.randn_like(x)
    return model


def tokens(*shape):
    return torch.randint(5, WORDS, shape, generator=torch.Generator().manual_seed(SEED + 1))


def labels_for(kind, ids):
    labels = ids if kind in (hf.LionForMaskedLM, hf.LionForCausalLM) else ids % LABELS
    return labels[:, 0] if kind is hf.LionForSequenceClassification else labels


def checkpointing(model, options=None, *, enable=True):
    """By the name that this version of transformers has for it."""
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    if enable:
        getattr(model, f"{name}_checkpointing_enable")(options)
    else:
        getattr(model, f"{name}_checkpointing_disable")()
    assert getattr(model, f"is_{name}_checkpointing") is enable

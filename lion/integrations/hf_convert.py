"""BERTs of transformers, and what is built alike, turned into lion's encoders with their weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion.integrations.hf_config import LionConfig
from lion.integrations.hf_encoder import (
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    LionPreTrainedModel,
)
from lion.nn.layers import LionAttention
from lion.optional import need_transformers

need_transformers()

import transformers  # noqa: E402
from transformers import PreTrainedModel  # noqa: E402

# Modules that are the same, by their names there and here.
EMBEDDINGS = {"word_embeddings": "words", "token_type_embeddings": "types", "LayerNorm": "norm"}
LAYER = {
    "attention.output.dense": "attention.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}


class Family(NamedTuple):
    heads: Mapping[type[LionPreTrainedModel], Mapping[str, str]]  # behind the layers, modules that are the same
    position_for_padding: bool = False  # they begin to count behind it


BERT = Family(
    {
        LionModel: {"pooler.dense": "pooler"},
        LionForMaskedLM: {
            "cls.predictions.transform.dense": "head.dense",
            "cls.predictions.transform.LayerNorm": "head.norm",
            "cls.predictions.decoder": "head.decoder",
        },
        LionForSequenceClassification: {"bert.pooler.dense": "lion.pooler", "classifier": "classifier"},
        LionForTokenClassification: {"classifier": "classifier"},
    }
)
ROBERTA = Family(
    {
        LionModel: {"pooler.dense": "pooler"},
        LionForMaskedLM: {
            "lm_head.dense": "head.dense",
            "lm_head.layer_norm": "head.norm",
            "lm_head.decoder": "head.decoder",
        },
        LionForSequenceClassification: {"classifier.dense": "lion.pooler", "classifier.out_proj": "classifier"},
        LionForTokenClassification: {"classifier": "classifier"},
    },
    position_for_padding=True,
)
FAMILIES = {"Bert": BERT, "Roberta": ROBERTA, "XLMRoberta": ROBERTA, "Camembert": ROBERTA}
CONVERTED: dict[type[PreTrainedModel], tuple[Family, type[LionPreTrainedModel]]] = {
    getattr(transformers, kind.__name__.replace("Lion", name)): (family, kind)
    for name, family in FAMILIES.items()
    for kind in family.heads
}
BASES = {kind.config_class.model_type: kind for kind, (_, lion) in CONVERTED.items() if lion is LionModel}

KEPT_FIELDS = (  # of a BertConfig
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("type_vocab_size", "hidden_dropout_prob", "classifier_dropout", "layer_norm_eps"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "initializer_range", "tie_word_embeddings"),
    *("id2label", "label2id", "problem_type", "name_or_path"),
)
EXPECTED_FIELDS = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "hidden_act": "gelu",
}


@torch.no_grad()
def convert(
    model: PreTrainedModel,
    variant: str = "lion_s",
    *,
    positions: str = "learned",
    features: str | None = None,
    decay: str | None = None,
    norm: str | None = None,
    attention_norm: bool | None = None,
    form: str = "auto",
) -> LionPreTrainedModel:
    """A BERT's weights in the Lion class that corresponds to it, with another attention. The BERT stays as it is.

    Embeddings, positions, MLPs, norms and heads carry over, and so do the queries, keys, values and outputs of
    attention: as "softmax" the model computes what it did before. (Where all heads share their keys, as in Mamba, only
    values and outputs carry over; HGRN-2 has no keys to keep.) What a variant has besides, as decays, begins as in a
    new layer: train the model before it is used. Dropout of attention's weights has no counterpart, and is left out.

    Args:
        model: of BERT, RoBERTa, XLM-RoBERTa or CamemBERT the model without a head, or the one for masked words, for
            classes of texts or for classes of tokens.
        variant, features, decay, norm, attention_norm, form: as in LionConfig.
        positions: "learned", kept; or "none", for sequences of any length: their mean is added to every token then.
    """
    if type(model) not in CONVERTED:
        known = ", ".join(kind.__name__ for kind in CONVERTED)
        raise TypeError(f"the model is a {type(model).__name__}; expected one of {known}.")
    for name, want in EXPECTED_FIELDS.items():
        got = getattr(model.config, name, want)
        if got != want:
            raise ValueError(f"the model's {name} is {got!r}; expected {want!r}: there is no such Lion model.")
    family, kind = CONVERTED[type(model)]
    old, places = model.base_model, positions_of(model)
    config = LionConfig(
        variant,
        positions=positions,
        max_position_embeddings=len(places),
        features=features,
        decay=decay,
        norm=norm,
        attention_norm=attention_norm,
        form=form,
        **{name: getattr(model.config, name) for name in KEPT_FIELDS if hasattr(model.config, name)},
    )
    bare = isinstance(model, type(old)) and model.pooler is None
    options: dict[str, Any] = {"add_pooling_layer": False} if bare else {}
    lion = kind(config, **options).to(model.device)
    half = model.dtype in (torch.bfloat16, torch.float16)
    for name, x in lion.state_dict(keep_vars=True).items():
        if not (half and ".decay." in name):  # which from_pretrained keeps as they are, too
            x.data = x.data.to(model.dtype)

    new = lion.base_model.encoder
    if not bare:
        _copy(model, lion, family.heads[kind])
    _copy(old.embeddings, new.embeddings, EMBEDDINGS)
    for old_layer, new_layer in zip(old.encoder.layer, new.layers, strict=True):
        _copy(old_layer, new_layer, LAYER)
        _take_over(old_layer.attention.self, new_layer.attention)
    if positions == "none":
        new.embeddings.types.weight += places.mean(0)
    else:
        new.embeddings.positions.weight.copy_(places)
    return lion.train(model.training)


def positions_of(model: PreTrainedModel) -> Tensor:
    """What the model has learned of the places that its tokens may have [places, dim]."""
    family, _ = CONVERTED[type(model)]
    first = model.config.pad_token_id + 1 if family.position_for_padding else 0
    return model.base_model.embeddings.position_embeddings.weight[first:]


def _copy(old: nn.Module, new: nn.Module, names: Mapping[str, str]) -> None:
    for there, here in names.items():
        new.get_submodule(here).load_state_dict(old.get_submodule(there).state_dict())


def _take_over(old: nn.Module, new: LionAttention) -> None:
    """Queries, keys and values, in both [heads x channels], head by head."""
    for parameter in ("weight", "bias"):
        rows: tuple[Tensor, ...] = getattr(new.in_proj, parameter).split(list(new.columns.values()))
        parts = (old.get_parameter(f"{name}.{parameter}") for name in ("query", "key", "value"))
        for mine, part in zip(rows, parts, strict=False):  # q, k and v come first
            if mine.shape == part.shape:
                mine.copy_(part)

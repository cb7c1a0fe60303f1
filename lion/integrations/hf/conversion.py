"""BERTs of transformers, and what is built alike, turned into lion's encoders with their weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from lion.integrations.hf.config import LionConfig
from lion.integrations.hf.encoder import (
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    LionPreTrainedModel,
)
from lion.models.baselines import BASELINES
from lion.models.blocks import copy_qkv
from lion.nn.variants import VARIANTS

# Modules that are the same, by their names there and here.
EMBEDDINGS = {"word_embeddings": "words", "token_type_embeddings": "types", "LayerNorm": "norm"}
LAYER = {
    "attention.output.dense": "attention.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}


# The same behind the layers, by their names here.
HEADS: dict[type[LionPreTrainedModel], tuple[str, ...]] = {
    LionModel: ("pooler",),
    LionForMaskedLM: ("head.dense", "head.norm", "head.decoder"),
    LionForSequenceClassification: ("lion.pooler", "classifier"),
    LionForTokenClassification: ("classifier",),
}


class Family(NamedTuple):
    masked_lm: tuple[str, ...]  # their names there
    classifier: tuple[str, ...]
    position_for_padding: bool = False  # positions are counted from pad_token_id + 1

    def modules(self, kind: type[LionPreTrainedModel]) -> dict[str, str]:
        """Names there and here."""
        there = dict(zip(HEADS, (("pooler.dense",), self.masked_lm, self.classifier, ("classifier",)), strict=True))
        return dict(zip(there[kind], HEADS[kind], strict=True))


BERT = Family(
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder"),
    ("bert.pooler.dense", "classifier"),
)
ROBERTA = Family(
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"),
    ("classifier.dense", "classifier.out_proj"),
    position_for_padding=True,
)
FAMILIES = {"Bert": BERT, "Roberta": ROBERTA, "XLMRoberta": ROBERTA, "Camembert": ROBERTA}
CONVERTED: dict[type[PreTrainedModel], tuple[Family, type[LionPreTrainedModel]]] = {
    getattr(transformers, kind.__name__.replace("Lion", name)): (family, kind)
    for name, family in FAMILIES.items()
    for kind in HEADS
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
    values and outputs carry over; HGRN-2 has no keys to keep.) The rest of a variant, as its decays, is new: train the
    model before it is used. Dropout of attention's weights has no counterpart, and is left out.

    Args:
        model: a BERT, RoBERTa, XLM-RoBERTa or CamemBERT: the model without a head, or for masked language modelling,
            for classes of texts or for classes of tokens.
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
    if variant in BASELINES:
        raise ValueError(
            f"variant is {variant!r}, whose layers have no place for a BERT's queries, keys and values; expected one "
            f"of {', '.join(map(repr, VARIANTS))}."
        )
    family, kind = CONVERTED[type(model)]
    old = model.base_model
    config = LionConfig(
        variant,
        positions=positions,
        max_position_embeddings=len(positions_of(model)),
        features=features,
        decay=decay,
        norm=norm,
        attention_norm=attention_norm,
        form=form,
        **kept_fields(model.config),
    )
    bare = isinstance(model, type(old)) and model.pooler is None
    options: dict[str, Any] = {"add_pooling_layer": False} if bare else {}
    lion = kind(config, **options).to(model.device)
    half = model.dtype in (torch.bfloat16, torch.float16)
    for name, x in lion.state_dict(keep_vars=True).items():
        if not (half and ".decay." in name):  # which from_pretrained keeps as they are, too
            x.data = x.data.to(model.dtype)
    if not bare:
        _copy(model, lion, family.modules(kind))
    copy_encoder(model, lion)
    return lion.train(model.training)


def kept_fields(config: Any) -> dict[str, Any]:
    """The fields of a BertConfig that a LionConfig has, too."""
    return {name: getattr(config, name) for name in KEPT_FIELDS if hasattr(config, name)}


@torch.no_grad()
def copy_encoder(model: PreTrainedModel, lion: LionPreTrainedModel) -> None:
    """Copy a BERT's embeddings and layers; where `lion` has fewer layers, the first ones."""
    old, new, places = model.base_model, lion.base_model.encoder, positions_of(model)
    _copy(old.embeddings, new.embeddings, EMBEDDINGS)
    for old_layer, new_layer in zip(old.encoder.layer, new.layers, strict=False):
        _copy(old_layer, new_layer, LAYER)
        for parameter in ("weight", "bias"):
            old_attention = old_layer.attention.self
            parts = [old_attention.get_parameter(f"{name}.{parameter}") for name in ("query", "key", "value")]
            copy_qkv(new_layer.attention, parameter, parts)
    if new.embeddings.positions is None:
        new.embeddings.types.weight += places.mean(0)
    else:
        new.embeddings.positions.weight.copy_(places[: len(new.embeddings.positions.weight)])


def positions_of(model: PreTrainedModel) -> Tensor:
    """The model's learned positions, [positions, dim]."""
    family, _ = CONVERTED[type(model)]
    first = model.config.pad_token_id + 1 if family.position_for_padding else 0
    return model.base_model.embeddings.position_embeddings.weight[first:]


def _copy(old: nn.Module, new: nn.Module, names: Mapping[str, str]) -> None:
    for there, here in names.items():
        new.get_submodule(here).load_state_dict(old.get_submodule(there).state_dict())

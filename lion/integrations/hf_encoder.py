"""lion's encoders as models of Hugging Face's transformers.

Importing this registers them: AutoModel and the other Auto classes load what their `save_pretrained` has written.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion import files
from lion.models.encoder import Embeddings, Encoder, EncoderConfig, make_attention
from lion.models.positions import waves
from lion.nn.layers import LionAttention, set_form
from lion.ops.checks import check_ids
from lion.optional import need_transformers

need_transformers()

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    initialization,
)
from transformers.modeling_outputs import (  # noqa: E402
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

IGNORED = -100  # the label of a token that has none

FIELDS = {  # of EncoderConfig, by transformers' names of them
    "mixer": "mixer",
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_dim",
    "positions": "positions",
    "max_position_embeddings": "max_tokens",
    "type_vocab_size": "token_types",
    "hidden_dropout_prob": "dropout",
    "layer_norm_eps": "norm_eps",
    "pad_token_id": "pad_token",
    "initializer_range": "init_std",
    "features": "features",
    "decay": "decay",
    "norm": "norm",
    "attention_norm": "attention_norm",
}


class LionConfig(PreTrainedConfig):
    """An encoder's config by transformers' names (FIELDS); lion.models.encoder.EncoderConfig says what they mean.

    `form` is how attention computes, as `lion.set_form` has it.
    """

    model_type = "lion"

    def __init__(
        self,
        mixer: str = "lion_s",
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        positions: str = "none",
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        hidden_dropout_prob: float = 0.1,
        classifier_dropout: float | None = None,
        layer_norm_eps: float = 1e-12,
        pad_token_id: int | None = 0,
        initializer_range: float = 0.02,
        features: str | None = None,
        decay: str | None = None,
        norm: str | None = None,
        attention_norm: bool | None = None,
        form: str = "auto",
        tie_word_embeddings: bool = True,
        **others: Any,  # that all of transformers' configs have, as num_labels
    ):
        super().__init__(**others)
        self.mixer = mixer
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.positions = positions
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.classifier_dropout = classifier_dropout
        self.layer_norm_eps = layer_norm_eps
        self.pad_token_id = pad_token_id
        self.initializer_range = initializer_range
        self.features = features
        self.decay = decay
        self.norm = norm
        self.attention_norm = attention_norm
        self.form = form
        self.tie_word_embeddings = tie_word_embeddings
        self.encoder()  # which checks some of it

    @classmethod
    def of(cls, encoder: EncoderConfig, **others: Any) -> "LionConfig":
        return cls(**{name: getattr(encoder, field) for name, field in FIELDS.items()}, **others)

    def encoder(self) -> EncoderConfig:
        return EncoderConfig(**{field: getattr(self, name) for name, field in FIELDS.items()})


class LionPreTrainedModel(PreTrainedModel):
    config: LionConfig
    config_class = LionConfig
    base_model_prefix = "lion"
    supports_gradient_checkpointing = True
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012
    # Rounded to half precision, decays close to 1 would forget some percent too fast or too slowly.
    _keep_in_fp32_modules_strict = ["decay"]  # noqa: RUF012

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As transformers has it; it says which weights are damaged, if they are."""
        with files.intact(pretrained_model_name_or_path):
            return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    def initialize_weights(self) -> None:
        """What no checkpoint has filled begins as in a new model.

        transformers does that module by module, and knows linear layers, embeddings and norms. A layer of attention
        begins as a whole: its decays, and projections that some variants have a beginning of their own for. And so do
        positions.
        """
        new = [layer for layer in self.modules() if isinstance(layer, LionAttention) and not _is_filled(layer)]
        super().initialize_weights()
        for layer in new:
            tensors = layer.state_dict(keep_vars=True)
            if not all(_is_filled(x) for x in tensors.values()):
                for name, x in make_attention(self.config.encoder()).state_dict().items():
                    initialization.copy_(tensors[name], x)
        for module in self.modules():
            if isinstance(module, Embeddings) and module.positions is not None:
                weight = module.positions.weight
                initialization.copy_(weight, self.config.initializer_range * waves(*weight.shape).to(weight))

    def set_form(
        self, form: str, *, backend: str | None = None, chunk_size: int | None = None
    ) -> "LionPreTrainedModel":
        """`lion.set_form`, which calls this too, so that the config remembers it."""
        self.config.form = form
        for module in self.modules():
            if isinstance(module, LionAttention):
                module.set_form(form, backend=backend, chunk_size=chunk_size)
        return self

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are no weights: decays and the like."""
        encoders = [(name, module) for name, module in self.named_modules() if isinstance(module, Encoder)]
        return {f"{name}.{parameter}" for name, encoder in encoders for parameter in encoder.no_weight_decay()}


def _is_filled(x: nn.Module | Tensor) -> bool:
    """By a checkpoint, or by transformers' initialisation: its own mark."""
    return getattr(x, "_is_hf_initialized", False)


class LionModel(LionPreTrainedModel):
    """The encoder; with `add_pooling_layer` as BERT has it, a summary of every sequence by its first token too."""

    def __init__(self, config: LionConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.encoder = Encoder(config.encoder())
        set_form(self.encoder, config.form)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embeddings.words

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embeddings.words = value
        self.encoder.config = replace(self.encoder.config, vocab_size=value.num_embeddings)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        cu_seqlens: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling | tuple[Tensor, ...]:
        """attention_mask [B, T], not 0 for real tokens; cu_seqlens [sequences + 1] of packed sequences, with B = 1."""
        config = self.config
        if config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError(
                "output_attentions is True; expected False: linear attention computes no [T, T] weights. "
                "LionAttention.weights(x) makes them, for a layer's input x."
            )
        given = input_ids if inputs_embeds is None else inputs_embeds
        mask = _real_tokens(attention_mask, given)
        if mask is not None and cu_seqlens is not None:
            raise ValueError(
                "attention_mask hides tokens, but cu_seqlens is given; expected one of them: "
                "pack sequences without padding."
            )
        every = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        try:
            states = self.encoder(
                input_ids,
                mask,
                cu_seqlens,
                token_type_ids=token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
                all_states=every,
            )
        except IndexError:  # looking at all ids beforehand would take time
            embeddings = self.encoder.embeddings
            check_ids("input_ids", input_ids, embeddings.words)
            check_ids("token_type_ids", token_type_ids, embeddings.types)
            check_ids("position_ids", position_ids, embeddings.positions)
            raise
        last = states[-1] if every else states
        output = BaseModelOutputWithPooling(
            last_hidden_state=last,
            pooler_output=None if self.pooler is None else self.pooler(_first(last, mask, cu_seqlens)).tanh(),
            hidden_states=states if every else None,
        )
        return output if _as_dict(config, return_dict) else output.to_tuple()


def _real_tokens(attention_mask: Tensor | None, given: Tensor | None) -> Tensor | None:
    """True for real tokens. None if all are: then nothing need be left out."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2 or (given is not None and attention_mask.shape != given.shape[:2]):
        wanted = "" if given is None else f"{tuple(given.shape[:2])} = "
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected {wanted}[B, T], not 0 for real tokens: "
            "linear attention has no scores that a mask of pairs could be added to."
        )
    mask = attention_mask.bool()
    if torch.compiler.is_compiling() or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        return mask
    return None if mask.all() else mask


def _first(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """[sequences, dim]: the first real token of each."""
    if cu_seqlens is not None:
        return x[0, cu_seqlens[:-1].long()]
    if mask is None:
        return x[:, 0]
    return x[torch.arange(len(x), device=x.device), mask.int().argmax(1)]


def _as_dict(config: LionConfig, return_dict: bool | None) -> bool:
    return bool(config.return_dict if return_dict is None else return_dict)


class LionWithHead(LionPreTrainedModel):
    """What the models with a head have in common."""

    lion: LionModel
    result: type  # one of transformers' outputs

    def logits(self, output: BaseModelOutputWithPooling) -> Tensor:
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """labels: the classes' numbers, or -100 where there is none to tell."""
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        cu_seqlens: Tensor | None = None,
        sparse_logits: bool = False,  # (Trainer takes what has "label" in its name for labels)
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """As LionModel takes it; with labels there is a loss too. With `sparse_logits` the logits are those of the
        tokens whose labels are not -100 [tokens, .]: of the others none are computed."""
        output = self.lion(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            cu_seqlens=cu_seqlens,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        if sparse_logits:
            if labels is None or output.last_hidden_state.shape[:2] != labels.shape:
                got = "there are no labels" if labels is None else f"labels has shape {tuple(labels.shape)}"
                raise ValueError(f"sparse_logits is True, but {got}; expected [B, T], a label for each token.")
            real = labels != IGNORED
            output.last_hidden_state, labels = output.last_hidden_state[real], labels[real]
        logits = self.logits(output)
        result = self.result(
            loss=None if labels is None else self.loss(logits, labels),
            logits=logits,
            hidden_states=output.hidden_states,
        )
        return result if _as_dict(self.config, return_dict) else result.to_tuple()


class MaskedLMHead(nn.Module):
    def __init__(self, config: LionConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.norm(F.gelu(self.dense(x))))


class LionForMaskedLM(LionWithHead):
    """[B, T] tokens -> [B, T, vocab_size] logits"""

    _tied_weights_keys = {"head.decoder.weight": "lion.encoder.embeddings.words.weight"}  # noqa: RUF012
    result = MaskedLMOutput

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.lion = LionModel(config, add_pooling_layer=False)
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.head.decoder = new_embeddings

    def logits(self, output: BaseModelOutputWithPooling) -> Tensor:
        return self.head(output.last_hidden_state)


class LionClassifier(LionWithHead):
    pools: bool

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.lion = LionModel(config, add_pooling_layer=self.pools)
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def logits(self, output: BaseModelOutputWithPooling) -> Tensor:
        return self.classifier(self.dropout(output.pooler_output if self.pools else output.last_hidden_state))


class LionForSequenceClassification(LionClassifier):
    """[B, T] tokens -> [B, num_labels] logits, or [sequences, num_labels] of packed ones"""

    pools = True
    result = SequenceClassifierOutput

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """By config.problem_type, which is set by the first labels if it is None."""
        kind = self.config.problem_type
        if kind is None:
            several = "multi_label" if labels.is_floating_point() else "single_label"
            kind = "regression" if self.num_labels == 1 else f"{several}_classification"
            self.config.problem_type = kind  # pipelines look there
        if kind == "single_label_classification":
            return super().loss(logits, labels)
        of = F.mse_loss if kind == "regression" else F.binary_cross_entropy_with_logits
        return of(logits, labels.to(logits.dtype).view_as(logits))


class LionForTokenClassification(LionClassifier):
    """[B, T] tokens -> [B, T, num_labels] logits"""

    pools = False
    result = TokenClassifierOutput


AutoConfig.register(LionConfig.model_type, LionConfig, exist_ok=True)
AutoModel.register(LionConfig, LionModel, exist_ok=True)
AutoModelForMaskedLM.register(LionConfig, LionForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(LionConfig, LionForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(LionConfig, LionForTokenClassification, exist_ok=True)

"""lion's encoders as models of Hugging Face's transformers.

Importing this registers them: AutoModel and the other Auto classes load what their `save_pretrained` has written.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.integrations.hf_base import LionBase
from lion.integrations.hf_config import LionConfig
from lion.integrations.hf_inputs import packed_sequences, real_tokens
from lion.models.encoder import Embeddings, Encoder, EncoderLayer, make_attention
from lion.models.positions import waves
from lion.nn.layers import LionAttention, set_form
from lion.ops.call import accumulation_dtype
from lion.ops.checks import BackendName, Form, check_ids
from lion.optional import need_transformers

need_transformers()

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    initialization,
)
from transformers.modeling_layers import GradientCheckpointingLayer  # noqa: E402
from transformers.modeling_outputs import (  # noqa: E402
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

IGNORED = -100  # the label of a token that has none


class LionLayer(EncoderLayer, GradientCheckpointingLayer):
    """An encoder's layer, recomputed in the backward pass where transformers is asked for that."""


class LionPreTrainedModel(LionBase):
    config: LionConfig
    config_class = LionConfig
    base_model_prefix = "lion"
    _no_split_modules = ["LionLayer"]  # noqa: RUF012

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
        self, form: Form, *, backend: BackendName | None = None, chunk_size: int | None = None
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
        self.encoder = Encoder(config.encoder(), LionLayer)
        set_form(self.encoder, cast(Form, config.form))
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
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        seq_idx: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling | tuple[Tensor, ...]:
        """The states of all tokens.

        Args:
            input_ids: [B, T]; or inputs_embeds, [B, T, dim].
            attention_mask: [B, T], not 0 for real tokens.
            token_type_ids: [B, T], 0 by default.
            position_ids: [B or 1, T]; by default the tokens are counted. Where they begin anew, so does a sequence.
            cu_seqlens: [sequences + 1], the borders of sequences packed end to end, with B = 1. By transformers' names:
                cu_seq_lens_q and cu_seq_lens_k; seq_idx [1, T], the number of each token's sequence; max_length_q and
                max_length_k, which nothing here needs to know. (DataCollatorWithFlattening makes all of them.)
            output_attentions: return every layer's weights too, [B, H, T, T], and compute by them: T^2 time and memory.
        """
        config = self.config
        given = input_ids if inputs_embeds is None else inputs_embeds
        embeddings = self.encoder.embeddings
        learned = embeddings.positions is not None
        mask = real_tokens(attention_mask, given)
        if given is not None:
            cu_seqlens = packed_sequences(
                given,
                mask,
                cu_seqlens=cu_seqlens,
                cu_seq_lens_q=cu_seq_lens_q,
                cu_seq_lens_k=cu_seq_lens_k,
                seq_idx=seq_idx,
                position_ids=position_ids,
                learned=learned,
            )
        every = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        weighing = config.output_attentions if output_attentions is None else output_attentions
        weights: list[Tensor] | None = [] if weighing else None
        try:
            states = self.encoder(
                input_ids,
                mask,
                cu_seqlens,
                token_type_ids=token_type_ids,
                position_ids=position_ids if learned else None,
                inputs_embeds=inputs_embeds,
                all_states=every,
                weights=weights,
            )
        except IndexError:  # looking at all ids beforehand would take time
            check_ids("input_ids", input_ids, embeddings.words)
            check_ids("token_type_ids", token_type_ids, embeddings.types)
            check_ids("position_ids", position_ids, embeddings.positions)
            raise
        last = states[-1] if every else states
        output = BaseModelOutputWithPooling(
            last_hidden_state=last,
            pooler_output=None if self.pooler is None else self.pooler(_first(last, mask, cu_seqlens)).tanh(),
            hidden_states=states if every else None,
            attentions=None if weights is None else tuple(weights),
        )
        return output if self.as_dict(return_dict) else output.to_tuple()


def _first(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """[sequences, dim]: the first real token of each."""
    if cu_seqlens is not None:
        return x[0, cu_seqlens[:-1].long()]
    if mask is None:
        return x[:, 0]
    return x[torch.arange(x.shape[0], device=x.device), mask.int().argmax(1)]


Items = Tensor | int | None


def mean_loss(of: Callable[..., Tensor], logits: Tensor, labels: Tensor, items: Items) -> Tensor:
    """The mean, in float32 at least; over `items` labels, if that is given, of which these are a part."""
    logits = logits.to(accumulation_dtype(logits))
    if items is None:
        return of(logits, labels)
    return of(logits, labels, reduction="sum") / torch.as_tensor(items, device=logits.device)


class LionWithHead(LionPreTrainedModel):
    """What the models with a head have in common."""

    lion: LionModel
    result: type  # one of transformers' outputs

    def logits(self, output: BaseModelOutputWithPooling) -> Tensor:
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, items: Items = None) -> Tensor:
        """labels: the classes' numbers, or -100 where there is none to tell. items: labels that the mean is over, if
        not these."""
        return mean_loss(F.cross_entropy, logits.flatten(0, -2), labels.flatten(), items)

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
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        seq_idx: Tensor | None = None,
        num_items_in_batch: Items = None,
        sparse_logits: bool = False,  # (Trainer takes what has "label" in its name for labels)
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """As LionModel takes it; with labels there is a loss too, their mean, or their sum by `num_items_in_batch`,
        which adds up over the micro-batches of a step. With `sparse_logits` the logits are those of the tokens whose
        labels are not -100 [tokens, .]: of the others none are computed."""
        output = self.lion(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            cu_seqlens=cu_seqlens,
            cu_seq_lens_q=cu_seq_lens_q,
            cu_seq_lens_k=cu_seq_lens_k,
            seq_idx=seq_idx,
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
            loss=None if labels is None else self.loss(logits, labels, num_items_in_batch),
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )
        return result if self.as_dict(return_dict) else result.to_tuple()


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

    def loss(self, logits: Tensor, labels: Tensor, items: Items = None) -> Tensor:
        """By config.problem_type, which is set by the first labels if it is None."""
        kind = self.config.problem_type
        if kind is None:
            several = "multi_label" if labels.is_floating_point() else "single_label"
            kind = "regression" if self.num_labels == 1 else f"{several}_classification"
            self.config.problem_type = kind  # pipelines look there
        if kind == "single_label_classification":
            return super().loss(logits, labels, items)
        of = F.mse_loss if kind == "regression" else F.binary_cross_entropy_with_logits
        return mean_loss(of, logits, labels.to(accumulation_dtype(logits)).view_as(logits), items)


class LionForTokenClassification(LionClassifier):
    """[B, T] tokens -> [B, T, num_labels] logits"""

    pools = False
    result = TokenClassifierOutput


AutoConfig.register(LionConfig.model_type, LionConfig, exist_ok=True)
AutoModel.register(LionConfig, LionModel, exist_ok=True)
AutoModelForMaskedLM.register(LionConfig, LionForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(LionConfig, LionForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(LionConfig, LionForTokenClassification, exist_ok=True)

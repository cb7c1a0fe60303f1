"""lion's encoders as models of Hugging Face's transformers."""

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    initialization,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from typing_extensions import Unpack

from lion.integrations.hf.config import LionConfig
from lion.integrations.hf.inputs import PACKING, Packing, read_batch, spelled_out
from lion.integrations.hf.pretrained import LionBase
from lion.models.baselines import Baseline, Scanning
from lion.models.encoder import Embeddings, Encoder, EncoderLayer, make_attention
from lion.models.heads import IGNORED, LOSSES, POOLINGS, Items, MaskedLMHead, TokenWeights, label_loss
from lion.models.positions import waves
from lion.nn.layers import LionAttention, set_form
from lion.ops.checks import BackendName, Form, check_ids, one_of

MIXERS = (LionAttention, Baseline)  # layers of attention, and what takes their place


class LionLayer(EncoderLayer, GradientCheckpointingLayer):
    """An encoder's layer, recomputed in the backward pass where transformers is asked for that."""


class LionPreTrainedModel(LionBase):
    config: LionConfig
    config_class = LionConfig
    base_model_prefix = "lion"
    _no_split_modules = ["LionLayer"]  # noqa: RUF012

    def initialize_weights(self) -> None:
        """Initialise what no checkpoint has filled.

        transformers does that module by module, and knows linear layers, embeddings and norms. A layer of attention is
        initialised as a whole: its decays, and projections that some variants initialise in their own way. And so are
        positions.
        """
        new = [layer for layer in self.modules() if isinstance(layer, MIXERS) and not _is_filled(layer)]
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
            if isinstance(module, LionAttention | Scanning):
                module.set_form(form, backend=backend, chunk_size=chunk_size)
        return self


def _is_filled(x: nn.Module | Tensor) -> bool:
    """By a checkpoint, or by transformers' initialisation: its own mark."""
    return getattr(x, "_is_hf_initialized", False)


class LionModel(LionPreTrainedModel):
    """The encoder; with `add_pooling_layer` also a summary of every sequence: by its first token, as BERT has it, or as
    the mean of its tokens (`classifier_pooling`)."""

    def __init__(self, config: LionConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.encoder = Encoder(config.encoder(), LionLayer)
        set_form(self.encoder, cast(Form, config.form))
        self.summary = add_pooling_layer
        dense = add_pooling_layer and config.classifier_pooling == "cls"
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if dense else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embeddings.words

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embeddings.words = value
        self.encoder.config = replace(self.encoder.config, vocab_size=value.num_embeddings)

    @spelled_out
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **packing: Unpack[Packing],
    ) -> BaseModelOutputWithPooling | tuple[Tensor, ...]:
        """The states of all tokens.

        Args:
            input_ids: [B, T]; or inputs_embeds, [B, T, dim].
            attention_mask: [B, T], not 0 for real tokens.
            token_type_ids: [B, T], 0 by default.
            position_ids: [B or 1, T]; by default the tokens are counted. Where they begin anew, so does a sequence.
            output_attentions: return every layer's weights too, [B, H, T, T], and compute by them: T^2 time and memory.
            packing: sequences packed into one row, by transformers' names for that.
        """
        embeddings = self.encoder.embeddings
        learned = embeddings.positions is not None
        _, mask, borders = read_batch(input_ids, inputs_embeds, attention_mask, position_ids, packing, learned=learned)
        every = self.asked("output_hidden_states", output_hidden_states)
        weights: list[Tensor] | None = [] if self.asked("output_attentions", output_attentions) else None
        try:
            states = self.encoder(
                input_ids,
                mask,
                borders,
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
        pooled = None
        if self.summary:
            pooled = POOLINGS[self.config.classifier_pooling](last, mask, borders, embeddings.piece)
        output = BaseModelOutputWithPooling(
            last_hidden_state=last,
            pooler_output=pooled if self.pooler is None else self.pooler(pooled).tanh(),
            hidden_states=states if every else None,
            attentions=None if weights is None else tuple(weights),
        )
        return output if self.asked("return_dict", return_dict) else output.to_tuple()


class Options(Packing, total=False):
    """What LionModel takes besides the tokens."""

    output_attentions: bool | None
    output_hidden_states: bool | None


class LionWithHead(LionPreTrainedModel):
    """What the models with a head have in common."""

    lion: LionModel
    result: type  # one of transformers' outputs

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.token_weights: TokenWeights | None = None

    def logits(self, output: BaseModelOutputWithPooling) -> Tensor:
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, items: Items = None) -> Tensor:
        return label_loss(logits, labels, items)

    @spelled_out
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        num_items_in_batch: Items = None,
        sparse_logits: bool | Tensor = False,  # (Trainer takes what has "label" in its name for labels)
        token_logits: Tensor | None = None,
        return_dict: bool | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """As LionModel takes it; with labels there is a loss too.

        Args:
            labels: -100 where there is nothing to predict.
            num_items_in_batch: the loss is the sum divided by this, not the mean: it adds up over micro-batches.
            sparse_logits: compute only the logits of some tokens, [tokens, .]: those with a label (True), or those that
                a mask [B, T] marks.
            token_logits: [sequences, .], in place of those of `token_weights`: in training, what such a model says that
                was fitted to other sequences.
        """
        output = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **options
        )
        if sparse_logits is not False:
            wanted = _wanted(sparse_logits, labels, output.last_hidden_state)
            output.last_hidden_state = output.last_hidden_state[wanted]
            labels = None if labels is None else labels[wanted]
        logits = self.logits(output)
        if self.token_weights is not None:
            if token_logits is None:
                packing: Packing = {name: x for name, x in options.items() if name in PACKING}  # type: ignore[assignment]
                token_logits = self._token_logits(input_ids, attention_mask, position_ids, packing)
            logits = logits + token_logits.to(logits.dtype)
        result = self.result(
            loss=None if labels is None else self.loss(logits, labels, num_items_in_batch),
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )
        return result if self.asked("return_dict", return_dict) else result.to_tuple()

    def _token_logits(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, position_ids: Tensor | None, packing: Packing
    ) -> Tensor:
        if input_ids is None or self.token_weights is None:
            raise ValueError("inputs_embeds is given, but this model reads tokens, too; expected input_ids.")
        learned = self.lion.encoder.embeddings.positions is not None
        _, mask, borders = read_batch(input_ids, None, attention_mask, position_ids, packing, learned=learned)
        return self.token_weights(input_ids, mask, borders)


def _wanted(sparse: bool | Tensor, labels: Tensor | None, x: Tensor) -> Tensor:
    """[B, T], True for the tokens whose logits are asked for."""
    marks = labels if sparse is True else sparse
    if not isinstance(marks, Tensor) or x.shape[:2] != marks.shape:
        name = "labels" if sparse is True else "sparse_logits"
        got = f"{name} has shape {tuple(marks.shape)}" if isinstance(marks, Tensor) else "there are no labels"
        raise ValueError(f"sparse_logits is given, but {got}; expected [B, T], one for each token.")
    return marks != IGNORED if sparse is True else marks


class LionForMaskedLM(LionWithHead):
    """[B, T] tokens -> [B, T, vocab_size] logits"""

    _tied_weights_keys = {"head.decoder.weight": "lion.encoder.embeddings.words.weight"}  # noqa: RUF012
    result = MaskedLMOutput

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.lion = LionModel(config, add_pooling_layer=False)
        self.head = MaskedLMHead(config.hidden_size, config.vocab_size, config.layer_norm_eps)
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
        if self.pools and config.classifier_token_weights:
            self.token_weights = TokenWeights(config.vocab_size, config.num_labels)
        self.post_init()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        super().set_input_embeddings(value)
        if self.token_weights is not None:
            self.token_weights.resize(value.num_embeddings)

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
        one_of("problem_type", kind, LOSSES)
        return label_loss(logits, labels, items, kind)


class LionForTokenClassification(LionClassifier):
    """[B, T] tokens -> [B, T, num_labels] logits"""

    pools = False
    result = TokenClassifierOutput


AutoConfig.register(LionConfig.model_type, LionConfig, exist_ok=True)
AutoModel.register(LionConfig, LionModel, exist_ok=True)
AutoModelForMaskedLM.register(LionConfig, LionForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(LionConfig, LionForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(LionConfig, LionForTokenClassification, exist_ok=True)

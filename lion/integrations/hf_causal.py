"""transformers: causal language models with any variant, their text generated in any of three ways.

Importing this registers the model type "lion_causal": `AutoModelForCausalLM.from_pretrained(folder)`, and
`LionForCausalLM(LionCausalConfig(mixer="lion_s"))` for a new model. `model.generation_mode` says what `generate` keeps
of the tokens so far. The tokens that it finds are the same:

    "recurrence"  of each layer a state that does not grow: time and memory of a token are the same everywhere
    "cache"       all keys, values and decays: each token reads them all
    "attention"   nothing: all tokens are computed once more for each new one
"""

from typing import Any

import torch
from torch import Tensor, nn

from lion import files
from lion.models.causal import MEMORIES, Block, CausalConfig, CausalModel, States
from lion.nn.variants import VARIANTS
from lion.ops.checks import check_ids, one_of
from lion.optional import need_transformers

need_transformers()

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    Cache,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init  # noqa: E402
from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402
from transformers.utils import can_return_tuple  # noqa: E402

__all__ = ["LionCache", "LionCausalConfig", "LionForCausalLM"]

MODES = (*MEMORIES, "attention")

FIELDS = {  # of CausalConfig, by Hugging Face's names of them
    "mixer": "mixer",
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "positions": "positions",
    "max_position_embeddings": "max_tokens",
    "features": "features",
    "decay": "decay",
    "norm": "norm",
    "hidden_dropout_prob": "dropout",
    "layer_norm_eps": "norm_eps",
    "initializer_range": "init_std",
}


class LionCausalConfig(PreTrainedConfig):
    model_type = "lion_causal"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    mixer: str = "lion_s"
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int | None = None  # None: four times hidden_size
    positions: str = "none"
    max_position_embeddings: int = 1024
    features: str | None = None
    decay: str | None = None
    norm: str | None = None
    hidden_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    generation_mode: str = "recurrence"
    use_cache: bool = True
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any):
        one_of("generation_mode", self.generation_mode, MODES)
        super().__post_init__(**kwargs)
        self.causal()  # which checks the rest

    @classmethod
    def of(cls, causal: CausalConfig, **others: Any) -> "LionCausalConfig":
        given = {name: getattr(causal, field) for name, field in FIELDS.items()}
        return cls(intermediate_size=round(causal.mlp_ratio * causal.dim), **given, **others)

    def causal(self) -> CausalConfig:
        """The same as lion.models.causal has it."""
        ratio = 4.0 if self.intermediate_size is None else self.intermediate_size / self.hidden_size
        return CausalConfig(mlp_ratio=ratio, **{field: getattr(self, name) for name, field in FIELDS.items()})


class LionForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = LionCausalConfig
    config: LionCausalConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # Rounded to half precision, decays close to 1 would forget some percent too fast or too slowly.
    _keep_in_fp32_modules_strict = ["decay"]  # noqa: RUF012
    _tied_weights_keys = {"lm_head.weight": "model.embed.weight"}  # noqa: RUF012

    def __init__(self, config: LionCausalConfig):
        super().__init__(config)
        self.generation_mode = config.generation_mode  # checked once more: from_pretrained may have changed it
        self.model = CausalModel(config.causal())
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if not self.model.embed.weight.is_meta:  # else a checkpoint is to fill it
            for module in self.model.modules():
                module._is_hf_initialized = True  # type: ignore[assignment]  # by itself, and better
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As transformers has it; it says which weights are damaged, if they are."""
        with files.intact(pretrained_model_name_or_path):
            return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    @property
    def generation_mode(self) -> str:
        return self.config.generation_mode

    @generation_mode.setter
    def generation_mode(self, mode: str) -> None:
        one_of("generation_mode", mode, MODES)
        self.config.generation_mode = mode

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: "LionCache | None" = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the tokens that come next, and with labels, which are shifted here, the loss.

        Args:
            input_ids: [B, T]; or inputs_embeds, [B, T, dim].
            attention_mask: [B, T], or longer by the tokens before them; 0 marks padding, on either side.
            past_key_values: of a call for the tokens before, which this one adds to.
            logits_to_keep: of so many last tokens; 0 is all.
            kwargs: what goes with the loss, as num_items_in_batch.
        """
        if output_attentions or (output_attentions is None and self.config.output_attentions):
            raise ValueError("output_attentions is True, but no scores are computed: see LionAttention.weights.")
        for name, value in kwargs.items():
            if value is not None and (name == "position_ids" or name.startswith("cu_seq")):
                raise ValueError(
                    f"{name} is given; expected none: a row is one text here, and its tokens are counted by "
                    "themselves. Texts packed into a row would run into each other: pad them, with an attention_mask."
                )
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("expected either input_ids or inputs_embeds.")
        if given.dim() != (2 if inputs_embeds is None else 3):
            name, wanted = ("input_ids", "[B, T]") if inputs_embeds is None else ("inputs_embeds", "[B, T, dim]")
            raise ValueError(f"{name} has shape {tuple(given.shape)}; expected {wanted}.")
        inputs = {"ids": input_ids, "embeddings": inputs_embeds, "mask": _mask(attention_mask, given.shape[1])}
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        trace: list[Tensor] | None = [] if output_hidden_states else None
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        cache = past_key_values
        if cache is None and use_cache and self.generation_mode in MEMORIES:
            cache = LionCache(self.generation_mode)
        if cache is not None:
            _check_cache(cache)
        try:
            if cache is None:
                hidden = self.model(**inputs, trace=trace)
            else:
                hidden, states = self.model.prefill(**inputs, states=cache.states, memory=cache.mode, trace=trace)
                cache.add(states, given.shape[1])
        except IndexError:  # looking at all ids beforehand would take time
            check_ids("input_ids", input_ids, self.model.embed)
            raise
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=logits.shape[-1], **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=cache,
            hidden_states=None if trace is None else (*trace, hidden),
        )

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,  # by name, or generate would refuse them
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if next_sequence_length == 1 and not is_first_iteration:
            attention_mask = None  # what was generated is no padding
        return super().prepare_inputs_for_generation(
            input_ids,
            next_sequence_length=next_sequence_length,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.embed = value  # type: ignore[assignment]

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are no weights, for lion.train.optim.make_optimizer: positions, decays."""
        return {f"model.{name}" for name in self.model.no_weight_decay()}

    @property
    def _is_stateful(self) -> bool:
        """Whether tokens cannot be taken back, as assisted generation does."""
        return self.generation_mode == "recurrence" and not VARIANTS[self.config.mixer].softmax

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *others: Any, **more: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"cache_implementation is {generation_config.cache_implementation!r}; expected None: "
                "model.generation_mode says what is kept."
            )
        cache = model_kwargs.get("past_key_values")
        if cache is not None:
            _check_cache(cache)
            cache._is_user_defined = True
            return
        if self.generation_mode == "attention":
            if model_kwargs.get("inputs_embeds") is not None:
                raise ValueError(
                    "generation_mode is 'attention', which reads all tokens again by their ids; expected "
                    "'recurrence' or 'cache' with inputs_embeds."
                )
            generation_config.use_cache = False
        if generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = LionCache(self.generation_mode)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """What a checkpoint lacks begins as in a new model."""
        for block in self.model.blocks:
            for name, part in block.named_modules():
                if part is module:
                    fresh = Block(self.model.config).get_submodule(name)
                    for kind in ("named_parameters", "named_buffers"):
                        values = dict(getattr(fresh, kind)(recurse=False))
                        for own, tensor in getattr(module, kind)(recurse=False):
                            init.copy_(tensor, values[own])
                    return
        super()._init_weights(module)


class LionCache(Cache):
    """What is kept of the tokens so far: lion.models.causal.States."""

    def __init__(self, mode: str = "recurrence"):
        one_of("mode", mode, MEMORIES)
        super().__init__(layers=[])
        self.mode = mode
        self.states: States | None = None
        self.length = 0  # with the padding

    def __len__(self) -> int:
        return 0 if self.states is None else len(self.states.layers)

    def add(self, states: States, tokens: int) -> None:
        self.states = states
        self.length += tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def reset(self) -> None:
        self.states, self.length = None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.states is not None:
            self.states = self.states.select(indices.to(self.states.tokens.device))

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.states is not None:
            rows = torch.arange(self.batch_size, device=self.states.tokens.device)
            self.states = self.states.select(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, by transformers' count: -2 are two of them."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove is {tokens_to_remove}; expected minus the number of tokens.")
        if tokens_to_remove and self.states is not None:
            self.states = self.states.without_last(-tokens_to_remove)
            self.length += tokens_to_remove

    @property
    def batch_size(self) -> int:
        return -1 if self.states is None else len(self.states.tokens)

    @property
    def is_initialized(self) -> bool:
        return self.states is not None

    @property
    def is_croppable(self) -> bool:
        return self.mode == "cache" if self.states is None else self.states.whole


def _check_cache(cache: Any) -> None:
    if not isinstance(cache, LionCache):
        raise TypeError(f"past_key_values is a {type(cache).__name__}; expected a LionCache, or None to make one.")


def _mask(attention_mask: Tensor | None, tokens: int) -> Tensor | None:
    """Of the last tokens: the others' are in the past."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}; expected 2 dimensions, [B, T].")
    return attention_mask[:, attention_mask.shape[1] - tokens :].bool()


AutoConfig.register(LionCausalConfig.model_type, LionCausalConfig, exist_ok=True)
AutoModelForCausalLM.register(LionCausalConfig, LionForCausalLM, exist_ok=True)

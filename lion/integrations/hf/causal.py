"""Causal language models of transformers with any variant, which generate text in any of three ways.

`model.generation_mode` says what `generate` keeps of the tokens so far. The tokens that it finds are the same:

    "recurrence"  a state of fixed size for each layer: every token takes the same time and memory
    "cache"       all keys, values and decays: each token reads them all
    "attention"   nothing: all tokens are computed once more for each new one
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, initialization
from transformers.generation import GenerationMode
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from typing_extensions import Unpack

from lion.integrations.hf.cache import LionCache, check_cache
from lion.integrations.hf.config import MODES, LionCausalConfig
from lion.integrations.hf.damage import check_generation
from lion.integrations.hf.inputs import Packing, read_batch, spelled_out
from lion.integrations.hf.pretrained import LionBase
from lion.models.causal import MEMORIES, Block, CausalModel
from lion.models.heads import Items
from lion.ops.checks import check_ids, one_of


class LionBlock(Block, GradientCheckpointingLayer):
    """A causal model's block, recomputed in the backward pass where transformers is asked for that."""


class LionForCausalLM(LionBase, GenerationMixin):
    config_class = LionCausalConfig
    config: LionCausalConfig
    base_model_prefix = "model"
    no_weights = CausalModel.no_weights
    _no_split_modules = ["LionBlock"]  # noqa: RUF012
    _tied_weights_keys = {"lm_head.weight": "model.embed.weight"}  # noqa: RUF012

    def __init__(self, config: LionCausalConfig):
        super().__init__(config)
        self.generation_mode = config.generation_mode  # checked once more: from_pretrained may have changed it
        self.model = CausalModel(config.causal(), LionBlock)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if not self.model.embed.weight.is_meta:  # else a checkpoint is to fill it
            for module in self.model.modules():
                module._is_hf_initialized = True  # type: ignore[assignment]  # by itself, and better
        self.post_init()

    @property
    def generation_mode(self) -> str:
        return self.config.generation_mode

    @generation_mode.setter
    def generation_mode(self, mode: str) -> None:
        one_of("generation_mode", mode, MODES)
        self.config.generation_mode = mode

    @spelled_out
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: LionCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        *,
        num_items_in_batch: Items = None,
        shift_labels: Tensor | None = None,
        **packing: Unpack[Packing],
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits of the tokens that come next, and with labels, which are shifted here, the loss.

        Args:
            input_ids: [B, T]; or inputs_embeds, [B, T, dim].
            attention_mask: [B, T], or longer by the tokens before them; 0 marks padding, on either side.
            position_ids: [B or 1, T]; by default the tokens are counted. Where they begin anew, so does a sequence.
            past_key_values: the cache of the tokens before, which this call extends.
            output_attentions: return every layer's weights too, [B, H, T, before + T], and compute by them, in T^2 time
                and memory. With past_key_values, all calls for the tokens before have to have asked for them.
            logits_to_keep: compute the logits of the last tokens only, so many; 0: of all. Or their indices.
            num_items_in_batch: labels that the loss is the mean over, if not these.
            shift_labels: [B, T], labels that are shifted already, in place of `labels`.
            packing: sequences packed into one row, by transformers' names for that.
        """
        learned = self.model.positions is not None
        given, mask, borders = read_batch(
            input_ids, inputs_embeds, attention_mask, position_ids, packing, learned=learned, with_past=True
        )
        cache = self._cache(past_key_values, use_cache, packed=borders is not None)
        weights: list[Tensor] | None = [] if self.asked("output_attentions", output_attentions) else None
        trace: list[Tensor] | None = [] if self.asked("output_hidden_states", output_hidden_states) else None
        inputs: dict[str, Any] = {
            "ids": input_ids,
            "mask": mask,
            "embeddings": inputs_embeds,
            "position_ids": position_ids if learned else None,
            "trace": trace,
            "weights": weights,
        }
        try:
            if cache is None:
                hidden = self.model(**inputs, cu_seqlens=borders)
            else:
                hidden, states = self.model.prefill(**inputs, states=cache.states, memory=cache.mode)
                cache.add(states, given.shape[1])
        except IndexError:  # looking at all ids beforehand would take time
            check_ids("input_ids", input_ids, self.model.embed)
            check_ids("position_ids", position_ids, self.model.positions)
            raise
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, kept])
        loss = None
        if labels is not None or shift_labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                vocab_size=logits.shape[-1],
                num_items_in_batch=num_items_in_batch,
                shift_labels=shift_labels,
            )
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=cache,
            hidden_states=None if trace is None else (*trace, hidden),
            attentions=None if weights is None else tuple(weights),
        )
        return output if self.asked("return_dict", return_dict) else output.to_tuple()

    def _cache(self, past: LionCache | None, use_cache: bool | None, *, packed: bool) -> LionCache | None:
        """The one that is given, or a new one if that is wanted."""
        if packed:
            if use_cache or past is not None:
                got = "use_cache is True" if past is None else "past_key_values is given"
                raise ValueError(
                    f"{got}, but sequences are packed; expected none: a cache has one sequence to a row. "
                    "Pad them, with an attention_mask."
                )
            return None
        if past is not None:
            check_cache(past)
            return past
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        return LionCache(self.generation_mode) if use_cache and self.generation_mode in MEMORIES else None

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

    def adjust_generation_fn(
        self, generation_config: Any, auto: Any, pipeline: Any, source: Any, **options: Any
    ) -> None:
        """As transformers has it, where a damaged file is as good as none."""
        if generation_config is None and source is not None:
            check_generation(Path(source, options.get("subfolder") or "", "generation_config.json"))
        super().adjust_generation_fn(generation_config, auto, pipeline, source, **options)

    def _prepare_position_ids_for_generation(self, inputs_tensor: Tensor, model_kwargs: dict[str, Any]) -> None:
        """None are needed: the model counts its tokens, if at all."""

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any, *others: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"cache_implementation is {generation_config.cache_implementation!r}; expected None: "
                "model.generation_mode says what is kept."
            )
        # Candidates that turn out wrong are taken back, which a state cannot do.
        guessing = generation_mode == GenerationMode.ASSISTED_GENERATION or generation_config.is_assistant
        mode = "cache" if guessing else self.generation_mode
        cache = model_kwargs.get("past_key_values")
        if cache is not None:
            check_cache(cache)
            if guessing and not cache.is_croppable:
                raise ValueError(
                    f"past_key_values has mode {cache.mode!r}, but candidates are to be taken back; expected one with "
                    "all tokens: LionCache('cache'), or of a model whose generation_mode is 'cache'."
                )
            cache._is_user_defined = True
            return
        if mode == "attention":
            if model_kwargs.get("inputs_embeds") is not None:
                raise ValueError(
                    "generation_mode is 'attention', which reads all tokens again by their ids; expected "
                    "'recurrence' or 'cache' with inputs_embeds."
                )
            generation_config.use_cache = False
        if generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = LionCache(mode)

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
                            initialization.copy_(tensor, values[own])
                    return
        super()._init_weights(module)


AutoConfig.register(LionCausalConfig.model_type, LionCausalConfig, exist_ok=True)
AutoModelForCausalLM.register(LionCausalConfig, LionForCausalLM, exist_ok=True)

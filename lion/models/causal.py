"""Causal language models: GPT-2's architecture with any variant in the place of attention, in one direction.

Text is generated token by token, from what a model keeps of the tokens before: a state of fixed size for each layer
("recurrence"), or all keys, values and decays ("cache"). The outputs are those of all tokens at once.

    hidden, states = model.prefill(prompt)
    token = model.logits(hidden[:, -1]).argmax(-1)
    hidden, states = model.step(token, states)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.legacy import takes_old_names
from lion.limits import Deviation, Epsilon, Ratio, Share, Tokens, Vocabulary
from lion.models.blocks import NO_WEIGHTS, Backbone, Mlp, ModelConfig, check_mask, init_linear, make_layer
from lion.models.borders import tokens_before
from lion.models.positions import add_positions, learned_positions
from lion.nn.prefill import Cache, Kept, prefill
from lion.ops.checks import one_of

MEMORIES = ("recurrence", "cache")


@takes_old_names
@dataclass(frozen=True, kw_only=True)
class CausalConfig(ModelConfig):
    vocab_size: Vocabulary = 50257  # different tokens
    mlp_ratio: Ratio = 4.0  # of the MLPs' channels to dim
    max_tokens: Tokens = 1024  # the most tokens, where positions are learned
    dropout: Share = 0.0  # of the embedded tokens, and of what each block adds
    norm_eps: Epsilon = 1e-5  # of the LayerNorms
    init_std: Deviation = 0.02  # standard deviation of the first weights


class Memory(NamedTuple):
    """What a layer keeps of the tokens so far: a state or a cache; and if weights were asked for, what it read."""

    kept: Kept
    inputs: Tensor | None = None  # [B, T, dim]
    mask: Tensor | None = None  # [B, T], with the inputs

    def map(self, function: Callable[[Tensor], Tensor]) -> "Memory":
        """With every tensor, [B, ...], replaced."""
        return Memory(self.kept.map(function), *(x if x is None else function(x) for x in self[1:]))

    def tensors(self) -> dict[str, Tensor]:
        read = {"inputs": self.inputs, "mask": self.mask}
        return self.kept.tensors() | {name: x for name, x in read.items() if x is not None}


class States(NamedTuple):
    """What a model keeps of the tokens so far."""

    layers: list[Memory]
    tokens: Tensor  # [B], how many there were of each sequence

    def select(self, rows: Tensor) -> "States":
        """Of these sequences of the batch, in this order."""
        layers = [layer.map(lambda x: x.index_select(0, rows.to(x.device))) for layer in self.layers]
        return States(layers, self.tokens.index_select(0, rows))

    @property
    def whole(self) -> bool:
        """Whether every token is still there, and could be taken back."""
        return all(isinstance(layer.kept, Cache) for layer in self.layers)

    def without_last(self, count: int) -> "States":
        """As they were `count` tokens ago."""
        if not self.whole:
            raise ValueError("a state has all tokens in one sum, none to be taken back; expected memory='cache'.")
        masked = self.layers[0].tensors()["log_gain"].isneginf().all(-1).all(-1)  # [B, T]
        before = masked.shape[1] - count
        layers = [layer.map(lambda x: x[:, :before]) for layer in self.layers]
        return States(layers, self.tokens - (~masked[:, before:]).sum(1))


class CausalModel(Backbone):
    """[B, T] token ids -> [B, T, dim], and `logits` of these for the tokens that come next."""

    no_weights = (*NO_WEIGHTS, "positions")

    def __init__(self, config: CausalConfig, block: type["Block"] | None = None):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.positions = learned_positions(config, config.max_tokens)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList((block or Block)(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        for embedding in filter(None, (self.embed, self.positions)):
            nn.init.normal_(embedding.weight, std=config.init_std)

    def forward(
        self,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        embeddings: Tensor | None = None,
        trace: list[Tensor] | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """All tokens at once.

        Args:
            ids: [B, T].
            mask: [B, T], True for real tokens; the others, wherever they are, change nothing.
            cu_seqlens: of sequences packed end to end, with B = 1.
            position_ids: [B, T] or [1, T], where positions are learned. By default the real tokens of each sequence
                are counted, from 0.
            embeddings: [B, T, dim], in place of ids.
            trace: a list, to which what enters each block is added.
            weights: a list, to which each block's weights [B, H, T, T] are added (LionAttention.weights).
        """
        return self._run_blocks(ids, embeddings, mask, cu_seqlens, position_ids, None, None, trace, weights)[0]

    def prefill(
        self,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        states: States | None = None,
        *,
        memory: str = "recurrence",
        position_ids: Tensor | None = None,
        embeddings: Tensor | None = None,
        trace: list[Tensor] | None = None,
        weights: list[Tensor] | None = None,
    ) -> tuple[Tensor, States]:
        """What `forward` returns, and the states after the last real token of each sequence.

        All tokens at once, too, behind those that `states` are of. (A softmax has no state but all keys and values,
        whatever the memory is to be; and behind a cache the others go one by one.) Weights are of all tokens so far,
        [B, H, T, before + T]: there are some if all calls before have asked for them, since then the states keep what
        the layers read.
        """
        one_of("memory", memory, MEMORIES)
        hidden, layers = self._run_blocks(ids, embeddings, mask, None, position_ids, states, memory, trace, weights)
        B, T = hidden.shape[:2]
        count = torch.full((B,), T, device=hidden.device) if mask is None else mask.sum(1)
        return hidden, States(layers, count if states is None else states.tokens + count)

    def step(self, ids: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """The next token of each sequence, [B] -> [B, dim], and the states to give with the ones after them."""
        hidden, states = self.prefill(ids[:, None], None, states)
        return hidden[:, 0], states

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., dim] -> [..., vocabulary], by the embedding of the tokens."""
        return F.linear(hidden, self.embed.weight)

    def _run_blocks(
        self,
        ids: Tensor | None,
        embeddings: Tensor | None,
        mask: Tensor | None,
        cu_seqlens: Tensor | None,
        position_ids: Tensor | None,
        states: States | None,
        memory: str | None,
        trace: list[Tensor] | None,
        weights: list[Tensor] | None,
    ) -> tuple[Tensor, list[Any]]:
        """[B, T, dim], and what each block keeps if there is a `memory`."""
        if (ids is None) == (embeddings is None):
            raise ValueError("expected either ids or embeddings.")
        x = self.embed(ids) if embeddings is None else embeddings
        check_mask(mask, x.shape[:2])
        counted = states is None and self.positions is not None and position_ids is None
        before = tokens_before(x, mask, self.piece) if counted else None if states is None else states.tokens
        x = self.drop(add_positions(x, self.positions, position_ids, mask, cu_seqlens, before=before))
        kept = []
        for i, block in enumerate(self.blocks):
            if trace is not None:
                trace.append(x)
            past = None if states is None else states.layers[i]
            x, after, found = self.run(block, x, mask, cu_seqlens, past, memory, weights is not None)
            kept.append(after)
            if weights is not None:
                weights.append(found)
        return self.norm(x), kept


class Block(nn.Module):
    def __init__(self, config: CausalConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.attn = make_layer(config, direction="forward")
        self.drop = nn.Dropout(config.dropout)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        hidden = round(config.dim * config.mlp_ratio)
        self.mlp = Mlp(config.dim, hidden, config.dropout, hidden_dropout=0.0, gelu="tanh")
        self._init_weights(config)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        past: Memory | None = None,
        memory: str | None = None,
        weighing: bool = False,
    ) -> tuple[Tensor, Memory | None, Tensor | None]:
        """The output; with `memory` ("recurrence" or "cache") what is kept of these tokens and the past; and with
        `weighing` the weights of attention, by which the output is computed then."""
        normed = self.norm1(x)
        after = weights = None
        if memory is not None:
            mixed, kept = prefill(self.attn, normed, mask, None if past is None else past.kept, memory)
            after = Memory(kept)
            if weighing:
                read = _read(normed, mask, past)
                after = Memory(kept, *read)
                mixed, weights = self.attn.forward_by_weights(*read, last=x.shape[1])
        elif weighing:
            mixed, weights = self.attn.forward_by_weights(normed, mask, cu_seqlens)
        else:
            mixed = self.attn(normed, mask, cu_seqlens)
        x = x + self.drop(mixed)
        return x + self.mlp(self.norm2(x)), after, weights

    def _init_weights(self, config: CausalConfig) -> None:
        # The more blocks add to the residual stream, the smaller is what each adds.
        added = config.init_std / math.sqrt(2 * config.depth)
        stds = {self.mlp.fc1: config.init_std, self.mlp.fc2: added, self.attn.out_proj: added}
        if not self.attn.variant.state_space_init:
            stds[self.attn.in_proj] = config.init_std
        for linear, std in stds.items():
            init_linear(linear, std)


def _read(x: Tensor, mask: Tensor | None, past: Memory | None) -> tuple[Tensor, Tensor]:
    """All that a layer has read so far, and which of it is real."""
    mask = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    if past is None:
        return x, mask
    if past.inputs is None or past.mask is None:
        raise ValueError(
            "weights are asked for, but the state has none of the tokens before; expected to be asked for them in all "
            "calls since the first: a state has all tokens in one sum."
        )
    return torch.cat([past.inputs, x], 1), torch.cat([past.mask, mask], 1)

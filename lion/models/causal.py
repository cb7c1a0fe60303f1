"""Causal language models: GPT-2's architecture with any variant in the place of attention, in one direction.

Text is generated token by token, from what a model keeps of the tokens before: of each layer a state that does not
grow ("recurrence"), or all keys, values and decays ("cache"). The outputs are those of all tokens at once.

    hidden, states = model.prefill(prompt)
    token = model.logits(hidden[:, -1]).argmax(-1)
    hidden, states = model.step(token, states)
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lion.models.vision import KEPT
from lion.nn.layers import LionAttention, Tokens
from lion.nn.variants import VARIANTS
from lion.nn.walks import token_before
from lion.ops.call import accumulation_dtype
from lion.ops.checks import one_of
from lion.ops.streaming import State

POSITIONS = ("none", "learned")
MEMORIES = ("recurrence", "cache")


@dataclass(frozen=True)
class CausalConfig:
    mixer: str = "lion_s"  # a key of lion.VARIANTS
    vocab_size: int = 50257
    dim: int = 768
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0
    positions: str = "none"  # decays tell places; softmax wants "learned"
    max_tokens: int = 1024  # that positions are learned of; without them there is no end
    features: str | None = None  # in place of the variant's own, as the next two
    decay: str | None = None
    norm: str | None = None
    dropout: float = 0.0  # of the tokens that enter, and of what each block adds
    norm_eps: float = 1e-5
    init_std: float = 0.02

    def __post_init__(self):
        one_of("mixer", self.mixer, VARIANTS)
        one_of("positions", self.positions, POSITIONS)


class States(NamedTuple):
    """What a model keeps of the tokens so far."""

    layers: list[State]
    tokens: Tensor  # [B], how many there were of each sequence

    def select(self, rows: Tensor) -> "States":
        """Of these sequences of the batch, in this order."""
        layers = [{name: x.index_select(0, rows) for name, x in layer.items()} for layer in self.layers]
        return States(layers, self.tokens.index_select(0, rows))

    @property
    def whole(self) -> bool:
        """Whether every token is still there, and could be taken back."""
        return all("k" in layer for layer in self.layers)

    def without_last(self, count: int) -> "States":
        """As they were `count` tokens ago."""
        if not self.whole:
            raise ValueError("a state has all tokens in one sum, none to be taken back; expected memory='cache'.")
        layers = [{name: x[:, : x.shape[1] - count] for name, x in layer.items()} for layer in self.layers]
        masked = self.layers[0]["log_gain"].isneginf().all(-1).all(-1)  # [B, T]
        return States(layers, self.tokens - (~masked[:, masked.shape[1] - count :]).sum(1))


class CausalModel(nn.Module):
    """[B, T] token ids -> [B, T, dim], and `logits` of these for the tokens that come next."""

    def __init__(self, config: CausalConfig):
        super().__init__()
        self.config = config
        # By these names transformers finds them, and puts in a function of its own.
        self.gradient_checkpointing = False
        self._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.max_tokens, config.dim) if learned else None
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        for embedding in filter(None, (self.embed, self.positions)):
            nn.init.normal_(embedding.weight, std=config.init_std)

    def forward(
        self,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """All tokens at once.

        Args:
            ids: [B, T].
            mask: [B, T], True for real tokens; the others, wherever they are, change nothing.
            embeddings: [B, T, dim], in place of ids.
            trace: a list, to which what enters each block is added.
        """
        x = self._enter(ids, embeddings, mask, None)
        for block in self.blocks:
            if trace is not None:
                trace.append(x)
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                x = self._gradient_checkpointing_func(block, x, mask)
            else:
                x = block(x, mask)
        return self.norm(x)

    def prefill(
        self,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        states: States | None = None,
        *,
        memory: str = "recurrence",
        embeddings: Tensor | None = None,
        trace: list[Tensor] | None = None,
    ) -> tuple[Tensor, States]:
        """What `forward` returns, and the states after the last real token of each sequence.

        All tokens at once, too; or one by one after those that `states` are of. (A softmax has no state but all keys
        and values, whatever the memory is to be.)
        """
        one_of("memory", memory, MEMORIES)
        x = self._enter(ids, embeddings, mask, states)
        layers = []
        for i, block in enumerate(self.blocks):
            if trace is not None:
                trace.append(x)
            before = None if states is None else states.layers[i]
            x, state = block.extend(x, mask, before, memory)  # type: ignore[operator]
            layers.append(state)
        count = torch.full((len(x),), x.shape[1], device=x.device) if mask is None else mask.sum(1)
        return self.norm(x), States(layers, count if states is None else states.tokens + count)

    def step(self, ids: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """The next token of each sequence, [B] -> [B, dim], and the states to give with the ones after them."""
        hidden, states = self.prefill(ids[:, None], None, states)
        return hidden[:, 0], states

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., dim] -> [..., vocabulary], by the embedding of the tokens."""
        return F.linear(hidden, self.embed.weight)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.gradient_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are no weights: positions, decays."""
        names = {name for name, _ in self.named_parameters()}
        return {name for name in names if any(part in {"positions", *KEPT} for part in name.split("."))}

    def _enter(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, states: States | None
    ) -> Tensor:
        if (ids is None) == (embeddings is None):
            raise ValueError("expected either ids or embeddings.")
        x = self.embed(ids) if embeddings is None else embeddings
        B, T = x.shape[:2]
        if mask is not None and (mask.shape != (B, T) or mask.dtype != torch.bool):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)} and dtype {str(mask.dtype).removeprefix('torch.')}; expected "
                f"{(B, T)} = [B, T] and bool: True marks a real token."
            )
        if self.positions is not None:
            x = x + self.positions(self._count(x, mask, states))
        return self.drop(x)

    def _count(self, x: Tensor, mask: Tensor | None, states: States | None) -> Tensor:
        """[B or 1, T]: for a real token, how many there are before it."""
        longest = x.shape[1]
        before = torch.arange(longest, device=x.device)[None] if mask is None else mask.cumsum(1) - mask.long()
        if states is not None:
            before = before + states.tokens[:, None]
        if mask is not None:
            before = torch.where(mask, before, 0)
        if mask is not None or states is not None:
            longest = int(before.max()) + 1
        if longest > self.config.max_tokens:
            raise ValueError(
                f"a sequence has {longest} tokens; expected at most max_tokens = {self.config.max_tokens}, which "
                "positions were learned for: with positions='none' there is no limit."
            )
        return before


class Block(nn.Module):
    def __init__(self, config: CausalConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.attn = LionAttention(
            config.dim,
            config.heads,
            config.mixer,
            features=config.features,
            decay=config.decay,
            norm=config.norm,
            direction="forward",
        )
        self.drop = nn.Dropout(config.dropout)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = Mlp(config.dim, round(config.dim * config.mlp_ratio), config.dropout)
        self._init_weights(config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x), mask))
        return x + self.mlp(self.norm2(x))

    def extend(self, x: Tensor, mask: Tensor | None, state: State | None, memory: str) -> tuple[Tensor, State]:
        mixed, state = extend(self.attn, self.norm1(x), mask, state, memory)
        x = x + self.drop(mixed)
        return x + self.mlp(self.norm2(x)), state

    def _init_weights(self, config: CausalConfig) -> None:
        # What is added to the stream of all blocks is smaller the more of them there are.
        added = config.init_std / math.sqrt(2 * config.depth)
        stds = {self.mlp.fc1: config.init_std, self.mlp.fc2: added, self.attn.out_proj: added}
        if not self.attn.variant.state_space_init:
            stds[self.attn.in_proj] = config.init_std
        for linear, std in stds.items():
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)


class Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int, dropout: float):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate="tanh")
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.act(self.fc1(x))))


def extend(
    layer: LionAttention, x: Tensor, mask: Tensor | None, state: State | None, memory: str
) -> tuple[Tensor, State]:
    """A causal layer's outputs of the tokens x [B, T, dim] that follow those of the state, and the state after them."""
    if layer.variant.norm == "unmasked":
        raise ValueError("norm is 'unmasked'; expected 'sum', 'max' or 'none': it needs the whole sequence.")
    if state is None:
        y = layer._tokens(layer.in_proj(x))
        out = layer._finish(layer._mix(y, mask, None, None), y.gate, y.values)
        past = _left_behind(y, _delta_values(layer, y, mask), mask)
        return out, past if layer.variant.softmax or memory == "cache" else _folded(past)
    outs = []
    for t in range(x.shape[1]):
        real = None if mask is None else mask[:, t]
        if "k" in state:
            out, state = _cached_step(layer, x[:, t], real, state)
        else:
            out, after = layer.step(x[:, t], state)
            state = after if real is None else {name: _where(real, after[name], state[name]) for name in after}
        outs.append(out if real is None else _where(real, out, torch.zeros_like(out)))
    return torch.stack(outs, 1), state


# What the tokens leave behind for those after them, [B, T, H or 1, .] each: "k" and "v"; "log_decay" of arriving at
# them, which those before them pay; and "log_gain". Masked ones leave nothing, and cost nothing.


def _left_behind(y: Tokens, v: Tensor, mask: Tensor | None) -> State:
    B, T = y.k.shape[:2]
    wide = accumulation_dtype(y.k)
    k = y.k if y.beta is None else y.k.to(wide) * y.beta[..., None]
    gain = k.new_zeros(B, T, 1, 1, dtype=wide) if y.log_gain is None else y.log_gain[..., None]
    cost = _costs(y)
    if mask is not None:
        real = mask[:, :, None, None]
        k, v, cost = (torch.where(real, x, 0) for x in (k, v, cost))
        gain = torch.where(real, gain, -torch.inf)
    return {"k": k, "v": v, "log_decay": cost, "log_gain": gain}


def _costs(y: Tokens) -> Tensor:
    """Log decays of arriving, [B, T, H or 1, D or 1]."""
    B, T = y.k.shape[:2]
    cost = y.log_decay
    if cost is None:
        return y.k.new_zeros(B, T, 1, 1, dtype=accumulation_dtype(y.k))
    return (cost[..., None] if cost.dim() in (1, 3) else cost).expand(B, T, -1, -1)


def _delta_values(layer: LionAttention, y: Tokens, mask: Tensor | None) -> Tensor:
    """The values that are written: with the delta rule, without what the state holds under the key.

    Each token asks for the next one, with that one's key; what it finds has only to arrive there.
    """
    if y.beta is None:
        return y.v
    B, T = y.k.shape[:2]
    path = torch.arange(T, device=y.k.device)
    following, _ = token_before(path, True, mask, None, B)
    before, exists = token_before(path, False, mask, None, B)
    found = layer._mix(y._replace(q=_take(y.k, following)), mask, None, None)
    found = torch.where(exists[..., None, None], _take(found, before), 0)
    return y.v - (found * _costs(y).exp()).to(y.v.dtype)


def _folded(past: State) -> State:
    """The state of `lion.attention_step` after these tokens."""
    k, v = past["k"], past["v"]
    wide = accumulation_dtype(k)
    exponent = past["log_gain"] + _later_costs(past["log_decay"])
    largest = exponent.amax(1)  # [B, H or 1, D or 1]
    k = k.to(wide) * (exponent - _finite(largest)[:, None]).exp()
    with torch.autocast(k.device.type, enabled=False):
        state = k.permute(0, 2, 3, 1) @ v.to(wide).transpose(1, 2)  # [B, H, D, V]
    scale = largest.expand(-1, k.shape[2], -1).contiguous()
    return {"state": state, "sum": k.sum(1), "log_scale": scale}


def _cached_step(layer: LionAttention, x: Tensor, real: Tensor | None, past: State) -> tuple[Tensor, State]:
    """`LionAttention.step` with all tokens in place of their sum, as far as they are real: x [B, dim], real [B]."""
    y = layer._tokens(layer.in_proj(x[:, None]))
    q, v = y.q[:, 0], y.v
    if y.beta is not None:
        found, _, top = _read(y.k[:, 0], past, _costs(y))
        v = v - (found * top.exp())[:, None].to(v.dtype)
    new = _left_behind(y, v, None if real is None else real[:, None])
    past = {name: torch.cat([past[name], new[name]], 1) for name in past}
    if layer.variant.softmax:
        k, v = past["k"].transpose(1, 2), past["v"].transpose(1, 2)
        sees = ~past["log_gain"].isneginf().permute(0, 2, 3, 1)  # [B, 1, 1, T]
        out = F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=sees)[:, :, 0]
        return layer._finish(out[:, None], y.gate, y.values)[:, 0], past
    seen = past
    if layer.variant.decay_between:  # nobody pays for arriving at the reader
        seen = past | {"log_decay": torch.cat([past["log_decay"][:, :-1], torch.zeros_like(new["log_decay"])], 1)}
    num, den, top = _read(q, seen)
    weight = layer._self_weight()
    if weight is not None:
        own = (q * (weight - 1) * new["k"][:, 0] * (new["log_gain"][:, 0] - top).exp()).sum(-1, keepdim=True)
        num, den = num + own * y.v[:, 0], den + own
    if layer.variant.norm == "sum":
        out = num / den
    elif layer.variant.norm == "max":
        out = num / torch.maximum(den.abs(), (-top).exp())
    else:
        out = num * top.exp()
    return layer._finish(out.to(y.v.dtype)[:, None], y.gate, y.values)[:, 0], past


def _read(q: Tensor, past: State, arriving: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """What q [B, H, D] reads: values [B, H, V] and weights [B, H, 1], times exp(-top), and top [B, H, 1]."""
    wide = accumulation_dtype(q)
    exponent = past["log_gain"] + _later_costs(past["log_decay"]) + arriving
    top = _finite(exponent.amax((1, 3), keepdim=True))  # [B, 1, H or 1, 1]
    k = past["k"].to(wide) * (exponent - top).exp()
    weights = (q[:, None].to(wide) * k).sum(-1, keepdim=True)  # [B, T, H, 1]
    return (weights * past["v"].to(wide)).sum(1), weights.sum(1), top[:, 0]


def _later_costs(cost: Tensor) -> Tensor:
    """Of the tokens after each, added up; never a difference of sums, in which decays would be lost."""
    after = torch.cat([cost[:, 1:], torch.zeros_like(cost[:, :1])], 1)
    return after.flip(1).cumsum(1).flip(1)


def _finite(exponent: Tensor) -> Tensor:
    """Where nothing is left, any scale will do."""
    return torch.where(exponent.isneginf(), 0, exponent)


def _take(x: Tensor, tokens: Tensor) -> Tensor:
    """Of x [B, T, H, .] these tokens, [B, T]."""
    return x.gather(1, tokens[..., None, None].expand(-1, -1, *x.shape[2:]))


def _where(real: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """By sequence: real [B], x and other [B, ...]"""
    return torch.where(real.reshape(-1, *[1] * (x.dim() - 1)), x, other)

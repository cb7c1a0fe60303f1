"""Causal layers behind tokens that they have read: a prompt, the next turn of a chat, the next token.

A layer keeps a `State`, whose size does not depend on the tokens ("recurrence"), or a `Cache` of all of them ("cache").
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.nn.arrival import token_before
from lion.nn.layers import LionAttention, Tokens
from lion.ops.call import accumulation_dtype
from lion.ops.division import divided
from lion.ops.state import State, finite, where


class Cache(NamedTuple):
    """Keys, values, decays and gates of all tokens so far. Masked tokens leave nothing, and cost nothing."""

    k: Tensor  # [B, T, H, D]
    v: Tensor  # [B, T, H, V]; with the delta rule what was written, without what the state held under the key
    log_decay: Tensor  # [B, T, H or 1, D or 1]: the cost of arriving at a token, which those before it pay
    log_gain: Tensor  # [B, T, H or 1, 1]; -inf for masked tokens

    def tensors(self) -> dict[str, Tensor]:
        return self._asdict()

    def map(self, function: Callable[[Tensor], Tensor]) -> "Cache":
        """The cache with every tensor, [B, ...], replaced."""
        return Cache(*(function(x) for x in self))

    def then(self, new: "Cache") -> "Cache":
        return Cache(*(torch.cat(pair, 1) for pair in zip(self, new, strict=True)))


Kept = State | Cache


def prefill(
    layer: LionAttention, x: Tensor, mask: Tensor | None, past: Kept | None, memory: str
) -> tuple[Tensor, Kept]:
    """A causal layer's outputs for the tokens x [B, T, dim], and what it keeps of them and of all before (`past`).

    `memory` is "recurrence" or "cache": what to keep if there is no past, which else decides.
    """
    if layer.variant.norm == "unmasked":
        raise ValueError("norm is 'unmasked'; expected 'sum', 'max' or 'none': it needs the whole sequence.")
    if isinstance(past, Cache) or (past is None and (layer.variant.softmax or memory == "cache")):
        return _with_cache(layer, x, mask, past)
    if x.shape[1] != 1 or (past is None and mask is not None):
        out, states = layer(x, mask, forward_state=past, return_states=True)
        return out, states.forward
    out, after = layer.step(x[:, 0], past)
    if mask is not None and past is not None:
        real = mask[:, 0]
        out, after = where(real, out, torch.zeros_like(out)), after.where(real, past)
    return out[:, None], after


def _with_cache(layer: LionAttention, x: Tensor, mask: Tensor | None, cache: Cache | None) -> tuple[Tensor, Cache]:
    y = layer.tokens(x)
    if cache is None:
        return layer.finish(layer.mix(y, mask), y.gate, y.values), _left_behind(y, _delta_values(layer, y, mask), mask)
    if layer.variant.softmax:
        out, cache = _softmax(y, mask, cache)
        return layer.finish(out, y.gate, y.values), cache
    outs = []
    for t in range(x.shape[1]):
        token = y.at(slice(t, t + 1))
        real = None if mask is None else mask[:, t : t + 1]
        out, cache = _cached_step(layer, token, real, cache)
        out = layer.finish(out[:, None], token.gate, token.values)
        outs.append(out if real is None else torch.where(real[..., None], out, 0))
    return torch.cat(outs, 1), cache


def _left_behind(y: Tokens, v: Tensor, mask: Tensor | None) -> Cache:
    B, T = y.k.shape[:2]
    wide = accumulation_dtype(y.k)
    k = y.k if y.beta is None else y.k.to(wide) * y.beta[..., None]
    gain = k.new_zeros(B, T, 1, 1, dtype=wide) if y.log_gain is None else y.log_gain[..., None]
    cost = _costs(y)
    if mask is not None:
        real = mask[:, :, None, None]
        k, v, cost = (torch.where(real, x, 0) for x in (k, v, cost))
        gain = torch.where(real, gain, -torch.inf)
    return Cache(k, v, cost, gain)


def _costs(y: Tokens) -> Tensor:
    """Log decays of arriving, [B, T, H or 1, D or 1]."""
    B, T = y.k.shape[:2]
    cost = y.log_decay
    if cost is None:
        return y.k.new_zeros(B, T, 1, 1, dtype=accumulation_dtype(y.k))
    assert isinstance(cost, Tensor)  # one direction has no pair
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
    found = layer.mix(y._replace(q=_take(y.k, following)), mask)
    found = torch.where(exists[..., None, None], _take(found, before), 0)
    return y.v - (found * _costs(y).exp()).to(y.v.dtype)


def _softmax(y: Tokens, mask: Tensor | None, cache: Cache) -> tuple[Tensor, Cache]:
    """All new tokens at once: each sees the cache, and those before it."""
    cache = cache.then(_left_behind(y, y.v, mask))
    q, k, v = (x.transpose(1, 2) for x in (y.q, cache.k, cache.v))
    sees = ~cache.log_gain.isneginf().permute(0, 2, 3, 1)  # [B, 1, 1, all tokens]
    if q.shape[2] > 1:
        total = torch.arange(k.shape[2], device=q.device)
        own = total[-q.shape[2] :, None]
        sees = (total < own) & sees | (total == own)  # a masked token sees itself, lest its row be empty
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=sees).transpose(1, 2)
    return out if mask is None else torch.where(mask[:, :, None, None], out, 0), cache


def _cached_step(layer: LionAttention, y: Tokens, real: Tensor | None, cache: Cache) -> tuple[Tensor, Cache]:
    """One token, with all tokens in place of their sum: y of one token -> [B, H, V]."""
    q, v = y.q[:, 0], y.v
    if y.beta is not None:
        found, _, top = _read(y.k[:, 0], cache, _costs(y))
        v = v - (found * top.exp())[:, None].to(v.dtype)
    new = _left_behind(y, v, real)
    cache = cache.then(new)
    seen = cache
    if layer.variant.decay_between:  # nobody pays for arriving at the reader
        free = torch.cat([cache.log_decay[:, :-1], torch.zeros_like(new.log_decay)], 1)
        seen = cache._replace(log_decay=free)
    num, den, top = _read(q, seen)
    weight = layer.self_weight()
    if weight is not None:
        own = (q * (weight - 1) * new.k[:, 0] * (new.log_gain[:, 0] - top).exp()).sum(-1, keepdim=True)
        num, den = num + own * y.v[:, 0], den + own
    return divided(num, den, layer.variant.norm, top).to(y.v.dtype), cache


def _read(q: Tensor, cache: Cache, arriving: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """A query's [B, H, D] sum of values [B, H, V] and of weights [B, H, 1], times exp(-top), and top [B, H, 1]."""
    wide = accumulation_dtype(q)
    exponent = cache.log_gain + _later_costs(cache.log_decay) + arriving
    top = finite(exponent.amax((1, 3), keepdim=True))  # [B, 1, H or 1, 1]
    factor = (exponent - top).exp()
    k, v = cache.k.to(wide), cache.v.to(wide)
    diagonal = factor.shape[-1] > 1
    if diagonal:
        k = k * factor
    with torch.autocast(k.device.type, enabled=False):
        weights = torch.einsum("bhd,bthd->bth", q.to(wide), k)
        if not diagonal:
            weights = weights * factor[..., 0]
        return torch.einsum("bth,bthv->bhv", weights, v), weights.sum(1)[..., None], top[:, 0]


def _later_costs(cost: Tensor) -> Tensor:
    """The sum of the costs of all later tokens; never a difference of sums, in which decays would be lost."""
    after = torch.cat([cost[:, 1:], torch.zeros_like(cost[:, :1])], 1)
    return after.flip(1).cumsum(1).flip(1)


def _take(x: Tensor, tokens: Tensor) -> Tensor:
    """Rows of x [B, T, H, .] by token, [B, T]."""
    return x.gather(1, tokens[..., None, None].expand(-1, -1, *x.shape[2:]))

"""What a causal layer keeps of the tokens that it has seen, for those that come: all of them, or a state."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.nn.layers import LionAttention, Tokens
from lion.nn.walks import token_before
from lion.ops.call import accumulation_dtype
from lion.ops.state import State as PieceState
from lion.ops.streaming import State

MANY = 16  # tokens that it pays to read at once


def extend(
    layer: LionAttention, x: Tensor, mask: Tensor | None, state: State | None, memory: str
) -> tuple[Tensor, State]:
    """A causal layer's outputs of the tokens x [B, T, dim] that follow those of the state, and the state after them."""
    if layer.variant.norm == "unmasked":
        raise ValueError("norm is 'unmasked'; expected 'sum', 'max' or 'none': it needs the whole sequence.")
    by_pieces = (layer.variant.delta or layer.variant.decay_between) and memory != "cache"
    if by_pieces and (state is None or ("k" not in state and x.shape[1] >= MANY)):
        return _extend_by_a_piece(layer, x, mask, state)
    if state is None:
        y = layer._tokens(layer.in_proj(x))
        out = layer._finish(layer._mix(y, mask, None, None), y.gate, y.values)
        past = _left_behind(y, _delta_values(layer, y, mask), mask)
        return out, past if layer.variant.softmax or memory == "cache" else _folded(past)
    if "k" not in state and x.shape[1] >= MANY:
        return _extend_at_once(layer, x, mask, state)
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


def _extend_by_a_piece(
    layer: LionAttention, x: Tensor, mask: Tensor | None, state: State | None
) -> tuple[Tensor, State]:
    """As a piece of a longer sequence. Neither the delta rule nor RWKV has gates here, so that scales are 0 (or of
    nothing), and what the way has cost is nobody's concern."""
    given = None
    if state is not None:
        scale, nothing = state["log_scale"].exp(), torch.zeros_like(state["log_scale"])
        given = PieceState(state["state"] * scale[..., None], state["sum"] * scale, nothing)
    out, states = layer(x, mask, forward_state=given, return_states=True)
    after = states.forward
    return out, {"state": after.sums, "sum": after.keys, "log_scale": torch.zeros_like(after.log_decay)}


def _extend_at_once(layer: LionAttention, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
    """Behind tokens that stand for the state: for every key channel one, that has all of it in its value."""
    y = layer._tokens(layer.in_proj(x))
    new = _left_behind(y, y.v, mask)
    before = _as_tokens(state, layer.variant.norm)
    joined = {name: _joined(before[name], new[name]) for name in new}
    D = before["k"].shape[1]
    cost = joined["log_decay"]
    together = y._replace(
        q=torch.cat([before["k"], y.q.to(before["k"].dtype)], 1),  # nobody looks at what the first ones read
        k=joined["k"],
        v=joined["v"],
        log_decay=None if y.log_decay is None else cost if cost.shape[-1] > 1 else cost[..., 0],
        log_gain=joined["log_gain"][..., 0],
    )
    there = None if mask is None else F.pad(mask, (D, 0), value=True)
    out = layer._mix(together, there, None, None)[:, D:].to(y.v.dtype)
    return layer._finish(out, y.gate, y.values), _after(state, _folded(new), new["log_decay"].sum(1))


def _as_tokens(state: State, norm: str) -> State:
    """[B, D, H, .]: channel d of the state as a token, whose key is d's share of the sum of keys."""
    total, values = state["sum"], state["state"]  # [B, H, D], [B, H, D, V]
    if norm == "none":  # where nobody asks for the sum, and it may be 0
        total = torch.ones_like(total)
    k = torch.diag_embed(total).transpose(1, 2)  # [B, D, H, D]
    v = (values / torch.where(total == 0, 1, total)[..., None]).transpose(1, 2)
    gain = state["log_scale"].expand_as(total).transpose(1, 2)[..., None]
    return {"k": k, "v": v, "log_decay": torch.zeros_like(gain), "log_gain": gain}


def _joined(before: Tensor, new: Tensor) -> Tensor:
    """Tokens after others, as wide as the wider."""
    sizes = [max(pair) for pair in zip(before.shape[2:], new.shape[2:], strict=True)]
    return torch.cat([x.to(before.dtype).expand(-1, -1, *sizes) for x in (before, new)], 1)


def _after(state: State, new: State, cost: Tensor) -> State:
    """The state that tokens leave, with what they leave by themselves, and what arriving at the last of them cost."""
    arrived = state["log_scale"] + cost
    here = torch.maximum(arrived, new["log_scale"])
    floor = _finite(here)
    kept, added = (arrived - floor).exp(), (new["log_scale"] - floor).exp()
    return {
        "state": state["state"] * kept[..., None] + new["state"] * added[..., None],
        "sum": state["sum"] * kept + new["sum"] * added,
        "log_scale": here,
    }


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

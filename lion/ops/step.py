"""One token of the forward walk, behind a state that does not grow: how a causal model generates.

Causal models decay on arrival: S_i = lambda_i S_(i-1) + g_i k_i v_i^T. (`lion.attention` charges for leaving a token; a
causal layer gives it the next token's decay.) Gates of any size stay in log space: no exponent that is taken is > 0.
"""

import torch
from torch import Tensor

from lion.ops.call import accumulation_dtype
from lion.ops.checks import Norm
from lion.ops.division import divided
from lion.ops.state import State, common_scale, finite


def attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    self_weight: Tensor | float | None = None,
    norm: Norm = "sum",
    decay_between: bool = False,
    state: State | None = None,
) -> tuple[Tensor, State]:
    """One token of `lion.attention(..., direction="forward")` with decays on arrival.

    Args:
        q, k: [B, H, D]; v: [B, H, V].
        log_decay: None, [B, H] or, per channel, [B, H, D].
        log_gain, beta: [B, H].
        self_weight: a number, [H] or [H, D].
        norm: "sum", "max" or "none".
        decay_between: RWKV's reading: a token's decay comes after it has read, so that a key decays only by the
            tokens between it and the reader.
        state: the state behind the token before; None before the first.

    Returns:
        [B, H, V] in the dtype of v, and the state behind this token.
    """
    if norm not in ("sum", "max", "none"):
        raise ValueError(f"norm is {norm!r}; expected 'sum', 'max' or 'none': the others need the whole sequence.")
    dtype, out_dtype = accumulation_dtype(q), v.dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    cost = q.new_zeros(*q.shape[:2], 1) if log_decay is None else log_decay.to(dtype)
    cost = cost if cost.dim() == 3 else cost[..., None]  # [B, H, 1 or D]
    if state is None:
        state = _nothing(q, v, cost, gated=log_gain is not None, delta=beta is not None)

    scale = top = None
    arriving = torch.zeros_like(cost) if decay_between else cost
    kept = None if log_decay is None or decay_between else cost.exp()  # of the state, when the token meets it
    if state.log_scale is not None or log_gain is not None:
        gain = torch.zeros_like(cost) if log_gain is None else log_gain.to(dtype)[..., None]
        arrived = arriving if state.log_scale is None else state.log_scale + arriving
        scale, kept, let_in = common_scale(arrived, gain)
        k, floor = k * let_in, finite(scale)
        top = floor.amax(-1, keepdim=True)  # channels that decay apart have scales of their own, the reader has one
        q = q * (floor - top).exp() if floor.shape[-1] > 1 else q
    met = state if kept is None else state.times(kept)
    decayed = met.times(cost.exp()) if decay_between and log_decay is not None else met

    key, written = k, v
    if beta is not None:
        key, written = k * beta.to(dtype)[..., None], v - _read(k, met.sums)
    after = State(
        torch.addcmul(decayed.sums, key[..., None], written[..., None, :]),
        decayed.keys if beta is not None else decayed.keys + key,
        state.log_decay + cost,
        scale,
        state.transition,
    )
    if self_weight is None and not decay_between:
        out, den = _read(q, after.sums), (q * after.keys).sum(-1, keepdim=True)
    else:
        own = (q * key * _per_head(self_weight, dtype)).sum(-1, keepdim=True)
        out, den = _read(q, met.sums) + own * v, (q * met.keys).sum(-1, keepdim=True) + own
        if beta is not None:  # what a token takes back, whatever weight it has for itself
            out = out + (q * key).sum(-1, keepdim=True) * (written - v)
    return divided(out, den, norm, top).to(out_dtype), after


def _nothing(q: Tensor, v: Tensor, cost: Tensor, *, gated: bool, delta: bool) -> State:
    """The state before the first token."""
    state = State(q.new_zeros(*q.shape, v.shape[-1]), torch.zeros_like(q), torch.zeros_like(cost))
    if delta:
        return state._replace(transition=state.unknown())
    return state._replace(log_scale=torch.full_like(cost, -torch.inf)) if gated else state


def _read(q: Tensor, sums: Tensor) -> Tensor:
    """[B, H, D] and [B, H, D, V] -> [B, H, V]"""
    return (q[..., None, :] @ sums).squeeze(-2)


def _per_head(weight: Tensor | float | None, dtype: torch.dtype) -> Tensor | float:
    if not isinstance(weight, Tensor):
        return 1.0 if weight is None else weight
    return weight.to(dtype)[:, None] if weight.dim() == 1 else weight.to(dtype)

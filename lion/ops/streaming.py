"""The forward direction, one token at a time, with a state that does not grow: how a causal model generates.

Causal models decay on arrival: S_i = lambda_i S_(i-1) + g_i k_i v_i^T. (`lion.attention` charges for leaving a
token; a causal layer gives it the next token's decay.) Gates of any size are kept in log space: the state is the
true one times exp(-log_scale), and every exponent that is taken is <= 0.
"""

import torch
from torch import Tensor

from lion.ops.call import accumulation_dtype
from lion.ops.checks import Norm

# Plain tensors by name, so that any format can save them.
State = dict[str, Tensor]


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
        state: what the call for the token before returned; None before the first.

    Returns:
        [B, H, V] in the dtype of v, and the state for the next token.
    """
    dtype = accumulation_dtype(q)
    out_dtype = v.dtype
    q, k, v = (x.to(dtype) for x in (q, k, v))
    B, H, D = q.shape
    decay = q.new_zeros(B, H) if log_decay is None else log_decay.to(dtype)
    decay = decay if decay.dim() == 3 else decay[..., None]  # [B, H, 1 or D]
    if state is None:
        state = {
            "state": q.new_zeros(B, H, D, v.shape[-1]),
            "sum": q.new_zeros(B, H, D),
            "log_scale": q.new_full((B, H, decay.shape[-1]), -torch.inf),
        }
    past, total, scale = state["state"], state["sum"], state["log_scale"]
    arriving = torch.zeros_like(decay) if decay_between else decay
    gain = q.new_zeros(B, H, 1) if log_gain is None else log_gain.to(dtype)[..., None]

    arrived = scale + arriving
    here = torch.maximum(arrived, gain)
    floor = torch.where(here.isneginf(), 0, here)
    kept, let_in = (arrived - floor).exp(), (gain - floor).exp()
    past, total = past * kept[..., None], total * kept
    if beta is not None:  # a delta rule has no gates: its scale is 0 throughout
        written = v - (k[..., None, :] @ past).squeeze(-2)
        key = k * beta.to(dtype)[..., None]
    else:
        written, key = v, k * let_in
    own = key * (1.0 if self_weight is None else _weights(self_weight, dtype))
    top = floor.amax(-1, keepdim=True)  # channels that decay apart have scales of their own
    reader = q * (floor - top).exp()
    read = (reader[..., None, :] @ (past + own[..., None] * v[..., None, :])).squeeze(-2)
    if beta is not None:  # what it takes back, whatever it weighs itself
        read = read + (reader * key).sum(-1, keepdim=True) * (written - v)
    den = (reader * (total + own)).sum(-1, keepdim=True)
    if norm == "sum":
        read = read / den
    elif norm == "max":
        read = read / torch.maximum(den.abs(), (-top).exp())
    elif norm == "none":
        read = read * top.exp()
    else:
        raise ValueError(f"norm is {norm!r}; expected 'sum', 'max' or 'none': the others need the whole sequence.")
    if decay_between:
        past, total = past * decay.exp()[..., None], total * decay.exp()
    past = past + key[..., None] * written[..., None, :]
    return read.to(out_dtype), {"state": past, "sum": total + key, "log_scale": here}


def _weights(x: Tensor | float, dtype: torch.dtype) -> Tensor | float:
    if not isinstance(x, Tensor):
        return x
    return x.to(dtype)[:, None] if x.dim() == 1 else x.to(dtype)

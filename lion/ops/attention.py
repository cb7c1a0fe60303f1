"""`lion.attention`: check, choose a kernel, run it, normalise."""

import contextlib
import functools
import logging
from typing import NamedTuple

import torch
from torch import Tensor

from lion.ops import gain
from lion.ops.checks import check
from lion.ops.kernels import DECAYS, KERNELS, Choice, choose
from lion.ops.options import Options

log = logging.getLogger("lion")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    self_weight: Tensor | float | None = None,
    norm: str = "sum",
    direction: str = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int | None = None,
) -> Tensor:
    """Bidirectional linear attention, in linear time, the same in every form.

    Token i gets sum_j P_ij v_j, normalised, with P_ij = q_i . (m_ij * exp(log_gain_j) k_j). m_ij is the
    decay on the way from token j to token i: leaving a token t costs log_decay_t, in both directions.

    Args:
        q, k: [B, T, H, D], after the feature map.
        v: [B, T, H, V].
        log_decay: logs of the decays, <= 0 (-inf is a reset). The rank says which kind:
            None, [H] fixed, [H, D] fixed per channel, [B, T, H] per token, [B, T, H, D] per token and channel.
        log_gain: [B, T, H], log of an input gate on the keys; any size, it is handled in log space.
        beta: the delta rule's step size; not available yet.
        self_weight: m_ii, by default 1. A number, or a tensor of one of the ranks of `log_decay`.
        norm: "sum" divides by the row sum of P, "max" by max(|row sum|, 1), "none" by nothing, and
            "unmasked" by the row sum without decays.
        direction: "both"; "forward" (each token sees itself and those before it) or "backward".
        mask: [B, T], True for real tokens. The others take no part, cost no decay, and output 0.
        cu_seqlens: [sequences + 1], for sequences packed end to end in one row of batch size 1.
        orders: [T] or [N, T], orders to walk the tokens in; the sums of all are added, then divided.
        form: "auto", "full", "rnn", "chunk" or "scan": how it is computed, never what.
        backend: "auto" or "torch".
        chunk_size: tokens per chunk of the forms "chunk" and "scan".

    Values (a positive decay, NaN, an order that is no permutation) are checked in eager mode; under
    torch.compile, torch.export and CUDA graph capture only shapes, dtypes and devices are.

    Returns:
        [B, T, H, V] in the dtype of v. Sums and exponents are kept in float32 at least.
    """
    q, k, v = _as_autocast(q, k, v)
    check(q, k, v, log_decay, log_gain, beta, self_weight, norm, direction, mask, cu_seqlens, orders, chunk_size)
    with _without_autocast(q.device.type):
        problem = _Problem.of(q, k, v, log_decay, log_gain, self_weight, mask)
        walk = _Walk(direction, cu_seqlens, chunk_size)
        choice = choose(form, backend, _decay_kind(problem, walk), q.shape[1], q.device, chunk_size)
        if not torch.compiler.is_compiling():
            _log_choice(choice.form, choice.backend, choice.decay)  # once
        problem = problem.without_masked_tokens()
        sums = _over_orders(problem, walk, choice, orders, with_den=norm in ("sum", "max"))
        if norm == "unmasked":
            undecayed = problem._replace(v=problem.v[..., :0], log_decay=None, self_weight=None)
            choice = choose(form, backend, _decay_kind(undecayed, walk), q.shape[1], q.device, chunk_size)
            plain = _over_orders(undecayed, walk, choice, orders, with_den=True)
            sums = Sums(sums.num, plain.den, sums.log_scale, plain.log_scale)
        return _normalise(sums, norm, mask).to(v.dtype)


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    self_weight: Tensor | float | None = None,
    norm: str = "sum",
    direction: str = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int | None = None,
) -> Choice:
    """Which kernel `lion.attention` would run for the same arguments, and why. Runs nothing."""
    q, k, v = _as_autocast(q, k, v)
    check(q, k, v, log_decay, log_gain, beta, self_weight, norm, direction, mask, cu_seqlens, orders, chunk_size)
    problem = _Problem.of(q, k, v, log_decay, log_gain, self_weight, mask)
    decay = _decay_kind(problem, _Walk(direction, cu_seqlens, chunk_size))
    return choose(form, backend, decay, q.shape[1], q.device, chunk_size)


@functools.cache
def _log_choice(form: str, backend: str, decay: str) -> None:
    log.info("%s on %s (%s)", form, backend, DECAYS[decay])


def _without_autocast(kind: str) -> contextlib.AbstractContextManager:
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else contextlib.nullcontext()


def _as_autocast(*tensors: Tensor) -> list[Tensor]:
    """Under autocast, the dtype that torch's own attention would take."""
    if not isinstance(tensors[0], Tensor):
        return list(tensors)  # to be refused
    kind = tensors[0].device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        castable = (torch.float32, torch.bfloat16, torch.float16)
        return [x.to(dtype) if isinstance(x, Tensor) and x.dtype in castable else x for x in tensors]
    return list(tensors)


def _accumulation(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _per_token(x: Tensor | None, q: Tensor) -> Tensor | None:
    """[H], [H, D], [B, T, H] or [B, T, H, D] -> [B or 1, T or 1, H, D or 1], to accumulate with"""
    if x is None:
        return None
    x = x.to(_accumulation(q))
    if x.dim() in (1, 3):
        x = x.unsqueeze(-1)
    return x[None, None] if x.dim() == 2 else x


class _Problem(NamedTuple):
    """What goes with the tokens, each [B or 1, T or 1, H, .]; and the mask, [B, T]."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    log_gain: Tensor | None
    self_weight: Tensor | float | None
    mask: Tensor | None

    @staticmethod
    def of(q, k, v, log_decay, log_gain, self_weight, mask) -> "_Problem":
        weight = self_weight if isinstance(self_weight, int | float) else _per_token(self_weight, q)
        return _Problem(q, k, v, _per_token(log_decay, q), _per_token(log_gain, q), weight, mask)

    def without_masked_tokens(self) -> "_Problem":
        """Zero what masked tokens hold (it may be anything, NaN too), and let them be left for free."""
        if self.mask is None:
            return self
        fills = {"q": 0, "k": 0, "v": 0, "log_decay": 0, "log_gain": -torch.inf, "self_weight": 0}
        given = {name: fill for name, fill in fills.items() if isinstance(getattr(self, name), Tensor)}
        real = self.mask[:, :, None, None]
        return self._replace(**{name: torch.where(real, getattr(self, name), fill) for name, fill in given.items()})

    def in_order(self, order: Tensor) -> "_Problem":
        """The tokens as an order walks them; what is the same for every token stays."""
        T = self.q.shape[1]
        per_token = {name: x for name, x in self._asdict().items() if isinstance(x, Tensor) and x.shape[1] == T}
        return self._replace(**{name: x.index_select(1, order) for name, x in per_token.items()})


class _Walk(NamedTuple):
    direction: str
    cu_seqlens: Tensor | None
    chunk_size: int | None


class Sums(NamedTuple):
    """num [B, T, H, V] and den [B, T, H, 1], each times exp(-its log scale) where there is one."""

    num: Tensor
    den: Tensor | None
    log_scale: Tensor | None
    den_log_scale: Tensor | None


def _decay_kind(problem: _Problem, walk: _Walk) -> str:
    if problem.log_decay is not None:
        return "diagonal" if problem.log_decay.shape[-1] > 1 else "scalar"
    # The borders of packed sequences are decays of -inf; a gate's scale may differ from token to token.
    packed = walk.cu_seqlens is not None
    return "scalar" if packed or (problem.log_gain is not None and walk.direction != "both") else "none"


def _over_orders(problem: _Problem, walk: _Walk, choice: Choice, orders: Tensor | None, with_den: bool) -> Sums:
    """Run once per order, bring the tokens back to their places, and add up."""
    if orders is None:
        return _run(problem, walk, choice, with_den)
    T = problem.q.shape[1]
    total: Sums | None = None
    for order in torch.atleast_2d(orders).long():
        back = torch.empty_like(order).scatter(0, order, torch.arange(T, device=order.device))
        there = _run(problem.in_order(order), walk, choice, with_den)
        here = Sums._make(x if x is None else x.index_select(1, back) for x in there)
        total = here if total is None else _add(total, here)
    assert total is not None  # there is at least one order
    return total


def _add(a: Sums, b: Sums) -> Sums:
    if a.log_scale is not None and b.log_scale is not None:
        top = torch.maximum(a.log_scale, b.log_scale)
        nowhere = top.isneginf()  # nothing reaches the token in either: all is 0 already
        a = _rescale(a, torch.where(nowhere, 0, a.log_scale - top))
        b = _rescale(b, torch.where(nowhere, 0, b.log_scale - top))
        a = a._replace(log_scale=top, den_log_scale=top)
    den = None if a.den is None or b.den is None else a.den + b.den
    return a._replace(num=a.num + b.num, den=den)


def _rescale(x: Sums, log_factor: Tensor) -> Sums:
    factor = log_factor.exp()
    return x._replace(num=x.num * factor, den=None if x.den is None else x.den * factor)


def _run(problem: _Problem, walk: _Walk, choice: Choice, with_den: bool) -> Sums:
    """num and den of one order: lower everything that kernels do not know to what they do."""
    q, k, v, log_decay, log_gain, self_weight, _ = problem
    decay = _decay_kind(problem, walk)
    cost = q.new_zeros(1, 1, 1, 1, dtype=_accumulation(q)) if log_decay is None else log_decay
    f, b = _cut_between_sequences(cost, walk.cu_seqlens, q.shape[1])
    log_scale = None
    if log_gain is not None:
        shared = decay == "none"  # then every token is reached by the largest gate of all
        scaled = gain.stabilise_together(log_gain, f, b) if shared else gain.stabilise(log_gain, f, b, walk.direction)
        query_factor, key_factor, f, b, log_scale = scaled
        k = k * key_factor
        q = q if query_factor is None else q * query_factor
    options = Options(walk.direction, include_self=self_weight is None, with_den=with_den, chunk_size=walk.chunk_size)
    num, den = KERNELS[choice.backend, choice.form, decay](q, k, v, f, b, options)
    if self_weight is not None:
        own = (q.to(f.dtype) * self_weight * k.to(f.dtype)).sum(-1, keepdim=True)
        num = num + own * v.to(f.dtype)
        den = None if den is None else den + own
    return Sums(num, den, log_scale, log_scale)


def _cut_between_sequences(cost: Tensor, cu_seqlens: Tensor | None, T: int) -> tuple[Tensor, Tensor]:
    """f and b: leaving costs the same both ways, but nothing leaves a packed sequence."""
    if cu_seqlens is None:
        return cost, cost
    border = torch.zeros(T + 1, dtype=torch.bool, device=cost.device)
    border = border.index_fill(0, cu_seqlens.long(), True)[None, :, None, None]
    return torch.where(border[:, 1:], -torch.inf, cost), torch.where(border[:, :-1], -torch.inf, cost)


def _normalise(sums: Sums, norm: str, mask: Tensor | None) -> Tensor:
    num, den, log_scale, den_log_scale = sums
    if mask is not None and log_scale is not None and den_log_scale is not None:
        real = mask[:, :, None, None]  # a masked token's 0 is 0 at any scale
        log_scale, den_log_scale = torch.where(real, log_scale, 0), torch.where(real, den_log_scale, 0)
    if norm == "none":
        return num if log_scale is None else num * log_scale.exp()
    assert den is not None
    if norm == "max":
        den = torch.maximum(den.abs(), torch.ones_like(den) if log_scale is None else (-log_scale).exp())
    if norm == "unmasked" and log_scale is not None and den_log_scale is not None:
        num = num * (log_scale - den_log_scale).exp()
    if mask is not None:  # a masked token has 0 / 0
        den = torch.where(mask[:, :, None, None], den, 1)
    # num is ours: without a graph to keep it for, divide in place.
    return num / den if num.requires_grad or den.requires_grad else num.div_(den)

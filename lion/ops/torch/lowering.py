"""Everything `lion.attention` can be asked, in terms of the little that a torch kernel knows.

A torch kernel knows q, k, v, the costs of leaving a token forwards and backwards, and whether a token sees
itself (options.py). Masks, packing, orders, gates, weights of the diagonal and the division are done here.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import can_read
from lion.ops.division import divided
from lion.ops.state import State, States, arriving_exponents, state_behind
from lion.ops.torch import delta, gates
from lion.ops.torch.options import Options

# (q, k, v, f, b, options) -> (num, den); those of the delta rule are delta.py's
TorchKernel = Callable[..., tuple[Tensor, Any]]
Kernel = Callable[[Call], Tensor | tuple[Tensor, States]]


def lowered(kernel: TorchKernel, undecayed: TorchKernel | None = None) -> Kernel:
    """A kernel for whole calls; `undecayed` is a faster one for when nothing decays."""

    def attention(call: Call) -> Tensor | tuple[Tensor, States]:
        sums = sums_of(call, kernel, undecayed)
        out = normalised(call, sums).to(call.v.dtype)
        return (out, states_behind(call, sums.behind)) if call.return_states else out

    return attention


def sums_of(call: Call, kernel: TorchKernel, undecayed: TorchKernel | None = None) -> "Sums":
    kernels = _Kernels(kernel, undecayed or kernel)
    problem = _Problem.of(call).without_masked_tokens()
    states = call.forward_state, call.reverse_state, call.return_states
    context = _Context(call.direction, call.cu_seqlens, call.chunk_size, *states)
    sums = _over_orders(problem, context, kernels, call.orders, with_den=call.norm in ("sum", "max"))
    if call.norm == "unmasked":
        undecayed_problem = problem._replace(
            v=problem.v[..., :0], log_decay=None, log_decay_reverse=None, self_weight=None
        )
        divisors = _over_orders(undecayed_problem, context, kernels, call.orders, with_den=True)
        sums = Sums(sums.num, divisors.den, sums.log_scale, divisors.log_scale)
    return sums


class _Kernels(NamedTuple):
    decayed: TorchKernel
    undecayed: TorchKernel


def costs_of(call: Call) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """What each walk pays for leaving a token, [B or 1, T or 1, H or 1, 1 or D], in a call without gates and orders.

    Where sequences are packed masked tokens are free already: made free later, they would join two sequences.
    """
    if call.log_decay is None and call.cu_seqlens is None:
        return None, None
    f, b = _Problem.of(call).costs()
    if call.cu_seqlens is not None and call.mask is not None:
        real = call.mask[:, :, None, None]
        f, b = torch.where(real, f, 0), torch.where(real, b, 0)
    return _cut_between_sequences(f, b, call.cu_seqlens, call.q.shape[1])


def crossed(call: Call, state: State | None, log_decay: Tensor | None) -> Tensor:
    """[B, H, 1 or D]: the cost of crossing all tokens, and those that a state has crossed before."""
    B, T, H, _ = call.q.shape
    cost = per_token(log_decay, call.q)
    if cost is None:
        cost = call.q.new_zeros(1, 1, 1, 1, dtype=accumulation_dtype(call.q))
    cost = cost.expand(B, T, H, -1)
    total = (cost if call.mask is None else torch.where(call.mask[..., None, None], cost, 0)).sum(1)
    return total if state is None else total + state.log_decay


def per_token(x: Tensor | None, q: Tensor) -> Tensor | None:
    """[H], [H, D], [B, T, H] or [B, T, H, D] -> [B or 1, T or 1, H, D or 1], to accumulate with"""
    if x is None:
        return None
    x = x.to(accumulation_dtype(q))
    if x.dim() in (1, 3):
        x = x.unsqueeze(-1)
    return x[None, None] if x.dim() == 2 else x


class _Problem(NamedTuple):
    """The tensors of a call, each [B or 1, T or 1, H, .]; and the mask, [B, T]."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    log_decay_reverse: Tensor | None  # None: as the forward walk's
    log_gain: Tensor | None
    beta: Tensor | None
    self_weight: Tensor | float | None
    mask: Tensor | None

    @staticmethod
    def of(call: Call) -> "_Problem":
        q, weight = call.q, call.self_weight
        weight = weight if isinstance(weight, int | float) else per_token(weight, q)
        given = call.log_decay, call.log_decay_reverse, call.log_gain, call.beta
        forward, reverse, log_gain, beta = (per_token(x, q) for x in given)
        return _Problem(q, call.k, call.v, forward, reverse, log_gain, beta, weight, call.mask)

    def costs(self) -> tuple[Tensor, Tensor]:
        """f and b, of leaving a token in either direction."""
        q, f = self.q, self.log_decay
        f = q.new_zeros(1, 1, 1, 1, dtype=accumulation_dtype(q)) if f is None else f
        if self.log_decay_reverse is None:
            return f, f
        f, b = torch.broadcast_tensors(f, self.log_decay_reverse)
        return f, b

    def without_masked_tokens(self) -> "_Problem":
        """Zero what masked tokens hold (it may be anything, NaN too), and let them be left for free."""
        if self.mask is None:
            return self
        given = [name for name, x in self._asdict().items() if isinstance(x, Tensor) and name != "mask"]
        real = self.mask[:, :, None, None]
        fills = {name: -torch.inf if name == "log_gain" else 0.0 for name in given}
        return self._replace(**{name: torch.where(real, getattr(self, name), fill) for name, fill in fills.items()})

    def spoiled_tokens(self) -> Tensor:
        """[B, T, H, 1]: those with a key or a value that is infinite or NaN, or with a decay or gate that is NaN."""
        found = [(x * 0).sum(-1, keepdim=True) != 0 for x in (self.k, self.v)]
        given = self.log_decay, self.log_decay_reverse, self.log_gain, self.beta
        found += [x.isnan().any(-1, keepdim=True) for x in given if x is not None]
        return functools.reduce(torch.logical_or, found)

    def without(self, tokens: Tensor) -> "_Problem":
        """Zero what these hold; their queries and weights of themselves are nobody else's concern."""
        names = ("k", "v", "log_decay", "log_decay_reverse", "log_gain", "beta")
        given = {name: getattr(self, name) for name in names}
        return self._replace(**{name: torch.where(tokens, 0, x) for name, x in given.items() if x is not None})

    def in_order(self, order: Tensor) -> "_Problem":
        """The tokens as an order walks them; what is the same for every token stays."""
        T = self.q.shape[1]
        per_token = {name: x for name, x in self._asdict().items() if isinstance(x, Tensor) and x.shape[1] == T}
        return self._replace(**{name: x.index_select(1, order) for name, x in per_token.items()})


class _Context(NamedTuple):
    """What is the same for all orders of a call, besides its tensors."""

    direction: str
    cu_seqlens: Tensor | None
    chunk_size: int | None
    forward_state: State | None
    reverse_state: State | None
    return_states: bool

    def arriving(self, f: Tensor, b: Tensor, T: int) -> list[tuple[State, Tensor]]:
        """The states that arrive from outside, and the exponents with which they meet each token."""
        given = ((self.forward_state, f, False), (self.reverse_state, b, True))
        return [(x, arriving_exponents(x, cost, T, reverse=way)) for x, cost, way in given if x is not None]


class Sums(NamedTuple):
    """num [B, T, H, V] and den [B, T, H, 1], each times exp(-its log scale) where there is one."""

    num: Tensor
    den: Tensor | None
    log_scale: Tensor | None
    den_log_scale: Tensor | None
    behind: dict[bool, Tensor] | None = None  # the states of the delta rule, which its kernels know


def _decays(problem: _Problem, context: _Context) -> bool:
    """Whether costs may differ from 0: between packed sequences, and where gates are of different scales, too."""
    packed = context.cu_seqlens is not None
    return problem.log_decay is not None or packed or (problem.log_gain is not None and context.direction != "both")


def _over_orders(
    problem: _Problem, context: _Context, kernels: _Kernels, orders: Tensor | None, with_den: bool
) -> Sums:
    """Run once per order, bring the tokens back to their places, and add up."""
    if orders is None:
        return _run(problem, context, kernels, with_den)
    T = problem.q.shape[1]
    total: Sums | None = None
    H = problem.q.shape[2]
    decays = problem.log_decay, problem.log_decay_reverse
    costs = [(None,) if x is None else x.split(H, 2) for x in decays]  # of each order, or of all
    for n, order in enumerate(torch.atleast_2d(orders).long()):
        forward, reverse = (x[n % len(x)] for x in costs)
        problem = problem._replace(log_decay=forward, log_decay_reverse=reverse)
        back = torch.zeros_like(order).scatter(0, order, torch.arange(T, device=order.device))
        there = _run(problem.in_order(order), context, kernels, with_den)
        here = Sums._make([*(x if x is None else x.index_select(1, back) for x in there[:4]), None])
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


def _run(problem: _Problem, context: _Context, kernels: _Kernels, with_den: bool) -> Sums:
    """num and den of one order: lower everything that kernels do not know to what they do."""
    reached = None
    if context.direction != "both" or context.cu_seqlens is not None:
        # Products let NaN through where a mask is 0: to the tokens before it, and to other packed sequences.
        spoiled = problem.spoiled_tokens()
        if not can_read(spoiled) or spoiled.is_cuda or spoiled.any():  # a GPU would have to be waited for
            problem, reached = problem.without(spoiled), _reached(spoiled, context)
    q, k, v, _, _, log_gain, beta, self_weight, _ = problem
    decays = _decays(problem, context)
    f, b = _cut_between_sequences(*problem.costs(), context.cu_seqlens, q.shape[1])
    log_scale = top = None
    arriving = context.arriving(f, b, q.shape[1])
    if log_gain is not None:
        outside = [exponent for _, exponent in arriving]
        if decays:
            scaled = gates.stabilise(log_gain, f, b, context.direction, outside)
        else:  # then every token is reached by the largest gate of all
            scaled = gates.stabilise_together(log_gain, f, b, outside)
        query_factor, key_factor, f, b, log_scale, top = scaled
        k = k * key_factor
        q = q if query_factor is None else q * query_factor
    options = Options(
        context.direction, include_self=self_weight is None, with_den=with_den, chunk_size=context.chunk_size
    )
    kernel = kernels.decayed if decays else kernels.undecayed
    behind = None
    if beta is None:
        num, den = kernel(q, k, v, f, b, options)
    else:
        entering = tuple(x and x.sums for x in (context.forward_state, context.reverse_state))
        num, behind = kernel(q, k, v, f, b, options, beta, entering, return_states=context.return_states)
        arriving, den = [], None
    if self_weight is not None:
        own = (q.to(f.dtype) * self_weight * k.to(f.dtype)).sum(-1, keepdim=True)
        own = own if beta is None else own * beta
        num = num + own * v.to(f.dtype)
        den = None if den is None else den + own
    for state, exponent in arriving:
        reader = q.to(f.dtype) * (exponent if top is None else exponent - top).exp()
        num = num + torch.einsum("bthd,bhdv->bthv", reader, state.sums)
        den = None if den is None else den + (reader * state.keys[:, None]).sum(-1, keepdim=True)
    if reached is not None:
        # A factor makes the gradients NaN, too. Where there is a divisor, a factor of that is enough.
        clean = (~reached).to(f.dtype)
        factor = clean / clean  # NaN or 1
        num, den = (num * factor, None) if den is None else (num, den * factor)
    return Sums(num, den, log_scale, log_scale, behind)


def states_behind(call: Call, of_delta: dict[bool, Tensor] | None = None) -> States:
    """The states behind a piece. `of_delta` are those of the delta rule, where a kernel has computed them."""
    problem = _Problem.of(call).without_masked_tokens()
    _, k, v, _, _, log_gain, beta, *_ = problem

    def behind(state: State | None, reverse: bool) -> State:
        cost = problem.costs()[reverse]
        if beta is None:
            return state_behind(k, v, cost, log_gain, state, reverse=reverse)
        known = None if of_delta is None else of_delta[reverse]
        return _delta_behind(k, v, beta, cost, state, reverse=reverse, known=known)

    forward = behind(call.forward_state, False) if call.direction != "reverse" else None
    reverse = behind(call.reverse_state, True) if call.direction != "forward" else None
    return States(forward, reverse)


def _delta_behind(
    k: Tensor, v: Tensor, beta: Tensor, cost: Tensor, state: State | None, *, reverse: bool, known: Tensor | None
) -> State:
    """The state of the delta rule. Unless it is known already it has its transition, to be joined with others."""
    B, T, H, D = k.shape
    total = cost.expand(B, T, H, 1).sum(1)
    keys, log_decay = k.new_zeros(B, H, D, dtype=cost.dtype), total if state is None else total + state.log_decay
    if known is not None:
        carried = State(known, keys, log_decay)
        return carried._replace(transition=carried.unknown())
    # The transition is what becomes of a state of ones, where nothing is written.
    unit = torch.eye(D, dtype=cost.dtype, device=k.device).expand(B, H, D, D)
    entering, before = (unit.new_zeros(B, H, D, v.shape[-1]), unit) if state is None else (state.sums, state.transition)
    wide = [entering] if before is None or not before.shape[-1] else [entering, before]
    values = [v, v.new_zeros(B, T, H, D)][: len(wide)]
    found = delta.state_behind(k, torch.cat(values, -1), beta, cost, torch.cat(wide, -1), reverse=reverse)
    sums, transition = found.split([v.shape[-1], found.shape[-1] - v.shape[-1]], -1)
    after = State(sums, keys, log_decay)
    return after._replace(transition=transition if len(wide) > 1 else after.unknown())


def _reached(tokens: Tensor, context: _Context) -> Tensor:
    """[B, T, H, 1]: the tokens that a walk brings something of these to."""
    T = tokens.shape[1]
    place = torch.arange(T, device=tokens.device)
    start, end = torch.zeros_like(place), torch.full_like(place, T)
    if context.cu_seqlens is not None:
        border = context.cu_seqlens.long()
        sequence = torch.searchsorted(border, place, right=True).clamp(1, border.shape[0] - 1)
        start, end = border[sequence - 1], border[sequence]
    first = place if context.direction == "reverse" else start
    last = place + 1 if context.direction == "forward" else end
    count = F.pad(tokens.long().cumsum(1), (0, 0, 0, 0, 1, 0))
    return count[:, last] > count[:, first]


def _cut_between_sequences(f: Tensor, b: Tensor, cu_seqlens: Tensor | None, T: int) -> tuple[Tensor, Tensor]:
    """f and b so that nothing leaves a packed sequence."""
    if cu_seqlens is None:
        return f, b
    border = torch.zeros(T + 1, dtype=torch.bool, device=f.device)
    border = border.index_fill(0, cu_seqlens.long(), True)[None, :, None, None]
    return torch.where(border[:, 1:], -torch.inf, f), torch.where(border[:, :-1], -torch.inf, b)


def normalised(call: Call, sums: Sums) -> Tensor:
    norm, mask = call.norm, call.mask
    num, den, log_scale, den_log_scale, _ = sums
    if mask is not None and log_scale is not None and den_log_scale is not None:
        real = mask[:, :, None, None]  # a masked token's 0 is 0 at any scale
        log_scale, den_log_scale = torch.where(real, log_scale, 0), torch.where(real, den_log_scale, 0)
    if norm == "unmasked":
        norm = "sum"
        if log_scale is not None and den_log_scale is not None:
            num = num * (log_scale - den_log_scale).exp()
    if mask is not None and den is not None:  # a masked token has 0 / 0
        den = torch.where(mask[:, :, None, None], den, 1)
    return divided(num, den, norm, log_scale)

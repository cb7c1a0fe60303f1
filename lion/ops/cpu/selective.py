"""Mamba's scan in C++: queries and keys that all heads share, and decays that are a step times a rate.

What `lion.attention` computes of keys [B, T, H, D] and decays [B, T, H, D], without either of them: gradients of
queries and keys are sums over the heads, and decays are multiplied out inside, where they are used.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import Direction, check
from lion.ops.cpu import door, scan
from lion.ops.cpu.library import (
    DIRECTIONS,
    DTYPES,
    LIBRARY,
    NONE,
    BadValues,
    Problem,
    address,
    below_autograd,
    direct,
    loaded,
)
from lion.ops.cpu.problem import Arguments, readable
from lion.ops.plain import differentiable_gradients, plain

SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor step, Tensor? step_reverse, Tensor rate, Tensor? rate_reverse, "
    "Tensor? mask, Tensor? cu_seqlens, Tensor? orders, int direction"
)

library = torch.library.Library("lion", "FRAGMENT")
library.define(f"cpu_selective({SCHEMA}) -> Tensor")
library.define(f"cpu_selective_backward(Tensor dout, {SCHEMA}) -> Tensor[]")
selective_op = torch.ops.lion.cpu_selective.default
selective_backward_op = torch.ops.lion.cpu_selective_backward.default


class Selective(NamedTuple):
    """The arguments of SCHEMA, in its order: of one dtype, float32 or float64."""

    q: Tensor  # [B, T, D], as k
    k: Tensor
    v: Tensor  # [B, T, H]
    step: Tensor  # [B, T, H]: leaving a token costs step * rate
    step_reverse: Tensor | None  # None: as step, and rate_reverse as rate
    rate: Tensor  # [H, D]
    rate_reverse: Tensor | None
    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None
    direction: int

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self[:-1]

    @property
    def differentiable(self) -> tuple[Any, ...]:
        return self[:7]

    def scan(self) -> Arguments:
        """The same call of the scan in which every head has queries and keys of its own."""
        q, k = (x.unsqueeze(2).expand(-1, -1, self.v.shape[2], -1) for x in (self.q, self.k))
        decay = -self.step.unsqueeze(-1) * self.rate
        reverse = None
        if self.step_reverse is not None and self.rate_reverse is not None:
            reverse = -self.step_reverse.unsqueeze(-1) * self.rate_reverse
        tokens = self.mask, self.cu_seqlens, self.orders
        return Arguments(
            q, k, self.v.unsqueeze(-1), decay, reverse, None, None, *tokens, NONE, self.direction, 0, False
        )


def selective_available(y: Tensor, form: str) -> bool:
    """Whether a projection [B, T, columns] can be handled, in eager mode, as `projected.available`."""
    eager = not (torch.compiler.is_compiling() or torch.jit.is_tracing() or plain())
    known = not isinstance(LIBRARY, str) and y.device.type == "cpu" and y.dtype in DTYPES
    return eager and known and form in ("auto", "scan")


def selective(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    steps: tuple[Tensor, Tensor | None],
    rates: tuple[Tensor, Tensor | None],
    *,
    direction: Direction,
    mask: Tensor | None,
    cu_seqlens: Tensor | None,
    orders: Tensor | None,
) -> Tensor:
    """[B, T, H], without a norm; q, k [B, T, D], v [B, T, H], steps [B, T, H] and rates [H, D], of both directions or
    (forward, reverse)."""
    heads = q.unsqueeze(2), k.unsqueeze(2), v.unsqueeze(2)
    check(Call(*heads, direction=direction, mask=mask, cu_seqlens=cu_seqlens, orders=orders))
    dtype = accumulation_dtype(v)
    tensors: Any = [None if y is None else y.to(dtype) for y in (q, k, v, *steps, *rates)]
    x = Selective._make([*tensors, mask, cu_seqlens, orders, DIRECTIONS[direction]])
    return (_with_autograd if direct(x.q) else selective_op)(*x).to(v.dtype)


# The operators


def forward(*arguments):
    x = Selective(*arguments)
    door.check_selective(x)
    p = _problem_of(x)
    out = x.v.new_empty(x.v.shape) if x.mask is None else x.v.new_zeros(x.v.shape)
    p.put(out=out)
    _run(p, backward=False)
    return out


def _run(p: Any, *, backward: bool) -> None:
    try:
        loaded().run(p, backward=backward)
    except BadValues:
        raise BadValues("step or rate is negative, infinite or NaN; expected finite numbers from 0 on.") from None


def _problem_of(x: Selective) -> Any:
    """The struct, all but its results. It keeps the tensors alive that it points into."""
    B, T, D = x.q.shape
    q, k, rate = readable(x.q), readable(x.k), readable(x.rate)
    rate_reverse = None if x.rate_reverse is None else readable(x.rate_reverse)
    p = Problem(
        B=B,
        T=T,
        H=x.v.shape[2],
        D=D,
        V=1,
        dtype=DTYPES[q.dtype],
        norm=NONE,
        direction=x.direction,
        threads=torch.get_num_threads(),
        log_decay_channels=1,
        self_weight_channels=1,
    )
    p.put(q=q.unsqueeze(2), k=k.unsqueeze(2), v=x.v, log_decay=x.step, log_decay_reverse=x.step_reverse)
    p.put(rate=rate, rate_reverse=rate_reverse)
    cu_seqlens = None if x.cu_seqlens is None else x.cu_seqlens.long().contiguous()
    orders = None if x.orders is None else torch.atleast_2d(x.orders).long().contiguous()
    if x.mask is not None:
        p.mask = address(x.mask), *x.mask.stride(), 0
    if cu_seqlens is not None:
        p.cu_seqlens, p.sequences = address(cu_seqlens), len(cu_seqlens) - 1
    if orders is not None:
        p.order, p.orders = address(orders), len(orders)
    p.alive = q, k, rate, rate_reverse, cu_seqlens, orders, x
    return p


def backward(dout: Tensor, *arguments) -> list[Tensor]:
    x = Selective(*arguments)
    door.check_selective(x)
    door.check_selective_gradients(x, dout)
    p = _problem_of(x)
    dq, dk, dv, dstep, dstep_reverse, drate, drate_reverse = grads = _gradients(x)
    p.put(dout=dout, dq=dq.unsqueeze(2), dk=dk.unsqueeze(2), dv=dv, dlog_decay=dstep, drate=drate)
    if x.step_reverse is not None:
        p.put(dlog_decay_reverse=dstep_reverse, drate_reverse=drate_reverse)
    _run(p, backward=True)
    return grads


def _gradients(x: Selective) -> list[Tensor]:
    """Room for those of all differentiable tensors; [0] for what is not given, 0 where no walk goes."""
    whole = x.mask is None and (x.direction == DIRECTIONS["both"] or x.step_reverse is None)
    make = x.q.new_empty if whole else x.q.new_zeros
    return [x.q.new_empty(0) if y is None else make(y.shape) for y in x.differentiable]


library.impl("cpu_selective", forward, "CPU")
library.impl("cpu_selective_backward", backward, "CPU")


@torch.library.register_fake("lion::cpu_selective", lib=library)
def _(*arguments):
    x = Selective(*arguments)
    door.check_selective(x)
    return x.v.new_empty(x.v.shape)


@torch.library.register_fake("lion::cpu_selective_backward", lib=library)
def _(dout, *arguments):
    x = Selective(*arguments)
    door.check_selective(x)
    door.check_selective_gradients(x, dout)
    return _gradients(x)


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        ctx.save_for_backward(*arguments[:-1])
        ctx.direction = arguments[-1]
        return below_autograd(selective_op, forward, *arguments)

    @staticmethod
    def backward(ctx, dout):
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = lambda *y: [plainly_computed(Selective._make([*y, ctx.direction]))]  # noqa: E731
            return *differentiable_gradients(function, tensors, [dout]), None
        grads = below_autograd(selective_backward_op, backward, dout, *tensors, ctx.direction)
        needed = ctx.needs_input_grad
        found = (grad if need else None for grad, need in zip(grads, needed, strict=False))
        return *found, *[None] * (len(needed) - len(grads))


def plainly_computed(x: Selective) -> Tensor:
    """What the operator computes, by torch's own."""
    (out, *_) = scan.plainly_computed(x.scan())
    assert out is not None
    return out.squeeze(-1)


def _with_autograd(*arguments):
    x = Selective(*arguments)
    door.check_tangents(x.tensors)
    if torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in x.differentiable):
        return _Selective.apply(*x)
    return below_autograd(selective_op, forward, *x)


library.impl("cpu_selective", _with_autograd, "Autograd")  # by hand, as scan.py's


@register_flop_formula(torch.ops.lion.cpu_selective)
def _(*shapes, out_shape=None):
    return _flops(Selective(*shapes))


@register_flop_formula(torch.ops.lion.cpu_selective_backward)
def _(dout, *shapes, out_shape=None):
    return _flops(Selective(*shapes), backward=True)


def _flops(x: Selective, *, backward: bool = False) -> int:
    """Of a call, by its arguments with shapes in place of tensors: as many as its scan's."""
    shape: Any = (*x.v, x.q[2])
    value: Any = (*x.v, 1)
    tokens = x.mask, x.cu_seqlens, x.orders
    one = Arguments(shape, shape, value, shape, None, None, None, *tokens, NONE, x.direction, 0, False)
    return flops.of_shapes(one, backward=backward)

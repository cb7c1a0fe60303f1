"""The delta rule compiled: the kernel `scan` of lion.ops.torch.delta, with the same arguments and results.

Masks, packing, orders and self weights are lowered as for every torch kernel; the chunks, their triangular systems, the
states and all gradients are C++ (src/delta.h).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.cpu import door
from lion.ops.cpu.library import DIRECTIONS, DTYPES, Delta, address, below_autograd, direct, loaded
from lion.ops.cpu.problem import readable
from lion.ops.plain import differentiable_gradients
from lion.ops.torch import delta as torch_delta
from lion.ops.torch.delta import Done, Entering
from lion.ops.torch.options import Options

SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor beta, Tensor? cost, Tensor? cost_reverse, Tensor? state, "
    "Tensor? state_reverse, int direction, bool include_self, bool return_states, int chunk_size"
)
TENSORS = 8  # so many of the first arguments

library = torch.library.Library("lion", "FRAGMENT")
library.define(f"cpu_delta({SCHEMA}) -> (Tensor, Tensor[])")
library.define(f"cpu_delta_backward(Tensor dout, Tensor?[] dstates, {SCHEMA}) -> Tensor[]")

delta_op = torch.ops.lion.cpu_delta.default
delta_backward_op = torch.ops.lion.cpu_delta_backward.default


class Arguments(NamedTuple):
    """Those of SCHEMA, in its order: of one dtype, float32 or float64."""

    q: Tensor  # [B, T, H, D], as k
    k: Tensor
    v: Tensor  # [B, T, H, V]
    beta: Tensor  # [B, T, H], as the log costs of leaving a token forwards and in reverse
    cost: Tensor | None
    cost_reverse: Tensor | None
    state: Tensor | None  # [B, H, D, V], what enters at the first token, and in reverse at the last
    state_reverse: Tensor | None
    direction: int
    include_self: bool
    return_states: bool
    chunk_size: int  # 0: the kernel's own

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self[:TENSORS]

    @property
    def ways(self) -> list[bool]:
        return [way for way in (False, True) if self.direction & (2 if way else 1)]

    @property
    def states(self) -> tuple[Tensor | None, Tensor | None]:
        return self.state, self.state_reverse

    def state_shape(self) -> tuple[int, ...]:
        B, _, H, D = self.q.shape
        return B, H, D, self.v.shape[3]


def scan(
    q,
    k,
    v,
    f,
    b,
    options: Options,
    beta: Tensor,
    entering: Entering = (None, None),
    *,
    decays: bool = True,
    return_states: bool = True,
) -> Done:
    """Chunks, each with a triangular system of its own, and a state carried from one to the next."""
    B, T, H, _ = q.shape
    q, k, v = (x.to(f.dtype) for x in (q, k, v))
    beta, cost, cost_reverse = (x.expand(B, T, H, 1).squeeze(-1) for x in (beta.to(f.dtype), f, b))
    state, state_reverse = (None if x is None else x.to(f.dtype) for x in entering)
    x = Arguments(
        q=q,
        k=k,
        v=v,
        beta=beta,
        cost=cost if decays else None,
        cost_reverse=cost_reverse if decays else None,
        state=state,
        state_reverse=state_reverse,
        direction=DIRECTIONS[options.direction],
        include_self=options.include_self,
        return_states=return_states,
        chunk_size=options.chunk_size or 0,
    )
    out, left = (_with_autograd if direct(x.q) else delta_op)(*x)
    return out, dict(zip(x.ways, left, strict=False))


undecayed_scan = functools.partial(scan, decays=False)


# The operators


def forward(*arguments):
    x = Arguments(*arguments)
    door.check_delta(x)
    p = _problem_of(x)
    out, left = _outputs(x)
    p.put(out=out)
    p.leaving = _by_way(x, left)
    loaded().run_delta(p, backward=False)
    return out, left


def _outputs(x: Arguments) -> tuple[Tensor, list[Tensor]]:
    out = x.v.new_empty(x.v.shape)
    return out, [x.v.new_empty(x.state_shape()) for _ in x.ways] if x.return_states else []


def _problem_of(x: Arguments) -> Any:
    """The struct, all but its results. It keeps the tensors alive that it points into."""
    B, T, H, D = x.q.shape
    q, k, v = readable(x.q), readable(x.k), readable(x.v)
    states = [None if state is None else state.contiguous() for state in x.states]
    p = Delta(
        B=B,
        T=T,
        H=H,
        D=D,
        V=v.shape[3],
        dtype=DTYPES[q.dtype],
        direction=x.direction,
        include_self=x.include_self,
        threads=torch.get_num_threads(),
        chunk=x.chunk_size,
    )
    p.put(q=q, k=k, v=v, beta=x.beta, cost=x.cost, cost_reverse=x.cost_reverse)
    p.entering = _pointers(states[0]), _pointers(states[1])
    p.alive = q, k, v, states, x
    return p


def _pointers(state: Tensor | None) -> tuple[int, int, int]:
    return address(state), 0, 0


def _by_way(x: Arguments, tensors: Sequence[Tensor | None]) -> tuple[tuple[int, int, int], ...]:
    each = iter(tensors)
    return tuple(_pointers(next(each, None)) if way in x.ways else (0, 0, 0) for way in (False, True))


def backward(dout: Tensor, dstates: Sequence[Tensor | None], *arguments) -> list[Tensor]:
    x = Arguments(*arguments)
    door.check_delta(x)
    door.check_delta_gradients(x, dout, dstates)
    p = _problem_of(x)
    dout = readable(dout)
    grads = _gradients(x)
    p.put(dout=dout, **dict(zip(("dq", "dk", "dv", "dbeta", "dcost", "dcost_reverse"), grads, strict=False)))
    dleft = [None if y is None else y.contiguous() for y in dstates]
    p.dleaving = _by_way(x, dleft)
    p.dentering = tuple(_pointers(y if y.numel() else None) for y in grads[6:])
    loaded().run_delta(p, backward=True)
    return grads


def _gradients(x: Arguments) -> list[Tensor]:
    """Room for those of all tensors, in their order; [0] for those that are not given, 0 where no walk goes."""
    nothing = x.q.new_empty(0)
    grads = [x.q.new_empty(y.shape) for y in x[:4]]
    for way, cost in enumerate((x.cost, x.cost_reverse)):
        grads.append(nothing if cost is None else _room(x, cost, way))
    for way, state in enumerate(x.states):
        grads.append(nothing if state is None else _room(x, state, way))
    return grads


def _room(x: Arguments, like: Tensor, way: int) -> Tensor:
    return x.q.new_empty(like.shape) if bool(way) in x.ways else x.q.new_zeros(like.shape)


library.impl("cpu_delta", forward, "CPU")
library.impl("cpu_delta_backward", backward, "CPU")


@torch.library.register_fake("lion::cpu_delta", lib=library)
def _(*arguments):
    x = Arguments(*arguments)
    door.check_delta(x)
    return _outputs(x)


@torch.library.register_fake("lion::cpu_delta_backward", lib=library)
def _(dout, dstates, *arguments):
    x = Arguments(*arguments)
    door.check_delta(x)
    door.check_delta_gradients(x, dout, dstates)
    return _gradients(x)


class _Delta(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, *tensors):
        out, left = below_autograd(delta_op, forward, *tensors, *options)
        ctx.save_for_backward(*tensors)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return out, *left

    @staticmethod
    def backward(ctx, dout, *dstates):
        tensors, options = ctx.saved_tensors, ctx.options
        dout = torch.zeros_like(tensors[2]) if dout is None else dout
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = lambda *y: plainly_computed(Arguments(*y, *options))  # noqa: E731
            return None, *differentiable_gradients(function, tensors, [dout, *dstates])
        grads = below_autograd(delta_backward_op, backward, dout, list(dstates), *tensors, *options)
        needed = ctx.needs_input_grad[1:]
        return None, *(grad if need else None for grad, need in zip(grads, needed, strict=True))


def plainly_computed(x: Arguments) -> list[Tensor]:
    """What the operator computes, by torch's own."""
    way = next(name for name, number in DIRECTIONS.items() if number == x.direction)
    options = Options(way, x.include_self, with_den=False, chunk_size=x.chunk_size or None)
    none = x.q.new_zeros(1, 1, 1, 1)
    f, b = (none if y is None else y.unsqueeze(-1) for y in (x.cost, x.cost_reverse))
    out, left = torch_delta.scan(x.q, x.k, x.v, f, b, options, x.beta.unsqueeze(-1), x.states)
    return [out, *(left[way] for way in x.ways)] if x.return_states else [out]


def _with_autograd(*arguments):
    x = Arguments(*arguments)
    door.check_tangents(x.tensors)
    if torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in x.tensors):
        out, *left = _Delta.apply(x[TENSORS:], *x.tensors)
        return out, left
    return below_autograd(delta_op, forward, *x)


library.impl("cpu_delta", _with_autograd, "Autograd")


@register_flop_formula(torch.ops.lion.cpu_delta)
def _(*shapes, out_shape=None):
    return _flops(Arguments(*shapes))


@register_flop_formula(torch.ops.lion.cpu_delta_backward)
def _(dout, dstates, *shapes, out_shape=None):
    return _flops(Arguments(*shapes), backward=True)


def _flops(x: Arguments, *, backward: bool = False) -> int:
    """Of a call, by its arguments with shapes in place of tensors."""
    B, T, H, D = map(int, x.q)
    one = flops.Attention(T, H, D, int(x.v[3]), "delta", ways=len(x.ways), chunk=x.chunk_size)
    return B * flops.compiled_delta_flops(one, backward=backward)

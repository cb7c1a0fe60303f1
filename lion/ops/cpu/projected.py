"""Attention straight from a layer's projection, whose first columns are q, k and v, side by side.

One operator from there, through the feature map, to the mixed values. On the way back nothing needs to be put together:
gradients are written where the projection's gradient has them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call
from lion.ops.checks import as_pair, check
from lion.ops.cpu import door, scan
from lion.ops.cpu.features import MAPS, PLAIN, features, features_backward
from lion.ops.cpu.library import DIRECTIONS, DTYPES, LIBRARY, NORMS, below_autograd, direct
from lion.ops.cpu.problem import Arguments, outputs
from lion.ops.plain import differentiable_gradients, plain
from lion.ops.torch.door import check_like

NO_MAP = -1
FEATURES = {**MAPS, "identity": NO_MAP}
WANTED = ("log_decay", "log_decay_reverse", "self_weight")  # whose gradients are wanted or not
TENSORS = 7  # so many of the first arguments, those that are differentiable before the others
SCHEMA = (
    "Tensor y, Tensor? log_decay, Tensor? log_decay_reverse, Tensor? self_weight, Tensor? mask, Tensor? cu_seqlens, "
    "Tensor? orders, int heads, int channels, int map, int norm, int direction, int chunk_size, bool wide"
)


class Projected(NamedTuple):
    """The arguments of SCHEMA, in its order."""

    y: Tensor
    log_decay: Tensor | None
    log_decay_reverse: Tensor | None
    self_weight: Tensor | None
    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None
    heads: int
    channels: int
    map: int
    norm: int
    direction: int
    chunk_size: int
    wide: bool

    def heads_of(self, y: Tensor) -> tuple[Tensor, ...]:
        """q, k and v [B, T, H, D] of a projection"""
        return y[..., : 3 * self.heads * self.channels].unflatten(-1, (3, self.heads, self.channels)).unbind(2)

    def queries_and_keys(self, y: Tensor) -> Tensor:
        """[B, T, 2 H, D]"""
        return y[..., : 2 * self.heads * self.channels].unflatten(-1, (2 * self.heads, self.channels))

    def features_shape(self) -> tuple[int, ...]:
        return (0,) if self.map == NO_MAP else (*self.y.shape[:2], 2, self.heads, self.channels)

    def scan(self, mapped: Tensor | None = None) -> Arguments:
        """The arguments of the scan, of the features of q and k if they are given."""
        q, k, v = self.heads_of(self.y)
        if mapped is not None and self.map != NO_MAP:
            q, k = mapped.unbind(2)
        tokens = self.mask, self.cu_seqlens, self.orders
        how = self.norm, self.direction, self.chunk_size
        decays = self.log_decay, self.log_decay_reverse
        return Arguments(q, k, v, *decays, None, self.self_weight, *tokens, *how, wide=self.wide)

    def to_differentiate(self) -> bool:
        given = self.y, self.log_decay, self.log_decay_reverse, self.self_weight
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)


library = torch.library.Library("lion", "FRAGMENT")
# Of the results, the denominators and the features of q and k are kept for the backward pass.
library.define(f"cpu_projected({SCHEMA}) -> (Tensor, Tensor, Tensor)")
library.define(
    f"cpu_projected_backward(Tensor dout, Tensor out, Tensor den, Tensor features, {SCHEMA}, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
projected_op = torch.ops.lion.cpu_projected.default
projected_backward_op = torch.ops.lion.cpu_projected_backward.default


def available(y: Tensor, form: str) -> bool:
    """Whether a projection [B, T, columns] can be handled, in eager mode: compilers have their own ways to fuse, and
    a traced graph cannot be saved with functions of Python's in it."""
    eager = not (torch.compiler.is_compiling() or torch.jit.is_tracing() or plain())
    return (
        form in ("auto", "scan")
        and eager
        and not isinstance(LIBRARY, str)
        and y.device.type == "cpu"
        and y.dtype in DTYPES
    )


def split(y: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """y for `attention`, and the columns that are left, from the `first` on."""
    return _Split.apply(y, first)


def attention(
    y: Tensor,
    heads: int,
    channels: int,
    features: str,
    log_decay: Tensor | tuple[Tensor, Tensor] | None,
    *,
    self_weight: Tensor | float | None,
    norm: str,
    direction: str,
    mask: Tensor | None,
    cu_seqlens: Tensor | None,
    orders: Tensor | None,
    chunk_size: int | None,
) -> Tensor:
    """`lion.attention` of the first columns of y [B, T, columns]: q, k and v of all heads, before the feature map."""
    forward, reverse = as_pair(log_decay)
    how = heads, channels, FEATURES[features], NORMS[norm], DIRECTIONS[direction], chunk_size or 0
    x = Projected(y, forward, reverse, None, mask, cu_seqlens, orders, *how, wide=False)
    q, k, v = x.heads_of(y.detach())
    call = Call(q, k, v, forward, reverse, self_weight=self_weight, norm=norm, direction=direction)
    check(call._replace(mask=mask, cu_seqlens=cu_seqlens, orders=orders, chunk_size=chunk_size))
    x = x._replace(self_weight=scan.weight_of(self_weight, q))
    run = _with_autograd if direct(y) else projected_op
    return run(*x._replace(wide=scan.keeps_wide(x, y)))[0].to(y.dtype)


def _forward(*arguments):
    x = Projected(*arguments)
    door.check_projection(x, FEATURES)
    mapped = x.y.new_empty(x.features_shape())
    if x.map != NO_MAP:
        features(x.queries_and_keys(x.y), x.map, mapped.flatten(2, 3))
    out, den, _ = scan.forward(*x.scan(mapped))
    return out, den, mapped


def _check_gradients(x: Projected, mapped: Tensor, wanted: Sequence[bool]) -> None:
    """What is this operator's own; the rest is the scan's."""
    door.check_projection(x, FEATURES)
    y, shape = x.y, x.features_shape()
    if mapped is None or mapped.shape != shape or mapped.dtype is not y.dtype or mapped.device != y.device:
        check_like("features", mapped, y, y.dtype, shape, "the forward pass's")
    door.check_wanted(wanted, WANTED, x)


def _backward(dout, out, den, mapped, *arguments):
    x, wanted = Projected(*arguments[:-1]), arguments[-1]
    _check_gradients(x, mapped, wanted)
    dy = x.y.new_empty(x.y.shape) if x.mask is None else x.y.new_zeros(x.y.shape)
    wanted = wanted[0], wanted[1], False, wanted[2]
    grads = scan.gradients(x.scan(mapped), dout, None, out, den, wanted=wanted, into=[*x.heads_of(dy)])
    if x.map != NO_MAP:
        both = x.queries_and_keys(dy)
        features_backward(both, x.queries_and_keys(x.y), x.map, out=both)
    dy[..., 3 * x.heads * x.channels :] = 0  # after the kernel, which asks for large pages where memory is fresh
    return dy, grads[3], grads[4], grads[6]


library.impl("cpu_projected", _forward, "CPU")
library.impl("cpu_projected_backward", _backward, "CPU")


@torch.library.register_fake("lion::cpu_projected", lib=library)
def _(*arguments):
    x = Projected(*arguments)
    door.check_projection(x, FEATURES)
    door.check_scan(x.scan())
    return *outputs(x.scan(), empty=x.y.new_empty), x.y.new_empty(x.features_shape())


@torch.library.register_fake("lion::cpu_projected_backward", lib=library)
def _(dout, out, den, mapped, *arguments):
    x, wanted = Projected(*arguments[:-1]), arguments[-1]
    _check_gradients(x, mapped, wanted)
    door.check_scan(x.scan())
    door.check_gradients(x.scan(), dout, None, out, den)
    given = zip((x.y, *(getattr(x, name) for name in WANTED)), (True, *wanted), strict=True)
    return tuple(y.new_empty(y.shape) if want and y is not None else x.y.new_empty(0) for y, want in given)


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        results = below_autograd(projected_op, _forward, *arguments)
        ctx.save_for_backward(*arguments[:TENSORS], *results)
        ctx.options = arguments[TENSORS:]
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    def backward(ctx, dout, *_):
        *tensors, out, den, mapped = ctx.saved_tensors
        nothing = [None] * len(ctx.options)
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = lambda *y: plainly_computed(Projected(*y, *ctx.options))  # noqa: E731
            return *differentiable_gradients(function, tensors, [dout]), *nothing
        wanted = list(ctx.needs_input_grad[1:4])
        grads = below_autograd(projected_backward_op, _backward, dout, out, den, mapped, *tensors, *ctx.options, wanted)
        found = [grad if want else None for grad, want in zip(grads, (True, *wanted), strict=True)]
        return *found, *[None] * (TENSORS - len(found)), *nothing


def plainly_computed(x: Projected) -> list[Tensor | None]:
    """What the operator computes, by torch's own."""
    y = x.scan()
    if x.map != NO_MAP:
        y = y._replace(q=PLAIN[x.map](y.q), k=PLAIN[x.map](y.k))
    return scan.plainly_computed(y)[:1]


def _with_autograd(*arguments):
    x = Projected(*arguments)
    door.check_tangents((x.y, x.log_decay, x.log_decay_reverse, x.self_weight))
    if x.to_differentiate():
        return _Projected.apply(*x)
    return below_autograd(projected_op, _forward, *x)


library.impl("cpu_projected", _with_autograd, "Autograd")  # by hand, as scan.py's


class _Split(torch.autograd.Function):
    """Where the gradients meet: that of y comes with room for the last columns', which are copied into it. (A slice's
    own backward pass makes a tensor of y's size for them, to be added.)"""

    @staticmethod
    def forward(ctx, y, first):
        ctx.first = first
        return y.view_as(y), y[..., first:]

    @staticmethod
    def backward(ctx, dy, dlast):
        if torch.is_grad_enabled():
            return torch.cat([dy[..., : ctx.first], dlast], -1), None
        dy[..., ctx.first :] += dlast
        return dy, None


def _flops(*shapes, **which) -> int:
    x: Any = Projected(*shapes)
    q: Any = (*x.y[:2], x.heads, x.channels)
    tokens, how = (x.mask, x.cu_seqlens, x.orders), (x.norm, x.direction, x.chunk_size, x.wide)
    return flops.of_shapes(Arguments(q, q, q, x.log_decay, None, None, x.self_weight, *tokens, *how), **which)


@register_flop_formula(torch.ops.lion.cpu_projected)
def _(*shapes, out_shape=None):
    return _flops(*shapes)


@register_flop_formula(torch.ops.lion.cpu_projected_backward)
def _(dout, out, den, mapped, *shapes, out_shape=None):
    return _flops(*shapes[:-1], backward=True)

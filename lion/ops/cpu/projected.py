"""Attention straight from a layer's projection, whose first columns are q, k and v, side by side.

One operator from there, through the feature map, to the mixed values. On the way back nothing needs to be put together:
gradients are written where the projection's gradient has them.
"""

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call
from lion.ops.checks import check
from lion.ops.cpu import door, scan
from lion.ops.cpu.features import MAPS, PLAIN, features, features_backward
from lion.ops.cpu.library import DIRECTIONS, DTYPES, LIBRARY, NORMS, below_autograd
from lion.ops.plain import differentiable_gradients, plain
from lion.ops.torch.door import check_like

NO_MAP = -1
FEATURES = {**MAPS, "identity": NO_MAP}
WANTED = ("log_decay", "self_weight")  # whose gradients are wanted or not

ARGUMENTS = (
    "Tensor y, Tensor? log_decay, Tensor? self_weight, Tensor? mask, Tensor? cu_seqlens, "
    "Tensor? orders, int heads, int channels, int map, int norm, int direction, int chunk_size, bool wide"
)
library = torch.library.Library("lion", "FRAGMENT")
# Of the results, the denominators and the features of q and k are kept for the backward pass.
library.define(f"cpu_projected({ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
library.define(
    f"cpu_projected_backward(Tensor dout, Tensor out, Tensor den, Tensor features, {ARGUMENTS}, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor)"
)
projected_op = torch.ops.lion.cpu_projected.default
projected_backward_op = torch.ops.lion.cpu_projected_backward.default


def available(y: Tensor, form: str, backend: str) -> bool:
    """Whether a projection [B, T, columns] can be handled, in eager mode: compilers have their own ways to fuse, and
    a traced graph cannot be saved with functions of Python's in it."""
    chosen = form in ("auto", "scan") and backend in ("auto", "cpu")
    eager = not (torch.compiler.is_compiling() or torch.jit.is_tracing() or plain())
    return chosen and eager and not isinstance(LIBRARY, str) and y.device.type == "cpu" and y.dtype in DTYPES


def split(y: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """y for `attention`, and the columns that are left, from the `first` on."""
    return _Split.apply(y, first)


def attention(
    y: Tensor,
    heads: int,
    channels: int,
    features: str,
    log_decay: Tensor | None,
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
    q, k, v = _heads(y.detach(), heads, channels)
    weights = None, None, None, self_weight
    call = Call(q, k, v, log_decay, *weights, norm, direction, mask, cu_seqlens, orders, chunk_size)
    check(call)
    others = log_decay, scan.weight_of(call), mask, cu_seqlens, orders
    how = heads, channels, FEATURES[features], NORMS[norm], DIRECTIONS[direction], chunk_size or 0
    wide = scan.keeps_wide(q, NORMS[norm], _to_differentiate(y, *others))
    return projected_op(y, *others, *how, wide)[0].to(y.dtype)


def _to_differentiate(*arguments) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in arguments[:3])


def _heads(y: Tensor, heads: int, channels: int) -> tuple[Tensor, ...]:
    """q, k and v [B, T, H, D]"""
    return y[..., : 3 * heads * channels].unflatten(-1, (3, heads, channels)).unbind(2)


def _queries_and_keys(y: Tensor, heads: int, channels: int) -> Tensor:
    """[B, T, 2 H, D]"""
    return y[..., : 2 * heads * channels].unflatten(-1, (2 * heads, channels))


def _forward(y, log_decay, self_weight, mask, cu_seqlens, orders, heads, channels, map, *how):
    door.check_projection(y, heads, channels, map, FEATURES, how[0])
    q, k, v = _heads(y, heads, channels)
    mapped = _features_like(y, heads, channels, map)
    if map != NO_MAP:
        features(_queries_and_keys(y, heads, channels), map, mapped.flatten(2, 3))
        q, k = mapped.unbind(2)
    return *scan.forward(q, k, v, log_decay, None, self_weight, mask, cu_seqlens, orders, *how), mapped


def _features_like(y, heads, channels, map):
    return y.new_empty(_features_shape(y, heads, channels, map))


def _features_shape(y, heads, channels, map) -> tuple[int, ...]:
    return (0,) if map == NO_MAP else (*y.shape[:2], 2, heads, channels)


def _check_gradients(mapped, y, log_decay, self_weight, heads, channels, map, norm, wanted) -> None:
    """What is this operator's own; the rest is the scan's."""
    door.check_projection(y, heads, channels, map, FEATURES, norm)
    shape = _features_shape(y, heads, channels, map)
    if mapped is None or mapped.shape != shape or mapped.dtype is not y.dtype or mapped.device != y.device:
        check_like("features", mapped, y, y.dtype, shape, "the forward pass's")
    door.check_wanted(wanted, WANTED, (log_decay, self_weight))


def _backward(
    dout, out, den, mapped, y, log_decay, self_weight, mask, cu_seqlens, orders, heads, channels, map, norm, direction,
    chunk_size, wide, wanted,
):  # fmt: skip
    _check_gradients(mapped, y, log_decay, self_weight, heads, channels, map, norm, wanted)
    dy = y.new_empty(y.shape) if mask is None else y.new_zeros(y.shape)
    q, k, v = _heads(y, heads, channels)
    dq, dk, dv = _heads(dy, heads, channels)
    q_mapped, k_mapped = (q, k) if map == NO_MAP else mapped.unbind(2)
    others = log_decay, None, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide
    *_, dlog_decay, _, dweight = scan.gradients(
        dout,
        None,
        out,
        den,
        q_mapped,
        k_mapped,
        v,
        *others,
        wanted=(wanted[0], False, wanted[1]),
        into=(dq, dk, dv),
    )
    if map != NO_MAP:
        both = _queries_and_keys(dy, heads, channels)
        features_backward(both, _queries_and_keys(y, heads, channels), map, out=both)
    dy[..., 3 * heads * channels :] = 0  # after the kernel, which asks for large pages where memory is fresh
    return dy, dlog_decay, dweight


library.impl("cpu_projected", _forward, "CPU")
library.impl("cpu_projected_backward", _backward, "CPU")


@torch.library.register_fake("lion::cpu_projected", lib=library)
def _(y, log_decay, self_weight, mask, cu_seqlens, orders, heads, channels, map, norm, direction, chunk_size, wide):
    door.check_projection(y, heads, channels, map, FEATURES, norm)
    q, k, v = _heads(y, heads, channels)
    door.check_scan(q, k, v, log_decay, None, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size)
    return *scan.outputs(q, v, None, norm, wide, empty=q.new_empty), _features_like(y, heads, channels, map)


@torch.library.register_fake("lion::cpu_projected_backward", lib=library)
def _(
    dout, out, den, mapped, y, log_decay, self_weight, mask, cu_seqlens, orders, heads, channels, map, norm, direction,
    chunk_size, wide, wanted,
):  # fmt: skip
    _check_gradients(mapped, y, log_decay, self_weight, heads, channels, map, norm, wanted)
    q, k, v = _heads(y, heads, channels)
    door.check_scan(q, k, v, log_decay, None, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size)
    door.check_gradients(dout, None, out, den, q, v, None, norm, wide)
    given = zip((log_decay, self_weight), wanted, strict=True)
    return y.new_empty(y.shape), *(x.new_empty(x.shape) if want else y.new_empty(0) for x, want in given)


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            results = projected_op(*arguments)
        ctx.save_for_backward(*arguments[:6], *results)
        ctx.options = arguments[6:]
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    def backward(ctx, dout, *_):
        *tensors, out, den, mapped = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[1:3])
        if torch.is_grad_enabled():  # a second derivative may be asked for
            fixed = tensors[3:], ctx.options
            grads = differentiable_gradients(lambda y, a, w: _plainly_computed(y, a, w, *fixed), tensors[:3], [dout])
            return *grads, *[None] * 10
        dy, *grads = below_autograd(projected_backward_op, dout, out, den, mapped, *tensors, *ctx.options, wanted)
        others = (grad if want else None for grad, want in zip(grads, wanted, strict=True))
        return dy, *others, *[None] * 10


def _plainly_computed(y, log_decay, self_weight, tokens, options) -> list[Tensor]:
    heads, channels, map, *how = options
    q, k, v = _heads(y, heads, channels)
    if map != NO_MAP:
        q, k = PLAIN[map](q), PLAIN[map](k)
    return [scan.plainly_computed(q, k, v, log_decay, None, self_weight, *tokens, *how)[0]]


def _with_autograd(*arguments):
    door.check_tangents(arguments[:3])
    if _to_differentiate(*arguments):
        return _Projected.apply(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return projected_op(*arguments)


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


def _flops(
    y, log_decay, weight, mask, cu_seqlens, orders, heads, channels, map, norm, direction, chunk, wide, **which
) -> int:
    q = (*y[:2], heads, channels)
    tokens = mask, cu_seqlens, orders
    return flops.of_shapes(q, q, q, log_decay, None, weight, *tokens, norm, direction, chunk, **which)


@register_flop_formula(torch.ops.lion.cpu_projected)
def _(*shapes, out_shape=None):
    return _flops(*shapes)


@register_flop_formula(torch.ops.lion.cpu_projected_backward)
def _(dout, out, den, mapped, *shapes, out_shape=None):
    return _flops(*shapes[:-1], backward=True)

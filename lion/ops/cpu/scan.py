"""The `scan` form in C++: one operator for all that `lion.attention` can be asked, except the delta rule.

q, k and v are read where they are, whatever their strides; masks, packing, orders and gates are handled inside,
and so is the division, so that nothing of the sequence's length is made but the output and its denominators.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import check_values
from lion.ops.cpu import door
from lion.ops.cpu.library import (
    DIRECTIONS,
    DTYPES,
    MAX,
    NONE,
    NORMS,
    NOT_GIVEN,
    RAW,
    SUM,
    BadValues,
    address,
    below_autograd,
    loaded,
    rows,
)
from lion.ops.plain import differentiable_gradients
from lion.ops.torch import scan as torch_scan
from lion.ops.torch.lowering import normalised, sums_of

# norm and direction are numbers, and chunk_size 0 is None: strings would double the cost of dispatching a call.
ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? log_decay, Tensor? log_gain, Tensor? self_weight, "
    "Tensor? mask, Tensor? cu_seqlens, Tensor? orders, int norm, int direction, int chunk_size, bool wide"
)
library = torch.library.Library("lion", "FRAGMENT")
library.define(f"cpu_scan({ARGUMENTS}) -> (Tensor, Tensor)")
library.define(
    f"cpu_scan_backward(Tensor dout, Tensor? dden, Tensor out, Tensor den, {ARGUMENTS}, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
NO_GRADIENTS = NOT_GIVEN * 8
WANTED = ("log_decay", "log_gain", "self_weight")  # whose gradients are wanted or not

scan_op = torch.ops.lion.cpu_scan.default
scan_backward_op = torch.ops.lion.cpu_scan_backward.default


def attention(call: Call) -> Tensor:
    """The kernel of the table."""
    tensors = call.q, call.k, call.v, call.log_decay, call.log_gain, weight_of(call)
    tokens = call.mask, call.cu_seqlens, call.orders
    how = DIRECTIONS[call.direction], call.chunk_size or 0
    if call.norm != "unmasked":
        wide = keeps_wide(call.q, NORMS[call.norm], _to_differentiate(tensors))
        return _scan(*tensors, *tokens, NORMS[call.norm], *how, wide)[0].to(call.q.dtype)
    # Divided by what the sum would be without decays: two calls, each at a scale of its own.
    num, scales = _scan(*tensors, *tokens, RAW, *how, True)
    _, den = _scan(call.q, call.k, call.v[..., :0], None, call.log_gain, None, *tokens, RAW, *how, True)
    if call.log_gain is not None:
        den, scale = den
        num = num * (scales[1] - scale).detach().exp().unsqueeze(-1)
    den = den.unsqueeze(-1)
    if call.mask is None:
        return (num / den).to(call.q.dtype)
    real = call.mask[:, :, None, None]
    return torch.where(real, num / torch.where(real, den, 1), 0).to(call.q.dtype)


def keeps_wide(q: Tensor, norm: int, to_differentiate: bool) -> bool:
    """Whether the output of half precision is wanted as it was before rounding: a divisor's gradient is the product of
    the output's with the output, from which most of it may cancel."""
    return q.dtype == torch.bfloat16 and norm in (SUM, MAX) and to_differentiate


def weight_of(call: Call) -> Tensor | None:
    weight = call.self_weight
    if isinstance(weight, int | float):
        return call.q.new_full((call.q.shape[2],), weight, dtype=accumulation_dtype(call.q))
    return weight


def _scan(*arguments):
    return scan_op(*arguments) if _to_differentiate(arguments) else below_autograd(scan_op, *arguments)


def _to_differentiate(arguments) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in arguments[:6])


def _readable(x: Tensor) -> Tensor:
    """Any strides will do, but a token's channels lie together."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _numbers(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Decays or weights as the kernel reads them, and of how many channels: 1 or D."""
    x = x if x.dtype is dtype else x.to(dtype)
    return (_readable(x), x.shape[-1]) if x.dim() in (2, 4) else (x, 1)


def _diagonal(x: Tensor | None) -> bool:
    return x is not None and x.dim() in (2, 4)


def _per_order(log_decay: Tensor | None, q: Tensor) -> bool:
    """Whether every order has decays of its own: H heads of the first, H of the second, and so on."""
    return log_decay is not None and log_decay.shape[-2 if _diagonal(log_decay) else -1] != q.shape[2]


def _fields(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide):
    """The first fields of `Problem`, and the tensors they point into, to be kept alive."""
    arguments = q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size
    if not door.usual(*arguments):
        door.check_scan(*arguments)
    sums, per_order = accumulation_dtype(q), orders is not None and _per_order(log_decay, q)
    decay_channels = weight_channels = 1
    if log_decay is not None:
        log_decay, decay_channels = _numbers(log_decay, sums)
    if log_gain is not None:
        log_gain, _ = _numbers(log_gain, sums)
    if self_weight is not None:
        self_weight, weight_channels = _numbers(self_weight, sums)
    if orders is not None:
        orders = torch.atleast_2d(orders).long().contiguous()
    if cu_seqlens is not None:
        cu_seqlens = cu_seqlens.long().contiguous()
    q, k, v = _readable(q), _readable(k), _readable(v)
    fields = [
        *q.shape,
        v.shape[3],
        DTYPES[q.dtype],
        norm,
        direction,
        torch.get_num_threads(),
        wide,
        chunk_size,
        0 if orders is None else len(orders),
        0 if cu_seqlens is None else len(cu_seqlens) - 1,
        *rows(q),
        *rows(k),
        *rows(v),
        *rows(log_decay),
        *rows(log_gain),
        *rows(self_weight),
        decay_channels,
        weight_channels,
        per_order,
        *(NOT_GIVEN if mask is None else (address(mask), *mask.stride(), 0)),
        address(cu_seqlens),
        address(orders),
    ]
    return fields, (q, k, v, log_decay, log_gain, self_weight, orders, cu_seqlens)


def outputs(q, v, log_gain, norm, wide, *, empty):
    """out and den."""
    sums, size = accumulation_dtype(q), door.den_shape(q, log_gain, norm)
    if q.dtype is sums:
        return empty(v.shape), empty(size)
    return empty(v.shape, dtype=sums if wide else q.dtype), empty(size, dtype=sums)


def _den_rows(den):
    """Of den and of its log scale."""
    if den.dim() == 4:
        return *rows(den[0]), *rows(den[1])
    return *(rows(den) if den.dim() == 3 else NOT_GIVEN), *NOT_GIVEN


def forward(*arguments):
    fields, tensors, results = _prepare(*arguments)
    try:
        loaded().run(fields, backward=False)
    except BadValues:
        q, k, v, log_decay, log_gain, _, mask, *_ = arguments
        check_values(Call(q, k, v, log_decay, log_gain=log_gain, mask=mask))  # says which and where
        raise
    del tensors
    return results


def _prepare(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide):
    """The fields of a forward call, the tensors they point into, and the results."""
    fields, tensors = _fields(
        q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide
    )
    # The kernel writes the rows of real tokens.
    out, den = outputs(q, v, log_gain, norm, wide, empty=q.new_empty if mask is None else q.new_zeros)
    fields += [*rows(out), *_den_rows(den), *NO_GRADIENTS]
    return fields, tensors, (out, den)


def prepared(*arguments):
    """A forward call of which only the work itself is left to be done. For measuring."""
    fields, *alive = _prepare(*arguments)

    def run(_alive=alive) -> None:
        loaded().run(fields, backward=False)

    return run


def _backward(
    dout, dden, out, den, q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction,
    chunk_size, wide, wanted,
):  # fmt: skip
    door.check_wanted(wanted, WANTED, (log_decay, log_gain, self_weight))
    others = log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide
    return gradients(dout, dden, out, den, q, k, v, *others, wanted=wanted)


def gradients(
    dout, dden, out, den, q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction,
    chunk_size, wide, *, wanted, into=None,
):  # fmt: skip
    """Of q, k and v, in the tensors `into`, of any strides, if they are given; and those of the next three."""
    fields, keep = _fields(
        q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide
    )
    if not door.usual_gradients(dout, dden, out, den, q, v, log_gain, norm, wide):
        door.check_gradients(dout, dden, out, den, q, v, log_gain, norm, wide)
    dout, out = _readable(dout), _readable(out)
    if dden is not None:
        dden = dden[0] if dden.dim() == 4 else dden
    make = q.new_empty if mask is None else q.new_zeros  # the kernel writes the rows of real tokens
    into = [make(x.shape) for x in (q, k, v)] if into is None else into
    dothers = [
        _per_token(x, q, orders, make) if want else None
        for x, want in zip((log_decay, log_gain, self_weight), wanted, strict=True)
    ]
    fields += [*rows(out), *_den_rows(den), *rows(dout), *rows(dden)]
    fields += [n for x in (*into, *dothers) for n in rows(x)]
    loaded().run(fields, backward=True)
    del keep
    given = log_decay, log_gain, self_weight
    sums = (q.new_empty(0) if grad is None else _summed(grad, x) for grad, x in zip(dothers, given, strict=True))
    return *into, *sums


def _per_token(x: Tensor, q: Tensor, orders: Tensor | None, make: Callable[..., Tensor]) -> Tensor:
    """Room for the gradient of decays, gates or weights, of every token even if they are the same for all."""
    B, T, H, D = q.shape
    heads = H * len(torch.atleast_2d(orders)) if orders is not None and _per_order(x, q) else H
    return make((B, T, heads, D) if _diagonal(x) else (B, T, heads), dtype=accumulation_dtype(q))


def _summed(grad: Tensor, x: Tensor) -> Tensor:
    grad = grad if grad.dim() == x.dim() else grad.sum((0, 1))
    return grad if grad.dtype is x.dtype else grad.to(x.dtype)


library.impl("cpu_scan", forward, "CPU")
library.impl("cpu_scan_backward", _backward, "CPU")


@torch.library.register_fake("lion::cpu_scan", lib=library)
def _(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide):
    door.check_scan(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size)
    return outputs(q, v, log_gain, norm, wide, empty=q.new_empty)


@torch.library.register_fake("lion::cpu_scan_backward", lib=library)
def _(
    dout, dden, out, den, q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction,
    chunk_size, wide, wanted,
):  # fmt: skip
    door.check_scan(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size)
    door.check_gradients(dout, dden, out, den, q, v, log_gain, norm, wide)
    door.check_wanted(wanted, WANTED, (log_decay, log_gain, self_weight))
    others = (
        x.new_empty(x.shape) if want else q.new_empty(0)
        for x, want in zip((log_decay, log_gain, self_weight), wanted, strict=True)
    )
    return *(x.new_empty(x.shape) for x in (q, k, v)), *others


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            out, den = scan_op(*arguments)
        ctx.save_for_backward(*arguments[:9], out, den)
        ctx.options = arguments[9:]
        ctx.set_materialize_grads(False)
        if ctx.options[0] != RAW:
            ctx.mark_non_differentiable(den)
        return out, den

    @staticmethod
    def backward(ctx, dout, dden):
        *tensors, out, den = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[3:6])
        dout = torch.zeros_like(out) if dout is None else dout
        if ctx.options[0] == RAW:
            dden = torch.zeros_like(den) if dden is None else dden
        if torch.is_grad_enabled():  # a second derivative may be asked for
            grads = differentiable_gradients(
                lambda *x: plainly_computed(*x, *tensors[6:], *ctx.options), tensors[:6], [dout, dden]
            )
            return *grads, *[None] * 7
        grads = below_autograd(scan_backward_op, dout, dden, out, den, *tensors, *ctx.options, wanted)
        others = (grad if want else None for grad, want in zip(grads[3:], wanted, strict=True))
        return *grads[:3], *others, *[None] * 7


def plainly_computed(
    q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size, wide
) -> tuple[Tensor, Tensor | None]:
    """What the operator computes, by torch's own."""
    name = {SUM: "sum", MAX: "max", NONE: "none", RAW: "sum"}[norm]
    way = next(name for name, number in DIRECTIONS.items() if number == direction)
    weights = None, log_gain, None, self_weight  # without decays of the reverse walk, and without beta
    call = Call(q, k, v, log_decay, *weights, name, way, mask, cu_seqlens, orders, chunk_size or None)
    sums = sums_of(call, torch_scan.scan, torch_scan.one_state)
    if norm != RAW:
        return normalised(call, sums).to(accumulation_dtype(q) if wide else q.dtype), None
    assert sums.den is not None
    den = sums.den.squeeze(-1)
    return sums.num, den if log_gain is None else torch.stack([den, torch.zeros_like(den)])


def _with_autograd(*arguments):
    door.check_tangents(arguments[:6])
    if _to_differentiate(arguments):
        return _Scan.apply(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return scan_op(*arguments)


# By hand: torch.library.register_autograd does the same and takes 60 microseconds more for each call.
library.impl("cpu_scan", _with_autograd, "Autograd")


@register_flop_formula(torch.ops.lion.cpu_scan)
def _(*shapes, out_shape=None):
    return flops.of_shapes(*shapes)


@register_flop_formula(torch.ops.lion.cpu_scan_backward)
def _(dout, dden, out, den, *shapes, out_shape=None):
    return flops.of_shapes(*shapes[:-1], backward=True)

"""The operators of `torch.ops.lion` that run the kernels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import accumulation_dtype
from lion.ops.checks import one_of
from lion.ops.cpu.door import check_tangents
from lion.ops.division import divided
from lion.ops.plain import differentiable_gradients
from lion.ops.state import State, arriving_exponents, state_behind
from lion.ops.torch import door
from lion.ops.torch import scan as torch_scan
from lion.ops.torch.options import Options

NO_OUTPUT = "no output"  # the states alone
NORMS = ("none", "sum", "max", NO_OUTPUT)
WIDEST = 256  # channels of keys or values
HALF = (torch.bfloat16, torch.float16)


class Arguments(NamedTuple):
    q: Tensor  # [B, T, H, D]
    k: Tensor
    v: Tensor  # [B, T, H, V]
    f: Tensor | None  # [B or 1, T or 1, H or 1, 1 or D], in the accumulation dtype; None: no decay
    b: Tensor | None
    mask: Tensor | None = None  # [B, T]
    sums: Tensor | None = None  # [walks, B, H, D, V]: the states that enter, of the forward walk first
    keys: Tensor | None = None  # [walks, B, H, D]
    norm: str = "sum"
    direction: str = "both"
    include_self: bool = True
    with_den: bool = True  # whether den is wanted; the norms "sum" and "max" need it
    packed: bool = False  # whether f and b have -inf between sequences that NaN must not cross
    wide: bool = False  # whether the result is num as it was summed up
    leaves: bool = False  # whether the states that leave are wanted
    chunk_size: int | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self[:8]

    @property
    def options(self) -> tuple[Any, ...]:
        return self[8:]

    @property
    def divides(self) -> bool:
        return self.norm in ("sum", "max")

    @property
    def differentiates(self) -> bool:
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in self.tensors)

    @property
    def saves(self) -> bool:
        """Whether the backward pass needs the output as it was before rounding: the gradient of a division is a small
        difference (docs/maths.md)."""
        return self.differentiates and self.divides and self.v.dtype in HALF

    @property
    def walks(self) -> tuple[bool, ...]:
        """For each walk whether it is the reverse one."""
        return {"both": (False, True), "forward": (False,), "reverse": (True,)}[self.direction]

    @property
    def states(self) -> tuple[int, ...]:
        """The shape of `sums`."""
        B, _, H, D = self.q.shape
        return len(self.walks), B, H, D, self.v.shape[-1]


class Result(NamedTuple):
    out: Tensor  # [B, T, H, V]
    den: Tensor  # [B, T, H, 1], or without den [B, T, H, 0]
    saved: Tensor  # [B, T, H, V], the output before it was rounded, or [0]
    left: tuple[Tensor, Tensor]  # the states that leave, as those that enter, or [0]


SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor? f, Tensor? b, Tensor? mask, Tensor? sums, Tensor? keys, str norm, "
    "str direction, bool include_self, bool with_den, bool packed, bool wide, bool leaves, int? chunk_size"
)
library = torch.library.Library("lion", "FRAGMENT")
library.define(f"triton_scan({SCHEMA}, bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
library.define(
    "triton_scan_backward(Tensor dout, Tensor? dden, Tensor? dsums, Tensor? dkeys, Tensor out, Tensor den, "
    f"{SCHEMA}, bool costs) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
scan_op = torch.ops.lion.triton_scan.default
scan_backward_op = torch.ops.lion.triton_scan_backward.default


def scanned(x: Arguments) -> Result:
    out, den, saved, *left = scan_op(*x, x.saves)
    return Result(out, den, saved, tuple(left))


def _check(x: Arguments) -> None:
    one_of("norm", x.norm, NORMS)
    if (x.f is None) != (x.b is None):
        raise ValueError("one of f and b is None; expected both or neither.")
    free = x.q.new_zeros(1, 1, 1, 1, dtype=accumulation_dtype(x.q))
    f, b = (free, free) if x.f is None or x.b is None else (x.f, x.b)
    door.check_scan(x.q, x.k, x.v, f, b, x.direction, x.chunk_size)
    for name, y in (("k", x.k), ("v", x.v)):
        door.check_like(name, y, x.q, x.q.dtype, y.shape, "")
    widest = max(x.q.shape[-1], x.v.shape[-1])
    if widest > WIDEST:
        raise ValueError(f"a head has {widest} channels; expected at most {WIDEST}.")
    if x.mask is not None:
        door.check_like("mask", x.mask, x.q, torch.bool, x.q.shape[:2], "[B, T]")
    if (x.sums is None) != (x.keys is None):
        raise ValueError("one of sums and keys is None; expected both or neither: they are the states that enter.")
    _check_states(x, "", x.sums, x.keys)
    if x.wide and x.norm != "none":
        raise ValueError(
            f"wide is True with norm {x.norm!r}; expected 'none': it is for sums that are not divided yet."
        )
    if x.divides and not x.with_den:
        raise ValueError(f"with_den is False with norm {x.norm!r}; expected True: it divides by den.")


def _check_states(x: Arguments, prefix: str, sums: Tensor | None, keys: Tensor | None) -> None:
    dtype = accumulation_dtype(x.q)
    if sums is not None:
        door.check_like(f"{prefix}sums", sums, x.q, dtype, x.states, "[walks, B, H, D, V]")
    if keys is not None:
        door.check_like(f"{prefix}keys", keys, x.q, dtype, x.states[:-1], "[walks, B, H, D]")


def _check_gradients(x: Arguments, dout, dden, dsums, dkeys, out, den) -> None:
    sums, rows = accumulation_dtype(x.q), x.q.shape[:3]
    door.check_like("dout", dout, x.q, sums if x.wide else x.v.dtype, x.v.shape, "[B, T, H, V]")
    shape = (*rows, int(x.with_den))
    door.check_like("den", den, x.q, sums, shape, "[B, T, H, 1], or [B, T, H, 0] without with_den")
    if dden is not None:
        door.check_like("dden", dden, x.q, sums, shape, "the shape of den")
    _check_states(x, "d", dsums, dkeys)
    if x.divides:
        dtype = x.v.dtype if out.dtype == x.v.dtype else sums  # rounded, where it was not saved before that
        door.check_like("out", out, x.q, dtype, x.v.shape, "[B, T, H, V]")


def _launches(x: Arguments) -> Any:
    from lion.ops.triton import launch

    entering = None if x.sums is None or x.keys is None else (x.sums, x.keys)
    parts = (x.direction, x.include_self, x.packed, x.wide, x.chunk_size)
    return launch, launch.prepared(x.q, x.k, x.v, x.f, x.b, x.mask, entering, *parts)


def _forward(*arguments):
    x, save = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    launch, prepared = _launches(x)
    dtype = accumulation_dtype(x.q) if x.wide else x.v.dtype
    out, den, saved, left = launch.forward(prepared, x.norm, x.with_den, x.leaves, dtype, save)
    return out, den, saved, *left


def _backward(dout, dden, dsums, dkeys, out, den, *arguments):
    x, costs = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    _check_gradients(x, dout, dden, dsums, dkeys, out, den)
    launch, prepared = _launches(x)
    dleft = None
    if dsums is not None or dkeys is not None:
        dleft = tuple(
            x.q.new_zeros(shape, dtype=den.dtype) if y is None else y.contiguous()
            for y, shape in ((dsums, x.states), (dkeys, x.states[:-1]))
        )
    dq, dk, dv, df, db, dentered = launch.backward(prepared, dout, dden, dleft, out, den, x.norm, costs)
    return dq, dk, dv, *(_like_cost(grad, cost, x, costs) for grad, cost in ((df, x.f), (db, x.b))), *dentered


def _like_cost(grad: Tensor | None, cost: Tensor | None, x: Arguments, wanted: bool) -> Tensor:
    if cost is None or not wanted:
        return x.q.new_empty(0, dtype=accumulation_dtype(x.q))
    if grad is None:
        return torch.zeros_like(cost, memory_format=torch.contiguous_format)
    return grad.sum_to_size(cost.shape).clone(memory_format=torch.contiguous_format)


for device in ("CPU", "CUDA"):  # "CPU": in Triton's interpreter
    library.impl("triton_scan", _forward, device)
    library.impl("triton_scan_backward", _backward, device)


@torch.library.register_fake("lion::triton_scan", lib=library)
def _(*arguments):
    x, save = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    sums = accumulation_dtype(x.q)
    shape = (0,) if x.norm == NO_OUTPUT else x.v.shape
    out = x.v.new_empty(shape, dtype=sums if x.wide else x.v.dtype)
    den = x.q.new_empty((*x.q.shape[:3], int(x.with_den)), dtype=sums)
    saved = x.v.new_empty(x.v.shape if save else (0,), dtype=sums)
    left = (x.v.new_empty(shape if x.leaves else (0,), dtype=sums) for shape in (x.states, x.states[:-1]))
    return out, den, saved, *left


@torch.library.register_fake("lion::triton_scan_backward", lib=library)
def _(dout, dden, dsums, dkeys, out, den, *arguments):
    x, costs = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    _check_gradients(x, dout, dden, dsums, dkeys, out, den)
    others = [None if not costs else x.f, None if not costs else x.b, x.sums, x.keys]
    of_others = (x.q.new_empty((0,) if y is None else y.shape, dtype=accumulation_dtype(x.q)) for y in others)
    return *(y.new_empty(y.shape) for y in (x.q, x.k, x.v)), *of_others


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, save, *tensors):
        x = Arguments(*tensors, *options)
        with torch._C._AutoDispatchBelowAutograd():
            out, den, saved, *left = scan_op(*x, save)
        ctx.save_for_backward(*tensors, (saved if save else out) if x.divides else out.new_empty(0), den)
        ctx.options = options
        ctx.set_materialize_grads(False)
        fixed = [saved, *([] if x.wide else [den]), *([] if x.leaves else left)]
        ctx.mark_non_differentiable(*fixed, *([out] if x.norm == NO_OUTPUT else []))
        return out, den, saved, *left

    @staticmethod
    def backward(ctx, dout, dden, _, *dleft):
        *tensors, out, den = ctx.saved_tensors
        x = Arguments(*tensors, *ctx.options)
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = lambda *y: _plainly(Arguments(*y, *ctx.options))  # noqa: E731
            return None, None, *differentiable_gradients(function, tensors, [dout, dden, *dleft])
        if dout is None:  # one row of zeros for all
            dout = x.v.new_zeros(x.v.shape[-1], dtype=den.dtype if x.wide else x.v.dtype).expand(x.v.shape)
        costs = any(ctx.needs_input_grad[5:7])
        dden = dden if x.with_den and x.wide else None
        with torch._C._AutoDispatchBelowAutograd():
            dq, dk, dv, df, db, *dentered = scan_backward_op(dout, dden, *dleft, out, den, *x, costs)
        found = (dq, dk, dv, df, db, None, *dentered)
        return None, None, *(y if need else None for y, need in zip(found, ctx.needs_input_grad[2:], strict=True))


def _plainly(x: Arguments) -> list[Tensor | None]:
    """What the operator computes, by torch's own."""
    dtype, T = accumulation_dtype(x.q), x.q.shape[1]
    free = x.q.new_zeros(1, 1, 1, 1, dtype=dtype)
    q, k, v, f, b = x.q, x.k, x.v, free if x.f is None else x.f, free if x.b is None else x.b
    if x.mask is not None:
        q, k, v, f, b = (torch.where(x.mask[..., None, None], y, 0) for y in (q, k, v, f, b))
    entering: list[State | None] = [None] * len(x.walks)
    if x.sums is not None and x.keys is not None:
        nothing = x.keys.new_zeros(x.states[1], x.states[2], 1)
        entering = [State(sums, keys, nothing) for sums, keys in zip(x.sums, x.keys, strict=True)]
    walked = [(state, b if reverse else f, reverse) for state, reverse in zip(entering, x.walks, strict=True)]
    behind = [state_behind(k, v, cost, None, state, reverse=reverse) for state, cost, reverse in walked]
    left = [torch.stack([y.sums for y in behind]), torch.stack([y.keys for y in behind])] if x.leaves else [None] * 2
    if x.norm == NO_OUTPUT:
        return [None, None, *left]
    num, den = torch_scan.scan(q, k, v, f, b, Options(x.direction, x.include_self, x.with_den, x.chunk_size))
    for state, cost, reverse in walked:
        if state is not None:
            reader = q.to(dtype) * arriving_exponents(state, cost, T, reverse=reverse).exp()
            num = num + torch.einsum("bthd,bhdv->bthv", reader, state.sums)
            den = None if den is None else den + (reader * state.keys[:, None]).sum(-1, keepdim=True)
    if x.wide:
        return [num, den, *left]
    if x.mask is not None and den is not None:
        den = torch.where(x.mask[..., None, None], den, 1)
    return [divided(num, den, x.norm).to(x.v.dtype), None, *left]


def _with_autograd(*arguments):
    x, save = Arguments(*arguments[:-1]), arguments[-1]
    check_tangents(x.tensors)
    if x.differentiates:
        return _Scan.apply(x.options, save, *x.tensors)
    with torch._C._AutoDispatchBelowAutograd():
        return scan_op(*arguments)


library.impl("triton_scan", _with_autograd, "Autograd")


@register_flop_formula(torch.ops.lion.triton_scan)
def _(*shapes, out_shape=None):
    return flops.of_tiles(Arguments(*shapes[: len(Arguments._fields)]))


@register_flop_formula(torch.ops.lion.triton_scan_backward)
def _(dout, dden, dsums, dkeys, out, den, *shapes, out_shape=None):
    x = Arguments(*shapes[: len(Arguments._fields)])
    return flops.of_tiles(x, backward=True, costs=shapes[-1], left=dsums is not None or dkeys is not None)

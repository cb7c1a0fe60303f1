"""The `scan` form in Triton: two launches forward, six backward, no atomics. The first call imports Triton.

What the kernels know is what a torch kernel knows (lion/ops/torch/options.py), and the division. Everything else goes
through the lowering that torch's kernels have.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import one_of
from lion.ops.cpu.door import check_tangents
from lion.ops.division import divided
from lion.ops.plain import differentiable_gradients
from lion.ops.state import States
from lion.ops.torch import door
from lion.ops.torch import scan as torch_scan
from lion.ops.torch.lowering import lowered, parts_of
from lion.ops.torch.options import Options

OLDEST = (3, 5)  # Triton's version


def _version() -> tuple[int, ...]:
    """The first two numbers of the installed Triton's version, without importing it; () if nobody says."""
    for name in ("triton", "pytorch-triton-rocm", "triton-rocm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return tuple(map(int, re.findall(r"\d+", importlib.metadata.version(name))[:2]))
    return ()


INSTALLED = importlib.util.find_spec("triton") is not None
VERSION = _version() if INSTALLED else ()
WIDEST = 256  # channels of keys or values
NORMS = ("none", "sum", "max")
HALF = (torch.bfloat16, torch.float16)


def interpreting() -> bool:
    """Whether Triton runs its kernels on the CPU, slowly, to look at what they compute."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    if os.environ.get("LION_TRITON") == "0":
        return "LION_TRITON=0 switches it off"
    if not INSTALLED:
        return "Triton is not installed (pip install 'lion-attention[triton]')"
    if VERSION and VERSION < OLDEST:
        return f"Triton {'.'.join(map(str, VERSION))} is installed, and {'.'.join(map(str, OLDEST))} is needed"
    if device.type == "cpu" and interpreting():
        return None
    if device.type != "cuda":
        return "it is for NVIDIA's and AMD's GPUs (on the CPU only with TRITON_INTERPRET=1, to test it)"
    if interpreting():
        return "TRITON_INTERPRET=1 is for tensors in the CPU's memory"
    if dtype == torch.float64:
        return "it has no float64 on GPUs"
    if not torch.cuda.is_available():
        return "no usable GPU or driver was found"
    if torch.version.hip is None:
        gpu = torch.cuda.get_device_properties(device)
        if gpu.major < 8:
            return f"the GPU has compute capability {gpu.major}.{gpu.minor}, and 8.0 is needed"
    return None


# Calls of `lion.attention`


def attention(call: Call) -> Tensor | tuple[Tensor, States]:
    """The kernel of the table."""
    if not _direct(call):
        return _lowered(call)
    out = _scan(Arguments(*parts_of(call), call.norm, call.direction, chunk_size=call.chunk_size))[0]
    return out if call.mask is None else torch.where(call.mask[:, :, None, None], out, 0)  # a masked token has 0 / 0


def _direct(call: Call) -> bool:
    """Whether the kernels do all that the call asks for. With one direction NaN must not reach the tokens before it."""
    others = (call.log_gain, call.self_weight, call.cu_seqlens, call.orders)
    simple = all(x is None for x in others) and not call.has_states
    return simple and call.norm in NORMS and call.direction == "both"


def _sums(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    return _as_torch_kernel(q, k, v, f, b, options)


def _undecayed_sums(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options):
    return _as_torch_kernel(q, k, v, None, None, options)


def _as_torch_kernel(q, k, v, f, b, options: Options) -> tuple[Tensor, Tensor | None]:
    direction, include_self, with_den, chunk_size = options
    q, k, v = _in_one_dtype(q, k, v)
    num, den, _ = _scan(Arguments(q, k, v, f, b, "none", direction, include_self, with_den, True, chunk_size))
    return num, den if with_den else None


_lowered = lowered(_sums, undecayed=_undecayed_sums)


def _in_one_dtype(*tensors: Tensor) -> list[Tensor]:
    """Gates and self weights make keys and queries wider than the values are."""
    dtypes = [x.dtype for x in tensors]
    if len(set(dtypes)) == 1:
        return list(tensors)
    widest = torch.float64 if torch.float64 in dtypes else torch.float32
    return [x.to(widest) for x in tensors]


# The operators


class Arguments(NamedTuple):
    q: Tensor  # [B, T, H, D]
    k: Tensor
    v: Tensor  # [B, T, H, V]
    f: Tensor | None  # [B or 1, T or 1, H or 1, 1 or D], in the accumulation dtype; None: no decay
    b: Tensor | None
    norm: str
    direction: str
    include_self: bool = True
    with_den: bool = True  # whether den is wanted; the norms "sum" and "max" need it
    wide: bool = False  # whether the result is num as it was summed up
    chunk_size: int | None = None

    @property
    def keeps_output(self) -> bool:
        """Whether the backward pass needs the output as it was before rounding: the gradient of a division is a small
        difference (docs/maths.md)."""
        tensors = (self.q, self.k, self.v, self.f, self.b)
        wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        return wanted and self.norm != "none" and self.v.dtype in HALF


SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor? f, Tensor? b, str norm, str direction, bool include_self, bool with_den, "
    "bool wide, int? chunk_size"
)
library = torch.library.Library("lion", "FRAGMENT")
library.define(f"triton_scan({SCHEMA}, bool save) -> (Tensor, Tensor, Tensor)")
library.define(
    f"triton_scan_backward(Tensor dout, Tensor? dden, Tensor out, Tensor den, {SCHEMA}, bool costs) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
scan_op = torch.ops.lion.triton_scan.default
scan_backward_op = torch.ops.lion.triton_scan_backward.default


def _scan(x: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """The output, den and, in training with half precision, the output before rounding."""
    return scan_op(*x._replace(with_den=x.with_den and (x.wide or x.norm != "none")), x.keeps_output)


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
    if x.wide and x.norm != "none":
        raise ValueError(
            f"wide is True with norm {x.norm!r}; expected 'none': it is for sums that are not divided yet."
        )
    if x.norm != "none" and not x.with_den:
        raise ValueError(f"with_den is False with norm {x.norm!r}; expected True: it divides by den.")


def _check_gradients(x: Arguments, dout: Tensor, dden: Tensor | None, out: Tensor, den: Tensor) -> None:
    sums, rows = accumulation_dtype(x.q), x.q.shape[:3]
    door.check_like("dout", dout, x.q, sums if x.wide else x.v.dtype, x.v.shape, "[B, T, H, V]")
    shape = (*rows, int(x.with_den))
    door.check_like("den", den, x.q, sums, shape, "[B, T, H, 1], or [B, T, H, 0] without with_den")
    if dden is not None:
        door.check_like("dden", dden, x.q, sums, shape, "the shape of den")
    if x.norm != "none":
        dtype = x.v.dtype if out.dtype == x.v.dtype else sums  # rounded, where it was not saved before that
        door.check_like("out", out, x.q, dtype, x.v.shape, "[B, T, H, V]")


def _launches(x: Arguments) -> Any:
    from lion.ops.triton import launch

    parts = (x.q, x.k, x.v, x.f, x.b, x.direction, x.include_self, x.chunk_size, x.wide)
    return launch, launch.prepared(*parts)


def _forward(*arguments):
    x, save = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    launch, prepared = _launches(x)
    dtype = accumulation_dtype(x.q) if x.wide else x.v.dtype
    return launch.forward(prepared, x.norm, x.with_den, dtype, save)


def _backward(dout, dden, out, den, *arguments):
    x, costs = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    _check_gradients(x, dout, dden, out, den)
    launch, prepared = _launches(x)
    dq, dk, dv, df, db = launch.backward(prepared, dout, dden, out, den, x.norm, costs)
    return dq, dk, dv, *(_like_cost(grad, cost, x, costs) for grad, cost in ((df, x.f), (db, x.b)))


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
    den = x.q.new_empty((*x.q.shape[:3], int(x.with_den)), dtype=sums)
    saved = x.v.new_empty(x.v.shape if save else (0,), dtype=sums)
    return x.v.new_empty(x.v.shape, dtype=sums if x.wide else x.v.dtype), den, saved


@torch.library.register_fake("lion::triton_scan_backward", lib=library)
def _(dout, dden, out, den, *arguments):
    x, costs = Arguments(*arguments[:-1]), arguments[-1]
    _check(x)
    _check_gradients(x, dout, dden, out, den)
    sums = accumulation_dtype(x.q)
    of_costs = (x.q.new_empty((0,) if y is None or not costs else y.shape, dtype=sums) for y in (x.f, x.b))
    return *(y.new_empty(y.shape) for y in (x.q, x.k, x.v)), *of_costs


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, save, *tensors):
        with torch._C._AutoDispatchBelowAutograd():
            out, den, saved = scan_op(*tensors, *options, save)
        x = Arguments(*tensors, *options)
        ctx.save_for_backward(*tensors, (saved if save else out) if x.norm != "none" else out.new_empty(0), den)
        ctx.options = options
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*([saved] if x.wide else [saved, den]))
        return out, den, saved

    @staticmethod
    def backward(ctx, dout, dden, _):
        *tensors, out, den = ctx.saved_tensors
        x = Arguments(*tensors, *ctx.options)
        if dout is None:
            dout = torch.zeros_like(x.v, dtype=den.dtype if x.wide else x.v.dtype)
        if torch.is_grad_enabled():  # a second derivative may be asked for
            grads = differentiable_gradients(lambda *y: _plainly(Arguments(*y, *ctx.options)), tensors, [dout, dden])
            return None, None, *grads
        costs = any(ctx.needs_input_grad[5:7])
        dden = dden if x.with_den else None
        with torch._C._AutoDispatchBelowAutograd():
            found = scan_backward_op(dout, dden, out, den, *x, costs)
        needed = ctx.needs_input_grad[2:]
        return None, None, *(grad if need else None for grad, need in zip(found, needed, strict=True))


def _plainly(x: Arguments) -> list[Tensor | None]:
    """What the operator computes, by torch's own."""
    free = x.q.new_zeros(1, 1, 1, 1, dtype=accumulation_dtype(x.q))
    f, b = (free, free) if x.f is None or x.b is None else (x.f, x.b)
    options = Options(x.direction, x.include_self, x.with_den, x.chunk_size)
    num, den = torch_scan.scan(x.q, x.k, x.v, f, b, options)
    return [num, den] if x.wide else [divided(num, den, x.norm).to(x.v.dtype), None]


def _with_autograd(*arguments):
    x, save = Arguments(*arguments[:-1]), arguments[-1]
    tensors = (x.q, x.k, x.v, x.f, x.b)
    check_tangents(tensors)
    if torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in tensors):
        return _Scan.apply(arguments[5:-1], save, *tensors)
    with torch._C._AutoDispatchBelowAutograd():
        return scan_op(*arguments)


library.impl("triton_scan", _with_autograd, "Autograd")


@register_flop_formula(torch.ops.lion.triton_scan)
def _(*shapes, out_shape=None):
    return flops.of_tiles(Arguments(*shapes[: len(Arguments._fields)]))


@register_flop_formula(torch.ops.lion.triton_scan_backward)
def _(dout, dden, out, den, *shapes, out_shape=None):
    return flops.of_tiles(Arguments(*shapes[: len(Arguments._fields)]), backward=True, costs=shapes[-1])

"""The shifted, normalised SiLU in C++: one pass over memory forwards and one backwards, where torch takes a dozen."""

import torch
from torch import Tensor

from lion.ops.cpu.library import DTYPES, LIBRARY, below_autograd, loaded, rows

# Of queries and keys at once: half the calls.
library = torch.library.Library("lion", "FRAGMENT")
library.define("cpu_unit_silu(Tensor q, Tensor k) -> (Tensor, Tensor)")
library.define("cpu_unit_silu_backward(Tensor dq, Tensor dk, Tensor q, Tensor k) -> (Tensor, Tensor)")
unit_silu_op = torch.ops.lion.cpu_unit_silu.default
unit_silu_backward_op = torch.ops.lion.cpu_unit_silu_backward.default


def available(x: Tensor) -> bool:
    """Whether x [B, T, H, D] can be handled: exported graphs are to have torch's operators only."""
    known = not isinstance(LIBRARY, str) and x.device.type == "cpu" and x.dtype in DTYPES and x.dim() == 4
    return known and not torch.compiler.is_exporting()


def _run(x: Tensor, dy: Tensor | None = None) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    if dy is not None:
        dy = dy if dy.stride(-1) == 1 else dy.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    fields = [*x.shape, DTYPES[x.dtype], dy is not None, torch.get_num_threads(), *rows(x), *rows(dy), *rows(out)]
    loaded().run_features(fields)
    return out


library.impl("cpu_unit_silu", lambda q, k: (_run(q), _run(k)), "CPU")
library.impl("cpu_unit_silu_backward", lambda dq, dk, q, k: (_run(q, dq), _run(k, dk)), "CPU")


@torch.library.register_fake("lion::cpu_unit_silu", lib=library)
def _(q, k):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))


@torch.library.register_fake("lion::cpu_unit_silu_backward", lib=library)
def _(dq, dk, q, k):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))


class _UnitSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k):
        ctx.save_for_backward(q, k)
        with torch._C._AutoDispatchBelowAutograd():
            return unit_silu_op(q, k)

    @staticmethod
    def backward(ctx, dq, dk):
        if torch.is_grad_enabled():  # a second derivative may be asked for, and is refused then
            return unit_silu_backward_op(dq, dk, *ctx.saved_tensors)
        return below_autograd(unit_silu_backward_op, dq, dk, *ctx.saved_tensors)


def _with_autograd(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
        return _UnitSilu.apply(q, k)
    with torch._C._AutoDispatchBelowAutograd():
        return unit_silu_op(q, k)


# By hand, as scan.py's: quicker than torch.library.register_autograd.
library.impl("cpu_unit_silu", _with_autograd, "Autograd")


def _refuse(ctx, *grads):
    raise RuntimeError("the compiled feature map has no second derivatives: use features='elu'.")


torch.library.register_autograd("lion::cpu_unit_silu_backward", _refuse, lib=library)

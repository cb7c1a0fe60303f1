"""The shifted, normalised SiLU in C++: one pass over memory forwards and one backwards, where torch takes a dozen."""

import torch
from torch import Tensor

from lion.ops.cpu.library import DTYPES, LIBRARY, loaded, rows

library = torch.library.Library("lion", "FRAGMENT")
library.define("cpu_unit_silu(Tensor x) -> Tensor")
library.define("cpu_unit_silu_backward(Tensor dy, Tensor x) -> Tensor")
unit_silu_op = torch.ops.lion.cpu_unit_silu.default
unit_silu_backward_op = torch.ops.lion.cpu_unit_silu_backward.default


def available(x: Tensor) -> bool:
    """Whether x [B, T, H, D] can be handled: exported graphs are to have torch's operators only."""
    known = not isinstance(LIBRARY, str) and x.device.type == "cpu" and x.dtype in DTYPES and x.dim() == 4
    return known and not torch.compiler.is_exporting()


def _run(x: Tensor, dy: Tensor | None) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    if dy is not None:
        dy = dy if dy.stride(-1) == 1 else dy.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    fields = [*x.shape, DTYPES[x.dtype], dy is not None, torch.get_num_threads(), *rows(x), *rows(dy), *rows(out)]
    loaded().run_features(fields)
    return out


library.impl("cpu_unit_silu", lambda x: _run(x, None), "CPU")
library.impl("cpu_unit_silu_backward", lambda dy, x: _run(x, dy), "CPU")


@torch.library.register_fake("lion::cpu_unit_silu", lib=library)
def _(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.register_fake("lion::cpu_unit_silu_backward", lib=library)
def _(dy, x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, dy):
    return unit_silu_backward_op(dy, *ctx.saved_tensors)


torch.library.register_autograd("lion::cpu_unit_silu", _differentiate, setup_context=_save, lib=library)

"""Feature maps in C++: one pass over memory forwards and one backwards, where torch takes several."""

import torch
from torch import Tensor

from lion.ops.cpu import door
from lion.ops.cpu.library import DTYPES, LIBRARY, Features, below_autograd, direct, loaded
from lion.ops.maps import elu_plus_one, unit_silu
from lion.ops.plain import differentiable_gradients, plain
from lion.ops.torch.door import check_like

MAPS = {"unit_silu": 0, "elu_plus_one": 1}  # as nn/feature_maps.py names them


PLAIN = {MAPS["unit_silu"]: unit_silu, MAPS["elu_plus_one"]: elu_plus_one}

# Of queries and keys at once: half the calls.
library = torch.library.Library("lion", "FRAGMENT")
library.define("cpu_features(Tensor q, Tensor k, int map) -> (Tensor, Tensor)")
library.define("cpu_features_backward(Tensor dq, Tensor dk, Tensor q, Tensor k, int map) -> (Tensor, Tensor)")
features_op = torch.ops.lion.cpu_features.default
features_backward_op = torch.ops.lion.cpu_features_backward.default


def available(x: Tensor) -> bool:
    """Whether x [B, T, H, D] can be handled: exported graphs are to have torch's operators only."""
    known = not isinstance(LIBRARY, str) and x.device.type == "cpu" and x.dtype in DTYPES and x.dim() == 4
    return known and not plain()


def mapped(name: str, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None:
    """The features of queries and keys; None where there is no operator for them."""
    if name not in MAPS or not available(q):
        return None
    return (_with_autograd if direct(q) else features_op)(q, k, MAPS[name])


def features(x: Tensor, map: int, out: Tensor | None = None) -> Tensor:
    return _run(x, None, x.new_empty(x.shape) if out is None else out, map)


def features_backward(dy: Tensor, x: Tensor, map: int, out: Tensor | None = None) -> Tensor:
    """The gradient of x. `out` may be dy."""
    return _run(x, dy, x.new_empty(x.shape) if out is None else out, map)


def _run(x: Tensor, dy: Tensor | None, out: Tensor, map: int) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    if dy is not None:
        dy = dy if dy.stride(-1) == 1 else dy.contiguous()
    B, T, H, D = x.shape
    how = {"map": map, "dtype": DTYPES[x.dtype], "backward": dy is not None, "threads": torch.get_num_threads()}
    f = Features(B=B, T=T, H=H, D=D, **how)
    f.put(x=x, dy=dy, out=out)
    loaded().run_features(f)
    return out


def _forward(q: Tensor, k: Tensor, map: int) -> tuple[Tensor, Tensor]:
    if not (map in PLAIN and door.usual_features(q) and door.usual_features(k)):
        door.check_features(MAPS, map, q, k)
    return features(q, map), features(k, map)


def _backward(dq: Tensor, dk: Tensor, q: Tensor, k: Tensor, map: int) -> tuple[Tensor, Tensor]:
    if not (map in PLAIN and door.usual_features(q, dq) and door.usual_features(k, dk)):
        _check_gradients(dq, dk, q, k, map)
    return features_backward(dq, q, map), features_backward(dk, k, map)


def _check_gradients(dq: Tensor, dk: Tensor, q: Tensor, k: Tensor, map: int) -> None:
    door.check_features(MAPS, map, q, k)
    check_like("dq", dq, q, q.dtype, q.shape, "the shape of q")
    check_like("dk", dk, k, k.dtype, k.shape, "the shape of k")


library.impl("cpu_features", _forward, "CPU")
library.impl("cpu_features_backward", _backward, "CPU")


@torch.library.register_fake("lion::cpu_features", lib=library)
def _(q, k, map):
    door.check_features(MAPS, map, q, k)
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))


@torch.library.register_fake("lion::cpu_features_backward", lib=library)
def _(dq, dk, q, k, map):
    _check_gradients(dq, dk, q, k, map)
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, map):
        ctx.save_for_backward(q, k)
        ctx.map = map
        return below_autograd(features_op, _forward, q, k, map)

    @staticmethod
    def backward(ctx, dq, dk):
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = PLAIN[ctx.map]
            return *differentiable_gradients(lambda *x: [*map(function, x)], ctx.saved_tensors, [dq, dk]), None
        return *below_autograd(features_backward_op, _backward, dq, dk, *ctx.saved_tensors, ctx.map), None


def _with_autograd(q: Tensor, k: Tensor, map: int) -> tuple[Tensor, Tensor]:
    door.check_tangents((q, k))
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k)):
        return _Features.apply(q, k, map)
    return below_autograd(features_op, _forward, q, k, map)


# By hand, as scan.py's: quicker than torch.library.register_autograd.
library.impl("cpu_features", _with_autograd, "Autograd")

"""What the compiled kernel's operators refuse. Every call passes here, and every traced one (lion/ops/door.py).

The kernel gets addresses and strides, so that what does not fit would be read from beyond a tensor's end. Values that
have to be read (orders, cu_seqlens, decays and gates) the kernel checks as it reads them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import LONGEST_CHUNK, check_device, check_fit, check_others
from lion.ops.cpu.library import DIRECTIONS, DTYPES, NO_OUTPUT, NONE, NORMS, RAW
from lion.ops.cpu.problem import Arguments, den_shape, is_diagonal, out_shape
from lion.ops.torch.door import check_first, check_like

INTEGERS = (torch.int64, torch.int32)
PARTS = [f"{way}_{part}" for way in ("forward", "reverse") for part in ("sums", "keys", "log_scale")]  # of `states`


# cpu_scan and cpu_scan_backward


def usual(x: Arguments) -> bool:
    """Whether a call is one that fits, at a glance. Its tensors are all in the CPU's memory: torch has seen to that."""
    q, k, v, log_decay, log_decay_reverse, log_gain, self_weight, mask, cu_seqlens, orders, *_ = x
    if q is None or k is None or v is None:
        return False
    shape, dtype = q.shape, q.dtype
    if len(shape) != 4 or k.shape != shape or k.dtype is not dtype or v.dtype is not dtype or dtype not in DTYPES:
        return False
    B, T, H, D = shape
    return (
        (v.shape == shape or (v.dim() == 4 and v.shape[:3] == (B, T, H)))
        and D > 0
        and 0 <= x.norm <= RAW
        and 0 < x.direction < 4
        and 0 <= x.chunk_size <= LONGEST_CHUNK
        and (log_decay is None or _fits(log_decay, B, T, H, D))
        and (log_gain is None or (log_gain.dim() == 3 and _fits(log_gain, B, T, H, D) and not is_diagonal(log_decay)))
        and (self_weight is None or _fits(self_weight, B, T, H, D))
        and (mask is None or (mask.shape == (B, T) and mask.dtype is torch.bool))
        and (cu_seqlens is None or (cu_seqlens.dim() == B == 1 and len(cu_seqlens) > 1 and _counts(cu_seqlens)))
        and (orders is None or (orders.dim() == 2 and orders.shape[1] == T and len(orders) > 0 and _counts(orders)))
        and not (x.states or x.return_states or log_decay_reverse is not None or x.decay_between or x.gates_absorbed)
    )


def _fits(x: Tensor, B: int, T: int, H: int, D: int) -> bool:
    shape = x.shape
    n = len(shape)
    known = shape == (B, T, H) if n == 3 else shape == (H,) if n == 1 else shape in ((B, T, H, D), (H, D))
    return known and x.dtype.is_floating_point


def _counts(x: Tensor) -> bool:
    return x.dtype in INTEGERS


def check_scan(x: Arguments) -> None:
    check_first("q", x.q, 4, "[B, T, H, D]", DTYPES)
    check_fit(x.call())
    if x.log_gain is not None and x.log_decay is not None and is_diagonal(x.log_decay):
        raise ValueError(
            f"log_decay has shape {tuple(x.log_decay.shape)}, one per channel; expected [H] or [B, T, H] with log_gain."
        )
    _check_number("norm", x.norm, {**NORMS, "raw": RAW, "no output": NO_OUTPUT})
    if x.decay_between and not (is_diagonal(x.log_decay) and x.norm == NONE):
        raise ValueError("decay_between is True; expected log_decay of one per channel, and norm 0.")
    if x.gates_absorbed and not is_diagonal(x.log_decay):
        raise ValueError("gates_absorbed is True; expected log_decay of one per channel.")
    _check_number("direction", x.direction, DIRECTIONS)
    if not 0 <= x.chunk_size <= LONGEST_CHUNK:
        raise ValueError(
            f"chunk_size is {x.chunk_size}; expected 1 to {LONGEST_CHUNK} tokens, or 0 for as many as the kernel takes."
        )
    if x.norm == NO_OUTPUT and (x.self_weight is not None or not x.return_states):
        raise ValueError(f"norm is {NO_OUTPUT}, for states alone; expected return_states, and no self_weight.")
    if x.states or x.return_states:
        _check_states(x)


def _check_states(x: Arguments) -> None:
    alone = {"norm": x.norm == RAW, "cu_seqlens": x.cu_seqlens is not None, "orders": x.orders is not None}
    for name, given in alone.items():
        if given:
            raise ValueError(f"states are given or asked for with {name} {getattr(x, name)}; expected one of the two.")
    if len(x.states) not in (0, 6):
        raise ValueError(f"states has length {len(x.states)}; expected 0, or 6: {', '.join(PARTS)}.")
    B, _, H, D = x.q.shape
    shapes = ((B, H, D, x.v.shape[3]), (B, H, D), (B, H, 1))
    for way in (False, True):
        parts = x.entering(way)
        given = parts[0] is not None
        want = (given, given, given and x.log_gain is not None)
        for name, part, there, shape in zip(PARTS[3 * way :], parts, want, shapes, strict=False):
            if (part is not None) != there or (there and way not in x.ways):
                expected = "a tensor" if there and way in x.ways else "None"
                raise ValueError(f"{name} is {'None' if part is None else 'given'}; expected {expected}.")
            if part is not None:
                check_like(name, part, x.q, accumulation_dtype(x.q), shape, "[B, H, ...]")


def usual_gradients(x: Arguments, dout, dden, out, den, dstates) -> bool:
    """As `usual`, of what the backward pass is given besides the arguments of the forward pass."""
    if dout is None or out is None or den is None or dden is not None or dstates or x.norm == RAW:
        return False
    shape, sums = x.v.shape, accumulation_dtype(x.q)
    dtype = sums if x.wide else x.q.dtype
    return (
        dout.shape == shape
        and out.shape == shape
        and dout.dtype is dtype
        and out.dtype is dtype
        and den.dtype is sums
        and den.shape == den_shape(x)
    )


def check_gradients(x: Arguments, dout, dden, out, den, dstates=()) -> None:
    sums = accumulation_dtype(x.q)
    dtype, q, norm = sums if x.wide else x.q.dtype, x.q, x.norm
    letters = "[0]" if norm == NO_OUTPUT else "[B, T, H, V]"
    check_like("dout", dout, q, dtype, out_shape(x), letters)
    check_like("out", out, q, dtype, out_shape(x), letters)
    shape = den_shape(x)
    check_like("den", den, q, sums, shape, "the shape of the forward pass's")
    if norm != RAW and dden is not None:
        raise ValueError(f"dden is given with norm {norm}; expected None: den has a gradient with norm {RAW} alone.")
    if norm == RAW and dden is None:
        raise ValueError(f"dden is None with norm {norm}; expected a tensor {shape}, the shape of den.")
    if dden is not None:
        check_like("dden", dden, q, sums, shape, "the shape of den")
    count = 3 * len(x.ways) if x.return_states else 0
    if len(dstates) != count:
        raise ValueError(f"dstates has length {len(dstates)}; expected {count}, as many as the forward pass returns.")
    B, _, H, D = q.shape
    for i, grad in enumerate(dstates):
        if grad is not None and i % 3 < 2:
            wanted = (B, H, D, x.v.shape[3])[: 4 - i % 3]
            check_like(f"dstates[{i}]", grad, q, sums, wanted, "the shape of the state's")


def check_wanted(wanted: Sequence[bool], names: Sequence[str], x: Any) -> None:
    """That there is a flag for each, and none of them set for a tensor that is not given."""
    if len(wanted) != len(names):
        raise ValueError(f"wanted has length {len(wanted)}; expected {len(names)}, one for each of {', '.join(names)}.")
    for name, want in zip(names, wanted, strict=True):
        if want and getattr(x, name) is None:
            raise ValueError(f"wanted is True for {name}, which is None; expected False.")


# cpu_delta and cpu_delta_backward


def check_delta(x: Any) -> None:
    dtypes = (torch.float32, torch.float64)
    check_first("q", x.q, 4, "[B, T, H, D]", dtypes)
    B, T, H, D = x.q.shape
    check_like("k", x.k, x.q, x.q.dtype, x.q.shape, "[B, T, H, D], the shape of q")
    check_first("v", x.v, 4, "[B, T, H, V]", dtypes)
    check_like("v", x.v, x.q, x.q.dtype, (B, T, H, x.v.shape[3]), "[B, T, H, V]")
    if not D:
        raise ValueError("q has no channels; expected at least one.")
    for name in ("beta", "cost", "cost_reverse"):
        if name == "beta" or getattr(x, name) is not None:
            check_like(name, getattr(x, name), x.q, x.q.dtype, (B, T, H), "[B, T, H]")
    if (x.cost is None) != (x.cost_reverse is None):
        raise ValueError("one of cost and cost_reverse is None; expected both or neither.")
    _check_number("direction", x.direction, DIRECTIONS)
    if not 0 <= x.chunk_size <= LONGEST_CHUNK:
        raise ValueError(
            f"chunk_size is {x.chunk_size}; expected 1 to {LONGEST_CHUNK} tokens, or 0 for as many as the kernel takes."
        )
    for name, state in (("state", x.state), ("state_reverse", x.state_reverse)):
        if state is not None:
            check_like(name, state, x.q, x.q.dtype, (B, H, D, x.v.shape[3]), "[B, H, D, V]")


def check_delta_gradients(x: Any, dout: Tensor, dstates: Sequence[Tensor | None]) -> None:
    check_like("dout", dout, x.q, x.q.dtype, x.v.shape, "[B, T, H, V]")
    count = len(x.ways) if x.return_states else 0
    if len(dstates) != count:
        raise ValueError(f"dstates has length {len(dstates)}; expected {count}, as many as the forward pass returns.")
    for i, grad in enumerate(dstates):
        if grad is not None:
            check_like(f"dstates[{i}]", grad, x.q, x.q.dtype, x.state_shape(), "[B, H, D, V]")


# cpu_selective and cpu_selective_backward


def check_selective(x: Any) -> None:
    check_first("q", x.q, 3, "[B, T, D]", (torch.float32, torch.float64))
    B, T, D = x.q.shape
    if not D:
        raise ValueError("q has no channels; expected at least one.")
    check_like("k", x.k, x.q, x.q.dtype, x.q.shape, "[B, T, D], the shape of q")
    check_first("v", x.v, 3, "[B, T, H]", (x.q.dtype,))
    H = x.v.shape[2]
    wanted = {"v": ((B, T, H), "[B, T, H]"), "step": ((B, T, H), "[B, T, H]"), "rate": ((H, D), "[H, D]")}
    for name, (shape, letters) in wanted.items():
        check_like(name, getattr(x, name), x.q, x.q.dtype, shape, letters)
        reverse = getattr(x, f"{name}_reverse", None)
        if reverse is not None:
            check_like(f"{name}_reverse", reverse, x.q, x.q.dtype, shape, letters)
    if (x.step_reverse is None) != (x.rate_reverse is None):
        raise ValueError("one of step_reverse and rate_reverse is None; expected both or neither.")
    q = x.q.unsqueeze(2)
    check_others(Call(q, q, x.v.unsqueeze(2), mask=x.mask, cu_seqlens=x.cu_seqlens, orders=x.orders))
    _check_number("direction", x.direction, DIRECTIONS)


def check_selective_gradients(x: Any, dout: Tensor) -> None:
    check_like("dout", dout, x.q, x.q.dtype, x.v.shape, "[B, T, H]")


# cpu_features, cpu_projected and their backward passes


def usual_features(x: Tensor, *gradient: Tensor) -> bool:
    """As `usual`."""
    if x is None or x.dim() != 4 or x.dtype not in DTYPES:
        return False
    return all(dy is not None and dy.shape == x.shape and dy.dtype is x.dtype for dy in gradient)


def check_features(maps: Mapping[str, int], map: int, q: Tensor, k: Tensor) -> None:
    _check_number("map", map, maps)
    for name, x in (("q", q), ("k", k)):
        check_first(name, x, 4, "[B, T, H, D]", DTYPES)
        check_device(name, x, q)


def check_projection(x: Any, maps: Mapping[str, int]) -> None:
    """Of `Projected` arguments; the rest is for `check_scan`, of y's columns."""
    if x.y is None or x.y.dim() != 3 or x.y.dtype not in DTYPES:
        check_first("y", x.y, 3, "[B, T, columns]", DTYPES)
    for name in ("heads", "channels"):
        if getattr(x, name) < 1:
            raise ValueError(f"{name} is {getattr(x, name)}; expected at least 1.")
    columns = 3 * x.heads * x.channels
    if x.y.shape[2] < columns:
        raise ValueError(
            f"y has shape {tuple(x.y.shape)}; expected at least {columns} columns, q, k and v of {x.heads} heads with "
            f"{x.channels} channels."
        )
    _check_number("map", x.map, maps)
    _check_number("norm", x.norm, NORMS)  # the others' den has no gradient here


def _check_number(name: str, got: int, known: Mapping[str, int]) -> None:
    if got not in known.values():
        listed = ", ".join(f"{number} ({word})" for word, number in known.items())
        raise ValueError(f"{name} is {got}; expected one of {listed}.")


def check_tangents(tensors: Sequence[Tensor | None]) -> None:
    """Forward-mode derivatives would be lost without a word."""
    if forward_ad._current_level < 0:
        return
    for x in tensors:
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(
                "a forward-mode derivative goes through a compiled operator of lion's, which has none; expected "
                "lion.attention, which knows a way."
            )

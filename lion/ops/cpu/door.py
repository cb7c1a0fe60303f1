"""What the compiled kernel's operators refuse. Every call passes here, and every traced one (lion/ops/door.py).

The kernel gets addresses and strides, so that what does not fit would be read from beyond a tensor's end. Values that
have to be read (orders, cu_seqlens, decays and gates) the kernel checks as it reads them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import LONGEST_CHUNK, check_device, check_fit
from lion.ops.cpu.library import DIRECTIONS, DTYPES, NONE, NORMS, RAW
from lion.ops.torch.door import check_first, check_like

INTEGERS = (torch.int64, torch.int32)


# cpu_scan and cpu_scan_backward


def usual(q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size) -> bool:
    """Whether a call is one that fits, at a glance. Its tensors are all in the CPU's memory: torch has seen to that."""
    if q is None or k is None or v is None:
        return False
    shape, dtype = q.shape, q.dtype
    if len(shape) != 4 or k.shape != shape or k.dtype is not dtype or v.dtype is not dtype or dtype not in DTYPES:
        return False
    B, T, H, D = shape
    return (
        (v.shape == shape or (v.dim() == 4 and v.shape[:3] == (B, T, H)))
        and D > 0
        and 0 <= norm <= RAW
        and 0 < direction < 4
        and 0 <= chunk_size <= LONGEST_CHUNK
        and (log_decay is None or _fits(log_decay, B, T, H, D))
        and (log_gain is None or (log_gain.dim() == 3 and _fits(log_gain, B, T, H, D) and not _diagonal(log_decay)))
        and (self_weight is None or _fits(self_weight, B, T, H, D))
        and (mask is None or (mask.shape == (B, T) and mask.dtype is torch.bool))
        and (cu_seqlens is None or (cu_seqlens.dim() == B == 1 and len(cu_seqlens) > 1 and _counts(cu_seqlens)))
        and (orders is None or (orders.dim() == 2 and orders.shape[1] == T and len(orders) > 0 and _counts(orders)))
    )


def _fits(x: Tensor, B: int, T: int, H: int, D: int) -> bool:
    shape = x.shape
    n = len(shape)
    known = shape == (B, T, H) if n == 3 else shape == (H,) if n == 1 else shape in ((B, T, H, D), (H, D))
    return known and x.dtype.is_floating_point


def _counts(x: Tensor) -> bool:
    return x.dtype in INTEGERS


def _diagonal(log_decay: Tensor | None) -> bool:
    return log_decay is not None and log_decay.dim() in (2, 4)


def check_scan(
    q, k, v, log_decay, log_gain, self_weight, mask, cu_seqlens, orders, norm, direction, chunk_size
) -> None:
    check_first("q", q, 4, "[B, T, H, D]", DTYPES)
    check_fit(
        Call(
            q,
            k,
            v,
            log_decay,
            log_gain=log_gain,
            self_weight=self_weight,
            mask=mask,
            cu_seqlens=cu_seqlens,
            orders=orders,
        )
    )
    if log_gain is not None and _diagonal(log_decay):
        raise ValueError(
            f"log_decay has shape {tuple(log_decay.shape)}, one per channel; expected [H] or [B, T, H] with log_gain."
        )
    _check_number("norm", norm, {**NORMS, "raw": RAW})
    _check_number("direction", direction, DIRECTIONS)
    if not 0 <= chunk_size <= LONGEST_CHUNK:
        raise ValueError(
            f"chunk_size is {chunk_size}; expected 1 to {LONGEST_CHUNK} tokens, or 0 for as many as the kernel takes."
        )


def den_shape(q: Tensor, log_gain: Tensor | None, norm: int) -> tuple[int, ...]:
    """[0] if it does not exist; with gates and the norm RAW [2, ...], the second its log scale."""
    B, T, H, _ = q.shape
    return (0,) if norm == NONE else (2, B, T, H) if norm == RAW and log_gain is not None else (B, T, H)


def usual_gradients(dout, dden, out, den, q, v, log_gain, norm, wide) -> bool:
    """As `usual`, of what the backward pass is given besides the arguments of the forward pass."""
    if dout is None or out is None or den is None or dden is not None or norm == RAW:
        return False
    shape, sums = v.shape, accumulation_dtype(q)
    dtype = sums if wide else q.dtype
    return (
        dout.shape == shape
        and out.shape == shape
        and dout.dtype is dtype
        and out.dtype is dtype
        and den.dtype is sums
        and den.shape == den_shape(q, log_gain, norm)
    )


def check_gradients(dout, dden, out, den, q, v, log_gain, norm, wide) -> None:
    dtype, sums = accumulation_dtype(q) if wide else q.dtype, accumulation_dtype(q)
    check_like("dout", dout, q, dtype, v.shape, "[B, T, H, V]")
    check_like("out", out, q, dtype, v.shape, "[B, T, H, V]")
    shape = den_shape(q, log_gain, norm)
    check_like("den", den, q, sums, shape, "the shape of the forward pass's")
    if norm != RAW and dden is not None:
        raise ValueError(f"dden is given with norm {norm}; expected None: den has a gradient with norm {RAW} alone.")
    if norm == RAW and dden is None:
        raise ValueError(f"dden is None with norm {norm}; expected a tensor {shape}, the shape of den.")
    if dden is not None:
        check_like("dden", dden, q, sums, shape, "the shape of den")


def check_wanted(wanted: Sequence[bool], names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
    """That there is a flag for each, and none of them set for a tensor that is not given."""
    if len(wanted) != len(names):
        raise ValueError(f"wanted has length {len(wanted)}; expected {len(names)}, one for each of {', '.join(names)}.")
    for i, want in enumerate(wanted):
        if want and tensors[i] is None:
            raise ValueError(f"wanted is True for {names[i]}, which is None; expected False.")


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


def check_projection(y: Tensor, heads: int, channels: int, map: int, maps: Mapping[str, int], norm: int) -> None:
    """The rest is for `check_scan`, of y's columns."""
    if y is None or y.dim() != 3 or y.dtype not in DTYPES:
        check_first("y", y, 3, "[B, T, columns]", DTYPES)
    if heads < 1 or channels < 1:
        name, got = ("heads", heads) if heads < 1 else ("channels", channels)
        raise ValueError(f"{name} is {got}; expected at least 1.")
    if y.shape[2] < 3 * heads * channels:
        raise ValueError(
            f"y has shape {tuple(y.shape)}; expected at least {3 * heads * channels} columns, q, k and v of {heads} "
            f"heads with {channels} channels."
        )
    if map not in maps.values():
        _check_number("map", map, maps)
    if norm not in NORMS.values():  # whose den has no gradient here
        _check_number("norm", norm, NORMS)


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

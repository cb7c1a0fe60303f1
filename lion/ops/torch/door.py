"""Checks of the operators of `torch.ops.lion` that are written in torch; cpu/door.py has the compiled ones'.

Every call of an operator passes here, and every traced one, by its fake version. `lion.attention` has looked at its
arguments already, so what is usual is recognised at a glance, and only the rest is looked at part by part.
"""

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

from lion.ops.checks import (
    DIRECTIONS,
    DTYPES,
    check_chunk_size,
    check_dense,
    check_device,
    check_shape,
    name_of,
    one_of,
)

ACCUMULATED = (torch.float32, torch.float64)


def check_like(name: str, x: Tensor, q: Tensor, dtype: torch.dtype, shape: Iterable[int], letters: str) -> None:
    """Raise unless x is a dense tensor on q's device, of this dtype and shape."""
    check_dense(name, x)
    if x.dtype != dtype:
        raise TypeError(f"{name} has dtype {name_of(x.dtype)}; expected {name_of(dtype)}.")
    check_device(name, x, q)
    check_shape(name, x, shape, letters)


def check_first(name: str, x: Tensor, dimensions: int, letters: str, dtypes: Collection[torch.dtype]) -> None:
    """The tensor that the others are compared with."""
    check_dense(name, x)
    if x.dim() != dimensions:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {dimensions} dimensions {letters}.")
    if x.dtype not in dtypes:
        raise TypeError(f"{name} has dtype {name_of(x.dtype)}; expected one of {', '.join(map(name_of, dtypes))}.")


def _check_costs(f: Tensor, b: Tensor, q: Tensor, dtype: torch.dtype, broadcast: Sequence[int], letters: str) -> None:
    """Check the log decays f and b: the dimensions in `broadcast` may be 1, and so may the last."""
    check_dense("f", f)
    if q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}; expected at least one channel, D >= 1.")
    want = [n if i in broadcast and n == 1 else size for i, (n, size) in enumerate(zip(f.shape, q.shape, strict=False))]
    if f.dim() == q.dim() and f.shape[-1] in (1, q.shape[-1]):
        want[-1] = f.shape[-1]
    else:
        want = [*q.shape[:-1], 1]
    check_like("f", f, q, dtype, want, letters)
    check_like("b", b, q, dtype, f.shape, "the shape of f")


# At a glance, for what runs: mixed devices torch sees itself, and a traced call is not asked.


def usual_costs(q: Tensor, k: Tensor, f: Tensor, b: Tensor) -> bool:
    """All of one dtype that is summed in, and a cost for each token: what most calls have."""
    if q is None or k is None or f is None or b is None:
        return False
    shape, dtype, cost, dense = q.shape, q.dtype, f.shape, torch.strided
    return (
        k.shape == shape
        and b.shape == cost
        and (cost == (*shape[:-1], 1) or cost == shape)
        and shape[-1] > 0
        and dtype in ACCUMULATED
        and k.dtype is dtype
        and f.dtype is dtype
        and b.dtype is dtype
        and q.layout is k.layout is f.layout is b.layout is dense
    )


def usual_scan(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, direction: str, chunk_size: int | None) -> bool:
    fits = usual_costs(q, k, f, b) and v is not None and len(q.shape) == 4 and v.shape == q.shape and v.dtype is q.dtype
    return fits and v.layout is torch.strided and direction in DIRECTIONS and chunk_size is None


def usual_scores(q: Tensor, k: Tensor, f: Tensor, b: Tensor, direction: str) -> bool:
    return usual_costs(q, k, f, b) and len(q.shape) > 2 and direction in DIRECTIONS


def usual_carry(state, of_values, of_state, queries, keys, inside, keep) -> bool:
    tensors = state, of_values, of_state, queries, keys, inside, state if keep is None else keep
    for x in tensors:
        if x is None:
            return False
    shape, of_heads, dtype, dense = keys.shape, state.shape, state.dtype, torch.strided
    if len(shape) != 4 or len(of_heads) != 3 or of_state.shape != shape or queries.shape != shape:
        return False
    n, heads, C, D = shape
    for x in tensors:
        if x.dtype is not dtype or x.layout is not dense:
            return False
    return (
        dtype in ACCUMULATED
        and of_heads[:2] == (heads, D)
        and of_values.shape == (n, heads, C, of_heads[2])
        and inside.shape == (n, heads, C, C)
        and (keep is None or keep.shape == (n, heads))
    )


# scan and scan_backward


def check_scan(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, direction: str, chunk_size: int | None) -> None:
    """q, k [B, T, H, D], v [B, T, H, V], costs f, b [B or 1, T or 1, H or 1, D or 1] (options.py)"""
    one_of("direction", direction, DIRECTIONS)
    check_chunk_size(chunk_size)
    for name, x, letters in (("q", q, "[B, T, H, D]"), ("k", k, "[B, T, H, D]"), ("v", v, "[B, T, H, V]")):
        check_first(name, x, 4, letters, DTYPES)
    check_like("k", k, q, k.dtype, q.shape, "[B, T, H, D], the shape of q")  # gates make k wider than q
    check_like("v", v, q, v.dtype, q.shape[:3] + v.shape[3:], "[B, T, H, V]")
    widest = torch.float64 if torch.float64 in (q.dtype, k.dtype, v.dtype) else torch.float32
    _check_costs(f, b, q, widest, (0, 1, 2), "[B or 1, T or 1, H or 1, D or 1]")


def check_scan_gradients(dnum: Tensor, dden: Tensor, v: Tensor, f: Tensor, with_den: bool) -> None:
    rows = v.shape[:3]
    check_like("dnum", dnum, v, f.dtype, v.shape, "[B, T, H, V]")
    check_like("dden", dden, v, f.dtype, (*rows, int(with_den)), "[B, T, H, 1], or [B, T, H, 0] without with_den")


# decayed_scores and decayed_scores_backward


def check_scores(q: Tensor, k: Tensor, f: Tensor, b: Tensor, direction: str) -> None:
    """q, k [..., C, D], costs f, b [..., C, 1 or D]; of the dimensions before, the costs' may be 1."""
    one_of("direction", direction, DIRECTIONS)
    check_dense("q", q)
    check_first("q", q, max(q.dim(), 3), "[..., C, D]", ACCUMULATED)
    check_like("k", k, q, q.dtype, q.shape, "[..., C, D], the shape of q")
    _check_costs(f, b, q, q.dtype, range(q.dim() - 2), "[..., C, 1 or D]")


def check_scores_gradient(grad: Tensor, q: Tensor) -> None:
    check_like("grad", grad, q, q.dtype, (*q.shape[:-1], q.shape[-2]), "[..., C, C]")


# delta_carry and delta_carry_backward


def check_carry(
    state: Tensor,
    of_values: Tensor,
    of_state: Tensor,
    queries: Tensor,
    keys: Tensor,
    inside: Tensor,
    keep: Tensor | None,
) -> None:
    check_first("state", state, 3, "[heads, D, V]", ACCUMULATED)
    check_first("keys", keys, 4, "[chunks, heads, C, D]", ACCUMULATED)
    n, _, C, _ = keys.shape
    heads, D, V = state.shape
    wide, narrow = (n, heads, C, V), (n, heads, C, D)
    check_like("keys", keys, state, state.dtype, narrow, "[chunks, heads, C, D]")
    check_like("of_values", of_values, state, state.dtype, wide, "[chunks, heads, C, V]")
    check_like("of_state", of_state, state, state.dtype, narrow, "[chunks, heads, C, D]")
    check_like("queries", queries, state, state.dtype, narrow, "[chunks, heads, C, D]")
    check_like("inside", inside, state, state.dtype, (n, heads, C, C), "[chunks, heads, C, C]")
    if keep is not None:
        check_like("keep", keep, state, state.dtype, (n, heads), "[chunks, heads]")


def check_carry_gradients(dout: Tensor, dlast: Tensor, state: Tensor, of_values: Tensor) -> None:
    check_like("dout", dout, state, state.dtype, of_values.shape, "[chunks, heads, C, V]")
    check_like("dlast", dlast, state, state.dtype, state.shape, "[heads, D, V]")

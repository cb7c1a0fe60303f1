"""What the kernels share: where a tensor's numbers are, tiles of them, and products."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Rows(NamedTuple):
    """A tensor [B or 1, T or 1, H or 1, channels] as a kernel's argument. Neighbouring channels are side by side."""

    data: Any
    strides: tuple[int, int, int]  # 0 where there is one for all


# Places


@triton.jit
def chunk_of(program, chunks, H):
    """The chunk, and the head as a number of all, of its row of the batch and in that row."""
    head = (program // chunks).to(tl.int64)
    return program % chunks, head, head // H, head % H


@triton.jit
def borders_of(n, head, chunks, heads, BOTH: tl.constexpr, ONE_STATE: tl.constexpr):
    """The places of the states that the walk down and the walk up bring to a chunk: all of one, then the other's."""
    if ONE_STATE:
        return head, head
    down = head * chunks + n
    return down, down + heads * chunks if BOTH else down


@triton.jit
def there(mask, batch, t, T):
    """Whether there is a token t, and it is not masked. What is not there holds 0, and is left for free."""
    inside = (t >= 0) & (t < T)
    if mask is not None:
        inside = inside & (tl.load(mask + batch * T + t, mask=inside, other=0) != 0)
    return inside


@triton.jit
def head_at(x, batch, h):
    return x.data + batch * x.strides[0] + h * x.strides[2]


@triton.jit
def row_at(x, batch, h, t):
    return head_at(x, batch, h) + t.to(tl.int64) * x.strides[1]


# Tiles: rows of a head, one number of each row, and states. They end where a tensor ends.


@triton.jit
def rows(x, batch, h, t, inside, column, columns):
    """[row, column]"""
    inside = inside[:, None] & (column < columns)[None, :]
    return tl.load(row_at(x, batch, h, t)[:, None] + column[None, :], mask=inside, other=0.0)


@triton.jit
def put_rows(x, batch, h, t, inside, column, columns, value, INTERPRETED: tl.constexpr):
    inside = inside[:, None] & (column < columns)[None, :]
    value = rounded(value, x.data.dtype.element_ty, INTERPRETED)
    tl.store(row_at(x, batch, h, t)[:, None] + column[None, :], value, mask=inside)


@triton.jit
def put_result(x, batch, h, t, T, here, column, columns, value, INTERPRETED: tl.constexpr):
    """Rows of all tokens: masked ones are 0."""
    value = tl.where(here[:, None], value, 0.0)
    put_rows(x, batch, h, t, t < T, column, columns, value, INTERPRETED)


@triton.jit
def numbers(x, batch, h, t, inside):
    """[row], of a tensor with one channel."""
    return tl.load(row_at(x, batch, h, t), mask=inside, other=0.0)


@triton.jit
def put_numbers(x, batch, h, t, inside, value):
    tl.store(row_at(x, batch, h, t), value, mask=inside)


@triton.jit
def matrix(sums, place, d, D, v, V):
    """[d, v] of the state at a place."""
    inside = (d < D)[:, None] & (v < V)[None, :]
    return tl.load(sums + place * D * V + d[:, None] * V + v[None, :], mask=inside, other=0.0)


@triton.jit
def put_matrix(sums, place, d, D, v, V, value, INTERPRETED: tl.constexpr):
    inside = (d < D)[:, None] & (v < V)[None, :]
    value = rounded(value, sums.dtype.element_ty, INTERPRETED)
    tl.store(sums + place * D * V + d[:, None] * V + v[None, :], value, mask=inside)


@triton.jit
def vector(keys, place, d, D):
    """[d] of the state's keys."""
    return tl.load(keys + place * D + d, mask=d < D, other=0.0)


@triton.jit
def put_vector(keys, place, d, D, value, wanted):
    if wanted:
        tl.store(keys + place * D + d, value, mask=d < D)


# Products


@triton.jit
def rounded(x, DTYPE: tl.constexpr, INTERPRETED: tl.constexpr):
    """x in a dtype. Triton's interpreter truncates to bfloat16 and multiplies it wrongly: there it is rounded to the
    nearest, as a GPU does, and stays in float32."""
    if INTERPRETED and tl.bfloat16 == DTYPE:
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        return bits.to(tl.float32, bitcast=True)
    else:
        return x.to(DTYPE)


@triton.jit
def dot(a, b, DTYPE: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr):
    """a @ b of operands in DTYPE, summed in float32 at least."""
    a, b = rounded(a, DTYPE, INTERPRETED), rounded(b, DTYPE, INTERPRETED)
    return tl.dot(a, b, input_precision=PRECISION, out_dtype=tl.float64 if tl.float64 == DTYPE else tl.float32)


# 0 times NaN is NaN: where a token must not reach all others of its chunk, a weight of 0 has to be more than a factor.


@triton.jit
def weighted(x, weight, PACKED: tl.constexpr):
    """x times weight; in packed rows 0 where the weight is, whatever x is."""
    product = x * weight
    if PACKED:
        product = tl.where(weight == 0.0, 0.0, product)
    return product


@triton.jit
def guarded_dot(a, b, reach, DTYPE: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr):
    """a @ b. A row of b that is not finite spoils the rows of a that it reaches, and no others."""
    spoiled = not_finite(b)
    product = dot(a, tl.where(spoiled[:, None] > 0, 0.0, b), DTYPE, PRECISION, INTERPRETED)
    return tl.where(tl.max(tl.where(reach, spoiled[None, :], 0), 1)[:, None] > 0, float("nan"), product)


@triton.jit
def not_finite(x):
    """[C]: 1 for rows with NaN or infinity."""
    return tl.max(tl.where(tl.abs(x) < float("inf"), 0, 1), 1)


@triton.jit
def spoiled_rows(spoiled, reach, LOWER: tl.constexpr, UPPER: tl.constexpr, SELF: tl.constexpr, PACKED: tl.constexpr):
    """[C]: the rows that one of the spoiled columns reaches."""
    if PACKED:
        return tl.max(tl.where(reach, spoiled[None, :], 0), 1) > 0
    else:
        count = tl.cumsum(spoiled, 0, reverse=UPPER)
        return (count if SELF else count - spoiled) > 0

"""What the kernels share: tiles that end where a tensor ends, products, and sums of costs inside a chunk.

Row i of a chunk is a token. `down` costs are summed down the rows, `up` costs up the rows; a row's cost is that of the
step between it and the row before (down) or after it (up). Sums start at a pair's own key and never are differences.
"""

import triton
import triton.language as tl


@triton.jit
def tile(pointer, row, rows, stride, column, columns):
    """[row, column] of a matrix, 0 beyond its edges."""
    inside = ((row >= 0) & (row < rows))[:, None] & (column < columns)[None, :]
    return tl.load(pointer + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def vector(pointer, row, rows, stride):
    return tl.load(pointer + row.to(tl.int64) * stride, mask=(row >= 0) & (row < rows), other=0.0)


@triton.jit
def put(pointer, row, rows, stride, column, columns, x, INTERPRETED: tl.constexpr):
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    where = pointer + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(where, rounded(x, pointer.dtype.element_ty, INTERPRETED), mask=inside)


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


@triton.jit
def reached(C: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr, SELF: tl.constexpr):
    """[C, C]: the pairs of a row and a column that count."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return ((row > column) & LOWER) | ((row < column) & UPPER) | ((row == column) & SELF)


@triton.jit
def decay_mask(down, up, C: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr):
    """[C, C]: the decay between a row and a column, by segment sums. -inf is a reset."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    exponent = tl.zeros([C, C], dtype=down.dtype)
    if LOWER:
        exponent += tl.cumsum(tl.where(row > column, down[:, None], 0.0), 0)
    if UPPER:
        exponent += tl.cumsum(tl.where(row < column, up[:, None], 0.0), 0, reverse=True)
    return tl.exp(exponent)


@triton.jit
def decay_mask_grad(x, C: tl.constexpr):
    """The gradients of `down` and `up`, given those of the mask's exponents."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    lower = tl.cumsum(tl.where(row > column, x, 0.0), 0, reverse=True)
    upper = tl.cumsum(tl.where(row < column, x, 0.0), 0)
    return tl.sum(tl.where(row > column, lower, 0.0), 1), tl.sum(tl.where(row < column, upper, 0.0), 1)


@triton.jit
def summed(x, SIZE: tl.constexpr, REVERSE: tl.constexpr):
    """Cumulative sums down the rows of [C, D], or up, inside blocks of SIZE rows."""
    C: tl.constexpr = x.shape[0]
    D: tl.constexpr = x.shape[1]
    if SIZE == C:
        return tl.cumsum(x, 0, reverse=REVERSE)
    else:
        return tl.reshape(tl.cumsum(tl.reshape(x, [C // SIZE, SIZE, D]), 1, reverse=REVERSE), [C, D])


@triton.jit
def from_middle(down, up, SIZE: tl.constexpr, STEPS_BETWEEN: tl.constexpr):
    """exp of the costs between a row and the middle of its block of 2 SIZE rows, for each channel: [C, D].

    Rows of a block's second half pay `down`, those of its first half `up`. STEPS_BETWEEN: the row that is next to the
    middle pays nothing, as its cost is that of the step across.
    """
    row = tl.arange(0, down.shape[0])[:, None]
    if STEPS_BETWEEN:
        down = tl.where(row % SIZE == 0, 0.0, down)
        up = tl.where(row % SIZE == SIZE - 1, 0.0, up)
    return tl.exp(tl.where((row // SIZE) % 2 == 1, summed(down, SIZE, False), summed(up, SIZE, True)))


@triton.jit
def across_middle(C: tl.constexpr, SIZE: tl.constexpr):
    """[C, C]: the pairs whose row and column are in different halves of one block of 2 SIZE rows."""
    row, column = tl.arange(0, C)[:, None] // SIZE, tl.arange(0, C)[None, :] // SIZE
    return (row // 2 == column // 2) & (row != column)

"""Costs inside a chunk, summed.

Row i of a chunk is a token. `down` costs are paid down the rows, `up` costs up the rows. Where rows are queries, a row
pays for the step between it and the row before (down) or after it (up): a query does not pay its own cost. Where rows
are keys they pay their own. SHIFT, 1 or 0, says which. Sums start at a pair's own key and never are differences, so
-inf is a reset, and strong decays keep their digits.
"""

import triton
import triton.language as tl

from lion.ops.triton.tiles import numbers, rows, there


@triton.jit
def reached(C: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr, SELF: tl.constexpr):
    """[C, C]: the pairs of a row and a column that count."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return ((row > column) & LOWER) | ((row < column) & UPPER) | ((row == column) & SELF)


# One decay per head: [C] costs


@triton.jit
def costs(x, mask, batch, h, t, T, WALKED: tl.constexpr, ACC: tl.constexpr):
    """Those of a direction that is not walked may be anything: they are 0."""
    if WALKED:
        return numbers(x, batch, h, t, there(mask, batch, t, T)).to(ACC)
    else:
        return tl.zeros([t.shape[0]], dtype=ACC)


@triton.jit
def from_borders(down, up, C: tl.constexpr, SHIFT: tl.constexpr):
    """The decays between a row and the chunk's two ends."""
    if SHIFT == 1:
        row = tl.arange(0, C)
        down, up = tl.where(row == 0, 0.0, down), tl.where(row == C - 1, 0.0, up)
    return tl.exp(tl.cumsum(down, 0)), tl.exp(tl.cumsum(up, 0, reverse=True))


@triton.jit
def decay_mask(down, up, C: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr):
    """[C, C]: the decay between a row and a column, by segment sums."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    exponent = tl.zeros([C, C], dtype=down.dtype)
    if LOWER:
        exponent += tl.cumsum(tl.where(row > column, down[:, None], 0.0), 0)
    if UPPER:
        exponent += tl.cumsum(tl.where(row < column, up[:, None], 0.0), 0, reverse=True)
    return tl.exp(exponent)


@triton.jit
def decay_mask_grad(x, C: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr):
    """The gradients of `down` and `up`, given those of the mask's exponents."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    down, up = tl.zeros([C], dtype=x.dtype), tl.zeros([C], dtype=x.dtype)
    if LOWER:
        lower = tl.cumsum(tl.where(row > column, x, 0.0), 0, reverse=True)
        down += tl.sum(tl.where(row > column, lower, 0.0), 1)
    if UPPER:
        upper = tl.cumsum(tl.where(row < column, x, 0.0), 0)
        up += tl.sum(tl.where(row < column, upper, 0.0), 1)
    return down, up


# One decay per channel: [C, D] costs. A block of rows is halved again and again; pairs across a block's middle pay from
# the row to the middle, and from there to the column.


@triton.jit
def channel_costs(x, mask, batch, h, t, T, d, D, WALKED: tl.constexpr, ACC: tl.constexpr):
    if WALKED:
        return rows(x, batch, h, t, there(mask, batch, t, T), d, D).to(ACC)
    else:
        return tl.zeros([t.shape[0], d.shape[0]], dtype=ACC)


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
def channels_from_borders(down, up, C: tl.constexpr, SHIFT: tl.constexpr):
    if SHIFT == 1:
        row = tl.arange(0, C)[:, None]
        down, up = tl.where(row == 0, 0.0, down), tl.where(row == C - 1, 0.0, up)
    return tl.exp(summed(down, C, False)), tl.exp(summed(up, C, True))


@triton.jit
def from_middle(down, up, SIZE: tl.constexpr, SHIFT: tl.constexpr):
    """The decays between a row and the middle of its block of 2 SIZE rows: [C, D].

    Rows of a block's second half pay `down`, those of its first half `up`. The row next to the middle pays nothing if
    its cost is that of the step across.
    """
    row = tl.arange(0, down.shape[0])[:, None]
    if SHIFT == 1:
        down = tl.where(row % SIZE == 0, 0.0, down)
        up = tl.where(row % SIZE == SIZE - 1, 0.0, up)
    return tl.exp(tl.where((row // SIZE) % 2 == 1, summed(down, SIZE, False), summed(up, SIZE, True)))


@triton.jit
def from_middle_grad(x, SIZE: tl.constexpr, SHIFT: tl.constexpr):
    """The gradients of `down` and `up`, given those of the exponents."""
    row = tl.arange(0, x.shape[0])[:, None]
    second = (row // SIZE) % 2 == 1
    down = summed(tl.where(second, x, 0.0), SIZE, True)
    up = summed(tl.where(second, 0.0, x), SIZE, False)
    if SHIFT == 1:
        down = tl.where(row % SIZE == 0, 0.0, down)
        up = tl.where(row % SIZE == SIZE - 1, 0.0, up)
    return down, up


@triton.jit
def left_of_any(weight, inside):
    """[C]: the rows whose decays, [C, D], are not 0 in all channels."""
    return tl.max(tl.where(inside[None, :], weight, 0.0), 1) > 0.0


@triton.jit
def across_middle(to_row, to_column, inside, C: tl.constexpr, SIZE: tl.constexpr, PACKED: tl.constexpr):
    """[C, C]: the pairs whose row and column are in different halves of one block of 2 SIZE rows; where sequences are
    packed without those that nothing connects, as their decays, [C, D], are 0 in all channels."""
    row, column = tl.arange(0, C)[:, None] // SIZE, tl.arange(0, C)[None, :] // SIZE
    across = (row // 2 == column // 2) & (row != column)
    if PACKED:
        across = across & left_of_any(to_row, inside)[:, None] & left_of_any(to_column, inside)[None, :]
    return across

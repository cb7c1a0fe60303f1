"""The outputs of a chunk, [C, V]: its own pairs and what the states bring. Transposed: the gradient of v."""

import triton
import triton.language as tl

from lion.ops.triton.decays import (
    across_middle,
    channel_costs,
    channels_from_borders,
    costs,
    decay_mask,
    from_borders,
    from_middle,
    reached,
)
from lion.ops.triton.tiles import (
    borders_of,
    chunk_of,
    dot,
    guarded_dot,
    matrix,
    not_finite,
    numbers,
    put_numbers,
    put_result,
    rows,
    spoiled_rows,
    there,
    vector,
    weighted,
)


@triton.jit
def values(
    a,  # rows [B, T, H, D]: queries; transposed: keys
    c,  # columns [B, T, H, D]: keys; transposed: queries
    z,  # [B, T, H, V]: values; transposed: the gradient of the output
    down,  # costs [B, T, H, 1 or D]: forward; transposed: reverse
    up,
    scale,  # [B, T, H, 1], a factor of each row of z, or None
    mask,  # [B, T] or None
    costs_mask,  # the same, or None where costs are to be read all the same
    sums,  # the states that come into each chunk, or None
    keys,
    out,  # [B, T, H, V]
    saved,  # [B, T, H, V]: the output before it is rounded, for the backward pass; or None
    den,  # [B, T, H, 1] or None
    T,
    H,
    chunks,
    heads,
    D: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    LEVELS: tl.constexpr,  # C is 2 to this power
    BD: tl.constexpr,
    BV: tl.constexpr,
    DECAY: tl.constexpr,
    LOWER: tl.constexpr,  # pairs whose row comes after the column
    UPPER: tl.constexpr,
    SELF: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ONE_STATE: tl.constexpr,  # which holds the pairs of a chunk already
    PACKED: tl.constexpr,
    NORM: tl.constexpr,
    RAW: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    ACC: tl.constexpr = tl.float64 if tl.float64 == OPERAND else tl.float32
    SHIFT: tl.constexpr = 0 if TRANSPOSED else 1
    GUARDED: tl.constexpr = PACKED or not (LOWER and UPPER)  # some pairs of the chunk do not count
    v_tiles: tl.constexpr = max(1, (V + BV - 1) // BV)
    program = tl.program_id(0)
    first_v = program % v_tiles
    column = first_v * BV + tl.arange(0, BV)
    n, head, batch, h = chunk_of(program // v_tiles, chunks, H)
    down_border, up_border = borders_of(n, head, chunks, heads, LOWER and UPPER, ONE_STATE)
    t = n * C + tl.arange(0, C)
    here = there(mask, batch, t, T)

    pairs = tl.zeros([C, C], dtype=ACC)
    if DECAY == "diagonal":
        reach = tl.arange(0, C)[:, None] == tl.arange(0, C)[None, :]
    else:
        reach = reached(C, LOWER, UPPER, SELF)
    from_down, from_up = tl.zeros([C, BV], dtype=ACC), tl.zeros([C, BV], dtype=ACC)
    den_down, den_up = tl.zeros([C], dtype=ACC), tl.zeros([C], dtype=ACC)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        x = rows(a, batch, h, t, here, d, D)
        to_down, to_up = x, x
        if not ONE_STATE:
            y = rows(c, batch, h, t, here, d, D)
            if DECAY == "diagonal":
                wide_x, wide_y = x.to(ACC), y.to(ACC)
                row_down = channel_costs(down, costs_mask, batch, h, t - SHIFT, T, d, D, LOWER, ACC)
                row_up = channel_costs(up, costs_mask, batch, h, t + SHIFT, T, d, D, UPPER, ACC)
                column_down = channel_costs(down, costs_mask, batch, h, t + (1 - SHIFT), T, d, D, LOWER, ACC)
                column_up = channel_costs(up, costs_mask, batch, h, t - (1 - SHIFT), T, d, D, UPPER, ACC)
                own = tl.sum(wide_x * wide_y, 1)
                pairs += tl.where(tl.arange(0, C)[:, None] == tl.arange(0, C)[None, :], own[:, None], 0.0)
                for level in tl.static_range(LEVELS):
                    to_row = from_middle(row_down, row_up, 1 << level, SHIFT)
                    to_column = from_middle(column_up, column_down, 1 << level, 1 - SHIFT)
                    scores = dot(
                        weighted(wide_x, to_row, PACKED),
                        tl.trans(weighted(wide_y, to_column, PACKED)),
                        OPERAND,
                        PRECISION,
                        INTERPRETED,
                    )
                    across = across_middle(to_row, to_column, d < D, C, 1 << level, PACKED)
                    pairs += tl.where(across, scores, 0.0)
                    reach = reach | across
                if sums is not None:
                    left, right = channels_from_borders(row_down, row_up, C, SHIFT)
                    to_down, to_up = weighted(wide_x, left, PACKED), weighted(wide_x, right, PACKED)
            else:
                pairs += dot(x, tl.trans(y), RAW, PRECISION, INTERPRETED)
        if sums is not None and (LOWER or ONE_STATE):
            state = matrix(sums, down_border, d, D, column, V)
            from_down += from_state(to_down, state, PACKED and DECAY == "diagonal", OPERAND, PRECISION, INTERPRETED)
            if den is not None:
                den_down += tl.sum(weighted(vector(keys, down_border, d, D)[None, :], to_down.to(ACC), PACKED), 1)
        if sums is not None and UPPER and not ONE_STATE:
            state = matrix(sums, up_border, d, D, column, V)
            from_up += from_state(to_up, state, PACKED and DECAY == "diagonal", OPERAND, PRECISION, INTERPRETED)
            if den is not None:
                den_up += tl.sum(weighted(vector(keys, up_border, d, D)[None, :], to_up.to(ACC), PACKED), 1)
    if DECAY == "scalar":
        f = costs(down, costs_mask, batch, h, t - SHIFT, T, LOWER, ACC)
        b = costs(up, costs_mask, batch, h, t + SHIFT, T, UPPER, ACC)
        if sums is not None:
            left, right = from_borders(f, b, C, SHIFT)
            from_down, from_up = weighted(from_down, left[:, None], PACKED), weighted(from_up, right[:, None], PACKED)
            den_down, den_up = weighted(den_down, left, PACKED), weighted(den_up, right, PACKED)
    total = from_down + from_up
    divisor = den_down + den_up
    if not ONE_STATE:
        if DECAY == "scalar":
            decay = decay_mask(f, b, C, LOWER, UPPER)
            pairs *= decay
            if PACKED:
                reach = reach & (decay != 0.0)
        if DECAY == "diagonal":
            reach = reach & reached(C, LOWER, UPPER, SELF)
        pairs = tl.where(reach, pairs, 0.0)
        if den is not None:
            divisor += tl.sum(pairs, 1)
        if scale is not None:
            pairs = weighted(numbers(scale, batch, h, t, here)[None, :], pairs, PACKED)
        x = rows(z, batch, h, t, here, column, V)
        if GUARDED:  # read again without these: a tile that is changed first is held by every thread
            spoiled = not_finite(x)
            x = rows(z, batch, h, t, here & (spoiled == 0), column, V)
        total += dot(pairs, x, OPERAND, PRECISION, INTERPRETED)
        if GUARDED:
            lost = spoiled_rows(spoiled, reach, LOWER, UPPER, SELF, PACKED)
            total = tl.where(lost[:, None], float("nan"), total)
    if den is not None:
        if first_v == 0:
            put_numbers(den, batch, h, t, t < T, divisor)
        if NORM == "max":
            divisor = tl.maximum(tl.abs(divisor), 1.0)
        if NORM == "sum" or NORM == "max":
            total = total / tl.where(here, divisor, 1.0)[:, None]
    if saved is not None:
        put_result(saved, batch, h, t, T, here, column, V, total, INTERPRETED)
    put_result(out, batch, h, t, T, here, column, V, total, INTERPRETED)


@triton.jit
def from_state(
    to_row,
    state,
    WEIGHTED: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """to_row @ state, [C, D] @ [D, V]; if to_row is decayed already, what is 0 there keeps NaN out."""
    if WEIGHTED:
        return guarded_dot(to_row, state, to_row != 0.0, OPERAND, PRECISION, INTERPRETED)
    else:
        return dot(to_row, state, OPERAND, PRECISION, INTERPRETED)

"""The outputs of a chunk, [C, V]: its own pairs and what the states bring. Transposed: the gradient of v."""

import triton
import triton.language as tl

from lion.ops.triton.tiles import across_middle, decay_mask, dot, from_middle, put, reached, summed, tile, vector


@triton.jit
def values(
    a,  # rows [B, T, H, D]: queries; transposed: keys
    c,  # columns [B, T, H, D]: keys; transposed: queries
    z,  # [B, T, H, V]: values; transposed: the gradient of the output
    down,  # costs [B, T, H, 1 or D]: forward; transposed: reverse
    up,
    scale,  # [B, T, H], a factor of each row of z
    sums,
    keys,
    out,  # [B, T, H, V]
    saved,  # [B, T, H, V]: the output before it is rounded, for the backward pass
    den,  # [B, T, H]
    a_strides,
    c_strides,
    z_strides,
    down_strides,
    up_strides,
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
    PAIRS: tl.constexpr,  # whether pairs inside a chunk are not in the state already
    CROSSING: tl.constexpr,  # whether there are states
    BORDERS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    SCALED: tl.constexpr,
    NORM: tl.constexpr,
    WITH_DEN: tl.constexpr,
    SAVED: tl.constexpr,
    RAW: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    ACC: tl.constexpr = tl.float64 if tl.float64 == OPERAND else tl.float32
    SHIFT: tl.constexpr = 0 if TRANSPOSED else 1
    v_tiles: tl.constexpr = max(1, (V + BV - 1) // BV)
    program = tl.program_id(0)
    first_v = program % v_tiles
    column = first_v * BV + tl.arange(0, BV)
    program //= v_tiles
    n = program % chunks
    head = (program // chunks).to(tl.int64)
    batch, h = head // H, head % H
    a += batch * a_strides[0] + h * a_strides[2]
    c += batch * c_strides[0] + h * c_strides[2]
    z += batch * z_strides[0] + h * z_strides[2]
    down += batch * down_strides[0] + h * down_strides[2]
    up += batch * up_strides[0] + h * up_strides[2]
    place = head * chunks + n if BORDERS else head
    other = place + heads * (chunks if BORDERS else 1) if LOWER and UPPER and BORDERS else place

    row = tl.arange(0, C)
    t = n * C + row
    first, last = row == 0, row == C - 1
    pairs = tl.zeros([C, C], dtype=ACC)
    from_left = tl.zeros([C, BV], dtype=ACC)
    from_right = tl.zeros([C, BV], dtype=ACC)
    den_left = tl.zeros([C], dtype=ACC)
    den_right = tl.zeros([C], dtype=ACC)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        x = tile(a, t, T, a_strides[1], d, D)
        to_left, to_right = x, x
        if PAIRS:
            y = tile(c, t, T, c_strides[1], d, D)
            if DECAY == "diagonal":
                wide_x, wide_y = x.to(ACC), y.to(ACC)
                rows_down = tile(down, t - SHIFT, T, down_strides[1], d, D).to(ACC)
                rows_up = tile(up, t + SHIFT, T, up_strides[1], d, D).to(ACC)
                columns_up = tile(up, t - (1 - SHIFT), T, up_strides[1], d, D).to(ACC)
                columns_down = tile(down, t + (1 - SHIFT), T, down_strides[1], d, D).to(ACC)
                if SELF:
                    pairs += tl.where(row[:, None] == row[None, :], tl.sum(wide_x * wide_y, 1)[:, None], 0.0)
                for level in tl.static_range(LEVELS):
                    to_row = wide_x * from_middle(rows_down, rows_up, 1 << level, SHIFT == 1)
                    to_column = wide_y * from_middle(columns_up, columns_down, 1 << level, SHIFT == 0)
                    scores = dot(to_row, tl.trans(to_column), OPERAND, PRECISION, INTERPRETED)
                    pairs += tl.where(across_middle(C, 1 << level), scores, 0.0)
                if CROSSING:
                    if SHIFT == 1:
                        rows_down = tl.where(first[:, None], 0.0, rows_down)
                        rows_up = tl.where(last[:, None], 0.0, rows_up)
                    to_left = wide_x * tl.exp(summed(rows_down, C, False))
                    to_right = wide_x * tl.exp(summed(rows_up, C, True))
            else:
                pairs += dot(x, tl.trans(y), RAW, PRECISION, INTERPRETED)
        if CROSSING and LOWER:
            state = tile(sums + place * D * V, d, D, V, column, V)
            from_left += dot(to_left, state, OPERAND, PRECISION, INTERPRETED)
            if WITH_DEN:
                den_left += tl.sum(to_left.to(ACC) * vector(keys + place * D, d, D, 1)[None, :], 1)
        if CROSSING and UPPER and BORDERS:
            state = tile(sums + other * D * V, d, D, V, column, V)
            from_right += dot(to_right, state, OPERAND, PRECISION, INTERPRETED)
            if WITH_DEN:
                den_right += tl.sum(to_right.to(ACC) * vector(keys + other * D, d, D, 1)[None, :], 1)
    if DECAY == "scalar":
        f = vector(down, t - SHIFT, T, down_strides[1]).to(ACC)
        b = vector(up, t + SHIFT, T, up_strides[1]).to(ACC)
        inner_f, inner_b = f, b
        if CROSSING:
            if SHIFT == 1:
                inner_f, inner_b = tl.where(first, 0.0, f), tl.where(last, 0.0, b)
            left, right = tl.exp(tl.cumsum(inner_f, 0)), tl.exp(tl.cumsum(inner_b, 0, reverse=True))
            from_left, from_right = from_left * left[:, None], from_right * right[:, None]
            den_left, den_right = den_left * left, den_right * right
    total = from_left + from_right
    divisor = den_left + den_right
    if PAIRS:
        if DECAY == "scalar":
            pairs *= decay_mask(f, b, C, LOWER, UPPER)
        pairs = tl.where(reached(C, LOWER, UPPER, SELF), pairs, 0.0)
        if WITH_DEN:
            divisor += tl.sum(pairs, 1)
        if SCALED:
            pairs *= vector(scale + batch * T * H + h, t, T, H)[None, :]
        z_tile = tile(z, t, T, z_strides[1], column, V)
        total += dot(pairs, z_tile, OPERAND, PRECISION, INTERPRETED)
    if WITH_DEN:
        if first_v == 0:
            tl.store(den + (batch * T + t) * H + h, divisor, mask=t < T)
        if NORM == "max":
            divisor = tl.maximum(tl.abs(divisor), 1.0)
        if NORM == "sum" or NORM == "max":
            total = total / tl.where(t < T, divisor, 1.0)[:, None]
    if SAVED:
        put(saved + (batch * T * H + h) * V, t, T, H * V, column, V, total, INTERPRETED)
    put(out + (batch * T * H + h) * V, t, T, H * V, column, V, total, INTERPRETED)

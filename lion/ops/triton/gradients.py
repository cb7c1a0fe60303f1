"""The gradients of q, and transposed of k, in a chunk: [C, D]; and of the costs."""

import triton
import triton.language as tl

from lion.ops.triton.tiles import (
    across_middle,
    decay_mask,
    decay_mask_grad,
    dot,
    from_middle,
    put,
    reached,
    summed,
    tile,
    vector,
)


@triton.jit
def divisors(
    out,  # [B, T, H, V], contiguous
    dout,
    den,  # [B, T, H]
    scale,  # [B, T, H]: what dout is multiplied with for the gradient of num
    bias,  # [B, T, H]: the gradient of den
    dout_strides,
    T,
    H,
    V: tl.constexpr,
    BV: tl.constexpr,
    C: tl.constexpr,
    NORM: tl.constexpr,
):
    program = tl.program_id(0)
    chunks = tl.cdiv(T, C)
    t = program % chunks * C + tl.arange(0, C)
    head = (program // chunks).to(tl.int64)
    batch, h = head // H, head % H
    there = den.dtype.element_ty
    product = tl.zeros([C], dtype=there)
    size = tl.zeros([C], dtype=there)
    for start in range(0, V, BV):
        column = start + tl.arange(0, BV)
        y = tile(out + (batch * T * H + h) * V, t, T, H * V, column, V).to(there)
        dy = tile(dout + batch * dout_strides[0] + h * dout_strides[2], t, T, dout_strides[1], column, V).to(there)
        product += tl.sum(y * dy, 1)
        size += tl.sum(tl.abs(dy), 1)
    place = batch * T * H + h
    divisor = tl.load(den + place + t.to(tl.int64) * H, mask=t < T, other=1.0)
    if NORM == "max":
        factor = 1.0 / tl.maximum(tl.abs(divisor), 1.0)
        grad = tl.where(tl.abs(divisor) > 1.0, tl.where(divisor > 0, -product, product) * factor, 0.0)
    else:
        factor = 1.0 / divisor
        grad = -product * factor
    # A row that nobody uses, such as a masked token's 0 / 0, has no gradient.
    factor, grad = tl.where(size == 0.0, 0.0, factor), tl.where(size == 0.0, 0.0, grad)
    tl.store(scale + place + t.to(tl.int64) * H, factor, mask=t < T)
    tl.store(bias + place + t.to(tl.int64) * H, grad, mask=t < T)


@triton.jit
def gradients(
    a,  # rows [B, T, H, V]: the gradient of the output; transposed: values
    c,  # columns [B, T, H, V]: values; transposed: the gradient of the output
    z,  # [B, T, H, D]: keys; transposed: queries
    own,  # [B, T, H, D]: queries; transposed: keys
    down,  # costs [B, T, H, 1 or D]: forward; transposed: reverse
    up,
    scale,  # [B, T, H], a factor of the gradient of the output
    bias,  # [B, T, H], the gradient of den
    sums,  # the states of keys and values; transposed: of queries and the gradient of the output
    keys,
    through,  # [walks, B * H, chunks, tiles of V, D]: what passes whole chunks, for the costs; not transposed
    out,  # [B, T, H, D]
    ddown,  # [tiles, B, T, H] or [B, T, H, D], to be added up
    dup,
    a_strides,
    c_strides,
    z_strides,
    own_strides,
    down_strides,
    up_strides,
    T,
    H,
    chunks,
    heads,
    D: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    LEVELS: tl.constexpr,
    BD: tl.constexpr,
    BV: tl.constexpr,
    DECAY: tl.constexpr,
    LOWER: tl.constexpr,
    UPPER: tl.constexpr,
    SELF: tl.constexpr,
    PAIRS: tl.constexpr,
    CROSSING: tl.constexpr,
    BORDERS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    PARTS: tl.constexpr,  # of `through`
    COSTS: tl.constexpr,  # whether the costs' gradients are wanted
    RAW: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    ACC: tl.constexpr = tl.float64 if tl.float64 == OPERAND else tl.float32
    SHIFT: tl.constexpr = 0 if TRANSPOSED else 1
    tiles: tl.constexpr = (D + BD - 1) // BD
    program = tl.program_id(0)
    first_d = program % tiles
    d = first_d * BD + tl.arange(0, BD)
    program //= tiles
    n = program % chunks
    head = (program // chunks).to(tl.int64)
    batch, h = head // H, head % H
    a += batch * a_strides[0] + h * a_strides[2]
    c += batch * c_strides[0] + h * c_strides[2]
    z += batch * z_strides[0] + h * z_strides[2]
    own += batch * own_strides[0] + h * own_strides[2]
    down += batch * down_strides[0] + h * down_strides[2]
    up += batch * up_strides[0] + h * up_strides[2]
    scale += batch * T * H + h
    bias += batch * T * H + h
    left = head * chunks + n if BORDERS else head
    right = left + heads * chunks if LOWER and UPPER and BORDERS else left

    row = tl.arange(0, C)
    t = n * C + row
    first, last = row == 0, row == C - 1
    dpairs = tl.zeros([C, C], dtype=ACC)
    from_left = tl.zeros([C, BD], dtype=ACC)
    from_right = tl.zeros([C, BD], dtype=ACC)
    for start in range(0, V, BV):
        column = start + tl.arange(0, BV)
        x = tile(a, t, T, a_strides[1], column, V)
        if PAIRS:
            y = tile(c, t, T, c_strides[1], column, V)
            dpairs += dot(x, tl.trans(y), RAW, PRECISION, INTERPRETED)
        if CROSSING and LOWER:
            state = tile(sums + left * D * V, d, D, V, column, V)
            from_left += dot(x, tl.trans(state), OPERAND, PRECISION, INTERPRETED)
        if CROSSING and UPPER and BORDERS:
            state = tile(sums + right * D * V, d, D, V, column, V)
            from_right += dot(x, tl.trans(state), OPERAND, PRECISION, INTERPRETED)
    if SCALED:
        factor = vector(scale, t, T, H)
        if TRANSPOSED:
            dpairs *= factor[None, :]
        else:
            dpairs *= factor[:, None]
            from_left, from_right = from_left * factor[:, None], from_right * factor[:, None]
    if BIASED:
        dden = vector(bias, t, T, H)
        if TRANSPOSED:
            dpairs += dden[None, :]
        else:
            dpairs += dden[:, None]
        if CROSSING:
            weight = (t < T).to(ACC) if TRANSPOSED else dden
            if LOWER:
                key = vector(keys + left * D, d, D, 1)
                from_left += weight[:, None] * key[None, :]
            if UPPER and BORDERS:
                key = vector(keys + right * D, d, D, 1)
                from_right += weight[:, None] * key[None, :]
    if PAIRS:
        dpairs = tl.where(reached(C, LOWER, UPPER, SELF), dpairs, 0.0)
        values = tile(z, t, T, z_strides[1], d, D)
    if COSTS:
        raw_queries = tile(own, t, T, own_strides[1], d, D)
        queries = raw_queries.to(ACC)

    through_down = tl.zeros([BD], dtype=ACC)
    through_up = tl.zeros([BD], dtype=ACC)
    if COSTS and CROSSING and not TRANSPOSED:
        for part in range(PARTS):
            through_down += vector(through + (right * PARTS + part) * D, d, D, 1)
            through_up += vector(through + (left * PARTS + part) * D, d, D, 1)

    if DECAY == "none":
        total = from_left + from_right
        if PAIRS:
            total += dot(dpairs, values, OPERAND, PRECISION, INTERPRETED)
    elif DECAY == "scalar":
        f = vector(down, t - SHIFT, T, down_strides[1]).to(ACC)
        b = vector(up, t + SHIFT, T, up_strides[1]).to(ACC)
        grad_down = tl.zeros([C], dtype=ACC)
        grad_up = tl.zeros([C], dtype=ACC)
        # What crosses borders first: fewer tiles are held at once.
        if CROSSING:
            inner_f, inner_b = f, b
            if SHIFT == 1:
                inner_f, inner_b = tl.where(first, 0.0, f), tl.where(last, 0.0, b)
            from_left *= tl.exp(tl.cumsum(inner_f, 0))[:, None]
            from_right *= tl.exp(tl.cumsum(inner_b, 0, reverse=True))[:, None]
            if COSTS:
                grad_down += tl.cumsum(tl.sum(from_left * queries, 1), 0, reverse=True)
                grad_up += tl.cumsum(tl.sum(from_right * queries, 1), 0)
        total = from_left + from_right
        dpairs *= decay_mask(f, b, C, LOWER, UPPER)
        total += dot(dpairs, values, OPERAND, PRECISION, INTERPRETED)
        if COSTS and not TRANSPOSED:
            dpairs *= dot(raw_queries, tl.trans(values), RAW, PRECISION, INTERPRETED)
            inside_down, inside_up = decay_mask_grad(dpairs, C)
            grad_down += inside_down
            grad_up += inside_up
        if COSTS:
            place = (first_d * heads // H + batch) * T
            if TRANSPOSED:
                step_down, step_up = t, t
            else:
                step_down = tl.where(first, t + C - 1, t - 1)
                step_up = tl.where(last, t - C + 1, t + 1)
                grad_down, grad_up = tl.where(first, 0.0, grad_down), tl.where(last, 0.0, grad_up)
                if CROSSING:
                    chunk_down = tl.sum(vector(down, t, T, down_strides[1]).to(ACC), 0)
                    chunk_up = tl.sum(vector(up, t, T, up_strides[1]).to(ACC), 0)
                    grad_down += tl.exp(chunk_down) * tl.sum(through_down, 0)
                    grad_up += tl.exp(chunk_up) * tl.sum(through_up, 0)
            if LOWER:
                tl.store(ddown + (place + step_down) * H + h, grad_down, mask=step_down < T)
            if UPPER:
                tl.store(dup + (place + step_up) * H + h, grad_up, mask=step_up < T)
    else:
        wide = values.to(ACC)
        rows_down = tile(down, t - SHIFT, T, down_strides[1], d, D).to(ACC)
        rows_up = tile(up, t + SHIFT, T, up_strides[1], d, D).to(ACC)
        columns_up = tile(up, t - (1 - SHIFT), T, up_strides[1], d, D).to(ACC)
        columns_down = tile(down, t + (1 - SHIFT), T, down_strides[1], d, D).to(ACC)
        total = tl.sum(tl.where(row[:, None] == row[None, :], dpairs, 0.0), 1)[:, None] * wide
        costs_down = tl.zeros([C, BD], dtype=ACC)
        costs_up = tl.zeros([C, BD], dtype=ACC)
        for level in tl.static_range(LEVELS):
            to_column = wide * from_middle(columns_up, columns_down, 1 << level, SHIFT == 0)
            crossing = tl.where(across_middle(C, 1 << level), dpairs, 0.0)
            part = dot(crossing, to_column, OPERAND, PRECISION, INTERPRETED)
            part *= from_middle(rows_down, rows_up, 1 << level, SHIFT == 1)
            total += part
            if COSTS:
                part *= queries
                block = (row >> level)[:, None]
                place = row[:, None] - (block << level)
                later = summed(tl.where(block % 2 == 1, part, 0.0), 1 << level, True)
                earlier = summed(tl.where(block % 2 == 0, part, 0.0), 1 << level, False)
                if SHIFT == 1:
                    later = tl.where(place == 0, 0.0, later)
                    earlier = tl.where(place == (1 << level) - 1, 0.0, earlier)
                costs_down += later
                costs_up += earlier
        if CROSSING:
            if SHIFT == 1:
                rows_down = tl.where(first[:, None], 0.0, rows_down)
                rows_up = tl.where(last[:, None], 0.0, rows_up)
            from_left *= tl.exp(summed(rows_down, C, False))
            from_right *= tl.exp(summed(rows_up, C, True))
            total += from_left + from_right
            if COSTS:
                costs_down += summed(from_left * queries, C, True)
                costs_up += summed(from_right * queries, C, False)
        if COSTS:
            if TRANSPOSED:
                step_down, step_up = t, t
            else:
                step_down = tl.where(first, t + C - 1, t - 1)
                step_up = tl.where(last, t - C + 1, t + 1)
                costs_down = tl.where(first[:, None], 0.0, costs_down)
                costs_up = tl.where(last[:, None], 0.0, costs_up)
                if CROSSING:
                    chunk_down = tl.sum(tile(down, t, T, down_strides[1], d, D).to(ACC), 0)
                    chunk_up = tl.sum(tile(up, t, T, up_strides[1], d, D).to(ACC), 0)
                    costs_down += (tl.exp(chunk_down) * through_down)[None, :]
                    costs_up += (tl.exp(chunk_up) * through_up)[None, :]
            base = (batch * T * H + h) * D
            if LOWER:
                put(ddown + base, step_down, T, H * D, d, D, costs_down, INTERPRETED)
            if UPPER:
                put(dup + base, step_up, T, H * D, d, D, costs_up, INTERPRETED)
    put(out + (batch * T * H + h) * D, t, T, H * D, d, D, total, INTERPRETED)

"""The gradients of q, and transposed of k, in a chunk: [C, D]; and of the costs."""

import triton
import triton.language as tl

from lion.ops.triton.decays import (
    across_middle,
    channel_costs,
    channels_from_borders,
    costs,
    decay_mask,
    decay_mask_grad,
    from_borders,
    from_middle,
    from_middle_grad,
    reached,
    summed,
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
    put_rows,
    rows,
    spoiled_rows,
    there,
    vector,
    weighted,
)


@triton.jit
def gradients(
    a,  # rows [B, T, H, V]: the gradient of the output; transposed: values
    c,  # columns [B, T, H, V]: values; transposed: the gradient of the output
    z,  # [B, T, H, D]: keys; transposed: queries
    own,  # [B, T, H, D]: queries; transposed: keys
    down,  # costs [B, T, H, 1 or D]: forward; transposed: reverse
    up,
    scale,  # [B, T, H, 1], a factor of the gradient of the output, or None
    bias,  # [B, T, H, 1], the gradient of den, or None
    mask,  # [B, T] or None
    costs_mask,
    sums,  # the states of keys and values; transposed: of queries and the gradient of the output; or None
    keys,
    through,  # [walks, B * H, chunks, tiles of V, D]: what passes whole chunks, for the costs; not transposed
    out,  # [B, T, H, D]
    ddown,  # [tiles of D * B, T, H, 1] or [B, T, H, D]: parts that are to be added up, or None
    dup,
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
    TRANSPOSED: tl.constexpr,
    ONE_STATE: tl.constexpr,
    PACKED: tl.constexpr,
    PARTS: tl.constexpr,  # of `through`
    RAW: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    ACC: tl.constexpr = tl.float64 if tl.float64 == OPERAND else tl.float32
    SHIFT: tl.constexpr = 0 if TRANSPOSED else 1
    GUARDED: tl.constexpr = PACKED or not (LOWER and UPPER)  # some pairs of the chunk do not count
    tiles: tl.constexpr = (D + BD - 1) // BD
    program = tl.program_id(0)
    first_d = program % tiles
    d = first_d * BD + tl.arange(0, BD)
    n, head, batch, h = chunk_of(program // tiles, chunks, H)
    down_border, up_border = borders_of(n, head, chunks, heads, LOWER and UPPER, ONE_STATE)
    row = tl.arange(0, C)
    t = n * C + row
    here = there(mask, batch, t, T)

    dpairs = tl.zeros([C, C], dtype=ACC)
    from_down, from_up = tl.zeros([C, BD], dtype=ACC), tl.zeros([C, BD], dtype=ACC)
    for start in range(0, V, BV):
        column = start + tl.arange(0, BV)
        x = rows(a, batch, h, t, here, column, V)
        if not ONE_STATE:
            y = rows(c, batch, h, t, here, column, V)
            dpairs += dot(x, tl.trans(y), RAW, PRECISION, INTERPRETED)
        if sums is not None and (LOWER or ONE_STATE):
            state = matrix(sums, down_border, d, D, column, V)
            from_down += dot(x, tl.trans(state), OPERAND, PRECISION, INTERPRETED)
        if sums is not None and UPPER and not ONE_STATE:
            state = matrix(sums, up_border, d, D, column, V)
            from_up += dot(x, tl.trans(state), OPERAND, PRECISION, INTERPRETED)
    if scale is not None:
        factor = numbers(scale, batch, h, t, here)
        if TRANSPOSED:
            dpairs *= factor[None, :]
        else:
            dpairs *= factor[:, None]
            from_down, from_up = from_down * factor[:, None], from_up * factor[:, None]
    if bias is not None:
        dden = numbers(bias, batch, h, t, here)
        if TRANSPOSED:
            dpairs += dden[None, :]
        else:
            dpairs += dden[:, None]
    if keys is not None:
        weight = here.to(ACC) if TRANSPOSED else dden
        if LOWER or ONE_STATE:
            from_down += weight[:, None] * vector(keys, down_border, d, D)[None, :]
        if UPPER and not ONE_STATE:
            from_up += weight[:, None] * vector(keys, up_border, d, D)[None, :]
    if not ONE_STATE:
        reach = reached(C, LOWER, UPPER, SELF)
        dpairs = tl.where(reach, dpairs, 0.0)
        values = rows(z, batch, h, t, here, d, D)
        if GUARDED:  # read again without these: a tile that is changed first is held by every thread
            spoiled = not_finite(values)
            values = rows(z, batch, h, t, here & (spoiled == 0), d, D)
    if ddown is not None or dup is not None:
        raw_queries = rows(own, batch, h, t, here, d, D)
        queries = raw_queries.to(ACC)
        # Queries pay the costs of the steps inside the chunk. The one behind its end is paid by what crosses it whole
        # alone, and the row that has no step to pay stores its gradient.
        if TRANSPOSED:
            step_down, step_up = t, t
        else:
            step_down = tl.where(row == 0, t + C - 1, t - 1)
            step_up = tl.where(row == C - 1, t - C + 1, t + 1)
        keep_down, keep_up = there(mask, batch, step_down, T), there(mask, batch, step_up, T)
        through_down, through_up = tl.zeros([BD], dtype=ACC), tl.zeros([BD], dtype=ACC)
        if through is not None:
            for part in range(PARTS):
                if LOWER:
                    through_down += vector(through, up_border * PARTS + part, d, D)
                if UPPER:
                    through_up += vector(through, down_border * PARTS + part, d, D)

    if DECAY == "none":
        total = from_down + from_up
        if not ONE_STATE:
            total += dot(dpairs, values, OPERAND, PRECISION, INTERPRETED)
        if GUARDED:
            lost = spoiled_rows(spoiled, reach, LOWER, UPPER, SELF, PACKED)
            total = tl.where(lost[:, None], float("nan"), total)
        put_result(out, batch, h, t, T, here, d, D, total, INTERPRETED)
    elif DECAY == "scalar":
        f = costs(down, costs_mask, batch, h, t - SHIFT, T, LOWER, ACC)
        b = costs(up, costs_mask, batch, h, t + SHIFT, T, UPPER, ACC)
        grad_down, grad_up = tl.zeros([C], dtype=ACC), tl.zeros([C], dtype=ACC)
        # What crosses borders first, and the result is stored early: fewer tiles are held at once.
        if sums is not None:
            left, right = from_borders(f, b, C, SHIFT)
            from_down, from_up = weighted(from_down, left[:, None], PACKED), weighted(from_up, right[:, None], PACKED)
            if ddown is not None:
                grad_down += tl.cumsum(crossed(from_down, queries, left, PACKED), 0, reverse=True)
            if dup is not None:
                grad_up += tl.cumsum(crossed(from_up, queries, right, PACKED), 0)
        total = from_down + from_up
        decay = decay_mask(f, b, C, LOWER, UPPER)
        if PACKED:
            reach = reach & (decay != 0.0)
        dpairs = weighted(dpairs, decay, PACKED)
        total += dot(dpairs, values, OPERAND, PRECISION, INTERPRETED)
        if GUARDED:
            lost = spoiled_rows(spoiled, reach, LOWER, UPPER, SELF, PACKED)
            total = tl.where(lost[:, None], float("nan"), total)
        put_result(out, batch, h, t, T, here, d, D, total, INTERPRETED)
        if ddown is not None or dup is not None:
            if not TRANSPOSED:
                dpairs *= dot(raw_queries, tl.trans(values), RAW, PRECISION, INTERPRETED)
                if PACKED:
                    dpairs = tl.where(reach, dpairs, 0.0)
                inside_down, inside_up = decay_mask_grad(dpairs, C, LOWER, UPPER)
                grad_down, grad_up = grad_down + inside_down, grad_up + inside_up
                grad_down, grad_up = tl.where(row == 0, 0.0, grad_down), tl.where(row == C - 1, 0.0, grad_up)
            part = first_d * (heads // H) + batch
            if ddown is not None:
                if through is not None:
                    whole = tl.exp(tl.sum(costs(down, costs_mask, batch, h, t, T, LOWER, ACC), 0))
                    grad_down += weighted(tl.sum(through_down, 0), whole, PACKED)
                put_numbers(ddown, part, h, step_down, keep_down, grad_down)
            if dup is not None:
                if through is not None:
                    whole = tl.exp(tl.sum(costs(up, costs_mask, batch, h, t, T, UPPER, ACC), 0))
                    grad_up += weighted(tl.sum(through_up, 0), whole, PACKED)
                put_numbers(dup, part, h, step_up, keep_up, grad_up)
    else:
        wide = values.to(ACC)
        row_down = channel_costs(down, costs_mask, batch, h, t - SHIFT, T, d, D, LOWER, ACC)
        row_up = channel_costs(up, costs_mask, batch, h, t + SHIFT, T, d, D, UPPER, ACC)
        column_down = channel_costs(down, costs_mask, batch, h, t + (1 - SHIFT), T, d, D, LOWER, ACC)
        column_up = channel_costs(up, costs_mask, batch, h, t - (1 - SHIFT), T, d, D, UPPER, ACC)
        total = tl.sum(tl.where(row[:, None] == row[None, :], dpairs, 0.0), 1)[:, None] * wide
        costs_down, costs_up = tl.zeros([C, BD], dtype=ACC), tl.zeros([C, BD], dtype=ACC)
        met = row[:, None] == row[None, :]
        for level in tl.static_range(LEVELS):
            to_row = from_middle(row_down, row_up, 1 << level, SHIFT)
            to_column = from_middle(column_up, column_down, 1 << level, 1 - SHIFT)
            across = across_middle(to_row, to_column, d < D, C, 1 << level, PACKED)
            met = met | across
            crossing, columns = tl.where(across, dpairs, 0.0), weighted(wide, to_column, PACKED)
            if GUARDED:
                part = guarded_dot(crossing, columns, across & reach, OPERAND, PRECISION, INTERPRETED)
            else:
                part = dot(crossing, columns, OPERAND, PRECISION, INTERPRETED)
            part = weighted(part, to_row, PACKED)
            total += part
            if ddown is not None or dup is not None:
                more_down, more_up = from_middle_grad(weighted(queries, part, PACKED), 1 << level, SHIFT)
                costs_down, costs_up = costs_down + more_down, costs_up + more_up
        if sums is not None:
            left, right = channels_from_borders(row_down, row_up, C, SHIFT)
            from_down, from_up = weighted(from_down, left, PACKED), weighted(from_up, right, PACKED)
            total += from_down + from_up
            if ddown is not None:
                costs_down += summed(weighted(queries, from_down, PACKED), C, True)
            if dup is not None:
                costs_up += summed(weighted(queries, from_up, PACKED), C, False)
        if GUARDED:
            lost = spoiled_rows(spoiled, met & reach, LOWER, UPPER, SELF, PACKED)
            total = tl.where(lost[:, None], float("nan"), total)
        put_result(out, batch, h, t, T, here, d, D, total, INTERPRETED)
        if ddown is not None or dup is not None:
            if not TRANSPOSED:
                costs_down = tl.where((row == 0)[:, None], 0.0, costs_down)
                costs_up = tl.where((row == C - 1)[:, None], 0.0, costs_up)
            if ddown is not None:
                if through is not None:
                    whole = tl.exp(tl.sum(channel_costs(down, costs_mask, batch, h, t, T, d, D, LOWER, ACC), 0))
                    costs_down += weighted(through_down, whole, PACKED)[None, :]
                put_rows(ddown, batch, h, step_down, keep_down, d, D, costs_down, INTERPRETED)
            if dup is not None:
                if through is not None:
                    whole = tl.exp(tl.sum(channel_costs(up, costs_mask, batch, h, t, T, d, D, UPPER, ACC), 0))
                    costs_up += weighted(through_up, whole, PACKED)[None, :]
                put_rows(dup, batch, h, step_up, keep_up, d, D, costs_up, INTERPRETED)


@triton.jit
def crossed(x, queries, decay, PACKED: tl.constexpr):
    """[C]: the gradient of the exponents of what crosses a border."""
    product = tl.sum(x * queries, 1)
    if PACKED:
        product = tl.where(decay == 0.0, 0.0, product)
    return product

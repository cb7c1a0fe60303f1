"""The states at the borders of chunks: a program for a tile of D x V numbers goes through the sequence."""

import triton
import triton.language as tl

from lion.ops.triton.tiles import dot, put, summed, tile, vector


@triton.jit
def states(
    k,  # [B, T, H, D]
    v,  # [B, T, H, V]
    down,  # the costs that the walk down the rows pays, [B, T, H, 1 or D]
    up,  # and the walk up
    scale,  # [B, T, H], a factor of each value
    weight,  # [B, T, H], what a key counts in `keys`
    sums,  # [walks, B * H, chunks, D, V]: the state that enters each chunk, of the walk down first
    keys,  # [walks, B * H, chunks, D]
    across,  # the states of the opposite walks, as `sums`
    across_keys,
    through,  # [walks, B * H, chunks, tiles of V, D]: their products with these, for the gradients of costs
    k_strides,
    v_strides,
    down_strides,
    up_strides,
    T,
    H,
    chunks,
    heads,  # B * H
    D: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BD: tl.constexpr,
    BV: tl.constexpr,
    DECAY: tl.constexpr,
    LOWER: tl.constexpr,
    UPPER: tl.constexpr,
    EXCLUSIVE: tl.constexpr,  # a row does not pay its own cost: of queries, which a state arrives at
    SCALED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    WITH_KEYS: tl.constexpr,
    CROSSED: tl.constexpr,  # whether `through` is wanted
    BORDERS: tl.constexpr,  # else the one state of all tokens, chunks being 1 in `sums`
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    ACC: tl.constexpr = tl.float64 if OPERAND.is_fp64() else tl.float32
    d_tiles: tl.constexpr = (D + BD - 1) // BD
    v_tiles: tl.constexpr = max(1, (V + BV - 1) // BV)
    program = tl.program_id(0)
    d = program % d_tiles * BD + tl.arange(0, BD)
    first_v = program // d_tiles % v_tiles
    column = first_v * BV + tl.arange(0, BV)
    program //= d_tiles * v_tiles
    walk = program // heads
    head = (program % heads).to(tl.int64)
    batch, h = head // H, head % H
    k += batch * k_strides[0] + h * k_strides[2]
    v += batch * v_strides[0] + h * v_strides[2]
    scale += batch * T * H + h
    weight += batch * T * H + h
    stored = chunks if BORDERS else 1
    opposite = 1 - walk if LOWER and UPPER else walk
    across += (opposite * heads + head) * stored * D * V
    across_keys += (opposite * heads + head) * stored * D
    through += ((walk * heads + head) * stored * v_tiles + first_v) * D
    sums += (walk * heads + head) * stored * D * V
    keys += (walk * heads + head) * stored * D
    cost = down + batch * down_strides[0] + h * down_strides[2]
    upwards = walk == 1
    if not LOWER:
        upwards = walk == 0
    if UPPER and upwards:
        cost = up + batch * up_strides[0] + h * up_strides[2]
    cost_stride = tl.where(upwards, up_strides[1], down_strides[1])

    state = tl.zeros([BD, BV], dtype=ACC)
    key = tl.zeros([BD], dtype=ACC)
    written = tl.where(first_v == 0, D, 0)  # programs for other values have the same keys
    # Rows are in the order in which the walk meets them, so that both walks are one.
    row = tl.arange(0, C)
    place = tl.where(upwards, C - 1 - row, row)
    onwards = tl.where(upwards, -1, 1)
    for step in range(chunks):
        n = tl.where(upwards, chunks - 1 - step, step)
        if BORDERS:
            put(sums + n.to(tl.int64) * D * V, d, D, V, column, V, state, INTERPRETED)
            if WITH_KEYS:
                tl.store(keys + n.to(tl.int64) * D + d, key, mask=d < written)
            if CROSSED:
                met = tl.sum(state * tile(across + n.to(tl.int64) * D * V, d, D, V, column, V), 1)
                if WITH_KEYS:
                    met += key * vector(across_keys + n.to(tl.int64) * D, d, written, 1)
                tl.store(through + n.to(tl.int64) * v_tiles * D + d, met, mask=d < D)
        t = n * C + place
        x = tile(k, t, T, k_strides[1], d, D).to(ACC)
        y = tile(v, t, T, v_strides[1], column, V)
        if DECAY == "scalar":
            own = vector(cost, t, T, cost_stride).to(ACC)
            total = tl.sum(own, 0)
            if EXCLUSIVE:
                own = tl.where(row == C - 1, 0.0, vector(cost, t + onwards, T, cost_stride).to(ACC))
            x *= tl.exp(tl.cumsum(own, 0, reverse=True))[:, None]
            state *= tl.exp(total)
            key *= tl.exp(total)
        if DECAY == "diagonal":
            own = tile(cost, t, T, cost_stride, d, D).to(ACC)
            total = tl.sum(own, 0)
            if EXCLUSIVE:
                own = tl.where((row == C - 1)[:, None], 0.0, tile(cost, t + onwards, T, cost_stride, d, D).to(ACC))
            x *= tl.exp(summed(own, C, True))
            state *= tl.exp(total)[:, None]
            key *= tl.exp(total)
        if WITH_KEYS:
            if WEIGHTED:
                key += tl.sum(x * vector(weight, t, T, H)[:, None], 0)
            else:
                key += tl.sum(x, 0)
        if SCALED:
            x *= vector(scale, t, T, H)[:, None]
        state += dot(tl.trans(x), y, OPERAND, PRECISION, INTERPRETED)
    if not BORDERS:
        put(sums, d, D, V, column, V, state, INTERPRETED)
        if WITH_KEYS:
            tl.store(keys + d, key, mask=d < written)

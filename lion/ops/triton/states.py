"""The states at the borders of chunks: a program for a tile of D x V numbers goes through the sequence."""

import triton
import triton.language as tl

from lion.ops.triton.decays import left_of_any, summed
from lion.ops.triton.tiles import dot, head_at, matrix, numbers, put_matrix, put_vector, rows, there, vector, weighted


@triton.jit
def states(
    k,  # Rows [B, T, H, D]; transposed: queries
    v,  # [B, T, H, V]; transposed: the gradient of the output
    down,  # the costs that the walk down the rows pays, [B, T, H, 1 or D]
    up,  # and the walk up
    scale,  # [B, T, H, 1], a factor of each value, or None
    weight,  # [B, T, H, 1], what a key counts in `keys`; None: 1, transposed 0
    mask,  # [B, T] or None
    costs_mask,  # the same, or None where costs are to be read all the same
    sums,  # [walks, B * H, chunks, D, V]: the state that enters each chunk, of the walk down first; or None
    keys,  # [walks, B * H, chunks, D] or None
    across,  # the states of the opposite walks, as `sums`, or None
    across_keys,
    through,  # [walks, B * H, chunks, tiles of V, D]: their products with these, for the gradients of costs
    entering,  # [walks, B * H, D, V], of the forward walk first: what comes from before the piece; or None
    entering_keys,
    leaving,  # as `entering`: what goes on behind it, or None
    leaving_keys,
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
    LOWER: tl.constexpr,  # whether there is a walk down the rows
    UPPER: tl.constexpr,
    TRANSPOSED: tl.constexpr,  # rows are queries, which do not pay their own costs
    ONE_STATE: tl.constexpr,  # of all tokens, chunks being 1 in `sums`. What enters is added last, and not to `leaving`
    PACKED: tl.constexpr,
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
    stored = 1 if ONE_STATE else chunks
    opposite = 1 - walk if LOWER and UPPER else walk
    own, other = (walk * heads + head) * stored, (opposite * heads + head) * stored
    outside = (opposite if TRANSPOSED else walk) * heads + head
    upwards = walk == 1
    if not LOWER:
        upwards = walk == 0
    KEYS: tl.constexpr = (keys is not None) or (leaving_keys is not None)
    keys_are_mine = first_v == 0  # programs for other values have the same keys

    state = tl.zeros([BD, BV], dtype=ACC)
    key = tl.zeros([BD], dtype=ACC)
    if entering is not None and not ONE_STATE:
        state += matrix(entering, outside, d, D, column, V)
        if KEYS:
            key += vector(entering_keys, outside, d, D)
    if DECAY != "none":
        costs, costs_stride = head_at(down, batch, h), tl.where(upwards, up.strides[1], down.strides[1])
        if upwards:
            costs = head_at(up, batch, h)
    # Rows are in the order in which the walk meets them, so that both walks are one.
    row = tl.arange(0, C)
    place = tl.where(upwards, C - 1 - row, row)
    onwards = tl.where(upwards, -1, 1)
    for step in range(chunks):
        n = tl.where(upwards, chunks - 1 - step, step)
        if sums is not None and not ONE_STATE:
            put_matrix(sums, own + n, d, D, column, V, state, INTERPRETED)
            if keys is not None:
                put_vector(keys, own + n, d, D, key, keys_are_mine)
            if across is not None:
                met = tl.sum(state * matrix(across, other + n, d, D, column, V), 1)
                if keys is not None:
                    met += tl.where(keys_are_mine, key * vector(across_keys, other + n, d, D), 0.0)
                put_vector(through, (own + n) * v_tiles + first_v, d, D, met, True)
        t = n * C + place
        here = there(mask, batch, t, T)
        x = rows(k, batch, h, t, here, d, D).to(ACC)
        y = rows(v, batch, h, t, here, column, V)
        if DECAY == "scalar":
            cost = tl.load(costs + t.to(tl.int64) * costs_stride, mask=there(costs_mask, batch, t, T), other=0.0).to(
                ACC
            )
            total = tl.exp(tl.sum(cost, 0))
            if TRANSPOSED:
                paid = there(costs_mask, batch, t + onwards, T) & (row < C - 1)
                cost = tl.load(costs + (t + onwards).to(tl.int64) * costs_stride, mask=paid, other=0.0).to(ACC)
            kept = tl.exp(tl.cumsum(cost, 0, reverse=True))[:, None]
            state, key = weighted(state, total, PACKED), weighted(key, total, PACKED)
        if DECAY == "diagonal":
            at = costs + t.to(tl.int64)[:, None] * costs_stride + d[None, :]
            cost = tl.load(at, mask=there(costs_mask, batch, t, T)[:, None] & (d < D)[None, :], other=0.0).to(ACC)
            total = tl.exp(tl.sum(cost, 0))
            if TRANSPOSED:
                paid = there(costs_mask, batch, t + onwards, T) & (row < C - 1)
                at += onwards.to(tl.int64) * costs_stride
                cost = tl.load(at, mask=paid[:, None] & (d < D)[None, :], other=0.0).to(ACC)
            kept = tl.exp(summed(cost, C, True))
            state, key = weighted(state, total[:, None], PACKED), weighted(key, total, PACKED)
        if DECAY != "none":
            x = weighted(x, kept, PACKED)
            if PACKED:
                y = tl.where(left_of_any(kept, d < D)[:, None], y, 0.0)
        if KEYS:
            if weight is not None:
                key += tl.sum(x * numbers(weight, batch, h, t, here)[:, None], 0)
            elif not TRANSPOSED:
                key += tl.sum(x, 0)
        if scale is not None:
            x *= numbers(scale, batch, h, t, here)[:, None]
        state += dot(tl.trans(x), y, OPERAND, PRECISION, INTERPRETED)
    if leaving is not None:
        put_matrix(leaving, outside, d, D, column, V, state, INTERPRETED)
        put_vector(leaving_keys, outside, d, D, key, keys_are_mine)
    if ONE_STATE and sums is not None:
        if entering is not None:
            state += matrix(entering, outside, d, D, column, V)
            if keys is not None:
                key += vector(entering_keys, outside, d, D)
        put_matrix(sums, own, d, D, column, V, state, INTERPRETED)
        if keys is not None:
            put_vector(keys, own, d, D, key, keys_are_mine)

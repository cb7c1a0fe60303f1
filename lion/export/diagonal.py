"""The operator in ONNX with a decay for each key channel: the same two loops over chunks (operators.py).

There is no mask to multiply a chunk's scores with, since every channel has its own. So a chunk is halved, and the pairs
that cross its middle are a matrix product of queries decayed from there and keys decayed up to there; the halves are
halved again; and the pairs of what is left, a few tokens each, are weighed channel by channel.
"""

import onnx_ir as ir

from lion.export.operators import CHUNK, NOTHING, Chunks, Pairs, Scanned
from lion.export.recorder import Recorder

LEVELS = 4  # of halving: 16 leaves in a chunk, of 4 tokens at most


def diagonal_scan(asked: Scanned, opset: int) -> ir.Function:
    """`lion::scan` with costs [B or 1, T or 1, H or 1, D]"""
    g = Recorder(asked.dtype)
    q, k, v, f, b = (g.input() for _ in range(5))
    q, k, v = (g.CastLike(x, f) for x in (q, k, v))
    chunks = Chunks(g, q, asked.chunk_size or CHUNK, 1 << LEVELS)
    V = g.Shape(v, start=3, end=4)
    ones = g.Expand(1.0, g.join(chunks.B, chunks.H, chunks.size, [1]))
    nothing = g.Expand(0.0, g.join(chunks.B, chunks.H, chunks.D, g.Add(V, [1]) if asked.with_den else V))
    pairs = Pairs(g, asked, g.Div(chunks.size, [1 << LEVELS]))
    f, b = (g.Expand(g.Max(x, NOTHING), g.Shape(q)) for x in (f, b))
    over = [chunks.tokens, chunks.real]

    def gathered(h: Recorder, x: ir.Value, tokens: ir.Value) -> ir.Value:
        return h.Transpose(h.Gather(x, tokens, axis=1), perm=[0, 2, 1, 3])  # [B, H, size, .]

    def costs(h: Recorder, x: ir.Value, tokens: ir.Value, real: ir.Value) -> ir.Value:
        return h.Where(real, gathered(h, x, tokens), NOTHING)  # nothing crosses what fills the last chunk

    def weighed(h: Recorder, v: ir.Value) -> ir.Value:
        return h.join(v, ones, axis=-1) if asked.with_den else v

    def after(
        h: Recorder, state: ir.Value, cost: ir.Value, keys: ir.Value, values: ir.Value, *, reverse: bool
    ) -> ir.Value:
        leaving = h.Exp(h.CumSum(cost, h.constant(2), reverse=int(not reverse)))
        total = h.Transpose(h.Exp(h.ReduceSum(cost, [2])), perm=[0, 1, 3, 2])
        added = h.MatMul(h.Transpose(h.Mul(keys, leaving), perm=[0, 1, 3, 2]), values)
        return h.Add(h.Mul(state, total), added)

    def met(h: Recorder, state: ir.Value, cost: ir.Value, queries: ir.Value, *, reverse: bool) -> ir.Value:
        arriving = h.Exp(h.CumSum(cost, h.constant(2), exclusive=1, reverse=int(reverse)))
        return h.MatMul(h.Mul(queries, arriving), state)

    borders = []
    if asked.direction != "forward":
        h = g.body()
        state, tokens, real = h.input(), h.input(ir.DataType.INT64), h.input(ir.DataType.BOOL)
        keys, values = gathered(h, k, tokens), weighed(h, gathered(h, v, tokens))
        left = after(h, state, costs(h, b, tokens, real), keys, values, reverse=True)
        borders = g.scan(h, [left, h.Identity(state)], [nothing], over, reverse=True)

    h = g.body()
    forward = asked.direction != "reverse"
    initial = [h.input()] if forward else []
    tokens, real = h.input(ir.DataType.INT64), h.input(ir.DataType.BOOL)
    arrived = [h.input() for _ in borders]
    queries, keys, values = gathered(h, q, tokens), gathered(h, k, tokens), weighed(h, gathered(h, v, tokens))
    ahead = costs(h, f, tokens, real) if forward else None
    behind = costs(h, b, tokens, real) if borders else None
    out = _inside(h, chunks, pairs, queries, keys, values, ahead, behind)
    results = []
    if ahead is not None:
        out = h.Add(out, met(h, initial[0], ahead, queries, reverse=False))
        results = [after(h, initial[0], ahead, keys, values, reverse=False)]
    if behind is not None:
        out = h.Add(out, met(h, arrived[0], behind, queries, reverse=True))
    out = h.Transpose(out, perm=[0, 2, 1, 3])
    parts = list(h.Split(out, h.join(V, [1]), axis=-1, outputs=2)) if asked.with_den else [out]
    found = g.scan(h, [*results, *parts], [nothing] * len(results), [*over, *borders])
    num, *den = (chunks.whole(g, x) for x in found)
    return g.function("lion", asked.name, [num, den[0] if den else g.Slice(num, [0], [0], [3])], opset)


def _inside(
    h: Recorder,
    chunks: Chunks,
    pairs: Pairs,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    f: ir.Value | None,
    b: ir.Value | None,
) -> ir.Value:
    """What the chunk's tokens get from each other, [B, H, size, width]."""
    whole = h.Shape(v)
    given = {"q": q, "k": k, "v": v, "f": f, "b": b}
    total = None
    for level in range(LEVELS):
        cut = h.join(chunks.B, chunks.H, [1 << level, 2, -1])
        left, right = {}, {}  # [B, H, blocks, 1, half, .]
        for name, x in given.items():
            if x is not None:
                blocks = h.Reshape(x, h.join(cut, h.Shape(x, start=3, end=4)))
                left[name], right[name] = h.Split(blocks, axis=3, outputs=2, num_outputs=2)
        to_left = _across(h, left, right, "b", reverse=True) if b is not None else None
        to_right = _across(h, right, left, "f", reverse=False) if f is not None else None
        # A half that nothing reaches gets nothing.
        ways = [h.Sub(y, y) if x is None else x for x, y in ((to_left, to_right), (to_right, to_left))]
        out = h.Reshape(h.join(*ways, axis=3), whole)
        total = out if total is None else h.Add(total, out)
    leaves = {}
    cut = h.join(chunks.B, chunks.H, [1 << LEVELS, -1])
    for name, x in given.items():
        leaves[name] = None if x is None else h.Reshape(x, h.join(cut, h.Shape(x, start=3, end=4)))
    f, b = (x and h.Unsqueeze(x, [4]) for x in (leaves["f"], leaves["b"]))  # [B, H, leaves, i, 1, D]
    weights = h.Mul(h.Unsqueeze(leaves["q"], [4]), pairs.ways(h, f, b, 3))
    scores = h.ReduceSum(h.Mul(weights, h.Unsqueeze(leaves["k"], [3])), [-1], keepdims=0)
    scores = scores if pairs.counts is None else h.Mul(scores, pairs.counts)
    return h.Add(total, h.Reshape(h.MatMul(scores, leaves["v"]), whole))


def _across(h: Recorder, here: dict, there: dict, cost: str, *, reverse: bool) -> ir.Value:
    """What the queries of one half get from the keys of the other, over the middle between them."""
    way, axis = int(reverse), h.constant(4)
    queries = h.Mul(here["q"], h.Exp(h.CumSum(here[cost], axis, exclusive=1, reverse=way)))
    keys = h.Mul(there["k"], h.Exp(h.CumSum(there[cost], axis, reverse=1 - way)))
    return h.MatMul(h.MatMul(queries, h.Transpose(keys, perm=[0, 1, 2, 3, 5, 4])), there["v"])

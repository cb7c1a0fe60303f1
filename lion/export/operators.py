"""The operator in ONNX: a loop over chunks of tokens, of matrix products, in linear time and memory.

One Scan goes over the chunks in reverse and leaves the reverse walk's state at every border; the other goes forward
with its own state, and makes the outputs. A chunk's tokens are gathered inside of the loop, so nothing but the states
and the result has the length of the sequence. Only operators of ONNX itself are used.
"""

from typing import Any, NamedTuple

import onnx_ir as ir

from lion.export.recorder import Recorder

CHUNK = 64  # tokens, at most: chunks share a sequence evenly, 197 tokens are 4 of 50
NOTHING = -1e4  # a log decay whose exponential is 0, in place of -inf, of which products make NaN


class Scanned(NamedTuple):
    """What is asked of `lion::scan`, besides its tensors."""

    direction: str
    include_self: bool
    with_den: bool
    chunk_size: int | None
    dtype: ir.DataType  # of the costs, which sums have, too
    diagonal: bool = False  # a cost for each channel

    @property
    def name(self) -> str:
        """Of the function."""
        parts = ["diagonal_scan" if self.diagonal else "scan", self.direction, self.dtype.name.lower()]
        flags = {
            "others": not self.include_self,
            "den": self.with_den,
            f"chunk{self.chunk_size}": bool(self.chunk_size),
        }
        return "_".join([*parts, *(name for name, flag in flags.items() if flag)])


class Chunks:
    """The tokens of a graph in chunks; all sizes are found when it runs."""

    def __init__(self, g: Recorder, q: ir.Value, most: int, multiple: int = 1):
        self.B, self.T, self.H, self.D = g.sizes(q, 4)
        self.count = g.Max(_parts(g, self.T, [most]), [1])
        self.size = _parts(g, self.T, self.count)
        if multiple > 1:
            self.size = g.Mul(_parts(g, self.size, [multiple]), [multiple])
        self.all = g.Mul(self.count, self.size)
        number = g.Range(0, g.Squeeze(self.all, [0]), 1)
        # The last chunk is filled up with the last token, again and again, behind a cost that nothing crosses.
        self.tokens = g.Reshape(g.Min(number, g.Sub(self.T, [1])), g.join(self.count, self.size))
        self.real = g.Reshape(g.Less(number, self.T), g.join(self.count, self.size, [1]))

    def costs(self, g: Recorder, cost: ir.Value) -> ir.Value:
        """[B or 1, T or 1, H or 1, 1] -> [chunks, B, H, size]"""
        cost = g.Expand(g.Max(cost, NOTHING), g.join(self.B, self.T, self.H, [1]))
        fill = g.join([0, 0, 0, 0, 0], g.Sub(self.all, self.T), [0, 0])
        shape = g.join(self.B, self.count, self.size, self.H)
        return g.Transpose(g.Reshape(g.Pad(cost, fill, NOTHING), shape), perm=[1, 0, 3, 2])

    def whole(self, g: Recorder, x: ir.Value) -> ir.Value:
        """[chunks, B, size, H, V] -> [B, T, H, V]"""
        x = g.Reshape(g.Transpose(x, perm=[1, 0, 2, 3, 4]), g.join(self.B, [-1], self.H, g.Shape(x, start=4, end=5)))
        return g.Slice(x, [0], self.T, [1])


def _parts(g: Recorder, x: ir.Value, size: Any) -> ir.Value:
    """x / size, rounded up"""
    return g.Div(g.Sub(g.Add(x, size), [1]), size)


class Pairs:
    """The pairs of a block's tokens, [size, size]: 1 for those that something is so for."""

    def __init__(self, g: Recorder, asked: Scanned, size: ir.Value):
        place = g.Range(0, g.Squeeze(size, [0]), 1)
        i, j = g.Unsqueeze(place, [1]), g.Unsqueeze(place, [0])

        def ones(relation: str) -> ir.Value:
            return g.Cast(g.node(relation, i, j), to=asked.dtype)

        self.from_left, self.from_right = ones("GreaterOrEqual"), ones("LessOrEqual")
        self.counts: ir.Value | None = None  # None: all do
        if asked.direction != "both":
            relation = "Less" if asked.direction == "reverse" else "Greater"
            self.counts = ones(f"{relation}OrEqual" if asked.include_self else relation)
        elif not asked.include_self:
            self.counts = g.Sub(1.0, ones("Equal"))

    def ways(self, h: Recorder, f: ir.Value | None, b: ir.Value | None, axis: int) -> ir.Value:
        """Decays between a block's tokens, [..., i, j, ...]. `axis` is that of i; costs have 1 in the place of j."""
        found = []
        for cost, passed, way in ((f, self.from_left, 0), (b, self.from_right, 1)):
            if cost is not None:
                passed = passed if axis == 2 else h.Unsqueeze(passed, [-1])
                found.append(h.CumSum(h.Mul(cost, passed), h.constant(axis), exclusive=1, reverse=way))
        return h.Exp(h.Add(*found) if len(found) == 2 else found[0])


class Walk(NamedTuple):
    """What a walk's decays are, for every chunk: [chunks, B, H, ...]."""

    cost: ir.Value  # [size], of leaving each token
    arriving: ir.Value  # [size, 1]: the decay from the chunk's border to each token
    leaving: ir.Value  # [1, size]: from each token until the walk has left the chunk
    total: ir.Value  # [1, 1]: of crossing it whole

    @staticmethod
    def of(g: Recorder, cost: ir.Value, reverse: bool) -> "Walk":
        axis, way = g.constant(3), int(reverse)
        arriving = g.Exp(g.CumSum(cost, axis, exclusive=1, reverse=way))
        leaving = g.Exp(g.CumSum(cost, axis, reverse=1 - way))
        total = g.Exp(g.ReduceSum(cost, [-1]))
        return Walk(cost, g.Unsqueeze(arriving, [-1]), g.Unsqueeze(leaving, [-2]), g.Unsqueeze(total, [-1]))


def scan(asked: Scanned, opset: int) -> ir.Function:
    """`lion::scan` of scalar decays: q, k [B, T, H, D], v [B, T, H, V], costs -> num [B, T, H, V], den [B, T, H, 1]."""
    g = Recorder(asked.dtype)
    q, k, v, f, b = (g.input() for _ in range(5))
    q, k, v = (g.CastLike(x, f) for x in (q, k, v))
    chunks = Chunks(g, q, asked.chunk_size or CHUNK)
    V = g.Shape(v, start=3, end=4)
    width = g.Add(V, [1]) if asked.with_den else V
    ones = g.Expand(1.0, g.join(chunks.B, chunks.H, chunks.size, [1]))
    nothing = g.Expand(0.0, g.join(chunks.B, chunks.H, chunks.D, width))
    forward = Walk.of(g, chunks.costs(g, f), False) if asked.direction != "reverse" else None
    reverse = Walk.of(g, chunks.costs(g, b), True) if asked.direction != "forward" else None
    pairs = Pairs(g, asked, chunks.size)

    def keys_and_values(h: Recorder, tokens: ir.Value) -> tuple[ir.Value, ir.Value]:
        """[B, H, D, size] and [B, H, size, width]; a column of ones makes the denominator."""
        keys = h.Transpose(h.Gather(k, tokens, axis=1), perm=[0, 2, 3, 1])
        values = h.Transpose(h.Gather(v, tokens, axis=1), perm=[0, 2, 1, 3])
        return keys, h.join(values, ones, axis=-1) if asked.with_den else values

    def after(h: Recorder, state: ir.Value, walk: Walk, keys: ir.Value, values: ir.Value) -> ir.Value:
        return h.Add(h.Mul(state, walk.total), h.MatMul(h.Mul(keys, walk.leaving), values))

    borders = []
    if reverse is not None:
        h = g.body()
        entering, tokens = h.input(), h.input(ir.DataType.INT64)
        walk = reverse._replace(leaving=h.input(), total=h.input())
        left = after(h, entering, walk, *keys_and_values(h, tokens))
        over = [chunks.tokens, reverse.leaving, reverse.total]
        borders = g.scan(h, [left, h.Identity(entering)], [nothing], over, reverse=True)

    h = g.body()
    over = [chunks.tokens, *(forward or ()), *(reverse or ())[:2], *borders]
    state = h.input() if forward is not None else None
    tokens = h.input(ir.DataType.INT64)
    ahead = Walk(*(h.input() for _ in forward)) if forward is not None else None
    behind = [h.input() for _ in over[len(forward or ()) + 1 :]]
    keys, values = keys_and_values(h, tokens)
    queries = h.Transpose(h.Gather(q, tokens, axis=1), perm=[0, 2, 1, 3])
    leaving, reaching = (x and h.Unsqueeze(x, [3]) for x in (ahead and ahead.cost, behind[0] if behind else None))
    scores = h.Mul(h.MatMul(queries, keys), pairs.ways(h, leaving, reaching, 2))
    out = h.MatMul(scores if pairs.counts is None else h.Mul(scores, pairs.counts), values)
    results = []
    if ahead is not None and state is not None:
        out = h.Add(out, h.MatMul(h.Mul(queries, ahead.arriving), state))
        results.append(after(h, state, ahead, keys, values))
    if behind:
        out = h.Add(out, h.MatMul(h.Mul(queries, behind[1]), behind[2]))
    out = h.Transpose(out, perm=[0, 2, 1, 3])
    parts = list(h.Split(out, h.join(V, [1]), axis=-1, outputs=2)) if asked.with_den else [out]
    found = g.scan(h, [*results, *parts], [nothing] * len(results), over)
    num, *den = (chunks.whole(g, x) for x in found)
    return g.function("lion", asked.name, [num, den[0] if den else g.Slice(num, [0], [0], [3])], opset)

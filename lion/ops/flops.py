"""FLOPs of the operator: by form, and as formulas for torch.utils.flop_counter.FlopCounterMode.

A multiply-add is two. Counted are matrix products, as FlopCounterMode does; masks, divisions and other work on single
numbers are not. The form "rnn" has no matrix products, so there everything counts, as in the paper's appendix on FLOPs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from lion.ops.cpu import library
from lion.ops.torch import delta, scan, scores
from lion.ops.torch.options import Options

SOFTMAX = "softmax"
BETWEEN = "between"  # diagonal, of the tokens between a key and its query alone


class Attention(NamedTuple):
    """A call of `lion.attention`, as far as its FLOPs depend on it. Of one sequence, without masked tokens."""

    tokens: int
    heads: int
    D: int
    V: int
    decay: str  # a key of kernels.DECAYS, SOFTMAX or BETWEEN
    ways: int = 2  # 1 for the directions "forward" and "reverse"
    orders: int = 1
    with_den: bool = False
    self_weight: bool = False
    chunk: int = 0  # tokens; 0: as many as the kernel takes

    @property
    def diagonal(self) -> bool:
        return "diagonal" in self.decay

    def pairs(self, *blocks: int) -> int:
        """Scores that are computed in square blocks: all, but with diagonal decays only those that are reached."""
        return sum(self.ways * n * (n - 1) // 2 + n if self.diagonal else n * n for n in blocks)


def flops(x: Attention, form: str) -> int:
    if x.decay == SOFTMAX:
        return full_flops(x)
    if x.decay == BETWEEN:
        one = x._replace(decay="diagonal")
        if form == "scan" and _compiled():
            return scan_flops(one)
        # A call for each way through each order; what a token gives itself is added apart.
        return x.ways * x.orders * flops(one._replace(ways=1, orders=1, self_weight=False), form)
    table = DELTA_FORMS if x.decay == "delta" else FORMS
    return table[form](x)


def full_flops(x: Attention) -> int:
    orders = 1 if x.decay == SOFTMAX else x.orders
    return x.heads * orders * 2 * (x.D * x.pairs(x.tokens) + x.V * x.tokens**2)


def rnn_flops(x: Attention) -> int:
    """As the paper counts: of each token and way its states, its sums and its output."""
    D, V = x.D, x.V
    decays = x.decay != "none"
    state = D * V * (3 if decays else 2)
    output = 2 * D * V + 2 * D + 2 * V + 1
    den = D * (2 if decays else 1) + 4 * D + 2 if x.with_den else 0
    together = x.ways * (V + 1) if x.with_den else (x.ways - 1) * V
    return x.heads * x.orders * x.tokens * (x.ways * (state + output + den) + together)


def scan_flops(x: Attention, *, backward: bool = False) -> int:
    """Of the compiled kernel: a plain chunked algorithm, nothing twice."""
    T, _, D, V, *_ = x
    if x.decay == "none" and x.ways == 2 and not x.self_weight:  # one state for all tokens, whatever the orders
        return x.heads * T * D * V * (10 if backward else 4)
    chunk = max(1, min(T, x.chunk or chunk_tokens(x)))
    count = -(-T // chunk)
    last = T - (count - 1) * chunk
    squares = (count - 1) * chunk**2 + last**2
    pairs = (count - 1) * x.pairs(chunk) + x.pairs(last)
    inside = 2 * (3 * D * pairs + 2 * V * squares) if backward else 2 * (D * pairs + V * squares)
    # Each way enters all chunks but the first, and leaves all but the last.
    crossing = x.ways * (2 * T - chunk - last) if count > 1 else 0
    across = D * V * crossing * (5 if backward else 2)
    # The orders of a short sequence share one block.
    return x.heads * (inside + across) * (1 if count == 1 and not x.diagonal else x.orders)


def _compiled() -> bool:
    return not isinstance(library.LIBRARY, str)


def chunk_tokens(x: Attention) -> int:
    """Of the compiled kernel; where there is none, of plain torch."""
    if _compiled():
        return library.chunk_tokens(x.tokens, x.D, x.V, x.orders, diagonal=x.diagonal)
    count = max(1, -(-x.tokens // scan.CHUNK))
    return -(-x.tokens // count)


# The delta rule. Solving a triangular system of n tokens for all of them takes n^3.


def delta_full_flops(x: Attention) -> int:
    T = x.tokens
    return x.heads * x.orders * x.ways * (4 * T**2 * (x.D + x.V) + T**3)


def delta_rnn_flops(x: Attention) -> int:
    D, V = x.D, x.V
    each = 6 * D * V + 2 * V
    together = (x.ways - 1) * (2 * D + 3 * V + 1)
    return x.heads * x.orders * x.tokens * (x.ways * each + together)


def delta_scan_flops(x: Attention) -> int:
    C = max(1, min(x.tokens, x.chunk or delta.CHUNK))
    if _compiled():
        return compiled_delta_flops(x)
    inside = 2 * C * (3 * x.D + 2 * x.V) + C**2
    tokens = -(-x.tokens // C) * C  # the last chunk is filled up
    return x.heads * x.orders * x.ways * tokens * (inside + 6 * x.D * x.V)


def compiled_delta_flops(x: Attention, *, backward: bool = False) -> int:
    """Triangles count half. The backward pass solves all systems once more."""
    C = max(1, min(x.tokens, x.chunk or delta.CHUNK))
    keys, values, states = (6, 5, 8) if backward else (2, 2, 3)
    inside = C * (keys * x.D + values * x.V)
    across = 2 * states * x.D * x.V if x.tokens > C else 0
    return x.heads * x.orders * x.ways * x.tokens * (inside + across)


FORMS: dict[str, Callable[[Attention], int]] = {"full": full_flops, "rnn": rnn_flops, "scan": scan_flops}
DELTA_FORMS: dict[str, Callable[[Attention], int]] = {
    "full": delta_full_flops,
    "rnn": delta_rnn_flops,
    "scan": delta_scan_flops,
}


def of_shapes(x: Any, *, backward: bool = False) -> int:
    """Of a call of the compiled kernel, by its arguments with shapes in place of tensors: masked tokens
    count as the others, and packed sequences as equally long."""
    B, T, H, D = map(int, x.q)
    orders, cu_seqlens = x.orders, x.cu_seqlens
    decay = "none" if x.log_decay is None else "diagonal" if len(x.log_decay) in (2, 4) else "scalar"
    one = Attention(
        tokens=T,
        heads=H,
        D=D,
        V=int(x.v[3]),
        decay=decay,
        ways=2 if x.direction == library.DIRECTIONS["both"] else 1,
        orders=1 if orders is None or len(orders) == 1 else int(orders[0]),
        self_weight=x.self_weight is not None,
        chunk=x.chunk_size,
    )
    if x.norm == library.NO_OUTPUT:
        return B * H * T * D * one.V * one.ways * (4 if backward else 2)
    if cu_seqlens is None:
        return B * scan_flops(one, backward=backward)
    sequences = max(1, int(cu_seqlens[0]) - 1)
    length, longer = divmod(T, sequences)
    counts = {length: sequences - longer, length + 1: longer}
    return sum(n * scan_flops(one._replace(tokens=t), backward=backward) for t, n in counts.items() if t)


def of_tiles(x: Any, *, backward: bool = False, costs: bool = False, left: bool = False) -> int:
    """Of a call of the Triton kernels, by its arguments with shapes in place of tensors: whole chunks. Without tensors
    nothing is known of the GPU's configuration: chunks have 64 tokens, or as many as asked for."""
    B, T, H, D = map(int, x.q)
    V = int(x.v[3])
    ways = 2 if x.direction == "both" else 1
    outputs, entered = x.norm != "no output", x.sums is not None
    if x.f is None and ways == 2 and x.include_self:
        return B * H * T * D * V * (10 if backward else 4 if outputs else 2)
    C = tile_tokens(T, x.chunk_size)
    chunks = -(-T // C)
    diagonal = x.f is not None and int(x.f[-1]) > 1
    keys = D * (C.bit_length() - 1 if diagonal else 1)  # of diagonal decays a product for every halving
    pairs, across = C * C * (keys + V), ways * C * D * V
    crossing = chunks > 1 or entered
    if backward:
        each = 3 * pairs + 5 * across * (crossing or left) + (C * C * D if costs and not diagonal else 0)
    else:
        each = outputs * (pairs + across * crossing) + across * (outputs * crossing or x.leaves)
    return 2 * B * H * chunks * each


def tile_tokens(T: int, chunk_size: int | None, most: int = 64) -> int:
    """Tokens in a chunk of the Triton kernels: a power of 2, at least 16."""
    wanted = min(chunk_size or most, max(T, 1))
    return min(most, max(16, 1 << (wanted - 1).bit_length()))


def _counted(function: Callable) -> Callable[..., int]:
    """The formula of an operator that is written in torch: what the products in it take."""

    def formula(*arguments: Any, out_val: Any = None) -> int:
        with FlopCounterMode(display=False) as counter:
            function(*tree_map_only(Tensor, lambda x: torch.empty_like(x, device="meta"), arguments))
        return counter.get_total_flops()

    return formula


def _carry(state, of_values, of_state, *others, out_shape=None) -> int:
    chunks, heads, C, V = of_values
    return chunks * heads * 2 * C * V * (3 * of_state[-1] + C)


def _carry_backward(dout, dlast, state, of_values, of_state, *others, out_shape=None) -> int:
    chunks, heads, C, V = of_values
    return chunks * heads * 2 * C * V * (8 * of_state[-1] + 2 * C)


def _scan_backward(q, k, v, f, b, dnum, dden, *options):
    return scan._backward(q, k, v, f, b, dnum, dden, Options(*options))


# The operators of lion.ops.torch; cpu/scan.py registers its own.
COUNTED: dict[str, Callable] = {
    "decayed_scores": scores.decayed_scores,
    "decayed_scores_backward": scores.decayed_scores_grad,
    "scan": scan._forward,
    "scan_backward": _scan_backward,
}
for operator, function in COUNTED.items():
    register_flop_formula(getattr(torch.ops.lion, operator), get_raw=True)(_counted(function))
register_flop_formula(torch.ops.lion.delta_carry)(_carry)
register_flop_formula(torch.ops.lion.delta_carry_backward)(_carry_backward)

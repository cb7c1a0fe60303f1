"""The `scan` form in plain PyTorch: chunks, with both walks' states carried between them.

Inside a chunk the scores are a small dense block; whatever crosses a chunk's border goes through a
state of D x V numbers per head and direction. Time and memory are linear in T, and the backward pass
recomputes what it needs from q, k, v and the decays (docs/maths.md derives both).

Chunks are handled a slab at a time: first the states at the slabs' borders, then each slab by itself,
all its chunks in one set of matrix products. Slabs keep the temporaries in the cache, which on a CPU
is most of the speed. In a graph made by torch.export there is one slab: no loop over the sequence.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.plain import differentiable_gradients, plain, to_onnx
from lion.ops.torch import door
from lion.ops.torch.chunks import into_blocks, out_of_blocks
from lion.ops.torch.options import Options
from lion.ops.torch.scores import (
    arriving,
    arriving_grad,
    decay_mask,
    decayed_scores,
    decayed_scores_grad,
    leaving,
    leaving_grad,
    walks,
)

CHUNK = 64
GROUP = 32  # states carried by one dense mask; more of them go by groups
SLAB_ELEMENTS = 1 << 19  # of one slab's scores: 2 MiB in float32
SLAB_ELSEWHERE = 1 << 26  # on other devices, which have no cache to stay in, but launches to save: 256 MiB
SLAB_CHUNKS = 4  # at least: each slab keeps a state per direction


def scan(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    run = scan_op if to_onnx() or not plain() else _in_one_slab
    num, den = run(q, k, v, f, b, *options)
    return num, den if options.with_den else None


def one_state(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """`scan` without decay: where every token sees every token, all of them see the same one state."""
    if options.direction != "both" or not options.include_self:
        return scan(q, k, v, f, b, options)
    q, k, v = (x.to(f.dtype) for x in (q, k, v))
    num = torch.einsum("bthd,bhdv->bthv", q, torch.einsum("bthd,bthv->bhdv", k, v))
    return num, (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True) if options.with_den else None


# An operator of its own, so that torch.compile takes it as it is: sizes stay dynamic, numbers the same.
@torch.library.custom_op("lion::scan", mutates_args=())
def scan_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    direction: str,
    include_self: bool,
    with_den: bool,
    chunk_size: int | None,
) -> tuple[Tensor, Tensor]:
    if not door.usual_scan(q, k, v, f, b, direction, chunk_size):
        door.check_scan(q, k, v, f, b, direction, chunk_size)
    return _forward(q, k, v, f, b, direction, include_self, with_den, chunk_size)


@torch.library.custom_op("lion::scan_backward", mutates_args=())
def scan_backward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    dnum: Tensor,
    dden: Tensor,
    direction: str,
    include_self: bool,
    with_den: bool,
    chunk_size: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    if not door.usual_scan(q, k, v, f, b, direction, chunk_size):
        door.check_scan(q, k, v, f, b, direction, chunk_size)
    door.check_scan_gradients(dnum, dden, v, f, with_den)
    with torch.autocast(q.device.type, enabled=False):  # some call backward() inside an autocast region
        return _backward(q, k, v, f, b, dnum, dden, Options(direction, include_self, with_den, chunk_size))


@scan_op.register_fake
def _(q, k, v, f, b, direction, include_self, with_den, chunk_size):
    door.check_scan(q, k, v, f, b, direction, chunk_size)
    return q.new_empty(v.shape, dtype=f.dtype), q.new_empty((*v.shape[:-1], int(with_den)), dtype=f.dtype)


@scan_backward_op.register_fake
def _(q, k, v, f, b, dnum, dden, direction, include_self, with_den, chunk_size):
    door.check_scan(q, k, v, f, b, direction, chunk_size)
    door.check_scan_gradients(dnum, dden, v, f, with_den)
    return tuple(x.new_empty(x.shape) for x in (q, k, v, f, b))


def _save(ctx, inputs, output):
    *tensors, direction, include_self, with_den, chunk_size = inputs
    ctx.save_for_backward(*tensors)
    ctx.options = Options(direction, include_self, with_den, chunk_size)


def _differentiate(ctx, dnum, dden):
    if torch.is_grad_enabled():  # a second derivative may be asked for
        grads = differentiable_gradients(
            lambda *x: _in_one_slab(*x, *ctx.options), ctx.saved_tensors, [dnum, dden if ctx.options.with_den else None]
        )
        return *grads, *(None for _ in ctx.options)
    grads = scan_backward_op(*ctx.saved_tensors, dnum, dden, *ctx.options)
    return *grads, *(None for _ in ctx.options)


scan_op.register_autograd(_differentiate, setup_context=_save)


def _forward(q, k, v, f, b, *options):
    options = Options(*options)
    slabs = _slabs(q, options.chunk_size)
    outputs = [x.new_empty(x.shape, dtype=f.dtype) for x in _values(v, options)]
    for slab, out in _slab_outputs(slabs, q, k, v, f, b, options):
        slab.paste(out, *outputs)
    num, *den = outputs
    return num, den[0] if den else num.new_empty(*num.shape[:-1], 0)


def _in_one_slab(q, k, v, f, b, *options):
    """The same by operators that autograd and torch.func follow: nothing is written into a tensor of another's."""
    options = Options(*options)
    slabs = [_slab_of_all(q, options.chunk_size)]
    [(slab, out)] = _slab_outputs(slabs, q, k, v, f, b, options)
    return slab.tokens(out).split([v.shape[-1], int(options.with_den)], -1)


def _slab_outputs(slabs: "list[Slab]", q, k, v, f, b, options: Options) -> Iterator[tuple["Slab", Tensor]]:
    values = _values(v, options)
    crossings = _crossings(slabs, options.direction, f, b)
    entering = [_border_states(slabs, (k,), values, cost, reverse) for reverse, cost in crossings]
    for index, slab in enumerate(slabs):
        cq, ck, cv = (slab.cut(f.dtype, *x) for x in ((q,), (k,), values))
        cf, cb = slab.cut_cost(f), slab.cut_cost(b)
        out = decayed_scores(cq, ck, cf, cb, options.direction, options.include_self) @ cv
        for (reverse, _), initial in zip(crossings, entering, strict=True):
            cost = cb if reverse else cf
            added = (ck * leaving(cost, reverse=reverse).exp()).transpose(-1, -2) @ cv
            states = _states(added, cost.sum(-2), initial[index], reverse=reverse)
            out += (cq * arriving(cost, reverse=reverse).exp()) @ states
        yield slab, out


def _backward(q, k, v, f, b, dnum, dden, options):
    slabs = _slabs(q, options.chunk_size)
    values = _values(v, options)
    dvalues = (dnum, dden) if options.with_den else (dnum,)
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    df, db = (x.new_empty(q.shape[:-1] + x.shape[-1:]) for x in (f, b))  # summed over broadcast dims below
    crossings = _crossings(slabs, options.direction, f, b)
    entering = [_border_states(slabs, (k,), values, cost, reverse) for reverse, cost in crossings]
    dentering = [_border_states(slabs, (q,), dvalues, cost, reverse, adjoint=True) for reverse, cost in crossings]

    for index, slab in enumerate(slabs):
        cq, ck, cv, dout = (slab.cut(f.dtype, *x) for x in ((q,), (k,), values, dvalues))
        cf, cb = slab.cut_cost(f), slab.cut_cost(b)
        dscores = dout @ cv.transpose(-1, -2)
        flags = options.direction, options.include_self
        cdq, cdk, cdf, cdb, scores = decayed_scores_grad(cq, ck, cf, cb, dscores, *flags)
        cdv = scores.transpose(-1, -2) @ dout
        for (reverse, _), initial, dinitial in zip(crossings, entering, dentering, strict=True):
            cost, dcost = (cb, cdb) if reverse else (cf, cdf)
            total = cost.sum(-2)
            to_query = arriving(cost, reverse=reverse).exp()
            to_key = leaving(cost, reverse=reverse).exp()
            queries, keys = cq * to_query, ck * to_key
            states = _states(keys.transpose(-1, -2) @ cv, total, initial[index], reverse=reverse)
            # The transpose of carrying one way is carrying the other way.
            dadded = _states(queries.transpose(-1, -2) @ dout, total, dinitial[index], reverse=not reverse)
            dqueries = dout @ states.transpose(-1, -2)
            dkeys = cv @ dadded.transpose(-1, -2)
            cdq += dqueries * to_query
            cdk += dkeys * to_key
            cdv += keys @ dadded
            # A decay inside the chunk is paid by walks that end in it, that start in it, and that cross it.
            dcost += arriving_grad(_per_cost(dqueries * queries, cost), reverse=reverse)
            dcost += leaving_grad(_per_cost(dkeys * keys, cost), reverse=reverse)
            dcost += _per_cost((states * dadded).sum(-1), total).mul(total.exp()).unsqueeze(-2)
        for chunked, whole in ((cdq, dq), (cdk, dk), (cdv, dv), (cdf, df), (cdb, db)):
            slab.paste(chunked, whole)
    return dq, dk, dv, df.sum_to_size(f.shape), db.sum_to_size(b.shape)


def _crossings(slabs: "list[Slab]", direction: str, f: Tensor, b: Tensor) -> list[tuple[bool, Tensor]]:
    """The walks that cross from chunk to chunk: none if there is only one chunk."""
    alone = not torch.compiler.is_exporting() and slabs[-1].stop <= slabs[0].chunk
    return [] if alone else walks(direction, f, b)


def _per_cost(x: Tensor, cost: Tensor) -> Tensor:
    """Sum over the channels that share one scalar decay."""
    return x.sum(-1, keepdim=True) if cost.shape[-1] == 1 else x


def _values(v: Tensor, options: Options) -> tuple[Tensor, ...]:
    """The columns that P multiplies: v and, for the denominator, a column of ones."""
    return (v, v.new_ones(()).expand(*v.shape[:-1], 1)) if options.with_den else (v,)


def _border_states(
    slabs: "list[Slab]",
    rows: Sequence[Tensor],
    columns: Sequence[Tensor],
    cost: Tensor,
    reverse: bool,
    *,
    adjoint: bool = False,
) -> list[Tensor]:
    """The state with which a walk enters each slab; with `adjoint`, of the gradient's walk, which goes
    the other way and meets the queries at the decay with which the state arrived at them."""
    B, _, H, _ = rows[0].shape
    channels, width = (sum(x.shape[-1] for x in part) for part in (rows, columns))
    states = [cost.new_zeros(B, H, channels, width)]
    leftwards = reverse != adjoint
    decayed = arriving if adjoint else leaving
    for slab in reversed(slabs[1:]) if leftwards else slabs[:-1]:
        row, column = (slab.cut(cost.dtype, *x).flatten(2, 3) for x in (rows, columns))
        price = slab.cut_cost(cost).expand(-1, -1, row.shape[2] // slab.chunk, -1, -1).flatten(2, 3)
        added = (row * decayed(price, reverse=reverse).exp()).transpose(-1, -2) @ column
        states.append(added.addcmul_(states[-1], price.sum(-2).exp().unsqueeze(-1)))
    return states[::-1] if leftwards else states


def _states(added: Tensor, total: Tensor, initial: Tensor, *, reverse: bool) -> Tensor:
    """The state that enters each chunk, [B, H, n, D, V].

    added [B, H, n, D, V] is what each chunk adds, total [B, H, n or 1, E] the log decay across it, and
    initial [B, H, D, V] enters the first.
    """
    n, D, V = added.shape[-3:]
    total = total.expand(-1, -1, n, -1)
    if total.shape[-1] == 1:
        return _carry(added.flatten(-2), total, initial.flatten(-2), reverse=reverse)[0].unflatten(-1, (D, V))
    # Every channel of a diagonal decay is a scalar decay of its own.
    by_channel = total.transpose(-1, -2).unsqueeze(-1)
    return _carry(added.transpose(-2, -3), by_channel, initial, reverse=reverse)[0].transpose(-2, -3)


def _carry(added: Tensor, total: Tensor, initial: Tensor, *, reverse: bool, depth: int = 0) -> tuple[Tensor, Tensor]:
    """The states that enter each of n places, [..., n, W], and the one that leaves the last, [..., W]."""
    n = added.shape[-2]
    # A graph exported for all lengths cannot ask for this one: it groups once, (T / 2048)^2 D V remains.
    if depth == 1 if torch.compiler.is_exporting() else n <= GROUP:
        initial = initial.unsqueeze(-2)
        if reverse:
            cost = F.pad(total, (0, 0, 1, 0))
            out = decay_mask(cost, cost, "reverse", include_self=True) @ torch.cat([added, initial], -2)
            return out[..., 1:, :], out[..., 0, :]
        cost = F.pad(total, (0, 0, 0, 1))
        out = decay_mask(cost, cost, "forward", include_self=True) @ torch.cat([initial, added], -2)
        return out[..., :-1, :], out[..., -1, :]

    added, total = into_blocks(added, GROUP), into_blocks(total, GROUP)
    within, leaves = _carry(added, total, torch.zeros_like(added[..., 0, :]), reverse=reverse, depth=1)
    between, last = _carry(leaves, total.sum(-2), initial, reverse=reverse, depth=depth + 1)
    states = within + arriving(total, reverse=reverse).exp() * between.unsqueeze(-2)
    return out_of_blocks(states, n), last


class Slab(NamedTuple):
    start: int
    stop: int
    chunk: int

    def cut(self, dtype: torch.dtype, *parts: Tensor) -> Tensor:
        """[B, T, H, .] of each part -> [B, H, n, C, sum of .], the last chunk filled up with zeros."""
        tokens = [x[:, self.start : self.stop] for x in parts]
        return into_blocks(torch.cat(tokens, -1).to(dtype).transpose(1, 2), self.chunk)

    def cut_cost(self, cost: Tensor) -> Tensor:
        """`cut` for costs: one that is the same for every token stays broadcast over the chunks."""
        if cost.shape[1] == 1:
            return cost.transpose(1, 2).unsqueeze(2).expand(-1, -1, -1, self.chunk, -1)
        return self.cut(cost.dtype, cost)

    def tokens(self, chunked: Tensor) -> Tensor:
        """The way back: [B, H, n, C, .] -> [B, T, H, .]."""
        return out_of_blocks(chunked, self.stop - self.start).transpose(1, 2)

    def paste(self, chunked: Tensor, *parts: Tensor) -> None:
        """Write the columns of [B, H, n, C, .] into the tensors [B, T, H, .]."""
        tokens = self.tokens(chunked)
        column = 0
        for x in parts:
            x[:, self.start : self.stop] = tokens[..., column : column + x.shape[-1]]
            column += x.shape[-1]


def _chunk_of(T: int, chunk_size: int | None) -> int:
    """Chunks that fill T: 197 tokens are 4 chunks of 50, not 3 of 64 and one of 5."""
    if torch.compiler.is_exporting():
        return chunk_size or CHUNK
    T = max(T, 1)
    return min(chunk_size, T) if chunk_size else math.ceil(T / math.ceil(T / CHUNK))


def _slab_of_all(q: Tensor, chunk_size: int | None) -> Slab:
    T = q.shape[1]
    return Slab(0, T, _chunk_of(T, chunk_size))


def _slabs(q: Tensor, chunk_size: int | None) -> list[Slab]:
    B, T, H, _ = q.shape
    chunk = _chunk_of(T, chunk_size)
    on_cpu = q.device.type in ("cpu", "meta")  # "meta": where FLOPs are counted
    elements, most = (SLAB_ELEMENTS, GROUP) if on_cpu else (SLAB_ELSEWHERE, GROUP * GROUP)
    size = chunk * max(SLAB_CHUNKS, min(most, elements // max(1, B * H * chunk * chunk)))
    return [Slab(start, min(start + size, T), chunk) for start in range(0, max(T, 1), size)]

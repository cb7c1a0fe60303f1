"""The delta rule in plain PyTorch. Before it writes, a token takes back what the state holds under its key:

    S_i = (I - beta_i k_i k_i^T) e^f S_(i-1) + beta_i k_i v_i^T,     y_i = q_i S_i,

f the cost of leaving token i-1; and the same from the other end. Put differently, a walk writes u_i = beta_i
(v_i - k_i S) in place of v_i, where S is the state as it arrives. The u_i of a block solve one triangular system,

    (I + A) u = beta (v - K S),     A_ij = beta_i k_i . (m_ij k_j)  for j before i,

and all else is decayed linear attention of u (docs/maths.md).
"""

import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.ops.options import Options
from lion.ops.torch_forms import head_first, scores_op
from lion.ops.torch_scores import arriving, leaving, walks

CHUNK = 32

# (q, k, v, beta, cost) -> what arrives at each token, itself included, of a walk from the first to the last;
# all are [B, H, T, .]
Walk = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _each_way(walk: Walk, q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    tokens = [*head_first(q, k, v, f, b)[:3], beta.transpose(1, 2).to(f.dtype)]
    ways = []
    for backward, cost in walks(options.direction, f, b):
        given = [*tokens, cost.expand(*q.shape[:3], 1).transpose(1, 2)]
        ways.append(walk(*(x.flip(2) for x in given)).flip(2) if backward else walk(*given))
    return _sum([x.transpose(1, 2) for x in ways], q, k, v, beta, options), None


def _sum(ways: list[Tensor], q, k, v, beta: Tensor, options: Options) -> Tensor:
    """Every walk has brought the token itself along; it counts once, or not at all."""
    total = ways[0] if len(ways) == 1 else ways[0] + ways[1]
    extra = len(ways) - options.include_self
    q, k, v, beta = (x.to(total.dtype) for x in (q, k, v, beta))
    return total - extra * (beta * (q * k).sum(-1, keepdim=True)) * v if extra else total


def full(q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    """Two T x T matrices, and a triangular system."""
    return _each_way(_full, q, k, v, f, b, options, beta)


def rnn(q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    """Token by token."""
    return _each_way(_recurrence, q, k, v, f, b, options, beta)


def _scores(q: Tensor, k: Tensor, cost: Tensor | None, include_self: bool) -> Tensor:
    """q_i . (m_ij k_j) of the tokens j before i, and i itself; without a cost m is 1."""
    if cost is None:
        return (q @ k.transpose(-1, -2)).tril(0 if include_self else -1)
    return scores_op(q, k, cost, cost, "forward", include_self)


def _system(k: Tensor, beta: Tensor, cost: Tensor | None) -> Tensor:
    """(I + A)^-1 diag(beta): what is written, by what there is to write."""
    A = beta * _scores(k, k, cost, False)
    return torch.linalg.solve_triangular(A, torch.diag_embed(beta.squeeze(-1)), upper=False, unitriangular=True)


def _full(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor) -> Tensor:
    return _scores(q, k, cost, True) @ (_system(k, beta, cost) @ v)


def _recurrence(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor) -> Tensor:
    B, H, T, D = q.shape
    state = v.new_zeros(B, H, D, v.shape[-1])
    decay = cost.exp()
    out = []
    for t in range(T):
        q_t, k_t, v_t, beta_t, decay_t = (x[:, :, t, None] for x in (q, k, v, beta, decay))  # [B, H, 1, .]
        u = beta_t * (v_t - k_t @ state)
        state = state + k_t.transpose(-1, -2) * u
        out.append(q_t @ state)
        state = decay_t * state
    return torch.cat(out, 2) if out else torch.zeros_like(v)


def scan(q, k, v, f, b, options: Options, beta: Tensor, *, decays: bool = True) -> tuple[Tensor, None]:
    """Chunks, each with a triangular system of its own, and a state carried from one to the next."""
    T = q.shape[1]
    size = min(options.chunk_size or CHUNK, max(T, 1))
    ways = walks(options.direction, f, b)
    backward = [way for way, _ in ways]
    cq, ck, cv, cbeta = (_in_chunks([x.to(f.dtype)] * len(ways), backward, size) for x in (q, k, v, beta))
    cost = _in_chunks([x.expand(*q.shape[:3], 1) for _, x in ways], backward, size) if decays else None
    inside, system = _scores(cq, ck, cost, True), _system(ck, cbeta, cost)
    queries, keys, entering, keep = cq, ck, ck, cq.new_ones(cq.shape[:2])
    if cost is not None:
        arrives, keep = arriving(cost, backward=False).exp(), cost.sum((-1, -2)).exp()
        queries, keys, entering = cq * arrives, ck * leaving(cost, backward=False).exp(), ck * arrives
    # What a chunk writes depends on the state that enters it: u = of_values - of_state S.
    out = carry_op(system @ cv, system @ entering, queries, keys, inside, keep)
    return _sum(_out_of_chunks(out, backward, v.shape), q, k, v, beta, options), None


undecayed_scan = functools.partial(scan, decays=False)


def _in_chunks(ways: list[Tensor], backward: list[bool], size: int) -> Tensor:
    """[B, T, H, E] of each way -> [chunks, ways x B x H, size, E], as that walk meets the tokens: both walk at once."""
    B, T, H, E = ways[0].shape
    n = -(-T // size)
    chunks = ways[0].new_zeros(n, len(ways), B, H, size, E)
    for i, x in enumerate(ways):
        x = F.pad(x.flip(1) if backward[i] else x, (0, 0, 0, 0, 0, n * size - T))
        chunks[:, i] = x.unflatten(1, (n, size)).permute(1, 0, 3, 2, 4)
    return chunks.flatten(1, 3)


def _out_of_chunks(chunks: Tensor, backward: list[bool], shape: torch.Size) -> list[Tensor]:
    B, T, H, _ = shape
    ways = chunks.unflatten(1, (len(backward), B, H)).permute(1, 2, 0, 4, 3, 5).flatten(2, 3)[:, :, :T]
    return [x.flip(1) if back else x for x, back in zip(ways, backward, strict=True)]


# The only loop, as an operator of its own: torch.compile need not unroll it, and its gradient needs no graph.
@torch.library.custom_op("lion::delta_carry", mutates_args=())
def carry_op(
    of_values: Tensor, of_state: Tensor, queries: Tensor, keys: Tensor, inside: Tensor, keep: Tensor
) -> Tensor:
    """[chunks, heads, C, .] each, keep [chunks, heads] -> the output of all chunks."""
    out = torch.empty_like(of_values)
    for c, (state, written) in enumerate(_states(of_values, of_state, keys, keep)):
        torch.bmm(inside[c], written, out=out[c])
        out[c].baddbmm_(queries[c], state)
    return out


def _states(of_values: Tensor, of_state: Tensor, keys: Tensor, keep: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The state that enters each chunk, and what the chunk writes."""
    n, heads, _, D = keys.shape
    state = keys.new_zeros(heads, D, of_values.shape[-1])
    for c in range(n):
        written = torch.baddbmm(of_values[c], of_state[c], state, alpha=-1)
        yield state, written
        state = torch.baddbmm(keep[c, :, None, None] * state, keys[c].transpose(-1, -2), written)


@torch.library.custom_op("lion::delta_carry_backward", mutates_args=())
def carry_backward_op(
    dout: Tensor, of_values: Tensor, of_state: Tensor, queries: Tensor, keys: Tensor, inside: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    dvalues, dstate_part, dqueries, dkeys, dinside, dkeep = (
        torch.empty_like(x) for x in (of_values, of_state, queries, keys, inside, keep)
    )
    passed = list(_states(of_values, of_state, keys, keep))
    dnext = keys.new_zeros(keys.shape[1], keys.shape[-1], of_values.shape[-1])  # of the state that leaves the chunk
    for c in reversed(range(len(passed))):
        (state, written), g = passed[c], dout[c]
        dwritten = torch.baddbmm(inside[c].transpose(-1, -2) @ g, keys[c], dnext)
        dinside[c] = g @ written.transpose(-1, -2)
        dqueries[c] = g @ state.transpose(-1, -2)
        dkeys[c] = written @ dnext.transpose(-1, -2)
        dkeep[c] = (dnext * state).sum((-1, -2))
        dvalues[c] = dwritten
        dstate_part[c] = -dwritten @ state.transpose(-1, -2)
        dnext = torch.baddbmm(keep[c, :, None, None] * dnext, queries[c].transpose(-1, -2), g)
        dnext.baddbmm_(of_state[c].transpose(-1, -2), dwritten, alpha=-1)
    return dvalues, dstate_part, dqueries, dkeys, dinside, dkeep


@carry_op.register_fake
def _(of_values, of_state, queries, keys, inside, keep):
    return torch.empty_like(of_values)


@carry_backward_op.register_fake
def _(dout, *saved):
    return tuple(torch.empty_like(x) for x in saved)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, dout):
    return carry_backward_op(dout, *ctx.saved_tensors)


carry_op.register_autograd(_differentiate, setup_context=_save)

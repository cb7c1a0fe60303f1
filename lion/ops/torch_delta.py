"""The delta rule in plain PyTorch. Before it writes, a token takes back what the state holds under its key:

    S_i = (I - beta_i k_i k_i^T) e^f S_(i-1) + beta_i k_i v_i^T,     y_i = q_i S_i,

f the cost of leaving token i-1; and the same from the other end. Put differently, a walk writes u_i = beta_i
(v_i - k_i S) in place of v_i, where S is the state as it arrives. The u_i of a block solve one triangular system,

    (I + A) u = beta (v - K S),     A_ij = beta_i k_i . (m_ij k_j)  for j before i,

and all else is decayed linear attention of u (docs/maths.md).
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from lion.ops.blocks import into_blocks, out_of_blocks
from lion.ops.options import Options
from lion.ops.torch_forms import head_first, scores_op
from lion.ops.torch_scores import arriving, leaving, walks

CHUNK = 64

# (q, k, v, beta, cost) -> what arrives at each token, itself included, of a walk from the first to the last
Walk = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _both_ways(walk: Walk, q, k, v, beta, f, b, options: Options) -> tuple[Tensor, None]:
    q, k, v, f, b = head_first(q, k, v, f, b)
    B, H = q.shape[:2]
    beta = beta.transpose(1, 2).to(f.dtype)
    f, b = (x.expand(B, H, -1, -1) for x in (f, b))
    total = torch.zeros_like(v)
    ways = walks(options.direction, f, b)
    for backward, cost in ways:
        tokens = (q, k, v, beta, cost)
        total = total + (walk(*(x.flip(2) for x in tokens)).flip(2) if backward else walk(*tokens))
    # Every walk has brought the token itself along; it counts once, or not at all.
    extra = len(ways) - options.include_self
    if extra:
        total = total - extra * (beta * (q * k).sum(-1, keepdim=True)) * v
    return total.transpose(1, 2), None


def full(q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    """Two T x T matrices, and a triangular system."""
    return _both_ways(_full, q, k, v, beta, f, b, options)


def rnn(q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    """Token by token."""
    return _both_ways(_recurrence, q, k, v, beta, f, b, options)


def scan(q, k, v, f, b, options: Options, beta: Tensor) -> tuple[Tensor, None]:
    """Chunks, each with a triangular system of its own, and a state carried from one to the next."""
    size = min(options.chunk_size or CHUNK, max(q.shape[1], 1))
    return _both_ways(functools.partial(_scan, size=size), q, k, v, beta, f, b, options)


def _written(k: Tensor, beta: Tensor, cost: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """(I + A)^-1 beta x, for every x of values."""
    A = beta * scores_op(k, k, cost, cost, "forward", False)
    wide = torch.cat(values, -1) * beta
    solved = torch.linalg.solve_triangular(A, wide, upper=False, unitriangular=True)
    return solved.split([x.shape[-1] for x in values], -1)


def _full(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor) -> Tensor:
    (u,) = _written(k, beta, cost, v)
    return scores_op(q, k, cost, cost, "forward", True) @ u


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


def _scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor, *, size: int) -> Tensor:
    T = q.shape[2]
    q, k, v, beta, cost = (into_blocks(x, size) for x in (q, k, v, beta, cost))  # [B, H, n, C, .]
    to_token = arriving(cost, backward=False).exp()
    # What a chunk writes depends on the state that enters it: u = of_values - of_state S.
    of_values, of_state = _written(k, beta, cost, v, k * to_token)
    queries, keys = q * to_token, k * leaving(cost, backward=False).exp()
    inside = scores_op(q, k, cost, cost, "forward", True)
    out = carry_op(of_values, of_state, queries, keys, inside, cost.sum((-1, -2)).exp())
    return out_of_blocks(out, T)


# The only loop, as an operator of its own: torch.compile need not unroll it, and its gradient needs no graph.
@torch.library.custom_op("lion::delta_carry", mutates_args=())
def carry_op(
    of_values: Tensor, of_state: Tensor, queries: Tensor, keys: Tensor, inside: Tensor, keep: Tensor
) -> Tensor:
    """[B, H, n, C, .] each, keep [B, H, n] -> the output of all chunks."""
    out = torch.empty_like(of_values)
    for c, state in enumerate(_states(of_values, of_state, keys, keep)):
        written = of_values[:, :, c] - of_state[:, :, c] @ state
        out[:, :, c] = queries[:, :, c] @ state + inside[:, :, c] @ written
    return out


def _states(of_values: Tensor, of_state: Tensor, keys: Tensor, keep: Tensor):
    """The state that enters each chunk."""
    B, H, n, _, D = keys.shape
    state = keys.new_zeros(B, H, D, of_values.shape[-1])
    for c in range(n):
        yield state
        written = of_values[:, :, c] - of_state[:, :, c] @ state
        state = keep[:, :, c, None, None] * state + keys[:, :, c].transpose(-1, -2) @ written


@torch.library.custom_op("lion::delta_carry_backward", mutates_args=())
def carry_backward_op(
    dout: Tensor, of_values: Tensor, of_state: Tensor, queries: Tensor, keys: Tensor, inside: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    states = list(_states(of_values, of_state, keys, keep))
    dvalues, dstate_part, dqueries, dkeys, dinside, dkeep = (
        torch.empty_like(x) for x in (of_values, of_state, queries, keys, inside, keep)
    )
    dnext = keys.new_zeros(*keys.shape[:2], keys.shape[-1], of_values.shape[-1])  # of the state that leaves the chunk
    for c in reversed(range(len(states))):
        state, g = states[c], dout[:, :, c]
        written = of_values[:, :, c] - of_state[:, :, c] @ state
        dwritten = inside[:, :, c].transpose(-1, -2) @ g + keys[:, :, c] @ dnext
        dinside[:, :, c] = g @ written.transpose(-1, -2)
        dqueries[:, :, c] = g @ state.transpose(-1, -2)
        dkeys[:, :, c] = written @ dnext.transpose(-1, -2)
        dkeep[:, :, c] = (dnext * state).sum((-1, -2))
        dvalues[:, :, c] = dwritten
        dstate_part[:, :, c] = -dwritten @ state.transpose(-1, -2)
        dnext = (
            keep[:, :, c, None, None] * dnext
            + queries[:, :, c].transpose(-1, -2) @ g
            - of_state[:, :, c].transpose(-1, -2) @ dwritten
        )
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

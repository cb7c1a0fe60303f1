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
import torch.nn.functional as F
from torch import Tensor

from lion.ops.plain import differentiable_gradients, plain, to_onnx
from lion.ops.torch import door
from lion.ops.torch.chunks import into_blocks, out_of_blocks
from lion.ops.torch.dense import head_first, scores_op
from lion.ops.torch.options import Options
from lion.ops.torch.scores import arriving, decayed_scores, leaving, walks

CHUNK = 32
SLAB_ELEMENTS = 1 << 19  # of the queries of one slab: 2 MiB in float32

# (state, q, k, v, beta, cost) -> what arrives at each token, itself included, of a walk from the first to the last, and
# the state behind it; all but the state, [B, H, D, V], are [B, H, T, .]
Recurrence = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Entering = tuple[Tensor | None, Tensor | None]  # the states that arrive at the first token, and at the last
Done = tuple[Tensor, dict[bool, Tensor]]  # the outputs, and by direction the states behind the piece


def _each_way(recurrence: Recurrence, q, k, v, f, b, options: Options, beta: Tensor, entering: Entering) -> Done:
    tokens = [*head_first(q, k, v, f, b)[:3], beta.transpose(1, 2).to(f.dtype)]
    ways, behind = [], {}
    for reverse, cost in walks(options.direction, f, b):
        given = [*tokens, cost.expand(*q.shape[:3], 1).transpose(1, 2)]
        state = _entering(entering[reverse], k, v, f.dtype)
        out, behind[reverse] = recurrence(state, *(x.flip(2) if reverse else x for x in given))
        ways.append(out.flip(2) if reverse else out)
    return _sum([x.transpose(1, 2) for x in ways], q, k, v, beta, options), behind


def _entering(state: Tensor | None, k: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    B, _, H, D = k.shape
    return k.new_zeros(B, H, D, v.shape[-1], dtype=dtype) if state is None else state.to(dtype)


def _sum(ways: list[Tensor], q, k, v, beta: Tensor, options: Options) -> Tensor:
    """Every walk has brought the token itself along; it counts once, or not at all."""
    total = ways[0] if len(ways) == 1 else ways[0] + ways[1]
    extra = len(ways) - options.include_self
    if not extra:
        return total
    q, k, v, beta = (x.to(total.dtype) for x in (q, k, v, beta))
    return torch.addcmul(total, beta * (q * k).sum(-1, keepdim=True), v, value=-extra)


# With `return_states` the states behind the piece are wanted; without, they may be left out.


def full(q, k, v, f, b, options: Options, beta: Tensor, entering: Entering = (None, None), **_: bool) -> Done:
    """Two T x T matrices, and a triangular system."""
    return _each_way(_full, q, k, v, f, b, options, beta, entering)


def rnn(q, k, v, f, b, options: Options, beta: Tensor, entering: Entering = (None, None), **_: bool) -> Done:
    """Token by token."""
    return _each_way(_recurrence, q, k, v, f, b, options, beta, entering)


def _scores(q: Tensor, k: Tensor, cost: Tensor | None, include_self: bool) -> Tensor:
    """q_i . (m_ij k_j) of the tokens j before i, and i itself; without a cost m is 1."""
    if cost is None:
        return (q @ k.transpose(-1, -2)).tril(0 if include_self else -1)
    run = decayed_scores if plain() else scores_op
    return run(q, k, cost, cost, "forward", include_self)


def _system(k: Tensor, beta: Tensor, cost: Tensor | None) -> Tensor:
    """(I + A)^-1 diag(beta): what is written, by what there is to write."""
    A = beta * _scores(k, k, cost, False)
    if to_onnx():
        return _unit_inverse(A) * beta.transpose(-1, -2)
    return torch.linalg.solve_triangular(A, torch.diag_embed(beta.squeeze(-1)), upper=False, unitriangular=True)


def _unit_inverse(A: Tensor) -> Tensor:
    """(I + A)^-1 of a strictly lower triangle [..., C, C], by products: ONNX has no triangular systems.

    With X the inverses of the blocks on the diagonal, and N what is below them in pairs of blocks, X - X N X has the
    inverses of the pairs.
    """
    C = A.shape[-1]
    place = torch.arange(C, device=A.device)
    X = torch.eye(C, dtype=A.dtype, device=A.device).expand_as(A)
    size = 1
    while size < C:
        block = place // size
        below = (block[:, None] == block + 1) & (block % 2 == 0)
        X = X - X @ (A * below) @ X
        size *= 2
    return X


def _full(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    arrives = arriving(cost, reverse=False).exp()
    written = _system(k, beta, cost) @ (v - (k * arrives) @ state)
    out = _scores(q, k, cost, True) @ written + (q * arrives) @ state
    keys = k * leaving(cost, reverse=False).exp()
    return out, state * cost.sum(-2, keepdim=True).exp() + keys.transpose(-1, -2) @ written


def _recurrence(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    decay = cost.exp()
    out = []
    for t in range(q.shape[2]):
        q_t, k_t, v_t, beta_t, decay_t = (x[:, :, t, None] for x in (q, k, v, beta, decay))  # [B, H, 1, .]
        u = beta_t * (v_t - k_t @ state)
        state = state + k_t.transpose(-1, -2) * u
        out.append(q_t @ state)
        state = decay_t * state
    return torch.cat(out, 2) if out else torch.zeros_like(v), state


def scan(
    q, k, v, f, b, options: Options, beta: Tensor, entering: Entering = (None, None), *, decays: bool = True, **_: bool
) -> Done:
    """Chunks, each with a triangular system of its own, and a state carried from one to the next."""
    B, T, H, D = q.shape
    graph = torch.compiler.is_exporting() or torch.jit.is_tracing()  # which is to serve every length
    size = options.chunk_size or CHUNK
    size = size if graph else min(size, max(T, 1))
    ways = walks(options.direction, f, b)
    reverse = [way for way, _ in ways]
    tokens = [[x.to(f.dtype)] * len(ways) for x in (q, k, v, beta)]
    if decays:
        tokens.append([x.expand(B, T, H, 1) for _, x in ways])
    state = torch.cat([_entering(entering[way], k, v, f.dtype) for way in reverse]).flatten(0, 1)
    if graph:
        out, state = _slab(state, *(_all_in_chunks(x, reverse, size) for x in tokens))
        whole = out_of_blocks(out.transpose(0, 1), T)
    else:
        # A slab at a time, so that what is made on the way stays in the cache.
        slab = size * max(1, SLAB_ELEMENTS // max(1, len(ways) * B * H * D * size))
        slab = max(T, 1) if torch.compiler.is_compiling() else slab
        parts = []
        for start in range(0, max(T, 1), slab):
            met = slice(start, min(start + slab, T))  # in the order of each walk
            out, state = _slab(state, *(_in_chunks(x, reverse, met, size) for x in tokens))
            parts.append(out_of_blocks(out.transpose(0, 1), met.stop - met.start))
        whole = torch.cat(parts, 1)
    whole = whole.unflatten(0, (len(ways), B, H)).transpose(2, 3)  # [ways, B, T, H, V]
    out = [x.flip(1) if way else x for x, way in zip(whole.unbind(0), reverse, strict=True)]
    behind = state.unflatten(0, (len(ways), B, H)).unbind(0)
    return _sum(out, q, k, v, beta, options), dict(zip(reverse, behind, strict=True))


undecayed_scan = functools.partial(scan, decays=False)


def state_behind(k: Tensor, v: Tensor, beta: Tensor, cost: Tensor, state: Tensor | None, *, reverse: bool) -> Tensor:
    """The state behind all tokens of a walk, without outputs: k, v, beta and cost are [B or 1, T or 1, H, .]."""
    B, T, H, _ = k.shape
    size = min(CHUNK, max(T, 1))
    tokens = [x.to(cost.dtype).expand(B, T, H, -1).transpose(1, 2) for x in (k, v, beta, cost)]
    k_, v_, beta_, cost_ = (into_blocks(x.flip(2) if reverse else x, size) for x in tokens)  # [B, H, n, C, .]
    system, keep = _system(k_, beta_, cost_), cost_.sum(-2, keepdim=True).exp()
    of_values, of_state = system @ v_, system @ (k_ * arriving(cost_, reverse=False).exp())
    keys = (k_ * leaving(cost_, reverse=False).exp()).transpose(-1, -2)
    now = _entering(state, k, v, cost.dtype)
    for c in range(k_.shape[2]):
        written = of_values[:, :, c] - of_state[:, :, c] @ now
        now = now * keep[:, :, c] + keys[:, :, c] @ written
    return now


def _slab(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, cost: Tensor | None = None):
    """[chunks, heads, C, .] each -> the output, and the state after it."""
    queries, keys, entering, keep = q, k, k, None
    if cost is not None:
        arrives, keep = arriving(cost, reverse=False).exp(), cost.sum((-1, -2)).exp()
        queries, keys, entering = q * arrives, k * leaving(cost, reverse=False).exp(), k * arrives
    system = _system(k, beta, cost)
    carry = carried_in_graph if torch.compiler.is_exporting() else carried if plain() else carry_op
    # A chunk writes u = of_values - of_state S, where S is the state that enters it.
    return carry(state, system @ v, system @ entering, queries, keys, _scores(q, k, cost, True), keep)


def _in_chunks(ways: list[Tensor], reverse: list[bool], met: slice, size: int) -> Tensor:
    """[B, T, H, E] of each way -> [chunks, ways x B x H, size, E] of the tokens it meets: both walk at once."""
    B, T, H, E = ways[0].shape
    length = met.stop - met.start
    n = -(-length // size)
    chunks = ways[0].new_empty(n, len(ways), B, H, size, E)
    for i, x in enumerate(ways):
        x = x[:, T - met.stop : T - met.start].flip(1) if reverse[i] else x[:, met]
        if n * size > length:
            x = F.pad(x, (0, 0, 0, 0, 0, n * size - length))
        chunks[:, i] = x.unflatten(1, (n, size)).permute(1, 0, 3, 2, 4)
    return chunks.flatten(1, 3)


def _all_in_chunks(ways: list[Tensor], reverse: list[bool], size: int) -> Tensor:
    """The same of all tokens, for a graph that serves every length."""
    met = [x.flip(1) if way else x for x, way in zip(ways, reverse, strict=True)]
    chunks = into_blocks(torch.cat(met).transpose(1, 2), size).permute(2, 0, 1, 3, 4)
    return chunks.clone(memory_format=torch.contiguous_format).flatten(1, 2)  # which no length makes a difference to


def carried(state, of_values, of_state, queries, keys, inside, keep) -> tuple[Tensor, Tensor]:
    """`carry_op` by operators that autograd and torch.func follow."""
    outputs = []
    for c in range(keys.shape[0]):
        written = of_values[c] - of_state[c] @ state
        outputs.append(inside[c] @ written + queries[c] @ state)
        kept = state if keep is None else state * keep[c, :, None, None]
        state = kept + keys[c].transpose(-1, -2) @ written
    return torch.stack(outputs), state


def carried_in_graph(state, of_values, of_state, queries, keys, inside, keep) -> tuple[Tensor, Tensor]:
    """The same as a loop of an exported graph, which has as many turns as there are chunks."""
    from torch._higher_order_ops.scan import scan as higher_order_scan  # private, and only needed here

    keep = torch.ones_like(of_values[..., 0, 0]) if keep is None else keep

    def step(state, chunk):
        out, after = carried(state, *(x[None] for x in chunk))
        return after, out[0]

    last, outputs = higher_order_scan(step, state, (of_values, of_state, queries, keys, inside, keep))
    return outputs, last


# The only loop, as an operator of its own: torch.compile need not unroll it, and its gradient needs no graph.
@torch.library.custom_op("lion::delta_carry", mutates_args=())
def carry_op(
    state: Tensor,
    of_values: Tensor,
    of_state: Tensor,
    queries: Tensor,
    keys: Tensor,
    inside: Tensor,
    keep: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """[chunks, heads, C, .] each, keep [chunks, heads] of the state -> the output of all chunks, and the last state."""
    if not door.usual_carry(state, of_values, of_state, queries, keys, inside, keep):
        door.check_carry(state, of_values, of_state, queries, keys, inside, keep)
    states, written = _carry(state, of_values, of_state, keys, keep)
    out = inside @ written
    out += queries @ states[:-1]
    return out, states[-1].clone()


def _carry(
    state: Tensor, of_values: Tensor, of_state: Tensor, keys: Tensor, keep: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The states that enter the chunks, and the last; and what each chunk writes."""
    n = len(keys)
    states, written = state.new_empty(n + 1, *state.shape), of_values.clone()
    states[0] = state
    for c in range(n):
        written[c].baddbmm_(of_state[c], states[c], alpha=-1)
        kept = states[c] if keep is None else states[c] * keep[c, :, None, None]
        torch.baddbmm(kept, keys[c].transpose(-1, -2), written[c], out=states[c + 1])
    return states, written


@torch.library.custom_op("lion::delta_carry_backward", mutates_args=())
def carry_backward_op(
    dout: Tensor,
    dlast: Tensor,
    state: Tensor,
    of_values: Tensor,
    of_state: Tensor,
    queries: Tensor,
    keys: Tensor,
    inside: Tensor,
    keep: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    if not door.usual_carry(state, of_values, of_state, queries, keys, inside, keep):
        door.check_carry(state, of_values, of_state, queries, keys, inside, keep)
    door.check_carry_gradients(dout, dlast, state, of_values)
    states, written = _carry(state, of_values, of_state, keys, keep)
    n = len(keys)
    dwritten, dstates = inside.transpose(-1, -2) @ dout, torch.empty_like(states)  # of what leaves each chunk
    from_queries = queries.transpose(-1, -2) @ dout
    dstates[n] = dlast
    for c in reversed(range(n)):
        dwritten[c].baddbmm_(keys[c], dstates[c + 1])
        kept = dstates[c + 1] if keep is None else dstates[c + 1] * keep[c, :, None, None]
        torch.add(from_queries[c], kept, out=dstates[c])
        dstates[c].baddbmm_(of_state[c].transpose(-1, -2), dwritten[c], alpha=-1)
    entered, left = states[:-1].transpose(-1, -2), dstates[1:]
    return (
        dstates[0].clone(),
        dwritten,
        -dwritten @ entered,
        dout @ entered,
        written @ left.transpose(-1, -2),
        dout @ written.transpose(-1, -2),
        state.new_empty(0) if keep is None else (left * states[:-1]).sum((-1, -2)),
    )


@carry_op.register_fake
def _(state, of_values, *others):
    door.check_carry(state, of_values, *others)
    return torch.empty_like(of_values), torch.empty_like(state)


@carry_backward_op.register_fake
def _(dout, dlast, *saved):
    door.check_carry(*saved)
    door.check_carry_gradients(dout, dlast, *saved[:2])
    return tuple(dout.new_empty(0) if x is None else torch.empty_like(x) for x in saved)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, dout, dlast):
    if torch.is_grad_enabled():  # a second derivative may be asked for
        return tuple(differentiable_gradients(carried, ctx.saved_tensors, [dout, dlast]))
    *grads, dkeep = carry_backward_op(dout, dlast, *ctx.saved_tensors)
    return *grads, dkeep if ctx.needs_input_grad[-1] else None


carry_op.register_autograd(_differentiate, setup_context=_save)

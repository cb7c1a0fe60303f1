"""The forms `full`, `chunk` and `rnn` in plain PyTorch. Their equations are in docs/maths.md."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lion.ops.plain import differentiable_gradients, plain
from lion.ops.torch import door
from lion.ops.torch.options import Options
from lion.ops.torch.scores import arriving, decayed_scores, decayed_scores_grad, leaving, walks

ROWS = 128  # of one block of the `chunk` form


def _scores(q: Tensor, k: Tensor, f: Tensor, b: Tensor, options: Options) -> Tensor:
    run = decayed_scores if plain() else scores_op
    return run(q, k, f, b, options.direction, options.include_self)


# An operator of its own, as the scan is: for its gradient, and so that torch.compile takes it as it is.
@torch.library.custom_op("lion::decayed_scores", mutates_args=())
def scores_op(q: Tensor, k: Tensor, f: Tensor, b: Tensor, direction: str, include_self: bool) -> Tensor:
    if not door.usual_scores(q, k, f, b, direction):
        door.check_scores(q, k, f, b, direction)
    return decayed_scores(q, k, f, b, direction, include_self).contiguous()


@torch.library.custom_op("lion::decayed_scores_backward", mutates_args=())
def scores_backward_op(
    q: Tensor, k: Tensor, f: Tensor, b: Tensor, grad: Tensor, direction: str, include_self: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not door.usual_scores(q, k, f, b, direction):
        door.check_scores(q, k, f, b, direction)
    door.check_scores_gradient(grad, q)
    with torch.autocast(q.device.type, enabled=False):  # some call backward() inside an autocast region
        dq, dk, df, db, _ = decayed_scores_grad(q, k, f, b, grad, direction, include_self)
    df, db = df.sum_to_size(f.shape), db.sum_to_size(b.shape)
    return dq.contiguous(), dk.contiguous(), df.contiguous(), db.contiguous()


@scores_op.register_fake
def _(q, k, f, b, direction, include_self):
    door.check_scores(q, k, f, b, direction)
    return q.new_empty(*q.shape[:-1], k.shape[-2])


@scores_backward_op.register_fake
def _(q, k, f, b, grad, direction, include_self):
    door.check_scores(q, k, f, b, direction)
    door.check_scores_gradient(grad, q)
    return tuple(x.new_empty(x.shape) for x in (q, k, f, b))


def _save(ctx, inputs, output):
    *tensors, direction, include_self = inputs
    ctx.save_for_backward(*tensors)
    ctx.flags = direction, include_self


def _differentiate(ctx, grad):
    if torch.is_grad_enabled():  # a second derivative may be asked for
        grads = differentiable_gradients(lambda *x: [decayed_scores(*x, *ctx.flags)], ctx.saved_tensors, [grad])
        return *grads, None, None
    return *scores_backward_op(*ctx.saved_tensors, grad, *ctx.flags), None, None


scores_op.register_autograd(_differentiate, setup_context=_save)


def head_first(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """[B, H, T, .] in the accumulation dtype, the costs given out to every token."""
    T = q.shape[1]
    f, b = (x.expand(-1, T, -1, -1) if x.shape[1] == 1 else x for x in (f, b))
    return tuple(x.transpose(1, 2).to(f.dtype) for x in (q, k, v, f, b))


def _tokens_first(num: Tensor, den: Tensor, with_den: bool) -> tuple[Tensor, Tensor | None]:
    return num.transpose(1, 2), den.transpose(1, 2) if with_den else None


def full(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """The whole T x T matrix at once."""
    q, k, v, f, b = head_first(q, k, v, f, b)
    scores = _scores(q, k, f, b, options)
    return _tokens_first(scores @ v, scores.sum(-1, keepdim=True), options.with_den)


def chunk(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """The paper's Theorem 3.2: rows of blocks, one after the other, no state between them."""
    q, k, v, f, b = head_first(q, k, v, f, b)
    T, rows = q.shape[2], options.chunk_size or ROWS
    training = not plain() and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, f, b))
    blocks = []
    for start in range(0, max(T, 1), rows):
        args = (q, k, v, f, b, slice(start, min(start + rows, T)), options)
        # Recompute a row's scores in the backward pass, or all of them together are T x T again.
        block = checkpoint(_row_block, *args, use_reentrant=False) if training else _row_block(*args)
        blocks.append(block)
    num, den = (torch.cat(x, dim=2) for x in zip(*blocks, strict=True))
    return _tokens_first(num, den, options.with_den)


def _row_block(q, k, v, f, b, rows, options):
    scores = _scores(q[:, :, rows], k[:, :, rows], f[:, :, rows], b[:, :, rows], options)
    num, den = scores @ v[:, :, rows], scores.sum(-1, keepdim=True)
    for reverse, cost in walks(options.direction, f, b):
        outside = slice(rows.stop, None) if reverse else slice(0, rows.start)
        # Measured from the block's border both factors of the decay are <= 1.
        queries = q[:, :, rows] * arriving(cost[:, :, rows], reverse=reverse).exp()
        keys = k[:, :, outside] * leaving(cost[:, :, outside], reverse=reverse).exp()
        scores = queries @ keys.transpose(-1, -2)
        num = num + scores @ v[:, :, outside]
        den = den + scores.sum(-1, keepdim=True)
    return num, den


def rnn(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """Two recurrences, token by token: the state a token meets is what arrives from the others."""
    q, k, v, f, b = head_first(q, k, v, f, b)
    if options.with_den:
        v = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)
    out = (q * k).sum(-1, keepdim=True) * v if options.include_self else torch.zeros_like(v)
    for reverse, cost in walks(options.direction, f, b):
        out = out + _recurrence(q, k, v, cost.exp(), reverse)
    width = v.shape[-1] - options.with_den
    return _tokens_first(out[..., :width], out[..., width:], options.with_den)


def _recurrence(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, reverse: bool) -> Tensor:
    B, H, _, D = q.shape
    state = v.new_zeros(B, H, D, v.shape[-1])
    # Unbound, not indexed: the gradient of T slices would be T tensors as long as the sequence.
    tokens = list(
        zip(
            q.unsqueeze(-2).unbind(2),
            k.unsqueeze(-1).unbind(2),
            v.unsqueeze(-2).unbind(2),
            decay.unsqueeze(-1).unbind(2),
            strict=True,
        )
    )
    met = []
    for q_t, k_t, v_t, decay_t in reversed(tokens) if reverse else tokens:
        met.append((q_t @ state).squeeze(-2))
        state = decay_t * (state + k_t * v_t)
    return torch.stack(met[::-1] if reverse else met, 2) if met else torch.zeros_like(v)

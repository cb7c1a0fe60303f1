"""The `scan` form in Triton: two launches forward, six backward, no atomics. The first call imports Triton.

The kernels know masks, packed sequences, directions, states and the division. Gates, orders, weights of a token itself
and the norm "unmasked" go through the lowering that torch's kernels have.
"""

import torch
from torch import Tensor

from lion.ops.call import Call, accumulation_dtype
from lion.ops.state import State, States
from lion.ops.torch import lowering
from lion.ops.torch.lowering import lowered
from lion.ops.torch.options import Options
from lion.ops.triton.operators import NO_OUTPUT, NORMS, Arguments, scanned


def attention(call: Call) -> Tensor | tuple[Tensor, States]:
    """The kernel of the table."""
    if not _direct(call):
        return _lowered(call)
    result = scanned(arguments_of(call))
    return (result.out, _states_of(call, *result.left)) if call.return_states else result.out


def states_behind(call: Call) -> States:
    """`lion.attention_states`: what the walks carry out of a piece, and no outputs."""
    if call.decay in ("delta", "gated diagonal") or call.log_gain is not None:
        return lowering.states_behind(call)
    x = arguments_of(call._replace(q=call.k, norm=NO_OUTPUT, return_states=True))
    return _states_of(call, *scanned(x).left)


def arguments_of(call: Call) -> Arguments:
    f, b = lowering.costs_of(call)
    sums, keys = _entering(call)
    return Arguments(
        call.q,
        call.k,
        call.v,
        f,
        b,
        call.mask,
        sums,
        keys,
        norm=call.norm,
        direction=call.direction,
        with_den=call.norm in ("sum", "max"),
        packed=call.cu_seqlens is not None,
        leaves=call.return_states,
        chunk_size=call.chunk_size,
    )


def _direct(call: Call) -> bool:
    """Whether the kernels do all that the call asks for."""
    return call.log_gain is None and call.self_weight is None and call.orders is None and call.norm in NORMS


def _entering(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """The states that enter, of all walks in one tensor each: [walks, B, H, D, V] and [walks, B, H, D]"""
    walks = {"both": slice(2), "forward": slice(1), "reverse": slice(1, 2)}[call.direction]
    given = [call.forward_state, call.reverse_state][walks]
    some = next((x for x in given if x is not None), None)
    if some is None:
        return None, None
    dtype = accumulation_dtype(call.q)
    found = [some.nothing() if x is None else x for x in given]
    return torch.stack([x.sums.to(dtype) for x in found]), torch.stack([x.keys.to(dtype) for x in found])


def _states_of(call: Call, sums: Tensor, keys: Tensor) -> States:
    each = zip(sums.unbind(), keys.unbind(), strict=True)

    def behind(state: State | None, log_decay: Tensor | None) -> State:
        return State(*next(each), lowering.crossed(call, state, log_decay))

    forward, reverse = call.log_decays
    first = behind(call.forward_state, forward) if call.direction != "reverse" else None
    return States(first, behind(call.reverse_state, reverse) if call.direction != "forward" else None)


# Calls that are lowered


def _sums(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    return _as_torch_kernel(q, k, v, f, b, options)


def _undecayed_sums(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options):
    return _as_torch_kernel(q, k, v, None, None, options)


def _as_torch_kernel(q, k, v, f, b, options: Options) -> tuple[Tensor, Tensor | None]:
    direction, include_self, with_den, chunk_size = options
    q, k, v = _in_one_dtype(q, k, v)
    result = scanned(
        Arguments(
            q,
            k,
            v,
            f,
            b,
            norm="none",
            direction=direction,
            include_self=include_self,
            with_den=with_den,
            wide=True,
            chunk_size=chunk_size,
        )
    )
    return result.out, result.den if with_den else None


_lowered = lowered(_sums, undecayed=_undecayed_sums)


def _in_one_dtype(*tensors: Tensor) -> list[Tensor]:
    """Gates and self weights make keys and queries wider than the values are."""
    dtypes = [x.dtype for x in tensors]
    if len(set(dtypes)) == 1:
        return list(tensors)
    widest = torch.float64 if torch.float64 in dtypes else torch.float32
    return [x.to(widest) for x in tensors]

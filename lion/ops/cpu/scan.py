"""The `scan` form in C++: one operator for all that `lion.attention` can be asked, except the delta rule.

q, k and v are read where they are, whatever their strides; masks, packing, orders, gates and states are handled inside,
and so is the division, so that nothing of the sequence's length is made but the output and its denominators.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from lion.ops import flops
from lion.ops.call import Call, accumulation_dtype
from lion.ops.checks import check_values
from lion.ops.cpu import door
from lion.ops.cpu.library import (
    DIRECTIONS,
    DTYPES,
    LIBRARY,
    MAX,
    NO_OUTPUT,
    NONE,
    NORMS,
    RAW,
    SUM,
    BadValues,
    below_autograd,
    direct,
    loaded,
)
from lion.ops.cpu.problem import (
    DIFFERENTIABLE,
    OPTIONAL,
    SCHEMA,
    Arguments,
    by_way,
    left_behind,
    outputs,
    problem_of,
    put_outputs,
    readable,
    room_for_gradients,
    summed,
)
from lion.ops.plain import differentiable_gradients, plain
from lion.ops.state import State, States
from lion.ops.torch import lowering
from lion.ops.torch import scan as torch_scan

library = torch.library.Library("lion", "FRAGMENT")
library.define(f"cpu_scan({SCHEMA}) -> (Tensor, Tensor, Tensor[])")
library.define(
    f"cpu_scan_backward(Tensor dout, Tensor? dden, Tensor out, Tensor den, Tensor?[] dstates, {SCHEMA}, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor[])"
)

scan_op = torch.ops.lion.cpu_scan.default
scan_backward_op = torch.ops.lion.cpu_scan_backward.default


# Calls of `lion.attention` and `lion.attention_states`


def attention(call: Call) -> Tensor | tuple[Tensor, States]:
    """The kernel of the table."""
    if call.norm == "unmasked":
        return _unmasked(call)
    entered = call.forward_state is not None or call.reverse_state is not None
    if call.return_states and call.log_gain is not None and call.direction == "both" and entered:
        # What comes from the other side may be of another scale altogether, at which a state would be lost.
        return scanned(arguments_of(call._replace(return_states=False)))[0].to(call.q.dtype), states_behind(call)
    out, _, states = scanned(arguments_of(call))
    out = out.to(call.q.dtype)
    return (out, _states_of(call, states)) if call.return_states else out


def between(call: Call, form: str) -> Tensor | tuple[Tensor, States] | None:
    """Without a norm, where a key decays by the tokens between it and the query alone; None where that is not here."""
    if form not in ("auto", "scan") or plain() or call.decay != "diagonal":
        return None
    if call.q.device.type != "cpu" or call.q.dtype not in DTYPES or isinstance(LIBRARY, str):
        return None
    x = arguments_of(call)._replace(decay_between=True)
    out, _, states = scanned(x)
    return (out, _states_of(call, states)) if call.return_states else out


def states_behind(call: Call) -> States:
    """What the walks carry out of a piece, and no outputs."""
    if call.decay in ("delta", "gated diagonal"):
        check_values(call)
        return lowering.states_behind(call)
    if call.log_gain is not None and call.direction == "both":  # each at a scale of its own
        forward = states_behind(call._replace(direction="forward", reverse_state=None)).forward
        return States(forward, states_behind(call._replace(direction="reverse", forward_state=None)).reverse)
    x = arguments_of(call._replace(q=call.k, self_weight=None))._replace(norm=NO_OUTPUT, wide=False)
    return _states_of(call, scanned(x)[2])


def arguments_of(call: Call) -> Arguments:
    x = Arguments(
        call.q,
        call.k,
        call.v,
        call.log_decay,
        call.log_decay_reverse,
        call.log_gain,
        weight_of(call.self_weight, call.q),
        call.mask,
        call.cu_seqlens,
        call.orders,
        NORMS.get(call.norm, RAW),
        DIRECTIONS[call.direction],
        call.chunk_size or 0,
        wide=False,
        return_states=call.return_states,
    )
    if call.forward_state is not None or call.reverse_state is not None:
        x = x._replace(states=[y for state in (call.forward_state, call.reverse_state) for y in _parts(state, call)])
    return x._replace(wide=True) if keeps_wide(x, x.q) else x


def _parts(state: State | None, call: Call) -> Sequence[Tensor]:
    nothing = call.q.new_empty(0)
    if state is None:
        return nothing, nothing, nothing
    sums, keys = (x.to(accumulation_dtype(call.q)) for x in (state.sums, state.keys))
    if call.log_gain is None:
        return sums, keys, nothing
    scale = state.log_scale
    return sums, keys, keys.new_zeros(*keys.shape[:2], 1) if scale is None else scale.to(keys.dtype)


def _states_of(call: Call, parts: Sequence[Tensor]) -> States:
    each = iter(parts)

    def behind(state: State | None, log_decay: Tensor | None) -> State:
        sums, keys, scale = next(each), next(each), next(each)
        cost = lowering.crossed(call, state, log_decay)
        return State(sums, keys, cost, None if call.log_gain is None else scale)

    forward, reverse = call.log_decays
    first = behind(call.forward_state, forward) if call.direction != "reverse" else None
    return States(first, behind(call.reverse_state, reverse) if call.direction != "forward" else None)


def _unmasked(call: Call) -> Tensor:
    """Divided by what the sum would be without decays: two calls, each at a scale of its own."""
    x = arguments_of(call)._replace(wide=True)
    num, scales, _ = scanned(x)
    _, den, _ = scanned(x._replace(v=call.v[..., :0], log_decay=None, log_decay_reverse=None, self_weight=None))
    if call.log_gain is not None:
        den, scale = den
        num = num * (scales[1] - scale).detach().exp().unsqueeze(-1)
    den = den.unsqueeze(-1)
    if call.mask is None:
        return (num / den).to(call.q.dtype)
    real = call.mask[:, :, None, None]
    return torch.where(real, num / torch.where(real, den, 1), 0).to(call.q.dtype)


def keeps_wide(x: Any, q: Tensor) -> bool:
    """Whether the output of half precision is wanted as it was before rounding: a divisor's gradient is the product of
    the output's with the output, from which most of it may cancel."""
    return q.dtype == torch.bfloat16 and x.norm in (SUM, MAX) and x.to_differentiate()


def weight_of(weight: Tensor | float | None, q: Tensor) -> Tensor | None:
    if isinstance(weight, int | float):
        return q.new_full((q.shape[2],), weight, dtype=accumulation_dtype(q))
    return weight


def scanned(x: Arguments) -> tuple[Tensor, Tensor, list[Tensor]]:
    return (_with_autograd if direct(x.q) else scan_op)(*x)


# The operators


def forward(*arguments):
    x = Arguments(*arguments)
    p, results = _prepared(x)
    try:
        loaded().run(p, backward=False)
    except BadValues:
        check_values(x.call())  # says which and where
        raise
    return results


def _prepared(x: Arguments):
    """The problem of a forward call, and the results."""
    if not door.usual(x):
        door.check_scan(x)
    p = problem_of(x)
    # The kernel writes the rows of real tokens.
    out, den = outputs(x, empty=x.q.new_empty if x.mask is None else x.q.new_zeros)
    put_outputs(p, x, out, den)
    left = left_behind(x)
    if left:
        p.leaving = by_way(x, left)
    return p, (out, den, left)


def prepared(call: Call):
    """A forward call of which only the work itself is left to be done. For measuring."""
    p, results = _prepared(arguments_of(call))

    def run(_alive=results) -> None:
        loaded().run(p, backward=False)

    return run


def _backward(dout, dden, out, den, dstates, *arguments):
    x, wanted = Arguments(*arguments[:-1]), arguments[-1]
    door.check_wanted(wanted, OPTIONAL, x)
    return gradients(x, dout, dden, out, den, dstates, wanted=wanted)


def gradients(x: Arguments, dout, dden, out, den, dstates=(), *, wanted, into=None):
    """Of q, k and v, in the tensors `into`, of any strides, if given; of those in OPTIONAL; and of the states."""
    if not (door.usual(x) and door.usual_gradients(x, dout, dden, out, den, dstates)):
        door.check_scan(x)
        door.check_gradients(x, dout, dden, out, den, dstates)
    p = problem_of(x)
    make = x.q.new_empty if x.mask is None else x.q.new_zeros  # the kernel writes the rows of real tokens
    into = [make(y.shape) for y in (x.q, x.k, x.v)] if into is None else into
    others = room_for_gradients(x, wanted, make)
    put_outputs(p, x, readable(out), den)
    if x.norm == NO_OUTPUT:
        into[0] = x.q.new_empty(0)
    else:
        dout = readable(dout)
        p.put(dout=dout, dq=into[0], dden=dden[0] if dden is not None and dden.dim() == 4 else dden)
    p.put(dk=into[1], dv=into[2], **{f"d{name}": grad for name, grad in others.items()})
    dleft = _whole(x, dstates)
    if dleft:
        p.dleaving = by_way(x, dleft)
    dentered = _entered(x, dleft)
    if dentered:
        p.dentering = by_way(x._replace(direction=3), dentered)
    loaded().run(p, backward=True)
    named = dict(zip(OPTIONAL, wanted, strict=True))
    sums = (summed(others.get(name) if want else None, getattr(x, name), x) for name, want in named.items())
    return *into, *sums, _with_scales(x, dentered)


def _whole(x: Arguments, dstates: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the states that were left behind: of a walk all or none."""
    B, _, H, D = x.q.shape
    found: list[Tensor | None] = []
    for i in range(0, len(dstates), 3):
        dsums, dkeys, _ = dstates[i : i + 3]
        if dsums is not None or dkeys is not None:
            sums = accumulation_dtype(x.q)
            dsums = x.q.new_zeros(B, H, D, x.v.shape[3], dtype=sums) if dsums is None else dsums.contiguous()
            dkeys = x.q.new_zeros(B, H, D, dtype=sums) if dkeys is None else dkeys.contiguous()
        found += [dsums, dkeys, None]
    return found if any(y is not None for y in found) else []


def _entered(x: Arguments, dleft: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Room for the gradients of the states that came in. Where there are no tokens they are those of what left."""
    found: list[Tensor | None] = []
    for way in (False, True) if x.states else ():
        left = dleft[3 * x.ways.index(way) :] if dleft and way in x.ways else [None] * 2
        for given, same in zip(x.entering(way)[:2], left, strict=False):
            room = None if given is None else torch.empty_like(given, memory_format=torch.contiguous_format)
            if room is not None and (x.mask is not None or not x.q.shape[1]):
                room = room.zero_() if same is None else room.copy_(same)
            found.append(room)
        found.append(None)
    return found


def _with_scales(x: Arguments, dentered: list[Tensor | None]) -> list[Tensor]:
    """The gradients of the states' parts; of a scale it is what falls on all that it multiplies."""
    found = []
    for i in range(0, len(dentered), 3):
        sums, keys, scale = x.entering(i > 0)
        dsums, dkeys, dscale = dentered[i : i + 3]
        if scale is not None and sums is not None and keys is not None and dsums is not None and dkeys is not None:
            dscale = ((sums * dsums).sum((2, 3)) + (keys * dkeys).sum(2)).unsqueeze(-1)
        found += [x.q.new_empty(0) if y is None else y for y in (dsums, dkeys, dscale)]
    return found


library.impl("cpu_scan", forward, "CPU")
library.impl("cpu_scan_backward", _backward, "CPU")


@torch.library.register_fake("lion::cpu_scan", lib=library)
def _(*arguments):
    x = Arguments(*arguments)
    door.check_scan(x)
    return *outputs(x, empty=x.q.new_empty), left_behind(x)


@torch.library.register_fake("lion::cpu_scan_backward", lib=library)
def _(dout, dden, out, den, dstates, *arguments):
    x, wanted = Arguments(*arguments[:-1]), arguments[-1]
    door.check_scan(x)
    door.check_gradients(x, dout, dden, out, den, dstates)
    door.check_wanted(wanted, OPTIONAL, x)
    named = {"q": x.norm != NO_OUTPUT, "k": True, "v": True, **dict(zip(OPTIONAL, wanted, strict=True))}
    grads = [_like(getattr(x, name) if want else None, x) for name, want in named.items()]
    return *grads, [_like(y, x) for y in x.states]


def _like(y: Tensor | None, x: Arguments) -> Tensor:
    return x.q.new_empty(0) if y is None else y.new_empty(y.shape)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, *tensors):
        x = Arguments.of(tensors, options)
        out, den, left = below_autograd(scan_op, forward, *x)
        ctx.save_for_backward(*tensors, out, den)
        ctx.options = options
        ctx.set_materialize_grads(False)
        fixed = [den] if x.norm != RAW else []
        fixed += [out] if x.norm == NO_OUTPUT else []
        ctx.mark_non_differentiable(*fixed, *left[2::3])
        return out, den, *left

    @staticmethod
    def backward(ctx, dout, dden, *dstates):
        *tensors, out, den = ctx.saved_tensors
        x = Arguments.of(tensors, ctx.options)
        dout = torch.zeros_like(out) if dout is None else dout
        if x.norm == RAW:
            dden = torch.zeros_like(den) if dden is None else dden
        if torch.is_grad_enabled():  # a second derivative may be asked for
            function = lambda *y: plainly_computed(Arguments.of(y, ctx.options))  # noqa: E731
            return None, *differentiable_gradients(function, tensors, [dout, dden, *dstates])
        needed = dict(zip(Arguments._fields, ctx.needs_input_grad[1:], strict=False))
        wanted = [needed[name] for name in OPTIONAL]
        *grads, of_states = below_autograd(scan_backward_op, _backward, dout, dden, out, den, list(dstates), *x, wanted)
        found = {name: grad for name, grad in zip(DIFFERENTIABLE, grads, strict=True) if needed[name]}
        if x.norm == NO_OUTPUT:
            found["q"] = None
        states = (grad if grad.shape == y.shape else None for y, grad in zip(x.states, of_states, strict=True))
        return None, *(found.get(name) for name in Arguments._fields[: len(tensors) - len(x.states)]), *states


def plainly_computed(x: Arguments) -> list[Tensor | None]:
    """What the operator computes, by torch's own."""
    words = {SUM: "sum", MAX: "max", NONE: "none", RAW: "sum", NO_OUTPUT: "none"}
    way = next(name for name, number in DIRECTIONS.items() if number == x.direction)
    forward, reverse = (_entering(x, way) for way in (False, True))
    call = x.call()._replace(norm=words[x.norm], direction=way, chunk_size=x.chunk_size or None)
    call = call._replace(forward_state=forward, reverse_state=reverse, return_states=x.return_states)
    if x.decay_between:
        return _plainly_between(call)
    left = lowering.states_behind(call) if x.return_states else ()
    behind = [y for state in left if state is not None for y in (state.sums, state.keys, state.log_scale)]
    if x.norm == NO_OUTPUT:
        return [None, None, *behind]
    sums = lowering.sums_of(call, torch_scan.scan, torch_scan.one_state)
    if x.norm != RAW:
        out = lowering.normalised(call, sums).to(accumulation_dtype(x.q) if x.wide else x.q.dtype)
        return [out, None, *behind]
    assert sums.den is not None
    den = sums.den.squeeze(-1)
    return [sums.num, den if x.log_gain is None else torch.stack([den, torch.zeros_like(den)])]


def _plainly_between(call: Call) -> list[Tensor | None]:
    from lion.nn.between import attention_between  # two calls, of lion.attention

    given = {
        name: x for name, x in call._asdict().items() if name not in ("norm", "beta", "log_gain", "log_decay_reverse")
    }
    given["log_decay"] = call.log_decay if call.log_decay_reverse is None else call.log_decays
    result: Any = attention_between(**given, backend="torch", form="scan")
    if not call.return_states:
        return [result, None]
    out, states = result
    return [out, None, *(y for state in states if state is not None for y in (state.sums, state.keys, None))]


def _entering(x: Arguments, way: bool) -> State | None:
    sums, keys, scale = x.entering(way)
    if sums is None or keys is None:
        return None
    channels = x.q.shape[-1] if x.log_decay is not None and x.log_decay.dim() in (2, 4) else 1
    return State(sums, keys, keys.new_zeros(*keys.shape[:2], channels), scale)


def _with_autograd(*arguments):
    x = Arguments(*arguments)
    door.check_tangents(x.tensors)
    if x.to_differentiate():
        out, den, *states = _Scan.apply(x.options, *x.tensors)
        return out, den, states
    return below_autograd(scan_op, forward, *x)


# By hand: torch.library.register_autograd does the same and takes 60 microseconds more for each call.
library.impl("cpu_scan", _with_autograd, "Autograd")


@register_flop_formula(torch.ops.lion.cpu_scan)
def _(*shapes, out_shape=None):
    return flops.of_shapes(Arguments(*shapes))


@register_flop_formula(torch.ops.lion.cpu_scan_backward)
def _(dout, dden, out, den, dstates, *shapes, out_shape=None):
    return flops.of_shapes(Arguments(*shapes[:-1]), backward=True)

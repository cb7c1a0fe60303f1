"""`lion.attention`: check, choose a kernel, run it, normalise."""

import functools
import logging
from typing import Any, Literal, TypedDict, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from lion import legacy
from lion.ops.call import Call
from lion.ops.checks import BackendName, Direction, Form, Norm, as_number, as_pair, check, check_values
from lion.ops.kernels import BACKENDS, DECAYS, KERNELS, Choice, Wanted, choose, why_not_compiled
from lion.ops.plain import transformed
from lion.ops.state import State, States
from lion.ops.triton.operators import WIDEST

log = logging.getLogger("lion")

LogDecay = Tensor | tuple[Tensor, Tensor] | None


class Options(TypedDict, total=False):
    """The keyword arguments of `attention`, but for `return_states`, which its result depends on."""

    log_gain: Tensor | None
    beta: Tensor | None
    self_weight: Tensor | float | None
    norm: Norm
    direction: Direction
    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None
    forward_state: State | None
    reverse_state: State | None
    form: Form
    backend: BackendName
    chunk_size: int | None


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, log_decay: LogDecay = None, **options: Unpack[Options]) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: LogDecay = None,
    *,
    return_states: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, States]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: LogDecay = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    self_weight: Tensor | float | None = None,
    norm: Norm = "sum",
    direction: Direction = "both",
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    orders: Tensor | None = None,
    forward_state: State | None = None,
    reverse_state: State | None = None,
    return_states: bool = False,
    form: Form = "auto",
    backend: BackendName = "auto",
    chunk_size: int | None = None,
) -> Tensor | tuple[Tensor, States]:
    """Bidirectional linear attention, in linear time, the same in every form.

    Token i gets sum_j P_ij v_j, normalised, with P_ij = q_i . (m_ij * exp(log_gain_j) k_j). m_ij is the
    decay on the way from token j to token i: leaving a token t costs log_decay_t, in both directions unless
    each has decays of its own.

    Args:
        q, k: [B, T, H, D], after the feature map.
        v: [B, T, H, V].
        log_decay: logs of the decays, <= 0 (-inf is a reset). The rank says which kind:
            None, [H] fixed, [H, D] fixed per channel, [B, T, H] per token, [B, T, H, D] per token and channel.
            With N orders there may be N * H heads: those of the first order, of the second, and so on.
            A pair is (forward, reverse): what each walk pays for leaving a token. Then left and right differ.
        log_gain: [B, T, H], log of an input gate on the keys; any size, it is handled in log space.
        beta: [B, T, H], 0 to 2: the delta rule. A token first takes back the part beta of what the state holds under
            its key, then adds beta k v^T. Wants norm="none", decays of one per head or none, no gates, and keys of
            length 1 to be stable.
        self_weight: m_ii, by default 1. A number, or a tensor of one of the ranks of `log_decay`.
        norm: "sum" divides by the row sum of P, "max" by max(|row sum|, 1), "none" by nothing, and
            "unmasked" by the row sum without decays.
        direction: "both"; "forward" (each token sees itself and those before it) or "reverse".
        mask: [B, T], True for real tokens. The others take no part, cost no decay, and output 0.
        cu_seqlens: [sequences + 1], for sequences packed end to end in one row of batch size 1.
        orders: [T] or [N, T], orders to walk the tokens in; the sums of all are added, then divided.
        forward_state: what the forward walk brings to the first token: of all tokens before this piece of a sequence.
        reverse_state: what the reverse walk brings to the last token: of all tokens after this piece.
        return_states: also return what the walks carry out of the piece, with what they brought.
        form: "auto", "full", "rnn", "chunk" or "scan": the algorithm; the result is the same.
        backend: "auto", "cpu" (compiled, the form "scan"), "triton" (GPUs, the form "scan") or "torch" (everything,
            everywhere).
        chunk_size: tokens per chunk of the forms "chunk" and "scan".

    Derivatives of every order and mode exist: create_graph=True, torch.func (grad, vjp, jvp, vmap, jacfwd, ...) and
    forward_ad. They are taken on the torch backend, by operators of torch's own.

    Values (a positive decay, NaN, an order that is no permutation) are checked in eager mode; under
    torch.compile, torch.export, torch.func and CUDA graph capture only shapes, dtypes and devices are, and what
    the cpu backend sees as it reads.

    Returns:
        [B, T, H, V] in the dtype of v. Sums and exponents are kept in float32 at least. With `return_states` also
        States: `forward` is the next piece's forward_state, `reverse` the piece before's reverse_state.
    """
    call = Call(
        q,
        k,
        v,
        *as_pair(log_decay),
        log_gain,
        beta,
        as_number(self_weight),
        norm,
        legacy.value("direction", direction),
        mask,
        cu_seqlens,
        orders,
        as_number(chunk_size),
        forward_state,
        reverse_state,
        return_states,
    )
    casts = _autocasts(q)
    call = as_autocast(call)
    check(call)
    wanted = _wanted(call, form, backend)
    choice = choose(wanted) if torch.compiler.is_compiling() else _chosen(wanted)
    if not BACKENDS[choice.backend].checks_values:
        check_values(call)
    kernel = KERNELS[choice.backend, choice.form, choice.decay]
    if not casts:
        return kernel(call)
    with torch.autocast(q.device.type, enabled=False):
        return kernel(call)


def attention_states(
    k: Tensor,
    v: Tensor,
    log_decay: LogDecay = None,
    *,
    log_gain: Tensor | None = None,
    beta: Tensor | None = None,
    direction: Direction = "both",
    mask: Tensor | None = None,
    forward_state: State | None = None,
    reverse_state: State | None = None,
) -> States:
    """The states that `attention(..., return_states=True)` returns, without computing the outputs.

    Without states that come in, this is what a piece of a sequence sends on by itself: pieces that are worked on
    anywhere, in any order, are then joined (`State.join`).
    """
    call = Call(
        k,
        k,
        v,
        *as_pair(log_decay),
        log_gain,
        beta,
        norm="none",
        direction=legacy.value("direction", direction),
        mask=mask,
        forward_state=forward_state,
        reverse_state=reverse_state,
        return_states=True,
    )
    casts = _autocasts(k)
    call = as_autocast(call)
    check(call)
    wanted = _wanted(call, "auto", "auto")
    backend = BACKENDS[(choose(wanted) if torch.compiler.is_compiling() else _chosen(wanted)).backend]
    if not backend.checks_values:
        check_values(call)
    if not casts:
        return backend.states(call)
    with torch.autocast(k.device.type, enabled=False):
        return backend.states(call)


def explain(q: Tensor, k: Tensor, v: Tensor, log_decay: LogDecay = None, **options: Unpack[Options]) -> Choice:
    """Which kernel `lion.attention` would run for the same arguments, and why. Runs nothing."""
    given: dict[str, Any] = dict(options)
    form, backend = given.pop("form", "auto"), given.pop("backend", "auto")
    given |= {name: as_number(given[name]) for name in ("self_weight", "chunk_size") if name in given}
    given["direction"] = legacy.value("direction", given.get("direction", "both"))
    call = Call(q, k, v, *as_pair(log_decay), **given)
    call = as_autocast(call)
    check(call)
    check_values(call)
    return choose(_wanted(call, form, backend))


def _wanted(call: Call, form: str, backend: str) -> Wanted:
    q, needs = call.q, []
    if call.has_states:
        needs.append("states")
    if call.log_decay_reverse is not None:
        needs.append("two-sided decays")
    if max(q.shape[-1], call.v.shape[-1]) > WIDEST:
        needs.append("wide heads")
    if transformed():
        needs.append("torch.func")
    return Wanted(form, backend, q.device, q.dtype, call.decay, q.shape[1], call.chunk_size, tuple(needs))


@functools.lru_cache(maxsize=1024)
def _chosen(wanted: Wanted) -> Choice:
    """Chosen once, since that takes longer than a small call's work."""
    choice = choose(wanted)
    _log_choice(choice.form, choice.backend, choice.decay)
    return choice


@functools.cache
def _log_choice(form: str, backend: str, decay: str) -> None:
    log.info("%s on %s (%s)", form, backend, DECAYS[decay])
    if why := why_not_compiled():
        log.warning("lion runs on plain torch, without its compiled CPU kernels: %s", why)


def _autocasts(q: Tensor) -> bool:
    if not isinstance(q, Tensor):
        return False  # to be refused
    kind = q.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def as_autocast(call: Call) -> Call:
    """The call as autocast wants it, where that is on."""
    if not _autocasts(call.q):
        return call
    dtype = torch.get_autocast_dtype(call.q.device.type)
    castable = (torch.float32, torch.bfloat16, torch.float16)
    q, k, v = (x.to(dtype) if isinstance(x, Tensor) and x.dtype in castable else x for x in call[:3])
    return call._replace(q=q, k=k, v=v)

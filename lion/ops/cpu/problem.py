"""What the compiled scan is given: the operators' arguments by name, and the struct `Problem` that they fill."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lion.ops.call import Call, accumulation_dtype
from lion.ops.cpu.library import DTYPES, NO_OUTPUT, NONE, RAW, Problem, address

# norm and direction are numbers, and chunk_size 0 is None: strings would double the cost of dispatching a call.
SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor? log_decay, Tensor? log_decay_reverse, Tensor? log_gain, "
    "Tensor? self_weight, Tensor? mask, Tensor? cu_seqlens, Tensor? orders, int norm, int direction, int chunk_size, "
    "bool wide, bool decay_between, bool gates_absorbed, Tensor[] states, bool return_states"
)
OPTIONAL = ("log_decay", "log_decay_reverse", "log_gain", "self_weight")  # and differentiable: the rows of numbers
DIFFERENTIABLE = ("q", "k", "v", *OPTIONAL)  # and the states
TENSORS = 10  # so many of the first arguments


class Arguments(NamedTuple):
    """Those of SCHEMA, in its order."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    log_decay_reverse: Tensor | None  # None: as log_decay
    log_gain: Tensor | None
    self_weight: Tensor | None
    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None
    norm: int
    direction: int
    chunk_size: int
    wide: bool
    decay_between: bool = False  # decays by channel: a key decays by the tokens between it and the query alone
    gates_absorbed: bool = False  # decays by channel: of gates, too, and above 0 by what rounding leaves
    states: Sequence[Tensor] = ()  # sums, keys and log_scale of the forward state, then of the reverse; [0]: not given
    return_states: bool = False

    @property
    def tensors(self) -> list[Any]:
        """All of them, those that are differentiable first but for the states, which come last."""
        return [*self[:TENSORS], *self.states]

    @property
    def options(self) -> list[Any]:
        return [*self[TENSORS:-2], self.return_states]

    @staticmethod
    def of(tensors: Sequence[Any], options: Sequence[Any]) -> "Arguments":
        return Arguments._make([*tensors[:TENSORS], *options[:-1], list(tensors[TENSORS:]), options[-1]])

    def call(self) -> Call:
        """The call of `lion.attention` that these are of, but for norm, direction and states."""
        return Call(**{name: getattr(self, name) for name in Arguments._fields[:TENSORS]})

    def to_differentiate(self) -> bool:
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in self.tensors)

    @property
    def ways(self) -> list[bool]:
        """The walks that are taken: forward is False, reverse True."""
        return [way for way in (False, True) if self.direction & (2 if way else 1)]

    def entering(self, way: bool) -> list[Tensor | None]:
        found = [None if x.shape == (0,) else x for x in self.states[3 * way : 3 * way + 3]]
        return found or [None] * 3


def is_diagonal(x: Tensor | None) -> bool:
    return x is not None and x.dim() in (2, 4)


def _per_order(log_decay: Tensor | None, q: Tensor) -> bool:
    """Whether every order has decays of its own: H heads of the first, H of the second, and so on."""
    return log_decay is not None and log_decay.shape[-2 if is_diagonal(log_decay) else -1] != q.shape[2]


def readable(x: Tensor) -> Tensor:
    """Any strides will do, but a token's channels lie together."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _numbers(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Decays, gates or weights as the kernel reads them."""
    if x is None:
        return None
    x = x if x.dtype is dtype else x.to(dtype)
    return readable(x) if is_diagonal(x) else x


def _pointers(sums: Tensor | None, keys: Tensor | None, log_scale: Tensor | None) -> tuple[int, int, int]:
    """Of a state; without values its sums have no memory, and it is given all the same."""
    return address(sums) or address(keys), address(keys), address(log_scale)


def problem_of(x: Arguments) -> Any:
    """The struct, all but its results. It keeps the tensors alive that it points into."""
    sums, orders, cu_seqlens = accumulation_dtype(x.q), x.orders, x.cu_seqlens
    q, k, v = readable(x.q), readable(x.k), readable(x.v)
    log_decay, log_gain, weight = _numbers(x.log_decay, sums), _numbers(x.log_gain, sums), _numbers(x.self_weight, sums)
    log_decay_reverse = _numbers(x.log_decay_reverse, sums)
    B, T, H, D = q.shape
    p = Problem(
        B=B,
        T=T,
        H=H,
        D=D,
        V=v.shape[3],
        dtype=DTYPES[q.dtype],
        norm=x.norm,
        direction=x.direction,
        threads=torch.get_num_threads(),
        wide_out=x.wide,
        chunk=x.chunk_size,
        log_decay_channels=D if is_diagonal(log_decay) else 1,
        self_weight_channels=D if is_diagonal(weight) else 1,
        decay_between=x.decay_between,
        gates_absorbed=x.gates_absorbed,
    )
    p.put(q=q, k=k, v=v, log_decay=log_decay, log_gain=log_gain, self_weight=weight)
    if log_decay_reverse is not None:
        p.put(log_decay_reverse=log_decay_reverse)
    if x.mask is not None:
        p.mask = address(x.mask), *x.mask.stride(), 0
    if cu_seqlens is not None:
        cu_seqlens = cu_seqlens.long().contiguous()
        p.cu_seqlens, p.sequences = address(cu_seqlens), len(cu_seqlens) - 1
    if orders is not None:
        orders = torch.atleast_2d(orders).long().contiguous()
        p.order, p.orders, p.decay_per_order = address(orders), len(orders), _per_order(log_decay, q)
    p.alive = q, k, v, log_decay, log_decay_reverse, log_gain, weight, cu_seqlens, orders
    if x.states:
        states = [[y if y is None else y.contiguous() for y in x.entering(way)] for way in (False, True)]
        p.entering = _pointers(*states[0]), _pointers(*states[1])
        p.alive += (states,)
    return p


# The results of the forward pass


def den_shape(x: Arguments) -> tuple[int, ...]:
    """[0] if it does not exist; with gates and the norm RAW [2, ...], the second its log scale."""
    B, T, H, _ = x.q.shape
    if x.norm in (NONE, NO_OUTPUT):
        return (0,)
    return (2, B, T, H) if x.norm == RAW and x.log_gain is not None else (B, T, H)


def out_shape(x: Arguments) -> Sequence[int]:
    return (0,) if x.norm == NO_OUTPUT else x.v.shape


def outputs(x: Arguments, *, empty: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """out and den"""
    sums = accumulation_dtype(x.q)
    if x.q.dtype is sums:
        return empty(out_shape(x)), empty(den_shape(x))
    return empty(out_shape(x), dtype=sums if x.wide else x.q.dtype), empty(den_shape(x), dtype=sums)


def left_behind(x: Arguments) -> list[Tensor]:
    """Room for the sums, keys and log scales of the states that the walks end with. Where there are no tokens they end
    with what they began with."""
    if not x.return_states:
        return []
    B, T, H, D = x.q.shape
    shapes = (B, H, D, x.v.shape[3]), (B, H, D), (0,) if x.log_gain is None else (B, H, 1)
    found = []
    for way in x.ways:
        for given, shape, nothing in zip(x.entering(way), shapes, (0.0, 0.0, -torch.inf), strict=True):
            room = x.q.new_empty(shape, dtype=accumulation_dtype(x.q))
            if x.mask is not None or not T:
                room = room.fill_(nothing) if given is None else room.copy_(given)
            found.append(room)
    return found


def put_outputs(p: Any, x: Arguments, out: Tensor, den: Tensor) -> None:
    if den.dim() == 3:
        p.put(out=out, den=den)
    elif den.dim() == 4:
        p.put(out=out, den=den[0], log_scale=den[1])
    elif x.norm != NO_OUTPUT:
        p.put(out=out)


def by_way(x: Arguments, tensors: Sequence[Tensor | None]) -> tuple[tuple[int, int, int], ...]:
    """Pointers of the forward and the reverse state, of which those that are walked are given."""
    each = iter(tensors)
    return tuple(_pointers(next(each), next(each), next(each)) if way in x.ways else (0, 0, 0) for way in (False, True))


# The results of the backward pass


def room_for_gradients(x: Arguments, wanted: Sequence[bool], make: Callable[..., Tensor]) -> dict[str, Tensor]:
    """Of those in OPTIONAL that are wanted: for every token, even if they are the same for all."""
    B, T, H, D = x.q.shape
    heads = H * len(torch.atleast_2d(x.orders)) if x.orders is not None and _per_order(x.log_decay, x.q) else H
    names = [name for name, want in zip(OPTIONAL, wanted, strict=True) if want]
    if x.log_decay_reverse is not None and (wanted[0] or wanted[1]):  # the kernel has both or none
        names = list(dict.fromkeys(["log_decay", "log_decay_reverse", *names]))
        make = make if x.direction == 3 else x.q.new_zeros  # only of the walks that are taken
    found = {}
    for name in names:
        rows = (B, T, heads if name.startswith("log_decay") else H)
        channels = (D,) if is_diagonal(getattr(x, name)) else ()
        found[name] = make(rows + channels, dtype=accumulation_dtype(x.q))
    return found


def summed(grad: Tensor | None, x: Tensor | None, of: Arguments) -> Tensor:
    """The gradient in the shape of x; [0] if it is not wanted."""
    if grad is None or x is None:
        return of.q.new_empty(0)
    grad = grad if grad.dim() == x.dim() else grad.sum((0, 1))
    return grad if grad.dtype is x.dtype else grad.to(x.dtype)

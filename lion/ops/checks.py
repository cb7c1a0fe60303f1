"""Checks of the arguments of `lion.attention`. Every message says what was got, what was expected, and the remedy."""

import difflib
import itertools
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lion.ops.plain import transformed

if TYPE_CHECKING:
    from lion.ops.call import Call

Norm = Literal["sum", "max", "none", "unmasked"]
Direction = Literal["both", "forward", "reverse"]
Form = Literal["auto", "full", "rnn", "chunk", "scan"]
BackendName = Literal["auto", "cpu", "triton", "torch"]
NORMS: tuple[Norm, ...] = get_args(Norm)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LARGEST = sys.float_info.max
LONGEST_CHUNK = 2**31 - 1
PER_TOKEN = {1: "[H]", 2: "[H, D]", 3: "[B, T, H]", 4: "[B, T, H, D]"}


def check(call: "Call") -> None:
    """Raise an error that says what to do, unless all arguments fit together."""
    q, cu_seqlens, orders = call.q, call.cu_seqlens, call.orders
    _check_qkv(q, call.k, call.v)
    one_of("norm", call.norm, NORMS)
    one_of("direction", call.direction, DIRECTIONS)
    if call.beta is not None:
        _check_beta(call)
    check_others(call)
    if cu_seqlens is not None and can_read(cu_seqlens):
        _check_borders(cu_seqlens, q)
    if orders is not None and can_read(orders):
        _check_permutations(orders, cu_seqlens, q)
    check_chunk_size(call.chunk_size)
    if call.has_states:
        _check_states(call)


def _check_states(call: "Call") -> None:
    """Raise unless the call can have states, and they fit it."""
    refused = {
        "norm='unmasked'": call.norm == "unmasked",
        "orders": call.orders is not None,
        "cu_seqlens": call.cu_seqlens is not None,
    }
    for what, given in refused.items():
        if given:
            raise ValueError(f"states are given or asked for with {what}; expected one of the two: {WITHOUT[what]}.")
    B, _, H, D = call.q.shape
    channels = D if call.decay in ("diagonal", "gated diagonal") else 1
    shapes = {"sums": (B, H, D, call.v.shape[-1]), "keys": (B, H, D)}
    shapes |= {"log_decay": (B, H, channels), "log_scale": (B, H, channels), "transition": (B, H, D, D)}
    for name, state, way in (("forward", call.forward_state, "reverse"), ("reverse", call.reverse_state, "forward")):
        if state is None:
            continue
        if call.direction == way:
            raise ValueError(f"{name}_state is given, and direction is {way!r}; expected None: no such walk is taken.")
        for part, shape in shapes.items():
            x = getattr(state, part)
            if part == "transition" and x is not None and x.shape == (B, H, 0, 0):  # not known, and not needed
                continue
            if x is not None or part not in ("log_scale", "transition"):
                _tensor(f"{name}_state.{part}", x, call.q, "a floating point", remedy="a State of lion.attention's")
                check_shape(f"{name}_state.{part}", x, shape, "of [B, H, ...]")
        if state.log_scale is not None and call.log_gain is None:
            raise ValueError(f"{name}_state has a log_scale, from gates; expected log_gain with it.")


WITHOUT = {  # why it cannot be
    "norm='unmasked'": "its divisor is of the sequence without decays, which no state holds",
    "orders": "other orders cross the pieces' borders many times",
    "cu_seqlens": "a packed row has many sequences, and a state is of one",
}


def check_fit(call: "Call") -> None:
    """The shapes, dtypes and devices alone."""
    _check_qkv(call.q, call.k, call.v)
    check_others(call)


def check_others(call: "Call") -> None:
    """Raise unless all other arguments fit q."""
    q, mask, log_gain, orders = call.q, call.mask, call.log_gain, call.orders
    if mask is not None:
        _tensor("mask", mask, q, "a bool", remedy="True marks a real token: mask.bool()")
        check_shape("mask", mask, q.shape[:2], "[B, T]")
    if call.log_decay_reverse is not None:
        _check_pair(call)
    elif call.log_decay is not None:
        _check_per_token("log_decay", call.log_decay, q, orders)
    if log_gain is not None:
        _tensor("log_gain", log_gain, q, "a floating point", remedy="log_gain.float()")
        check_shape("log_gain", log_gain, q.shape[:3], "[B, T, H]")
    if call.self_weight is not None and not isinstance(call.self_weight, int | float):
        _check_per_token("self_weight", call.self_weight, q)
    if call.cu_seqlens is not None:
        _check_cu_seqlens(call.cu_seqlens, q)
    if orders is not None:
        _check_orders(orders, q)


def _check_pair(call: "Call") -> None:
    forward, reverse = call.log_decays
    for i, x in enumerate((forward, reverse)):
        _check_per_token(f"log_decay[{i}]", x, call.q, call.orders)
    shapes = [tuple(x.shape) for x in (forward, reverse) if x is not None]
    if len({len(shape) % 2 for shape in shapes}) > 1:
        raise ValueError(
            f"log_decay is a pair of shapes {shapes[0]} and {shapes[1]}; expected both to have one number per head, or "
            "both one per channel."
        )
    heads = [shape[-1 if len(shape) % 2 else -2] for shape in shapes]  # in a trace tensors, which no set tells apart
    if any(x != heads[0] for x in heads):
        raise ValueError(
            f"log_decay is a pair of shapes {shapes[0]} and {shapes[1]}; expected as many heads in both: with orders, "
            "H or N * H."
        )


def check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and (not isinstance(chunk_size, int) or not 1 <= chunk_size <= LONGEST_CHUNK):
        raise ValueError(
            f"chunk_size is {chunk_size!r}; expected a whole number of tokens from 1 to {LONGEST_CHUNK}, or None."
        )


def as_pair(log_decay: Any) -> tuple[Any, Any]:
    """log_decay and, where there is one, the reverse walk's own."""
    if not isinstance(log_decay, tuple | list):
        return log_decay, None
    if len(log_decay) != 2 or any(x is None for x in log_decay):
        found = ", ".join(type(x).__name__ for x in log_decay)
        raise ValueError(
            f"log_decay is ({found}); expected one tensor, or a pair of them: (forward, reverse). A walk that does not "
            "decay has zeros."
        )
    return log_decay[0], log_decay[1]


def as_number(x: Any) -> Any:
    """numpy's numbers as Python's; all else as it is."""
    return x.item() if isinstance(x, np.number) else x


def check_dense(name: str, x: object) -> None:
    if not isinstance(x, Tensor):  # torch lets None through to an operator, whatever its schema says
        raise TypeError(f"{name} is a {type(x).__name__}; expected a tensor.")
    if x.is_nested:
        raise TypeError(
            f"{name} is a nested tensor; expected a dense one: {name}.to_padded_tensor(0.0) with a mask, or sequences "
            "packed into one row with cu_seqlens."
        )
    if x.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor ({name_of(x.layout)}); expected a dense one: {name}.to_dense().")


def check_values(call: "Call") -> None:
    """The numbers themselves, which kernels may prefer to look at while they read them."""
    mask, pair = call.mask, call.log_decay_reverse is not None
    for name, x in zip(
        ("log_decay[0]" if pair else "log_decay", "log_decay[1]"), (call.log_decay, call.log_decay_reverse), strict=True
    ):
        if x is not None:
            _check_values(name, x, 0.0, mask, "<= 0, the log of a decay: take its log, or logsigmoid")
    if call.log_gain is not None:
        _check_values("log_gain", call.log_gain, LARGEST, mask, "below +inf: clamp it")
    if call.beta is not None:
        _check_values("beta", call.beta, 2.0, mask, "from 0 to 2: take a sigmoid of it", least=0.0)


def check_ids(name: str, ids: Tensor | None, embedding: torch.nn.Embedding | None) -> None:
    """Raise unless each id has an embedding."""
    if ids is None or embedding is None:
        return
    hint = ": is this the tokenizer that it was trained with?" if name == "input_ids" else "."
    for wrong in ids[(ids < 0) | (ids >= embedding.num_embeddings)][:1].tolist():
        last = embedding.num_embeddings - 1
        raise ValueError(f"{name} has the id {wrong}; expected 0 to {last}, as the model has embeddings{hint}")


MANY = 40  # more than anybody wants to read in an error


def one_of(name: str, got: str, known: Collection[str]) -> None:
    if got not in known:
        near = difflib.get_close_matches(str(got), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(map(repr, itertools.islice(known, 8 if len(known) > MANY else None)))
        others = f" and {len(known) - 8} others" if len(known) > MANY else ""
        raise ValueError(f"{name} is {got!r}; expected one of {shown}{others}.{hint}")


def _check_qkv(q, k, v):
    tensors = isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)
    if tensors and q.dtype == k.dtype == v.dtype and q.device == k.device == v.device and q.dtype in DTYPES:
        shape = q.shape
        dense = all(x.layout == torch.strided and not x.is_nested for x in (q, k, v))
        fits = dense and len(shape) == 4 and shape == k.shape and shape[:3] == v.shape[:3] and len(v.shape) == 4
        if fits and shape[3] > 0:
            return  # the usual case, at a glance
    for name, x in (("q", q), ("k", k), ("v", v)):
        last = "V" if name == "v" else "D"
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; expected a tensor [B, T, H, {last}].")
        check_dense(name, x)
        if x.dim() != 4:
            remedy = f": for a single head, {name}.unsqueeze(2)" if x.dim() == 3 else ""
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected 4 dimensions [B, T, H, {last}]{remedy}.")
        if x.dtype not in DTYPES:
            known = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
            raise TypeError(f"{name} has dtype {name_of(x.dtype)}; expected one of {known}: {name}.float().")
    if q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}; expected at least one channel, D >= 1.")
    check_shape("k", k, q.shape, "[B, T, H, D], the shape of q")
    check_shape("v", v, q.shape[:3] + v.shape[3:], "[B, T, H, V]")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(
                f"{name} has dtype {name_of(x.dtype)}; expected {name_of(q.dtype)}, the dtype of q: {name}.to(q.dtype)."
            )
        check_device(name, x, q)


def _check_per_token(name: str, x, q: Tensor, orders: object = None) -> None:
    _tensor(name, x, q, "a floating point", remedy=f"{name}.float()")
    if x.dim() not in PER_TOKEN:
        known = ", ".join(PER_TOKEN.values())
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected one of {known}.")
    B, T, H, D = q.shape
    if isinstance(orders, Tensor) and orders.dim() == 2 and x.shape[-1 if x.dim() % 2 else -2] == H * len(orders):
        H *= len(orders)  # every order has its own
    want = {1: (H,), 2: (H, D), 3: (B, T, H), 4: (B, T, H, D)}[x.dim()]
    if x.dim() == 4 and x.shape == (B, T, H, 1) and D != 1:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}; expected {want} = [B, T, H, D], or {want[:3]} = [B, T, H] "
            f"for one number per head: {name}.squeeze(-1)."
        )
    check_shape(name, x, want, PER_TOKEN[x.dim()])


def _check_beta(call: "Call") -> None:
    beta, log_decay = call.beta, call.log_decay
    _tensor("beta", beta, call.q, "a floating point", remedy="beta.float()")
    assert beta is not None
    check_shape("beta", beta, call.q.shape[:3], "[B, T, H]")
    if call.norm != "none":
        raise ValueError(
            f"norm is {call.norm!r}; expected 'none' with beta: what the delta rule takes back has no row sum."
        )
    if isinstance(log_decay, Tensor) and log_decay.dim() in (2, 4):
        raise ValueError(
            f"log_decay has shape {tuple(log_decay.shape)}, one per channel; expected [H] or [B, T, H] with beta."
        )
    if call.log_gain is not None:
        raise ValueError("log_gain and beta are both given; expected one of them: beta is the delta rule's own gate.")


def check_packing(cu_seqlens, x: Tensor) -> None:
    """Raise unless they are the borders of sequences packed into x [1, T, ...]: for layers that move tokens first."""
    _check_cu_seqlens(cu_seqlens, x)
    if can_read(cu_seqlens):
        _check_borders(cu_seqlens, x)


def _check_cu_seqlens(cu_seqlens, q: Tensor) -> None:
    _tensor("cu_seqlens", cu_seqlens, q, "an int32 or int64", remedy="cu_seqlens.long()")
    if cu_seqlens.dim() != 1 or len(cu_seqlens) < 2:
        raise ValueError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)}; expected one dimension, [sequences + 1]: "
            "the starts of the packed sequences, and the end of the last."
        )
    if q.shape[0] != 1:
        raise ValueError(
            f"cu_seqlens packs sequences into one row, but q has batch size {q.shape[0]}; expected 1: "
            "lay the sequences end to end, [1, total tokens, H, D]."
        )


def _check_borders(cu_seqlens: Tensor, q: Tensor) -> None:
    T = q.shape[1]
    borders = cu_seqlens.tolist()
    if borders[0] != 0 or borders[-1] != T:
        raise ValueError(
            f"cu_seqlens runs from {borders[0]} to {borders[-1]}; expected 0 to {T}, the number of tokens: "
            "it is the cumulative sum of the lengths with a 0 in front."
        )
    for left, right in itertools.pairwise(borders):
        if left > right:
            raise ValueError(
                f"cu_seqlens falls from {left} to {right}; expected it never to fall: "
                "it is the cumulative sum of the lengths with a 0 in front."
            )


def _check_orders(orders, q: Tensor) -> None:
    T = q.shape[1]
    _tensor("orders", orders, q, "an int32 or int64", remedy="orders.long()")
    if orders.dim() not in (1, 2) or orders.shape[-1] != T:
        raise ValueError(
            f"orders has shape {tuple(orders.shape)}; expected ({T},) = [T] for one order "
            f"or (N, {T}) = [N, T] for several."
        )
    if orders.dim() == 2 and orders.shape[0] == 0:
        raise ValueError("orders has no order in it; expected at least one: leave it out for the tokens as they come.")


def _check_permutations(orders: Tensor, cu_seqlens: Tensor | None, q: Tensor) -> None:
    T = q.shape[1]
    rows = np.atleast_2d(orders.cpu().numpy())  # for numbers as few as these, several times as quick as torch
    wrong = (np.sort(rows, -1) != np.arange(T)).any(-1)
    if wrong.any():
        raise ValueError(
            f"orders[{wrong.argmax()}] is not a permutation; expected every token 0 to {T - 1} exactly once."
        )
    if cu_seqlens is not None:
        sequence = np.searchsorted(cu_seqlens.cpu().numpy(), np.arange(T), side="right")
        strays = np.argwhere(sequence[rows] != sequence)
        if len(strays):
            order, place = strays[0]
            raise ValueError(
                f"orders[{order}] puts token {rows[order, place]} at place {place}, in another packed sequence; "
                "expected an order to permute the tokens of each sequence among themselves."
            )


def _check_values(
    name: str, x: Tensor, most: float, mask: Tensor | None, want: str, *, least: float = -torch.inf
) -> None:
    """Raise if a value is out of range. Values of masked tokens may be anything."""
    if not can_read(x) or not x.numel():
        return
    least_found, most_found = (x.detach() if x.requires_grad else x).aminmax()
    if least_found.item() >= least and most_found.item() <= most:  # NaN is neither
        return
    fine = (x.double() <= most) & (x.double() >= least)
    if mask is not None and x.dim() > 2:
        fine = fine | ~mask.reshape(*mask.shape, *[1] * (x.dim() - 2))
    if not fine.all():
        where = (~fine).nonzero()[0].tolist()
        value = x[tuple(where)].item()
        if value != value:
            raise ValueError(f"{name} is NaN at {where}; expected numbers: look for what made it, a log of 0 or below?")
        raise ValueError(f"{name} is {value:g} at {where}; expected values {want}.")


def can_read(x: Tensor) -> bool:
    """Whether the values of x can be read: not while a graph is traced or captured, nor under torch.func."""
    if torch.compiler.is_compiling() or x.is_meta or isinstance(x, FakeTensor) or transformed():
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


KINDS = {
    "a floating point": lambda dtype: dtype.is_floating_point,
    "a bool": lambda dtype: dtype == torch.bool,
    "an int32 or int64": lambda dtype: dtype in (torch.int32, torch.int64),
}


def _tensor(name: str, x: object, q: Tensor, kind: str, *, remedy: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; expected {kind} tensor.")
    check_dense(name, x)
    if not KINDS[kind](x.dtype):
        raise TypeError(f"{name} has dtype {name_of(x.dtype)}; expected {kind.split(' ', 1)[1]}: {remedy}.")
    check_device(name, x, q)


def check_device(name: str, x: Tensor, q: Tensor) -> None:
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device}; expected {q.device}, the device of q: {name}.to(q.device).")


def check_shape(name: str, x: Tensor, want: Iterable[int], letters: str) -> None:
    got, want = tuple(x.shape), tuple(want)
    if got == want:
        return
    swapped = len(got) >= 3 and (got[0], got[2], got[1], *got[3:]) == want
    flipped = len(got) == 2 and got[::-1] == want
    remedy = ": transpose it" if swapped or flipped else ""
    raise ValueError(f"{name} has shape {got}; expected {want} = {letters}{remedy}.")


def name_of(dtype: torch.dtype | torch.layout) -> str:
    return str(dtype).removeprefix("torch.")

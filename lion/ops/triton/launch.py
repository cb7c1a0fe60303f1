"""The launches of a call: one or two forward, up to six backward."""

from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from lion.ops.triton import divisors, gradients, values
from lion.ops.triton import states as walks
from lion.ops.triton.available import interpreting
from lion.ops.triton.configurations import Configuration, configuration, decay_of
from lion.ops.triton.tiles import Rows

INTERPRETED = interpreting()
DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32, torch.float64: tl.float64}

Pair = tuple[Tensor, Tensor]  # the sums and the keys of states


class Launches(NamedTuple):
    """What the launches of one call share."""

    q: Tensor  # [B, T, H, D]; all with neighbouring channels side by side
    k: Tensor
    v: Tensor  # [B, T, H, V]
    f: Tensor | None  # [B or 1, T or 1, H or 1, 1 or D]
    b: Tensor | None
    mask: Tensor | None  # [B, T]
    entering: Pair | None  # [walks, B, H, D, V] and [walks, B, H, D], of the forward walk first
    direction: str
    include_self: bool
    packed: bool
    wide: bool  # products in float32 at least: of what is not a call's inputs as they were
    use: Configuration

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        return *self.q.shape, self.v.shape[-1]

    @property
    def accumulator(self) -> torch.dtype:
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def operand(self) -> torch.dtype:
        """The dtype that tensor cores multiply scores and states in; float16 would overflow."""
        return torch.bfloat16 if self.q.dtype == torch.bfloat16 and not self.wide else self.accumulator

    @property
    def one_state(self) -> bool:
        """Whether all tokens see the same sum of all tokens."""
        return self.f is None and self.direction == "both" and self.include_self

    @property
    def chunks(self) -> int:
        return -(-self.q.shape[1] // self.use.C)

    @property
    def walks(self) -> int:
        return sum(self.ways())

    def ways(self, transposed: bool = False) -> tuple[bool, bool]:
        """Whether there are pairs whose row comes after the column, and pairs whose row comes before."""
        ways = self.direction != "reverse", self.direction != "forward"
        return ways[::-1] if transposed else ways

    def tiles(self, of: str) -> int:
        size, tile = (self.q.shape[-1], self.use.BD) if of == "D" else (self.v.shape[-1], self.use.BV)
        return max(1, -(-size // tile))

    def run(self, kernel: Any, *tiles: str, transposed: bool = False, **arguments: Any) -> None:
        """Launch a kernel, with a program for each chunk, or walk, of each head, and each of the tiles."""
        lower, upper = self.ways(transposed)
        B, T, H, D, V = self.sizes
        down, up = (self.f, self.b) if not transposed else (self.b, self.f)
        walked = kernel is walks.states
        given = {
            "down": _rows(down),
            "up": _rows(up),
            "mask": self.mask,
            # Where nothing leaves a packed sequence that ends with masked tokens, no more does through them.
            "costs_mask": None if self.packed else self.mask,
            "T": T,
            "H": H,
            "chunks": self.chunks,
            "heads": B * H,
            "D": D,
            "V": V,
            "C": self.use.C,
            "LEVELS": self.use.C.bit_length() - 1,
            "BD": self.use.BD,
            "BV": self.use.BV,
            "DECAY": decay_of(self.f),
            "LOWER": lower or (walked and self.one_state),
            "UPPER": upper and not (walked and self.one_state),
            "SELF": self.include_self,
            "TRANSPOSED": transposed,
            "ONE_STATE": self.one_state,
            "PACKED": self.packed,
            "RAW": DTYPES[self.operand if self.wide else self.q.dtype],
            "OPERAND": DTYPES[self.operand],
            "PRECISION": self.use.precision,
            "INTERPRETED": INTERPRETED,
        }
        programs = B * H * (self.chunks if not walked else 1 if self.one_state else self.walks)
        for of in tiles:
            programs *= self.tiles(of)
        arguments = {name: x for name, x in given.items() if name in kernel.arg_names} | arguments
        warps = self.use.gradient_warps if kernel is gradients.gradients else self.use.warps
        launch(kernel, programs, arguments | {"num_warps": warps, "num_stages": self.use.stages})


def launch(kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
    """All programs are in the grid's first dimension, which alone may have more than 65,535 of them. `lion bench
    compile` has another function here."""
    if INTERPRETED:
        with np.errstate(all="ignore"):  # 0 / 0 and the like are nobody's mistake
            kernel[(programs,)](**arguments)
    else:
        found = (x.data if isinstance(x, Rows) else x for x in arguments.values())
        device = next(x.device for x in found if isinstance(x, Tensor))
        with torch.cuda.device(device):
            kernel[(programs,)](**arguments)


def prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor | None,
    b: Tensor | None,
    mask: Tensor | None,
    entering: Pair | None,
    direction: str,
    include_self: bool,
    packed: bool,
    wide: bool,
    chunk_size: int | None,
) -> Launches:
    use = configuration(q, v, f, chunk_size, wide, interpreted=INTERPRETED)
    q, k, v = map(_side_by_side, (q, k, v))
    f, b = (None if x is None else _side_by_side(x) for x in (f, b))
    mask = None if mask is None else mask.contiguous()
    entering = None if entering is None else (entering[0].contiguous(), entering[1].contiguous())
    return Launches(q, k, v, f, b, mask, entering, direction, include_self, packed, wide, use)


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _rows(x: Tensor | None) -> Rows | None:
    if x is None:
        return None
    strides = (0 if n == 1 else stride for n, stride in zip(x.shape[:3], x.stride()[:3], strict=True))
    return Rows(x, tuple(strides))  # type: ignore[arg-type]


# The two passes


def forward(
    x: Launches, norm: str, with_den: bool, leaves: bool, dtype: torch.dtype, save: bool
) -> tuple[Tensor, Tensor, Tensor, Pair]:
    """The output; what it was divided by before abs and max; the output before rounding if it is to be saved; and the
    states that leave, if they are wanted."""
    B, T, H, _, V = x.sizes
    out = x.v.new_empty((0,) if norm == "no output" else (B, T, H, V), dtype=dtype)
    den = x.v.new_empty(B, T, H, int(with_den), dtype=x.accumulator)
    saved = x.v.new_empty((B, T, H, V) if save else (0,), dtype=x.accumulator)
    if not B * T * H:
        return out, den, saved, _passed_on(x, x.entering, leaves)
    meets = norm != "no output" and (x.one_state or x.chunks > 1 or x.entering is not None)
    met = Met.nothing(x)
    if meets or leaves:
        met = _walk(x, x.k, x.v, x.entering, borders=meets, with_keys=with_den, leaves=leaves)
    if norm != "no output":
        x.run(
            values.values,
            "V",
            **_named(a=x.q, c=x.k, z=x.v, scale=None, out=out),
            **_named(saved=saved if save else None, den=den if with_den else None),
            sums=met.sums,
            keys=met.keys,
            NORM=norm,
        )
    return out, den, saved, met.left


def backward(
    x: Launches,
    dout: Tensor,
    dden: Tensor | None,
    dleft: Pair | None,
    out: Tensor,
    den: Tensor,
    norm: str,
    costs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Pair]:
    """The gradients of q, k, v, f and b, those of costs for every token; and of the states that enter."""
    B, T, H, _, _ = x.sizes
    dq, dk, dv = (y.new_empty(y.shape) for y in (x.q, x.k, x.v))
    parts = None  # of the gradients of f and b: of two launches, [tiles of D * B, T, H, 1] or [B, T, H, D]
    if costs and x.f is not None:
        E = x.f.shape[-1]
        parts = x.v.new_zeros(2, 2, x.tiles("D") if E == 1 else 1, B, T, H, E, dtype=x.accumulator)
    if B * T * H:
        entered = _launch_backward(x, _side_by_side(dout), dden, dleft, out, den, norm, dq, dk, dv, parts)
    else:
        entered = _passed_on(x, dleft, x.entering is not None)
    df, db = (None, None) if parts is None else parts.sum((1, 2)).unbind()
    return dq, dk, dv, df, db, entered


def _launch_backward(x: Launches, dout, dden, dleft, out, den, norm, dq, dk, dv, parts) -> Pair:
    scale, bias = None, dden
    if norm in ("sum", "max"):
        scale, bias = torch.empty_like(den), torch.empty_like(den)
        x.run(
            divisors.divisors,
            **_named(out=_side_by_side(out), dout=dout, den=den, scale=scale, bias=bias),
            NORM=norm,
        )
    near = far = Met.nothing(x)
    if x.one_state or x.chunks > 1 or x.entering is not None or dleft is not None:
        with_keys = bias is not None or dleft is not None
        near = _walk(x, x.k, x.v, x.entering, with_keys=with_keys)
        far = _walk(
            x,
            x.q,
            dout,
            dleft,
            with_keys=with_keys,
            leaves=x.entering is not None,
            across=None if parts is None else near,
            transposed=True,
            scale=scale,
            weight=bias,
        )
    x.run(
        values.values,
        "V",
        **_named(a=x.k, c=x.q, z=dout, scale=scale, out=dv, saved=None, den=None),
        sums=far.sums,
        keys=None,
        NORM="none",
        transposed=True,
    )
    for transposed in (False, True):
        a, c, z, own = (x.v, dout, x.q, x.k) if transposed else (dout, x.v, x.k, x.q)
        of_f, of_b = (None, None) if parts is None else parts[:, int(transposed)].flatten(1, 2).unbind()
        ddown, dup = (of_b, of_f) if transposed else (of_f, of_b)
        lower, upper = x.ways(transposed)
        met = far if transposed else near
        x.run(
            gradients.gradients,
            "D",
            **_named(a=a, c=c, z=z, own=own, scale=scale, bias=bias, out=dk if transposed else dq),
            **_named(ddown=ddown if lower else None, dup=dup if upper else None),
            sums=met.sums,
            keys=met.keys if transposed or bias is not None else None,
            through=None if transposed else far.through,
            PARTS=x.tiles("V"),
            BV=x.use.step,
            transposed=transposed,
        )
    return far.left


class Met(NamedTuple):
    """What a launch of `states` finds."""

    sums: Tensor | None  # [walks, B H, chunks, D, V]: the state that enters each chunk
    keys: Tensor | None  # [walks, B H, chunks, D]
    through: Tensor | None  # [walks, B H, chunks, tiles of V, D]: their products with those of the opposite walks
    left: Pair  # [walks, B, H, D, V] and [walks, B, H, D]: what leaves, or nothing

    @staticmethod
    def nothing(x: Launches) -> "Met":
        return Met(None, None, None, _passed_on(x, None, False))


def _walk(
    x: Launches,
    k: Tensor,
    v: Tensor,
    entering: Pair | None,
    *,
    with_keys: bool,
    borders: bool = True,
    leaves: bool = False,
    across: Met | None = None,
    transposed: bool = False,
    scale: Tensor | None = None,
    weight: Tensor | None = None,
) -> Met:
    B, _, H, D, V = x.sizes
    walked, chunks = (1, 1) if x.one_state else (x.walks, x.chunks)

    def room(*sizes: int, wanted: bool = True, dtype: torch.dtype = x.accumulator) -> Tensor | None:
        return v.new_empty(sizes, dtype=dtype) if wanted else None

    sums = room(walked, B * H, chunks, D, V, wanted=borders, dtype=x.operand)
    keys = room(walked, B * H, chunks, D, wanted=borders and with_keys)
    through = room(walked, B * H, chunks, x.tiles("V"), D, wanted=across is not None)
    leaving, leaving_keys = room(walked, B, H, D, V, wanted=leaves), room(walked, B, H, D, wanted=leaves)
    # All tokens see one state: what enters from both ends is in it, and behind both ends is all that it has of its own.
    arriving = entering
    if x.one_state and entering is not None:
        arriving = entering[0].sum(0, keepdim=True), entering[1].sum(0, keepdim=True)
    x.run(
        walks.states,
        "D",
        "V",
        **_named(k=k, v=v, scale=scale, weight=weight),
        sums=sums,
        keys=keys,
        across=None if across is None else across.sums,
        across_keys=None if across is None else across.keys,
        through=through,
        entering=None if arriving is None else arriving[0],
        entering_keys=None if arriving is None else arriving[1],
        leaving=leaving,
        leaving_keys=leaving_keys,
        transposed=transposed,
    )
    if leaving is None or leaving_keys is None:
        return Met(sums, keys, through, _passed_on(x, None, False))
    left = leaving, leaving_keys
    if x.one_state:
        others = _passed_on(x, entering, True)
        left = leaving + others[0], leaving_keys + others[1]
    return Met(sums, keys, through, left)


def _passed_on(x: Launches, entering: Pair | None, wanted: bool) -> Pair:
    """What leaves where there are no tokens."""
    B, _, H, D, V = x.sizes
    if not wanted:
        return x.v.new_empty(0, dtype=x.accumulator), x.v.new_empty(0, dtype=x.accumulator)
    if entering is not None:
        return entering[0].clone(), entering[1].clone()
    sizes = (x.walks, B, H, D, V)
    return x.v.new_zeros(sizes, dtype=x.accumulator), x.v.new_zeros(sizes[:-1], dtype=x.accumulator)


def _named(**tensors: Tensor | None) -> dict[str, Any]:
    return {name: _rows(x) for name, x in tensors.items()}

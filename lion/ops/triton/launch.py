"""The launches of a call: one or two forward, up to six backward."""

from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from lion.ops.triton import gradients as of_gradients
from lion.ops.triton import states as of_states
from lion.ops.triton import values as of_values
from lion.ops.triton.configurations import Configuration, configuration, decay_of
from lion.ops.triton.scan import interpreting

INTERPRETED = interpreting()
DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32, torch.float64: tl.float64}


class Launches(NamedTuple):
    """What the launches of one call share."""

    q: Tensor  # [B, T, H, D]; all with neighbouring channels side by side
    k: Tensor
    v: Tensor  # [B, T, H, V]
    f: Tensor | None  # [B or 1, T or 1, H or 1, 1 or D]
    b: Tensor | None
    direction: str
    include_self: bool
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
    def crossing(self) -> bool:
        return self.one_state or self.chunks > 1

    def ways(self, transposed: bool = False) -> tuple[bool, bool]:
        """Whether there are pairs whose row comes after the column, and pairs whose row comes before."""
        ways = self.direction != "reverse", self.direction != "forward"
        return ways[::-1] if transposed else ways

    def costs(self, transposed: bool = False) -> tuple[Tensor, Tensor]:
        if self.f is None or self.b is None:
            return self.q, self.q  # not looked at
        # A direction that is not walked may have any costs, even such as overflow: it gets the other's.
        f = self.b if self.direction == "reverse" else self.f
        b = self.f if self.direction == "forward" else self.b
        return (b, f) if transposed else (f, b)

    def constants(self, transposed: bool = False) -> dict[str, Any]:
        lower, upper = self.ways(transposed)
        B, T, H, D, V = self.sizes
        return {
            "T": T,
            "H": H,
            "chunks": self.chunks,
            "heads": B * H,
            "D": D,
            "V": V,
            "C": self.use.C,
            "BD": self.use.BD,
            "BV": self.use.BV,
            "DECAY": decay_of(self.f),
            "LOWER": lower,
            "UPPER": upper,
            "OPERAND": DTYPES[self.operand],
            "PRECISION": self.use.precision,
            "INTERPRETED": INTERPRETED,
            "num_warps": self.use.warps,
            "num_stages": self.use.stages,
        }

    def of_pairs(self, transposed: bool = False) -> dict[str, Any]:
        return self.constants(transposed) | {
            "LEVELS": self.use.C.bit_length() - 1,
            "SELF": self.include_self,
            "PAIRS": not self.one_state,
            "CROSSING": self.crossing,
            "BORDERS": not self.one_state,
            "TRANSPOSED": transposed,
            "RAW": DTYPES[self.operand if self.wide else self.q.dtype],
        }

    def tiles(self, of: str) -> int:
        size, tile = (self.q.shape[-1], self.use.BD) if of == "D" else (self.v.shape[-1], self.use.BV)
        return max(1, -(-size // tile))


def prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor | None,
    b: Tensor | None,
    direction: str,
    include_self: bool,
    chunk_size: int | None,
    wide: bool,
) -> Launches:
    use = configuration(q, v, f, chunk_size, wide, interpreted=INTERPRETED)
    q, k, v = map(_rows, (q, k, v))
    f, b = (None if x is None else _rows(x) for x in (f, b))
    return Launches(q, k, v, f, b, direction, include_self, wide, use)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Of [B or 1, T or 1, H or 1, .]; 0 where all are the same."""
    return tuple(0 if n == 1 else stride for n, stride in zip(x.shape[:3], x.stride()[:3], strict=True))  # type: ignore


def run(kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
    """Launch a kernel; `lion bench compile` has another function here."""
    if INTERPRETED:
        with np.errstate(all="ignore"):  # 0 / 0 and the like are nobody's mistake
            kernel[(programs,)](**arguments)
    else:
        with torch.cuda.device(arguments["out" if "out" in arguments else "sums"].device):
            kernel[(programs,)](**arguments)


def forward(x: Launches, norm: str, with_den: bool, dtype: torch.dtype, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The output, what it was divided by before abs and max, and the output before rounding if it is to be saved."""
    B, T, H, _, V = x.sizes
    out = x.v.new_empty(B, T, H, V, dtype=dtype)
    den = x.v.new_empty(B, T, H, int(with_den), dtype=x.accumulator)
    saved = x.v.new_empty((B, T, H, V) if save else (0,), dtype=x.accumulator)
    if not B * T * H:
        return out, den, saved
    sums, keys, _ = states(x, x.k, x.v, with_keys=with_den) if x.crossing else (out,) * 3
    _values(x, x.q, x.k, x.v, None, sums, keys, out, saved if save else None, den, norm)
    return out, den, saved


def backward(
    x: Launches,
    dout: Tensor,
    dden: Tensor | None,
    out: Tensor,
    den: Tensor,
    norm: str,
    costs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of q, k, v, f and b; those of costs for every token."""
    B, T, H, _, _ = x.sizes
    dq, dk = (y.new_empty(y.shape) for y in (x.q, x.k))
    dv = x.v.new_empty(x.v.shape)
    of_costs = None  # [f and b, launches, tiles of D, B, T, H, 1 or D]: parts that are added up
    if costs and x.f is not None:
        E = x.f.shape[-1]
        of_costs = x.v.new_zeros(2, 2, x.tiles("D") if E == 1 else 1, B, T, H, E, dtype=x.accumulator)
    found = (None, None) if of_costs is None else tuple(of_costs.unbind())
    if not B * T * H:
        return dq, dk, dv, *(None if y is None else y.sum((0, 1)) for y in found)  # type: ignore[return-value]
    dout = _rows(dout)
    scale = bias = None
    if norm in ("sum", "max"):
        scale, bias = (den.new_empty(den.shape) for _ in range(2))
        _divisors(x, out, dout, den, scale, bias, norm)
    elif dden is not None:
        bias = dden.contiguous()
    with_keys = bias is not None
    sums, keys, adjoint, adjoint_keys, through = (dq,) * 5
    if x.crossing:
        sums, keys, _ = states(x, x.k, x.v, with_keys=with_keys)
        across = (sums, keys) if of_costs is not None else None
        adjoint, adjoint_keys, through = states(
            x, x.q, dout, with_keys=with_keys, transposed=True, scale=scale, weight=bias, across=across
        )
    _values(x, x.k, x.q, dout, scale, adjoint, adjoint_keys, dv, None, None, "none", transposed=True)
    for transposed in (False, True):
        down, up = (None if y is None else y[int(transposed)] for y in found[:: -1 if transposed else 1])
        rows, columns = (x.v, dout) if transposed else (dout, x.v)
        values, own = (x.q, x.k) if transposed else (x.k, x.q)
        near = (adjoint, adjoint_keys) if transposed else (sums, keys)
        into = dk if transposed else dq
        _gradients(x, rows, columns, values, own, scale, bias, *near, through, into, down, up, transposed)
    return dq, dk, dv, *(None if y is None else y.sum((0, 1)) for y in found)  # type: ignore[return-value]


def states(
    x: Launches,
    k: Tensor,
    v: Tensor,
    *,
    with_keys: bool,
    transposed: bool = False,
    scale: Tensor | None = None,
    weight: Tensor | None = None,
    across: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The states that enter each chunk, [walks, B H, chunks, D, V] and [walks, B H, chunks, D]; and their products with
    those of the opposite walks, `across`."""
    B, _, H, D, V = x.sizes
    walks, chunks = (1, 1) if x.one_state else (sum(x.ways()), x.chunks)
    sums = v.new_empty(walks, B * H, chunks, D, V, dtype=x.operand)
    keys = v.new_empty(walks, B * H, chunks, D, dtype=x.accumulator)
    through = keys if across is None else v.new_empty(walks, B * H, chunks, x.tiles("V"), D, dtype=x.accumulator)
    down, up = x.costs(transposed)
    constants = x.constants(transposed)
    if x.one_state:
        constants |= {"LOWER": True, "UPPER": False}
    arguments = {
        "k": k,
        "v": v,
        "down": down,
        "up": up,
        "scale": sums if scale is None else scale,
        "weight": sums if weight is None else weight,
        "sums": sums,
        "keys": keys,
        "across": sums if across is None else across[0],
        "across_keys": keys if across is None else across[1],
        "through": through,
        "k_strides": _strides(k),
        "v_strides": _strides(v),
        "down_strides": _strides(down),
        "up_strides": _strides(up),
        "EXCLUSIVE": transposed,
        "SCALED": scale is not None,
        "WEIGHTED": weight is not None,
        "WITH_KEYS": with_keys,
        "CROSSED": across is not None,
        "BORDERS": not x.one_state,
    }
    run(of_states.states, x.tiles("D") * x.tiles("V") * walks * B * H, constants | arguments)
    return sums, keys, through


def _values(x: Launches, a, c, z, scale, sums, keys, out, saved, den, norm, transposed=False) -> None:
    B, _, H, _, _ = x.sizes
    down, up = x.costs(transposed)
    arguments = {
        "a": a,
        "c": c,
        "z": z,
        "down": down,
        "up": up,
        "scale": out if scale is None else scale,
        "sums": sums,
        "keys": keys,
        "out": out,
        "saved": out if saved is None else saved,
        "den": out if den is None else den,
        "a_strides": _strides(a),
        "c_strides": _strides(c),
        "z_strides": _strides(z),
        "down_strides": _strides(down),
        "up_strides": _strides(up),
        "SCALED": scale is not None,
        "SAVED": saved is not None,
        "NORM": norm,
        "WITH_DEN": den is not None and den.shape[-1] > 0,
    }
    run(of_values.values, x.tiles("V") * x.chunks * B * H, x.of_pairs(transposed) | arguments)


def _divisors(x: Launches, out, dout, den, scale, bias, norm) -> None:
    B, T, H, _, V = x.sizes
    arguments = {
        "out": out.contiguous(),
        "dout": dout,
        "den": den,
        "scale": scale,
        "bias": bias,
        "dout_strides": _strides(dout),
        "T": T,
        "H": H,
        "V": V,
        "BV": x.use.BV,
        "C": x.use.C,
        "NORM": norm,
    }
    run(of_gradients.divisors, x.chunks * B * H, arguments)


def _gradients(x: Launches, a, c, z, own, scale, bias, sums, keys, through, out, ddown, dup, transposed) -> None:
    B, _, H, _, _ = x.sizes
    down, up = x.costs(transposed)
    arguments = {
        "a": a,
        "c": c,
        "z": z,
        "own": own,
        "down": down,
        "up": up,
        "scale": out if scale is None else scale,
        "bias": out if bias is None else bias,
        "sums": sums,
        "keys": keys,
        "through": through,
        "out": out,
        "ddown": out if ddown is None else ddown,
        "dup": out if dup is None else dup,
        "a_strides": _strides(a),
        "c_strides": _strides(c),
        "z_strides": _strides(z),
        "own_strides": _strides(own),
        "down_strides": _strides(down),
        "up_strides": _strides(up),
        "SCALED": scale is not None,
        "BIASED": bias is not None,
        "COSTS": ddown is not None,
        "PARTS": x.tiles("V"),
        "BV": x.use.step,
    }
    run(of_gradients.gradients, x.tiles("D") * x.chunks * B * H, x.of_pairs(transposed) | arguments)

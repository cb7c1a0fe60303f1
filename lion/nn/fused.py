"""The parts of a layer that a backend does as one operator, from the columns of the layer's projection.

A path has two sides: which layers it fits, asked once when a layer is made, and the layer's output, or None where no
backend takes this input. PATHS is the table of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from lion.nn.arrival import charge_for_leaving
from lion.nn.decay import Steps
from lion.ops.call import accumulation_dtype
from lion.ops.kernels import fused

if TYPE_CHECKING:
    from lion.nn.layers import LionAttention


class Sequences(NamedTuple):
    """What a call says of its tokens."""

    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None


Path = Callable[["LionAttention", Tensor, Sequences], Tensor | None]


def paths(layer: "LionAttention") -> tuple[Path, ...]:
    """The paths that fit a layer."""
    return tuple(path for path, fits in PATHS.items() if layer.order_norm == "joint" and fits(layer))


def _maps_its_own(layer: "LionAttention") -> bool:
    """One operator does it all, from q, k and v as they come from the projection."""
    chosen = layer.variant
    own = chosen.keys == "own" and not (chosen.scaled or chosen.skip or chosen.softmax or layer.decay.gates)
    return own and not (chosen.delta or chosen.decay_between or chosen.norm == "unmasked")


def projected(layer: "LionAttention", columns: Tensor, where: Sequences) -> Tensor | None:
    """Feature maps inside."""
    for backend in fused(layer.backend):
        if layer.variant.features not in backend.FEATURES or not backend.available(columns, layer.form):
            continue
        columns, rest = backend.split(columns, 3 * layer.dim)
        decay, _, gate, _ = rest.split(list(layer.columns.values())[3:], -1)
        log_decay = layer.decay.alone(decay.to(accumulation_dtype(columns)))
        if layer.direction != "both":
            log_decay = charge_for_leaving(log_decay, layer.heads, layer.direction, where.mask, where.orders)
        mixed = backend.attention(
            columns,
            layer.heads,
            layer.value_channels,
            layer.variant.features,
            log_decay,
            self_weight=layer.self_weight(),
            norm=layer.variant.norm,
            direction=layer.direction,
            chunk_size=layer.chunk_size,
            **where._asdict(),
        )
        return layer.finish(mixed, gate)
    return None


def _has_steps(layer: "LionAttention") -> bool:
    """Decays need not be multiplied out: one head per channel, whose keys all share, in a state space."""
    chosen = layer.variant
    shared = chosen.keys == "shared" and layer.value_channels == 1
    return shared and layer.decay.stepped and chosen.norm == "none" and layer.self_weight() is None


def selective(layer: "LionAttention", columns: Tensor, where: Sequences) -> Tensor | None:
    """A selective scan, in steps and rates."""
    for backend in fused(layer.backend):
        if not backend.selective_available(columns, layer.form):
            continue
        y = layer.split(columns, in_steps=True)
        decays: Any = y.log_decay
        forward, reverse = decays if layer.two_sided else (decays, Steps(None, None))
        step = forward.step
        if layer.direction != "both":
            step = charge_for_leaving(step, layer.heads, layer.direction, where.mask, where.orders)
        mixed = backend.selective(
            y.q[:, :, 0],
            y.k[:, :, 0],
            y.v[..., 0],
            (step, reverse.step),
            (forward.rate, reverse.rate),
            direction=layer.direction,
            **where._asdict(),
        )
        return layer.finish(mixed[..., None], y.gate, y.values)
    return None


PATHS: dict[Path, Callable[["LionAttention"], bool]] = {projected: _maps_its_own, selective: _has_steps}

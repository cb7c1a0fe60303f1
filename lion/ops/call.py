"""What `lion.attention` was asked, as kernels get it."""

from typing import NamedTuple

import torch
from torch import Tensor

from lion.ops.state import State


class Call(NamedTuple):
    """The checked arguments of `lion.attention`. All kernels are `kernel(call) -> [B, T, H, V]`, with `return_states`
    `-> [B, T, H, V], States`."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    log_gain: Tensor | None
    beta: Tensor | None
    self_weight: Tensor | float | None
    norm: str
    direction: str
    mask: Tensor | None
    cu_seqlens: Tensor | None
    orders: Tensor | None
    chunk_size: int | None
    forward_state: State | None = None
    reverse_state: State | None = None
    return_states: bool = False

    @property
    def decay(self) -> str:
        """The kind of decay: a key of `kernels.DECAYS`."""
        if self.beta is not None:
            return "delta"
        if self.log_decay is None:
            return "none"
        if self.log_decay.dim() in (1, 3):
            return "scalar"
        return "diagonal" if self.log_gain is None else "gated diagonal"


def accumulation_dtype(q: Tensor) -> torch.dtype:
    """Sums and exponents are kept in float32 at least."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32

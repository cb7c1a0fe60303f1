"""A call of `lion.attention`, as it travels from the public function to the kernels."""

from typing import NamedTuple

import torch
from torch import Tensor

from lion.ops.state import State


class Call(NamedTuple):
    """The arguments of `lion.attention`. All kernels are `kernel(call) -> [B, T, H, V]`, with `return_states`
    `-> [B, T, H, V], States`."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None = None  # that the forward walk pays, and the reverse walk too unless it has its own:
    log_decay_reverse: Tensor | None = None
    log_gain: Tensor | None = None
    beta: Tensor | None = None
    self_weight: Tensor | float | None = None
    norm: str = "sum"
    direction: str = "both"
    mask: Tensor | None = None
    cu_seqlens: Tensor | None = None
    orders: Tensor | None = None
    chunk_size: int | None = None
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

    @property
    def has_states(self) -> bool:
        return self.forward_state is not None or self.reverse_state is not None or self.return_states

    @property
    def log_decays(self) -> tuple[Tensor | None, Tensor | None]:
        """The log decays of the forward and of the reverse walk."""
        return self.log_decay, self.log_decay if self.log_decay_reverse is None else self.log_decay_reverse


def accumulation_dtype(q: Tensor) -> torch.dtype:
    """Sums and exponents are kept in float32 at least."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32

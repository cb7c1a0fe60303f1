"""The state that a walk carries across the border between two pieces of a sequence.

Behind token t the forward walk carries

    U_t = sum_(j <= t) exp(f_j + ... + f_t) g_j k_j v_j^T        u_t, the same sum of g_j k_j

and the reverse walk carries, before token t, the mirror image. A piece that gets the forward state of all tokens before
it and the reverse state of all tokens after it has exactly the outputs that the whole sequence has there.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class State(NamedTuple):
    """Plain tensors, so that any format can save them (`tensors()`, `State(**tensors)`)."""

    sums: Tensor  # [B, H, D, V]: U, times exp(-log_scale)
    keys: Tensor  # [B, H, D]: u, times exp(-log_scale)
    log_decay: Tensor  # [B, H, 1 or D]: the cost of crossing all tokens that the state is of
    log_scale: Tensor | None = None  # [B, H, 1 or D], with gates; -inf where there is nothing. None: 0
    transition: Tensor | None = None  # [B, H, D, D], of the delta rule; [B, H, 0, 0] where it is not known

    def tensors(self) -> dict[str, Tensor]:
        return {name: x for name, x in self._asdict().items() if x is not None}

    def map(self, function: Callable[[Tensor], Tensor]) -> "State":
        """The state with every tensor, [B, ...], replaced: to choose sequences of a batch, or to move it."""
        return State(**{name: function(x) for name, x in self.tensors().items()})

    def where(self, chosen: Tensor, other: "State") -> "State":
        """This state for the sequences of the batch that are chosen, [B], and the other for the rest."""
        others = other.tensors()
        return State(**{name: where(chosen, x, others[name]) for name, x in self.tensors().items()})

    def times(self, factor: Tensor) -> "State":
        """The state times [B, H, 1 or D], whatever it cost."""
        return self._replace(sums=self.sums * factor[..., None], keys=self.keys * factor)

    def decayed(self, cost: Tensor) -> "State":
        """The state after a way that costs [B, H, 1 or D]."""
        log_decay = self.log_decay + cost
        if self.log_scale is not None:
            return self._replace(log_decay=log_decay, log_scale=self.log_scale + cost)
        kept = cost.exp()
        transition = None if self.transition is None else self.transition * kept[..., None]
        return State(self.sums * kept[..., None], self.keys * kept, log_decay, transition=transition)

    def unknown(self) -> Tensor:
        """An empty transition: it is not known."""
        return self.sums.new_empty(*self.sums.shape[:2], 0, 0)

    def nothing(self) -> "State":
        """The state of no tokens, which joins with this one's."""
        scale = None if self.log_scale is None else torch.full_like(self.log_scale, -torch.inf)
        D = self.sums.shape[-2]
        unit = torch.eye(D, dtype=self.sums.dtype, device=self.sums.device)
        transition = None if self.transition is None else unit.expand(*self.sums.shape[:2], D, D)
        zero = torch.zeros_like
        return State(zero(self.sums), zero(self.keys), zero(self.log_decay), scale, transition)

    def join(self, later: "State") -> "State":
        """The state of two pieces, from those of each alone: this one's, and the one's that the walk enters next.

        Joining is associative: pieces may be joined in any bracketing.
        """
        log_decay = self.log_decay + later.log_decay
        if later.transition is not None:
            if not later.transition.shape[-1]:
                raise ValueError(
                    "the later state is of the delta rule, and has no transition; expected one of "
                    "lion.attention_states, which finds it, and lion.attention does not."
                )
            before = self.transition  # which is not known of both if it is not of the first
            before = later.transition @ before if before is not None and before.shape[-1] else self.unknown()
            return State(later.sums + later.transition @ self.sums, later.keys, log_decay, transition=before)
        if self.log_scale is None and later.log_scale is None:
            kept = later.log_decay.exp()
            return State(later.sums + self.sums * kept[..., None], later.keys + self.keys * kept, log_decay)
        mine, its = (x.log_scale if x.log_scale is not None else torch.zeros_like(x.log_decay) for x in (self, later))
        scale, kept, added = common_scale(mine + later.log_decay, its)
        return State(
            later.sums * added[..., None] + self.sums * kept[..., None],
            later.keys * added + self.keys * kept,
            log_decay,
            scale,
        )


class States(NamedTuple):
    """The states that both walks carry out of a piece; None for a direction that is not walked."""

    forward: State | None  # behind the last token: for the piece after this one
    reverse: State | None  # before the first token: for the piece before this one


def where(chosen: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """x for the chosen sequences of the batch, the other for the rest: chosen [B]; x, other [B, ...]"""
    return torch.where(chosen.reshape(-1, *[1] * (x.dim() - 1)), x, other)


def common_scale(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log of a scale for two sums that come at log scales a and b, and what each is to be multiplied with."""
    scale = torch.maximum(a, b).detach()
    floor = finite(scale)
    return scale, (a - floor).exp(), (b - floor).exp()


def finite(exponent: Tensor) -> Tensor:
    """The exponent, or 0 where it is -inf: nothing is left there, and any scale will do."""
    return torch.where(exponent.isneginf(), 0, exponent)


def arriving_exponents(state: State, cost: Tensor, T: int, *, reverse: bool) -> Tensor:
    """[B, T, H, 1 or D]: the logs of what a state is to be multiplied with where it meets each token.

    cost [B or 1, T or 1, H or 1, 1 or D]: of leaving each token, in the direction of the walk.
    """
    cost = cost.expand(-1, T, -1, -1)
    before = cost.flip(1) if reverse else cost
    way = F.pad(before, (0, 0, 0, 0, 1, -1)).cumsum(1) if T else before
    way = way.flip(1) if reverse else way
    return way if state.log_scale is None else way + state.log_scale[:, None]


def state_behind(
    k: Tensor, v: Tensor, cost: Tensor, log_gain: Tensor | None, state: State | None, *, reverse: bool
) -> State:
    """The state behind a piece, given the one that arrives at it.

    k [B, T, H, D] and v [B, T, H, V]; cost as above, in the dtype of the sums; log_gain [B, T, H, 1].
    """
    B, T, H, _ = k.shape
    cost = cost.expand(B, T, H, -1)
    # The cost of leaving each token and all that the walk meets after it; never a difference of sums.
    way = cost.cumsum(1) if reverse else cost.flip(1).cumsum(1).flip(1)
    total = cost.sum(1)
    log_decay = total if state is None else total + state.log_decay
    k, v = k.to(cost.dtype), v.to(cost.dtype)
    if log_gain is None and (state is None or state.log_scale is None):
        weighted = k * way.exp()
        kept, scale = total.exp(), None
    else:
        exponent = way if log_gain is None else way + log_gain
        nothing = torch.full_like(total, -torch.inf)
        arrived = nothing if state is None else total if state.log_scale is None else total + state.log_scale
        scale = torch.cat([exponent, arrived[:, None]], 1).amax(1).detach()
        weighted = k * (exponent - finite(scale)[:, None]).exp()
        kept = (arrived - finite(scale)).exp()
    sums, keys = torch.einsum("bthd,bthv->bhdv", weighted, v), weighted.sum(1)
    if state is not None:
        sums, keys = sums + state.sums * kept[..., None], keys + state.keys * kept
    return State(sums, keys, log_decay, scale)

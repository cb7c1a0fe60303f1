"""A piece of a sequence whose other pieces are elsewhere: on other machines, or not in memory now.

A module that works on tokens one by one need not know. The others ask their piece: they say what it sends to the other
pieces, a `Sent` of a few messages whose size does not depend on the tokens, and get what arrives from all of them. Who
carries the messages is the piece's business: lion.parallel does between processes, lion.streaming between the blocks of
one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lion.nn.arrival import charge_for_leaving, with_entry
from lion.nn.messages import Sent
from lion.ops.attention import attention_states
from lion.ops.state import State, States

if TYPE_CHECKING:
    from lion.nn.layers import LionAttention, Tokens


class Piece:
    """Which tokens of a sequence a module has, and how to ask about the others."""

    first: bool  # whether it is the first piece: class tokens are there

    def exchange(self, x: Tensor, own: Callable[[], Sent]) -> Sent:
        """What arrives, given what the piece sends. All pieces have to ask the same, in the same order.

        Args:
            x: what the messages are made of. If it needs gradients they flow, even if it has no tokens.
        """
        raise NotImplementedError


class Cuttable:
    """A module that works on a piece of a sequence, too, if it is told which (`piece`)."""

    piece: Piece | None = None

    def whole_only(self) -> str | None:
        """Why it needs the whole sequence at once, or None if it does not."""
        return None


def refusals(model: nn.Module) -> list[str]:
    """Why a model cannot work on pieces; empty if it can."""
    found = [(module, getattr(module, "whole_only", None)) for module in model.modules()]
    reasons = [f"{type(module).__name__}: {why}" for module, ask in found if ask is not None and (why := ask())]
    if not any(isinstance(module, Cuttable) for module in model.modules()):
        return [f"there is no LionAttention in this {type(model).__name__}"]
    return reasons


def states_of(layer: "LionAttention", y: "Tokens", mask: Tensor | None) -> States:
    """What the tokens of a piece send on by themselves, in a layer of attention."""
    gates: dict[str, Any] = {"log_gain": y.log_gain, "beta": y.beta, "mask": mask, "direction": layer.direction}
    on_arrival = layer.direction != "both" or layer.variant.decay_between
    if y.log_decay is None or not on_arrival:
        return attention_states(y.k, y.v, y.log_decay, **gates)
    # Whoever arrives at a token pays for it. So a state's way through the piece begins before the first token.
    costs, entries = [], []
    both = y.log_decay if isinstance(y.log_decay, tuple) else (y.log_decay, y.log_decay)
    for way, cost in zip(("forward", "reverse"), both, strict=True):
        cost, entry = with_entry(cost, y.k.shape[:2], way, mask)
        charged = charge_for_leaving(cost, layer.heads, way, mask)
        assert charged is not None
        costs.append(charged)
        entries.append(entry)
    one: Any = {"forward": costs[0], "reverse": costs[1], "both": (costs[0], costs[1])}[layer.direction]
    found = attention_states(y.k, y.v, one, **gates)
    return States(*(_entered(state, entry) for state, entry in zip(found, entries, strict=True)))


def _entered(state: State | None, entry: Tensor) -> State | None:
    if state is None:
        return None
    transition = state.transition if state.transition is None else state.transition * entry.exp()[..., None]
    return state._replace(log_decay=state.log_decay + entry, transition=transition)

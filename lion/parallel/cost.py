"""A model of cost of sequence parallelism: arithmetic, bytes and latency of one layer's forward and backward pass.

It counts what a layer does for a piece of T / N tokens, and what it sends, beside two other ways to share a sequence,
of softmax attention: ring attention (keys and values go round, N - 1 times) and all-to-all (tokens are exchanged for
heads, and back). docs/scale.md has its assumptions, and how it compares with runs.
"""

from dataclasses import dataclass

FORWARD, TRAINING = 1, 3  # a backward pass is two forward passes of arithmetic
STATES = 1 / 2  # of the operator's arithmetic: the piece's own states, which are computed before


@dataclass(frozen=True)
class Machine:
    """One of the processes, and its connection with the others."""

    flops: float  # multiply-adds x 2 per second that it reaches in practice, of matrix products
    bandwidth: float  # bytes per second that it sends, and at the same time receives
    latency: float  # seconds of one message
    operator: float = 1.0  # of its flops that linear attention reaches


@dataclass(frozen=True)
class Layer:
    dim: int = 1024
    heads: int = 16
    mlp: int = 4  # channels inside of the MLP, times dim
    bytes_of_activations: int = 2  # bfloat16
    bytes_of_states: int = 4

    @property
    def channels(self) -> int:
        return self.dim // self.heads

    def projections(self, tokens: float) -> float:
        """FLOPs of the projections and of the MLP."""
        return 2 * tokens * self.dim * self.dim * (4 + 2 * self.mlp)

    def linear(self, tokens: float, chunk: int = 64) -> float:
        """FLOPs of linear attention in both directions: a chunk's block, two states that are read and two written."""
        return 2 * tokens * self.dim * (2 * chunk + 4 * self.channels)

    def softmax(self, queries: float, keys: float) -> float:
        return 4 * queries * keys * self.dim


@dataclass(frozen=True)
class Cost:
    """Of one layer and one process, in seconds and bytes."""

    compute: float
    sent: float  # bytes
    messages: float  # one after the other
    communication: float  # seconds

    @property
    def seconds(self) -> float:
        """Nothing is overlapped."""
        return self.compute + self.communication


def lion(layer: Layer, machine: Machine, tokens: int, processes: int, passes: int = TRAINING) -> Cost:
    """One all-gather of states forward and one backward: both directions, heads x D x V numbers each."""
    own = tokens / processes
    operator = layer.linear(own) * (1 + (STATES if processes > 1 else 0))
    compute = passes * (layer.projections(own) + operator / machine.operator) / machine.flops
    state = 2 * layer.heads * (layer.channels**2 + layer.channels + 1) * layer.bytes_of_states
    gathers = (2 if passes == TRAINING else 1) if processes > 1 else 0
    return _cost(machine, compute, gathers * (processes - 1) * state, gathers * (processes - 1))


def ring(layer: Layer, machine: Machine, tokens: int, processes: int, passes: int = TRAINING) -> Cost:
    """Softmax attention; keys and values of all others pass by, and in the backward pass their gradients, too."""
    own = tokens / processes
    compute = passes * (layer.projections(own) + layer.softmax(own, tokens)) / machine.flops
    rounds = processes - 1
    block = 2 * own * layer.dim * layer.bytes_of_activations
    sent = rounds * block * (3 if passes == TRAINING else 1)
    return _cost(machine, compute, sent, rounds * (2 if passes == TRAINING else 1))


def all_to_all(layer: Layer, machine: Machine, tokens: int, processes: int, passes: int = TRAINING) -> Cost | None:
    """Softmax attention; q, k, v and the output are exchanged, tokens for heads; None if heads are too few for that."""
    if layer.heads % processes:
        return None
    own = tokens / processes
    compute = passes * (layer.projections(own) + layer.softmax(own, tokens)) / machine.flops
    times = 2 if passes == TRAINING else 1
    sent = times * 4 * own * layer.dim * layer.bytes_of_activations * (processes - 1) / processes
    return _cost(machine, compute, sent, times * 4 * (processes > 1))


def _cost(machine: Machine, compute: float, sent: float, messages: float) -> Cost:
    return Cost(compute, sent, messages, sent / machine.bandwidth + messages * machine.latency)

"""Baselines that are built differently from the variants: Hydra and Vim, from their papers' equations.

Both run state spaces along the tokens and back: h_i = exp(-dt_i A) h_{i-1} + dt_i B_i x_i, y_i = C_i h_i. That is
linear attention without a normaliser: B are the keys, C the queries, dt x the values, dt A the decays on arrival.

Their convolutions see neighbours. So of masked and of packed sequences the tokens are moved first (lion.models.apart),
and what a convolution makes of the room between sequences is set to 0: there are no keys, no values and no queries.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.models.apart import Apart
from lion.models.scripting import Scriptable
from lion.nn.arrival import charge_for_leaving
from lion.nn.between import WAYS
from lion.nn.decay import Gates, StateSpace
from lion.ops.attention import attention
from lion.ops.call import accumulation_dtype
from lion.ops.checks import DIRECTIONS, BackendName, Direction, Form, one_of
from lion.ops.kernels import FORMS


class Scanning(nn.Module):
    """A module that runs state spaces through `lion.attention`, in the form it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.form: Form = "auto"
        self.backend: BackendName = "auto"
        self.chunk_size: int | None = None

    def set_form(self, form: Form, *, backend: BackendName | None = None, chunk_size: int | None = None) -> "Scanning":
        one_of("form", form, ("auto", *FORMS))
        self.form, self.chunk_size = form, chunk_size
        self.backend = backend or self.backend
        return self

    def scan(
        self, x: Tensor, k: Tensor, q: Tensor, gates: Gates, direction: Direction, cu_seqlens: Tensor | None = None
    ) -> Tensor:
        """x [B, T, H, V] -> y [B, T, H, V]; k and q [B, T, D], the same for all heads."""
        assert gates.factor is not None
        heads = x.shape[2]
        q, k = (y[:, :, None].expand(-1, -1, heads, -1) for y in (q, k))
        return attention(
            q,
            k,
            x * gates.factor[..., None].to(x.dtype),
            charge_for_leaving(gates.log_decay, heads, direction),
            norm="none",
            direction=direction,
            cu_seqlens=cu_seqlens,
            form=self.form,
            backend=self.backend,
            chunk_size=self.chunk_size,
        )


class Baseline(Scriptable):
    """A layer over [B, T, dim] whose tokens see their neighbours."""

    room: int  # tokens that a convolution sees on one side

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        grid: tuple[int, int] | None = None,
    ) -> Tensor:
        """x [B, T, dim]; mask [B, T], True for real tokens, wherever they are; cu_seqlens of packed sequences, with
        B = 1. `grid` is for layers that look at images as such."""
        if mask is None and cu_seqlens is None:
            return self.mix(x)
        apart = Apart.of(x, mask, cu_seqlens, self.room)
        return apart.back(self.mix(apart.x, apart.mask, apart.cu_seqlens))

    def whole_only(self) -> str:
        return "its convolutions and gates know of no other pieces"

    def mix(self, x: Tensor, mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """The output for tokens with zeros between sequences, where the mask is False."""
        raise NotImplementedError


class Hydra(Baseline, Scanning):
    """The quasiseparable layer of Hwang et al. 2024 (Hydra), over [B, T, dim].

    With SS the state space of Mamba-2, one state for all of a head's channels,

        y = shift(SS(x)) + flip(shift(SS(flip(x)))) + D x.

    Shifted by one token, SS has nothing on its diagonal: a token's weight of itself is D alone, counted once, and
    free of the states. (The output moves as a whole: token i reads the state of token i - 1 with that token's query.)

    With `direction` "forward" or "reverse", that half and the diagonal, and a convolution that looks one way too.
    """

    def __init__(self, dim: int, direction: Direction = "both", *, state: int = 64, width: int = 7):
        super().__init__()
        self.dim, self.direction = dim, direction
        self.ways = directions_of(direction)
        inner = 2 * dim
        self.heads = inner // max(size for size in range(1, 65) if inner % size == 0)
        convolved = inner + 2 * len(self.ways) * state  # x, then B and C of each direction
        self.columns = [inner, convolved, len(self.ways) * self.heads]  # gate, what is convolved, steps
        self.parts = [inner] + [state] * 2 * len(self.ways)
        self.in_proj = nn.Linear(dim, sum(self.columns), bias=False)
        self.conv = Convolution(convolved, width, direction)
        self.room = max(self.conv.around)
        self.decay = StateSpace(self.heads, state)  # of both directions; their steps are their own
        nn.init.zeros_(self.decay.log_rate)  # A is 1 at first, for every head
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.diagonal = nn.Linear(inner, self.heads, bias=False)
        self.norm = nn.RMSNorm(inner, eps=1e-5)
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def mix(self, x: Tensor, mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        gate, convolved, steps = self.in_proj(x).split(self.columns, -1)
        values, *keys_queries = self.conv.activated(convolved, mask).split(self.parts, -1)
        heads = values.unflatten(-1, (self.heads, -1))
        out = (self.skip + self.diagonal(values))[..., None] * heads
        for n, (way, step) in enumerate(zip(self.ways, steps.split(self.heads, -1), strict=True)):
            k, q = keys_queries[2 * n : 2 * n + 2]
            gates = self.decay(step.to(accumulation_dtype(step)))
            out = out + shift(self.scan(heads, k, q, gates, way, cu_seqlens), way)
        out = self.norm(out.flatten(-2).to(self.norm.weight.dtype))  # before the gate; Mamba-2's norm comes after it
        return self.out_proj(out.to(gate.dtype) * F.silu(gate))

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, direction={self.direction}, form={self.form}"


class Vim(Baseline):
    """The bidirectional Mamba block of Zhu et al. 2024 (Vision Mamba), over [B, T, dim].

    A state space for each direction, with a convolution and projections of its own, and one gate for both.
    """

    def __init__(self, dim: int, direction: Direction = "both", *, state: int = 16, width: int = 4):
        super().__init__()
        self.dim, self.direction = dim, direction
        inner = 2 * dim
        rank = -(-dim // 16)
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.ways = nn.ModuleList(SelectiveScan(inner, way, state, rank, width) for way in directions_of(direction))
        self.room = width - 1
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def mix(self, x: Tensor, mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        values, gate = self.in_proj(x).chunk(2, -1)
        # The sum, as in the paper's Algorithm 1. Its published models take the mean, which is the same model: the
        # projection that follows takes up the factor.
        out = torch.stack([way(values, mask, cu_seqlens) for way in self.ways]).sum(0)
        return self.out_proj(out.to(gate.dtype) * F.silu(gate))

    def set_form(self, form: Form, *, backend: BackendName | None = None, chunk_size: int | None = None) -> "Vim":
        for way in self.ways:
            assert isinstance(way, SelectiveScan)
            way.set_form(form, backend=backend, chunk_size=chunk_size)
        return self

    def extra_repr(self) -> str:
        return f"{self.dim}, direction={self.direction}"


class SelectiveScan(Scanning):
    """One direction of Vim: Mamba's convolution and state space, a state for each channel of [B, T, channels]."""

    def __init__(self, channels: int, direction: Direction, state: int, rank: int, width: int):
        super().__init__()
        self.direction = direction
        self.columns = [rank, state, state]  # step, B, C
        self.conv = Convolution(channels, width, direction)
        self.proj = nn.Linear(channels, sum(self.columns), bias=False)
        self.step = nn.Linear(rank, channels, bias=False)  # its bias is the decay's
        self.decay = StateSpace(channels, state, diagonal=True)
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        x = self.conv.activated(x, mask)
        step, k, q = self.proj(x).split(self.columns, -1)
        step = self.step(step)
        gates = self.decay(step.to(accumulation_dtype(step)))
        y = self.scan(x[..., None], k, q, gates, self.direction, cu_seqlens)  # a head per channel
        return y[..., 0] + self.skip * x

    def extra_repr(self) -> str:
        return f"direction={self.direction}, form={self.form}"


class Convolution(nn.Conv1d):
    """Each channel of [B, T, channels] by itself; "forward" over the tokens up to its own, "reverse" its mirror image,
    "both" over as many on either side."""

    def __init__(self, channels: int, width: int, direction: str):
        super().__init__(channels, channels, width, groups=channels)
        self.direction = direction
        past = {"both": width // 2, "forward": width - 1, "reverse": 0}[direction]
        self.around = past, width - 1 - past

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.flip(-1) if self.direction == "reverse" else self.weight
        x = F.pad(x.transpose(1, 2), self.around)
        return F.conv1d(x, weight, self.bias, groups=self.groups).transpose(1, 2)

    def activated(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """SiLU of it; 0 where the mask is False."""
        y = F.silu(self(x))
        return y if mask is None else y.masked_fill(~mask[..., None], 0)


def directions_of(direction: Direction) -> tuple[Direction, ...]:
    one_of("direction", direction, DIRECTIONS)
    return WAYS[direction]


def shift(y: Tensor, direction: str) -> Tensor:
    """[B, T, H, V]: every token's output given to the next one in a direction; the first gets zeros."""
    return F.pad(y, (0, 0, 0, 0, *((1, -1) if direction == "forward" else (-1, 1))))


# By (dim, direction): modules whose forward takes what Baseline's does.
BASELINES: dict[str, Callable[[int, Direction], Baseline]] = {"hydra": Hydra, "vim": Vim}

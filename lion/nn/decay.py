"""Decays and gates: how a layer makes log_decay and log_gain from its input.

Every class takes the heads and the key channels of each, says how many columns of the layer's projection it
wants, and makes Gates of them. All log decays are <= 0 by construction.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Gates(NamedTuple):
    log_decay: Any = None  # as lion.attention takes it: a tensor, or a pair of them
    log_gain: Tensor | None = None  # [B, T, H]
    factor: Tensor | None = None  # [B, T, H], of the values: a gain that no log space is needed for


class Steps(NamedTuple):
    """A log_decay that is -step * rate, before they are multiplied."""

    step: Any  # [B, T, H]
    rate: Any  # [H, D]


class Decay(nn.Module):
    """Made of the heads, and of the key channels of each. A subclass whose `forward` returns a log_gain or a factor,
    too, sets `gates = True`."""

    columns: int  # of the projection
    gates = False  # whether it makes more than decays
    stepped = False  # whether it has `in_steps`: the same as `forward`, with `Steps` in place of log_decay

    def forward(self, x: Tensor) -> Gates:
        """x [B, T, columns], as projected: a bias is the decay's own to add."""
        raise NotImplementedError

    def in_steps(self, x: Tensor) -> Gates:
        raise NotImplementedError

    def begin_with(self, half_lives: Tensor) -> None:
        """Set the first decays, for an input of zeros: half-lives in tokens, one for each head."""
        raise ValueError(f"half_lives are given, and {type(self).__name__} has its own; expected None.")

    def alone(self, x: Tensor) -> Any:
        """The log_decay of a decay that has no gates."""
        log_decay, log_gain, factor = self(x)
        if log_gain is not None or factor is not None:
            raise TypeError(f"{type(self).__name__} returns a log_gain or a factor; expected it to set gates = True.")
        return log_decay


class PerOrder(Decay):
    """Decays of their own for every order in which the tokens are walked."""

    def __init__(self, decays: Sequence[Decay]):
        super().__init__()
        self.orders = nn.ModuleList(decays)
        self.columns = sum(decay.columns for decay in decays)

    def forward(self, x: Tensor) -> Gates:
        parts = x.split([decay.columns for decay in self.orders], -1)
        logs = [cast(Decay, decay).alone(part) for decay, part in zip(self.orders, parts, strict=True)]
        return Gates(torch.cat(logs, heads_axis(logs[0])))

    def begin_with(self, half_lives: Tensor) -> None:
        for decay in self.orders:
            cast(Decay, decay).begin_with(half_lives)


class TwoSided(Decay):
    """Decays of their own for each direction. Gates, which act on a key whoever reads it, are the mean of both's."""

    def __init__(self, forward: Decay, reverse: Decay):
        super().__init__()
        self.directions = nn.ModuleList([forward, reverse])
        self.columns = forward.columns + reverse.columns
        self.gates, self.stepped = forward.gates, forward.stepped

    def forward(self, x: Tensor) -> Gates:
        return self._pair(x, list(self.directions))

    def in_steps(self, x: Tensor) -> Gates:
        return self._pair(x, [cast(Decay, decay).in_steps for decay in self.directions])

    def _pair(self, x: Tensor, made: Sequence[Callable[[Tensor], Gates]]) -> Gates:
        parts = x.split([decay.columns for decay in self.directions], -1)
        forward, reverse = (make(part) for make, part in zip(made, parts, strict=True))
        means = (None if a is None or b is None else (a + b) / 2 for a, b in zip(forward[1:], reverse[1:], strict=True))
        return Gates((forward.log_decay, reverse.log_decay), *means)

    def begin_with(self, half_lives: Tensor) -> None:
        """The first heads see far in reverse, the last ones forward: from the beginning they tell left from right."""
        for decay, lives in zip(self.directions, (half_lives, half_lives.flip(0)), strict=True):
            cast(Decay, decay).begin_with(lives)


@torch.no_grad()
def _set_logits(logit: Tensor, half_lives: Tensor) -> None:
    """logit [heads, ...], whose sigmoid is the decay."""
    lives = half_lives.double()
    wanted = -torch.log(torch.expm1(math.log(2) / lives))  # logit of 2^(-1 / half-life)
    logit.copy_(wanted.reshape(-1, *[1] * (logit.dim() - 1)).expand_as(logit))


def heads_axis(log_decay: Tensor) -> int:
    """The dimension of the heads in a log_decay, by its rank."""
    return -1 if log_decay.dim() in (1, 3) else -2


def evenly(first: float, last: float, count: int) -> Tensor:
    """torch.linspace, which transformers replaces while it loads a model."""
    return first + (last - first) / max(count - 1, 1) * torch.arange(count)


def geometric(first: float, last: float, count: int) -> Tensor:
    """As many numbers as there are heads, each by the same factor larger than the one before."""
    if not 0 < first < math.inf or not 0 < last < math.inf:
        raise ValueError(
            f"half_lives are {first}, {last}; expected two numbers of tokens above 0. (Tasks take a last one of 0, for "
            "the length of their sequences.)"
        )
    return torch.exp(evenly(math.log(first), math.log(last), count))


def spread(first: float, last: float, *size: int) -> Tensor:
    """Linearly spaced over the heads, the same for the channels of a head."""
    heads = evenly(first, last, size[0])
    return heads.reshape(-1, *[1] * (len(size) - 1)).expand(size).clone()


def hippo_log_rates(heads: int, channels: int, slow: bool) -> Tensor:
    """Logs of the rates n + 1 of HIPPO's diagonal, at steps from 0.001 to 0.1; or from 0.0001, as S5 has for Path-X."""
    steps = 10 ** evenly(-4 if slow else -3, -1, heads)
    return (steps[:, None] * torch.arange(1, channels + 1)).log()


class NoDecay(Decay):
    columns = 0

    def __init__(self, heads: int, channels: int):
        super().__init__()

    def forward(self, x: Tensor) -> Gates:
        return Gates()


class Fixed(Decay):
    """sigmoid(a), learned: RetNet's 1 - 2^-5 for the first head to 1 - 2^-12 for the last to begin with."""

    columns = 0

    def __init__(self, heads: int, channels: int, *, diagonal: bool = False):
        super().__init__()
        size = (heads, channels) if diagonal else (heads,)
        forgets = torch.exp2(-spread(5, 12, *size))
        self.logit = nn.Parameter(torch.logit(1 - forgets))

    def begin_with(self, half_lives: Tensor) -> None:
        _set_logits(self.logit, half_lives)

    def forward(self, x: Tensor) -> Gates:
        return Gates(F.logsigmoid(self.logit))


class Hippo(Decay):
    """Rates of each channel, or of each head, learned: HIPPO's to begin with."""

    log_rate: nn.Parameter

    @torch.no_grad()
    def begin_with(self, half_lives: Tensor) -> None:
        """The half-lives of each head's slowest channel; the others forget n + 1 times as fast, as HIPPO's do."""
        slowest = (math.log(2) / half_lives).reshape(-1, *[1] * (self.log_rate.dim() - 1))
        channels = torch.arange(1, self.log_rate.shape[-1] + 1) if self.log_rate.dim() > 1 else torch.ones(1)
        self.log_rate.copy_((slowest * channels).log())


class FixedHippo(Hippo):
    """exp(-rate) of each channel, learned, HIPPO's to begin with; with `random`, rates around 1, which forget within a
    few tokens."""

    columns = 0

    def __init__(self, heads: int, channels: int, *, random: bool = False, slow: bool = False):
        super().__init__()
        self.log_rate = nn.Parameter(torch.randn(heads, channels) if random else hippo_log_rates(heads, channels, slow))

    def forward(self, x: Tensor) -> Gates:
        return Gates(-self.log_rate.exp())


class Selective(Decay):
    """sigmoid of the input; with `softplus`, exp(-softplus) of it."""

    def __init__(self, heads: int, channels: int, *, diagonal: bool = False, softplus: bool = False):
        super().__init__()
        self.size = (heads, channels) if diagonal else (heads,)
        self.columns = heads * channels if diagonal else heads
        self.softplus = softplus
        self.bias = nn.Parameter(spread(2, 6, *self.size) * (-1 if softplus else 1))

    def begin_with(self, half_lives: Tensor) -> None:
        _set_logits(self.bias, half_lives)
        if self.softplus:  # softplus(-x) is -logsigmoid(x)
            self.bias.data.neg_()

    def forward(self, x: Tensor) -> Gates:
        x = x.unflatten(-1, self.size) + self.bias
        return Gates(-F.softplus(x) if self.softplus else F.logsigmoid(x))


class SelectiveHippo(Hippo):
    """HIPPO's rates, which the input makes up to twice as fast, or slower. (The paper writes exp(sigmoid(A) + B), which
    grows without bound wherever B is above -sigmoid(A); docs/maths.md.) With `softplus` they grow without a bound; with
    `scalar` a head has one, HIPPO's slowest."""

    def __init__(
        self,
        heads: int,
        channels: int,
        *,
        random: bool = False,
        softplus: bool = False,
        scalar: bool = False,
        slow: bool = False,
    ):
        super().__init__()
        self.size = (heads,) if scalar else (heads, channels)
        self.columns = math.prod(self.size)
        self.softplus = softplus
        rates = torch.randn(heads, channels) if random else hippo_log_rates(heads, channels, slow)
        self.log_rate = nn.Parameter(rates[:, 0].clone() if scalar else rates)

    def forward(self, x: Tensor) -> Gates:
        rate, x = self.log_rate.exp(), x.unflatten(-1, self.size)
        if not self.softplus:
            return Gates(-rate * 2 * x.sigmoid())
        shift = rate + (-torch.expm1(-rate)).log()  # softplus makes the rate of it; log(expm1(rate)) would overflow
        return Gates(-F.softplus(x + shift))


class LowRank(Decay):
    """Per channel, by way of a few numbers: GLA's sigmoid^(1/16), or RWKV-6's exp(-exp)."""

    def __init__(self, heads: int, channels: int, *, rank: int = 16, double_exponential: bool = False):
        super().__init__()
        self.size = (heads, channels)
        self.columns = rank
        self.double_exponential = double_exponential
        self.up = nn.Linear(rank, heads * channels)
        if double_exponential:
            # From slow to fast channels, as RWKV begins.
            nn.init.uniform_(self.up.weight, -1e-2, 1e-2)
            with torch.no_grad():
                self.up.bias.copy_(evenly(-6, 1, channels).repeat(heads))

    def forward(self, x: Tensor) -> Gates:
        y = x.tanh() if self.double_exponential else x
        y = self.up(y.to(self.up.weight.dtype)).to(x.dtype).unflatten(-1, self.size)
        return Gates(-y.exp() if self.double_exponential else F.logsigmoid(y) / 16)


class LowerBounded(Decay):
    """HGRN-2's: at least as slow as a learned bound."""

    def __init__(self, heads: int, channels: int):
        super().__init__()
        self.size = (heads, channels)
        self.columns = heads * channels
        self.bound = nn.Parameter(spread(-2, 3, *self.size))

    def forward(self, x: Tensor) -> Gates:
        # log(bound + (1 - bound) sigmoid(x)), without leaving log space
        bound, rest = F.logsigmoid(self.bound), F.logsigmoid(-self.bound)
        return Gates(torch.logaddexp(bound, rest + F.logsigmoid(x.unflatten(-1, self.size))).clamp(max=0))


class StateSpace(Decay):
    """Mamba's: steps dt = softplus(x), decay exp(-dt A), input times dt. A is per head (Mamba-2) or per channel.

    Gated DeltaNet has the decays without the factor of the input.
    """

    def __init__(self, heads: int, channels: int, *, diagonal: bool = False, factor: bool = True):
        super().__init__()
        self.columns = heads
        self.diagonal, self.gates = diagonal, factor
        self.stepped = diagonal
        rates = torch.arange(1, channels + 1).expand(heads, -1) if diagonal else evenly(1, 16, heads)
        self.log_rate = nn.Parameter(rates.float().log())
        steps = 10 ** evenly(-3, -1, heads)
        self.bias = nn.Parameter(steps.expm1().log())  # softplus of it is the step

    def forward(self, x: Tensor) -> Gates:
        (step, rate), _, factor = self.in_steps(x)
        return Gates(-(step[..., None] if self.diagonal else step) * rate, factor=factor)

    def in_steps(self, x: Tensor) -> Gates:
        step = F.softplus(x + self.bias)
        return Gates(Steps(step, self.log_rate.exp()), factor=step if self.gates else None)


class Complementary(Decay):
    """Gated RFA's: what is kept and what is let in add up to 1."""

    gates = True

    def __init__(self, heads: int, channels: int):
        super().__init__()
        self.columns = heads
        self.bias = nn.Parameter(spread(2, 6, heads))

    def forward(self, x: Tensor) -> Gates:
        x = x + self.bias
        return Gates(F.logsigmoid(x), F.logsigmoid(-x))


class Exponential(Decay):
    """xLSTM's: a sigmoid to forget, an exponential to let in."""

    gates = True

    def __init__(self, heads: int, channels: int):
        super().__init__()
        self.heads = heads
        self.columns = 2 * heads
        self.bias = nn.Parameter(torch.stack([spread(3, 6, heads), torch.zeros(heads)]))

    def forward(self, x: Tensor) -> Gates:
        forget, let_in = (x.unflatten(-1, (2, self.heads)) + self.bias).unbind(-2)
        return Gates(F.logsigmoid(forget), let_in)


def _with(cls: Callable[..., Decay], **options: bool) -> Callable[[int, int], Decay]:
    return lambda heads, channels: cls(heads, channels, **options)


DECAYS: dict[str, Callable[[int, int], Decay]] = {  # by heads and key channels of a head
    "none": NoDecay,
    "fixed": Fixed,
    "fixed_diagonal": _with(Fixed, diagonal=True),
    "fixed_hippo": FixedHippo,
    "fixed_hippo_slow": _with(FixedHippo, slow=True),
    "fixed_random": _with(FixedHippo, random=True),
    "selective": Selective,
    "selective_diagonal": _with(Selective, diagonal=True),
    "selective_hippo": SelectiveHippo,
    "selective_hippo_slow": _with(SelectiveHippo, slow=True),
    "selective_random": _with(SelectiveHippo, random=True),
    "selective_hippo_scalar": _with(SelectiveHippo, scalar=True),
    "selective_hippo_scalar_slow": _with(SelectiveHippo, scalar=True, slow=True),
    "softplus_hippo": _with(SelectiveHippo, softplus=True),
    "softplus_hippo_slow": _with(SelectiveHippo, softplus=True, slow=True),
    "softplus": _with(Selective, softplus=True),
    "softplus_diagonal": _with(Selective, diagonal=True, softplus=True),
    "gated_rfa": Complementary,
    "mamba2": StateSpace,
    "mamba": _with(StateSpace, diagonal=True),
    "gated_deltanet": _with(StateSpace, factor=False),
    "rwkv6": _with(LowRank, double_exponential=True),
    "gla": LowRank,
    "hgrn2": LowerBounded,
    "xlstm": Exponential,
}

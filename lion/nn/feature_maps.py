"""Feature maps of queries and keys."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.ops.kernels import fused
from lion.ops.maps import elu_plus_one, unit, unit_silu

# Features [..., D'], and the log of a factor per token that was taken out of them, or None.
Features = tuple[Tensor, Tensor | None]


class FeatureMap(nn.Module):
    channels: int  # of the features

    def forward(self, x: Tensor) -> Features:
        raise NotImplementedError

    def both(self, q: Tensor, k: Tensor) -> tuple[Features, Features]:
        """The features of queries and keys: always by the same map, or their products would mean nothing."""
        return self(q), self(k)


class Elementwise(FeatureMap):
    """A map of each head's channels that has nothing to learn."""

    def __init__(self, function: Callable[[Tensor], Tensor], channels: int):
        super().__init__()
        self.function, self.channels = function, channels

    def forward(self, x: Tensor) -> Features:
        return self.function(x), None

    def both(self, q: Tensor, k: Tensor) -> tuple[Features, Features]:
        for path in fused():
            if (features := path.mapped(self.function.__name__, q, k)) is not None:
                return (features[0], None), (features[1], None)
        return super().both(q, k)

    def extra_repr(self) -> str:
        return self.function.__name__


def relu(x: Tensor) -> Tensor:
    """ReLU with a floor, so that every token has some weight."""
    return F.relu(x) + 1e-6


def normalised_silu(x: Tensor) -> Tensor:
    """SiLU of length 1, so that a delta rule takes back no more than there is."""
    return unit(F.silu(x))


def plain_silu(x: Tensor) -> Tensor:
    """SiLU, neither shifted nor normalised: HGRN-2's for its queries."""
    return F.silu(x)


def identity(x: Tensor) -> Tensor:
    return x


class PositiveRandom(FeatureMap):
    """Performer's: exp(w . x - |x|^2 / 2), whose products are exp(q . k / sqrt(D)) on average.

    The largest exponent of a token is taken out as a factor, to be handled in log space: nothing overflows,
    and no token's features depend on another's.
    """

    directions: Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.scale = channels**-0.25
        self.channels = channels
        self.register_buffer("directions", orthogonal_directions(channels, channels))

    def forward(self, x: Tensor) -> Features:
        x = x * self.scale
        exponents = x @ self.directions.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2
        largest = exponents.amax(-1, keepdim=True).detach()
        return (exponents - largest).exp() * self.channels**-0.5, largest.squeeze(-1)


class RandomFourier(FeatureMap):
    """Gated RFA's: sines and cosines of random directions, whose products are a Gaussian of the distance of q and k.

    Both are normalised first. The widths of the Gaussian are learned, and are large at first: the products of so few
    directions as a head has would be as often negative as not, and with them what they are divided by.
    """

    directions: Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.channels = 2 * channels
        self.register_buffer("directions", torch.randn(channels, channels))
        self.log_width = nn.Parameter(torch.full((channels,), math.log(4)))

    def forward(self, x: Tensor) -> Features:
        directions = self.directions * (-self.log_width).exp()
        angles = unit(x) @ directions.to(x.dtype).T
        return torch.cat([angles.sin(), angles.cos()], -1) * (self.channels / 2) ** -0.5, None


def orthogonal_directions(count: int, channels: int) -> Tensor:
    """[count, channels], as long as Gaussian ones, but orthogonal within each `channels` of them."""
    blocks = []
    for _ in range(math.ceil(count / channels)):
        basis, _ = torch.linalg.qr(torch.randn(channels, channels))
        blocks.append(basis * torch.randn(channels, channels).norm(dim=-1, keepdim=True))
    return torch.cat(blocks)[:count]


def _elementwise(function: Callable[[Tensor], Tensor]) -> Callable[[int], FeatureMap]:
    return lambda channels: Elementwise(function, channels)


FEATURE_MAPS: dict[str, Callable[[int], FeatureMap]] = {  # by channels of a head
    "unit_silu": _elementwise(unit_silu),
    "elu_plus_one": _elementwise(elu_plus_one),
    "relu": _elementwise(relu),
    "sigmoid": _elementwise(torch.sigmoid),
    "identity": _elementwise(identity),
    "plain_silu": _elementwise(plain_silu),
    "normalised_silu": _elementwise(normalised_silu),
    "performer": PositiveRandom,
    "fourier": RandomFourier,
}

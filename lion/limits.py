"""The valid values of config fields and command options, defined once, in their types.

    dim: Width = 192

JSON, the command line and the constructors of configs are all checked against them (lion.configs). The limits are far
beyond what anybody trains. They refuse values that make no sense: 0 heads, a width of 10 to the 20.
"""

import difflib
import math
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple


class Between(NamedTuple):
    """Numbers from `least` to `most`; `beyond`: excluding `least`, `below`: excluding `most`."""

    least: float
    most: float = math.inf  # which is excluded: numbers are finite
    beyond: bool = False
    below: bool = False

    def has(self, x: Any) -> bool:
        above = x > self.least if self.beyond else x >= self.least
        return above and (x < self.most if self.below else x <= self.most)

    def words(self, kind: str) -> str:
        least, most = _short(self.least), _short(self.most)
        if math.isinf(self.most):
            return f"{kind} above {least}" if self.beyond else f"{kind}, {least} or more"
        if self.beyond and self.below:
            return f"{kind} between {least} and {most}"
        low = f"above {least} and up" if self.beyond else f"from {least}"
        return f"{kind} {low} {'to below' if self.below else 'to'} {most}"


class OneOf(NamedTuple):
    """One of several names, such as the keys of a table."""

    known: Collection[str]

    def has(self, x: Any) -> bool:
        return x in self.known

    def words(self, kind: str) -> str:
        return f"one of {', '.join(map(repr, self.known))}"

    def hint(self, x: str) -> str:
        near = difflib.get_close_matches(x, self.known, n=1)
        return f" Did you mean {near[0]!r}?" if near else ""


def _short(x: float) -> str:
    return f"{x:,}" if isinstance(x, int) else f"{x:g}"


# Sizes of models.
Width = Annotated[int, Between(1, 1 << 16)]  # channels of a layer
Heads = Annotated[int, Between(1, 1 << 16)]
Depth = Annotated[int, Between(0, 1 << 10)]  # blocks
Kmers = Annotated[int, Between(0, 10)]  # bases; there are 4 to the power of it
Hidden = Annotated[int, Between(1, 1 << 20)]  # channels inside of an MLP
HiddenOrNone = Annotated[int, Between(0, 1 << 20)]  # 0: there is no MLP
Ratio = Annotated[float, Between(0, 1024)]  # of an MLP's width to the layer's
Classes = Annotated[int, Between(0, 1 << 24)]
Vocabulary = Annotated[int, Between(1, 1 << 22)]  # tokens
TokenId = Annotated[int, Between(0, (1 << 22) - 1)]
Tokens = Annotated[int, Between(1, 1 << 30)]  # of a sequence
SomeTokens = Annotated[int, Between(2, 1 << 30)]
TokensOrAll = Annotated[int, Between(0, 1 << 30)]  # 0: all
Pixels = Annotated[int, Between(1, 1 << 14)]  # along one side of an image
PixelsOrAll = Annotated[int, Between(0, 1 << 14)]
Patch = Annotated[int, Between(1, 1 << 10)]
Channels = Annotated[int, Between(1, 1 << 10)]  # of an image
Kernel = Annotated[int, Between(0, 1 << 12)]  # width of a convolution; 0: none

# Numbers.
Share = Annotated[float, Between(0.0, 1.0)]
ShareBelowOne = Annotated[float, Between(0.0, 1.0, below=True)]
Holdout = Annotated[float, Between(0.0, 1.0, beyond=True, below=True)]
SomeShare = Annotated[float, Between(0.0, 1.0, beyond=True)]
Positive = Annotated[float, Between(0.0, beyond=True)]
Weight = Annotated[float, Between(0.0)]  # of a term of the loss, or weight decay
Epsilon = Annotated[float, Between(0.0, 1.0, beyond=True)]
Temperature = Annotated[float, Between(1e-3, 1e6)]  # of a distribution
Deviation = Annotated[float, Between(0.0, 1e3)]  # of random weights
Seed = Annotated[int, Between(0, (1 << 64) - 1)]

HalfLives = tuple[Positive, Annotated[float, Between(0.0)]] | None  # tokens; 0: as many as the sequences have

# Sizes of runs.
Steps = Annotated[int, Between(0, 99_999_999)]  # a checkpoint's name has eight digits
StepsAtLeastOne = Annotated[int, Between(1, 99_999_999)]
Epochs = Annotated[float, Between(0.0, 1e6)]
Batch = Annotated[int, Between(1, 1 << 20)]
Parts = Annotated[int, Between(1, 1 << 20)]  # of a batch
Workers = Annotated[int, Between(0, 1 << 10)]
Processes = Annotated[int, Between(1, 1 << 10)]
Examples = Annotated[int, Between(0, 10**12)]  # 0: all
SomeExamples = Annotated[int, Between(1, 10**12)]
Nesting = Annotated[int, Between(0, 100)]  # depth of lists, and number of their arguments; 0: the default
SomeNesting = Annotated[int, Between(2, 100)]

# Options of commands.
Rounds = Annotated[int, Between(1, 10**6)]
Count = Annotated[int, Between(1, 10**9)]
CountOrAll = Annotated[int, Between(0, 10**9)]
Beams = Annotated[int, Between(1, 1 << 10)]
Threads = Annotated[int, Between(1, 1 << 10)]
Heat = Weight  # a temperature; 0: none

"""The parts of a layer that are one operator each here: what `fused` in a row of `kernels.BACKENDS` has.

mapped(name, q, k): the features of queries and keys, or None
available(columns, form): whether `attention` takes this projection
FEATURES: the names of the feature maps that it knows
split(columns, first), attention(columns, ...): from the projection to the mixed values
selective_available(columns, form), selective(q, k, v, steps, rates, ...): queries and keys that all heads share, a
value for each head, and decays that are a step times a rate
between(call, form): lion.nn.between.attention_between, or None
"""

from lion.ops.cpu.features import mapped
from lion.ops.cpu.projected import FEATURES, attention, available, split
from lion.ops.cpu.scan import between
from lion.ops.cpu.selective import selective, selective_available

__all__ = ["FEATURES", "attention", "available", "between", "mapped", "selective", "selective_available", "split"]

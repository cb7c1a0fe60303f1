"""The feature maps that backends may have operators for, in plain torch."""

import torch.nn.functional as F
from torch import Tensor


def unit_silu(x: Tensor) -> Tensor:
    """Shifted and normalised SiLU, the paper's own: of length 1, and mostly positive."""
    return F.normalize(F.silu(x) + 0.5, dim=-1)


def elu_plus_one(x: Tensor) -> Tensor:
    """elu + 1: positive."""
    return F.elu(x) + 1

"""The feature maps that backends may have operators for, in plain torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-12  # of a length, as in F.normalize


def unit(x: Tensor) -> Tensor:
    """F.normalize of the last dimension, which expands the lengths: a file of ONNX would copy what it expands."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(EPSILON)


def unit_silu(x: Tensor) -> Tensor:
    """Shifted and normalised SiLU, the paper's own: of length 1, and mostly positive."""
    return unit(F.silu(x) + 0.5)


def elu_plus_one(x: Tensor) -> Tensor:
    """elu + 1: positive."""
    return F.elu(x) + 1

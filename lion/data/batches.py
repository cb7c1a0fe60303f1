"""What all data have in common that are handed to a training loop in batches."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

Batch = dict[str, Tensor]
IGNORED = -100  # the label of a token that is not to be predicted


def split_keys(keys: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The epochs and the indices of examples."""
    epochs, indices = np.array(keys, dtype=np.int64).reshape(-1, 2).T
    return epochs, indices


def padded_width(longest: int, most: int) -> int:
    """Of a batch: a multiple of 8, or `most` if that is less."""
    return min(-(-longest // 8) * 8, most)

"""How sure the linear models that stand beside a network should be."""

import numpy as np
import torch
import torch.nn.functional as F

SHARPEST = 10.0


def calibration(unseen: np.ndarray, labels: np.ndarray) -> float:
    """The factor that makes logits [N, classes] for examples that a model has not seen those of the least loss.

    Labels are smoothed as Platt does it: that a few are all right makes nothing certain.
    """
    logits, right = torch.from_numpy(unseen), torch.from_numpy(labels)
    count, classes = unseen.shape
    factors = np.geomspace(1 / SHARPEST, SHARPEST, 40)
    doubt = classes / (count + classes)
    return float(min(factors, key=lambda x: F.cross_entropy(x * logits, right, label_smoothing=doubt).item()))

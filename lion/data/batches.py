"""Batches: what all datasets of the training loop have in common."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lion.models.heads import IGNORED

Batch = dict[str, Tensor]
MASKED, RANDOM = 0.8, 0.1  # BERT's shares of targets: replaced by [MASK], replaced by another token; the others stay


def split_keys(keys: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The epochs [B] and indices [B] of the keys (epoch, index) of a batch."""
    epochs, indices = np.array(keys, dtype=np.int64).reshape(-1, 2).T
    return epochs, indices


def padded_width(longest: int, most: int) -> int:
    """The width of a padded batch: a multiple of 8, or `most` if that is less."""
    return min(-(-longest // 8) * 8, most)


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of tokens as one tensor [B, T], and their mask [B, T], True for tokens."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def masked(
    tokens: np.ndarray,
    numbers: np.ndarray,
    allowed: np.ndarray,
    mask_id: int,
    ordinary: np.ndarray,
    shares: tuple[float, float] = (MASKED, RANDOM),
) -> Batch:
    """Masked language modelling: `input_ids` and `labels` [B, T]; the label of a token that is not a target is -100.

    Args:
        tokens: int64 [B, T].
        numbers: uniform numbers [B, T] over the rate of targets. One number decides: below 1 the token is a target,
            below the first of `shares` it becomes [MASK], below their sum a random one of the `ordinary` tokens.
        allowed: bool [B, T], the tokens that may be targets.
    """
    hidden, random = shares
    target = (numbers < 1) & allowed
    choice = ((numbers - hidden) / max(random, 1e-9) * len(ordinary)).clip(0, len(ordinary) - 1).astype(np.int64)
    changed = np.select([numbers < hidden, numbers < hidden + random], [np.int64(mask_id), ordinary[choice]], tokens)
    return {
        "input_ids": torch.from_numpy(np.where(target, changed, tokens)),
        "labels": torch.from_numpy(np.where(target, tokens, IGNORED)),
    }


class LabelledRows:
    """Rows of tokens of different lengths, with labels: classes if they are whole numbers, else regression targets."""

    def __init__(
        self,
        rows: Sequence[np.ndarray],
        labels: Sequence[int] | Sequence[float] | np.ndarray,
        token_logits: np.ndarray | None = None,
    ):
        """
        Args:
            token_logits: [N, classes], what a linear model of the tokens says of each row.
        """
        # Not lists: counting references to their elements would copy them into every worker, page by page.
        self.ends = np.cumsum([len(row) for row in rows])
        self.ids = np.concatenate(rows)
        numbers = np.asarray(labels)
        whole = np.issubdtype(numbers.dtype, np.integer)
        self.labels = torch.from_numpy(numbers.astype(np.int64 if whole else np.float32))
        self.token_logits = None if token_logits is None else torch.from_numpy(token_logits)

    def answers(self, indices: np.ndarray) -> Batch:
        """`label` [B]; `token_logits` [B, classes], if there are some."""
        rows = torch.from_numpy(indices)
        answers = {"label": self.labels[rows]}
        return answers if self.token_logits is None else answers | {"token_logits": self.token_logits[rows]}

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def row_lengths(self) -> np.ndarray:
        """[N]"""
        return np.diff(self.ends, prepend=0)

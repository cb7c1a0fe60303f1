"""What text models end in: from the tokens' states to one vector or to logits, and the losses of these."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.ops.call import accumulation_dtype

IGNORED = -100  # the label of a token that is not to be predicted
Items = Tensor | int | None  # labels that a loss is the mean over, if not those at hand

# By the kinds of labels, under transformers' names of them.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "single_label_classification": F.cross_entropy,
    "multi_label_classification": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}


class MaskedLMHead(nn.Module):
    """[..., dim] -> [..., vocab_size] logits, as BERT has it."""

    def __init__(self, dim: int, vocab_size: int, norm_eps: float):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.decoder = nn.Linear(dim, vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.norm(F.gelu(self.dense(x))))


def first_tokens(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """The first real token of each sequence, [B, T, dim] -> [sequences, dim]."""
    if cu_seqlens is not None:
        return x[0, cu_seqlens[:-1].long()]
    if mask is None:
        return x[:, 0]
    return x[torch.arange(x.shape[0], device=x.device), mask.int().argmax(1)]


def mean_tokens(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None = None) -> Tensor:
    """The mean of each sequence's real tokens, [B, T, dim] -> [sequences, dim]."""
    if cu_seqlens is not None:
        lengths = cu_seqlens.long().diff()
        which = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths, output_size=x.shape[1])
        return x.new_zeros(len(lengths), x.shape[-1]).index_add(0, which, x[0]) / lengths[:, None]
    if mask is None:
        return x.mean(1)
    weight = mask[..., None].to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


POOLINGS = {"cls": first_tokens, "mean": mean_tokens}  # by transformers' names


def label_loss(
    logits: Tensor, labels: Tensor, items: Items = None, kind: str = "single_label_classification"
) -> Tensor:
    """The mean loss, in float32 at least; with `items`, the sum divided by them, for a part of a batch.

    Args:
        logits: [..., classes].
        labels: [...], numbers of classes, IGNORED where there is nothing to predict; or, of the other kinds, numbers of
            the logits' shape.
        kind: a key of LOSSES.
    """
    logits = logits.to(accumulation_dtype(logits))
    if kind == "single_label_classification":
        logits, labels = logits.flatten(0, -2), labels.flatten()
    else:
        labels = labels.to(logits.dtype).view_as(logits)
    if items is None:
        return LOSSES[kind](logits, labels)
    return LOSSES[kind](logits, labels, reduction="sum") / torch.as_tensor(items, device=logits.device)

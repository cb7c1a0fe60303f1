"""What text models end in: from the tokens' states to one vector or to logits, and the losses of these."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.models.borders import first_of_pieces, mean_of_pieces
from lion.nn.pieces import Piece
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


def first_tokens(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, piece: Piece | None = None) -> Tensor:
    """The first real token of each sequence, [B, T, dim] -> [sequences, dim]."""
    if piece is not None:
        return first_of_pieces(x, mask, piece)
    if cu_seqlens is not None:
        return x[0, cu_seqlens[:-1].long()]
    if mask is None:
        return x[:, 0]
    return x[torch.arange(x.shape[0], device=x.device), mask.int().argmax(1)]


def mean_tokens(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None = None, piece: Piece | None = None) -> Tensor:
    """The mean of each sequence's real tokens, [B, T, dim] -> [sequences, dim]."""
    if piece is not None:
        return mean_of_pieces(x, mask, piece)
    if cu_seqlens is not None:
        lengths = cu_seqlens.long().diff()
        which = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths, output_size=x.shape[1])
        return x.new_zeros(len(lengths), x.shape[-1]).index_add(0, which, x[0]) / lengths[:, None]
    if mask is None:
        return x.mean(1)
    weight = mask[..., None].to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


class TokenWeights(nn.Module):
    """A linear model of the tokens that a text has, wherever they are: [B, T] tokens -> [sequences, classes] logits.

    A token counts 1 + log(occurrences), times its `idf`; a text's counts have norm 1 together (TF-IDF). All of it is
    fitted before training (lion.tasks._token_weights), and stays as it is: these are buffers.
    """

    idf: Tensor  # [vocab_size], 0 for tokens that do not count
    weight: Tensor  # [classes, vocab_size]
    bias: Tensor  # [classes]

    def __init__(self, vocab_size: int, classes: int):
        super().__init__()
        for name, shape in {"idf": (vocab_size,), "weight": (classes, vocab_size), "bias": (classes,)}.items():
            self.register_buffer(name, torch.zeros(shape))

    def whole_only(self) -> str:
        return "it counts the tokens of the whole text"

    def resize(self, vocab_size: int) -> None:
        """Take tokens away at the end, or add some that do not count."""
        more = vocab_size - len(self.idf)
        self.idf, self.weight = F.pad(self.idf, (0, more)), F.pad(self.weight, (0, more))

    def forward(self, input_ids: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None = None) -> Tensor:
        real = torch.ones_like(input_ids, dtype=self.idf.dtype) if mask is None else mask.to(self.idf.dtype)
        if cu_seqlens is None:
            counts = real.new_zeros(input_ids.shape[0], len(self.idf)).scatter_add(1, input_ids, real)
        else:
            lengths = cu_seqlens.long().diff()
            which = torch.arange(len(lengths), device=real.device)
            which = which.repeat_interleave(lengths, output_size=input_ids.shape[1])
            counts = real.new_zeros(len(lengths), len(self.idf)).index_put((which, input_ids[0]), real[0], True)
        weighted = self.idf * (1 + counts.clamp(min=1).log()) * (counts > 0)  # [sequences, vocab_size]
        return F.linear(F.normalize(weighted), self.weight, self.bias)


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

"""What models ask about the other pieces of a sequence: neighbours, places, sums and first tokens.

Without a piece all of them are of the tokens at hand.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.nn.messages import Added, First, Last, Sent
from lion.nn.pieces import Cuttable, Piece
from lion.ops.call import accumulation_dtype


def convolved(conv: nn.Conv1d, x: Tensor, piece: Piece | None) -> tuple[Tensor, slice]:
    """A convolution over the tokens x [B, T, dim], with zeros around the whole sequence; and the tokens that its
    outputs are of."""
    step = conv.stride[0]
    if piece is None:
        return conv(x.transpose(1, 2)).transpose(1, 2), slice(0, None, step)
    reach = conv.kernel_size[0] // 2
    arrived = piece.exchange(x, lambda: Sent(Last.of(x, reach), Last.of(x.flip(1), reach)))
    first = int(-arrived.forward.number % step) if step > 1 else 0  # strides are counted from the sequence's first
    wide = torch.cat([arrived.forward.tokens, x, arrived.reverse.tokens.flip(1)], 1)[:, first:]
    tokens = slice(first, None, step)
    if first >= x.shape[1]:
        return F.linear(wide[:, :0], conv.weight[..., 0], conv.bias), tokens
    return F.conv1d(wide.transpose(1, 2), conv.weight, conv.bias, step).transpose(1, 2), tokens


def tokens_before(x: Tensor, mask: Tensor | None, piece: Piece | None) -> Tensor | None:
    """[B]: real tokens of x [B, T, ...] in the pieces before; None if there is no piece."""
    if piece is None:
        return None
    B, T = x.shape[:2]

    def own() -> Sent:
        number = torch.full((B,), T, device=x.device) if mask is None else mask.sum(1)
        return Sent(forward=Added(number.new_zeros(B, 0), number))

    return piece.exchange(x, own).forward.number


def total(x: Tensor, piece: Piece | None) -> Tensor:
    """x [B, ...], added up over the pieces."""
    if piece is None:
        return x
    return piece.exchange(x, lambda: Sent(whole=Added(x, x.new_zeros(())))).whole.sums


def mean_of_pieces(x: Tensor, mask: Tensor | None, piece: Piece) -> Tensor:
    """The mean of the real tokens of all pieces, [B, T, dim] -> [B, dim]."""
    wide = accumulation_dtype(x)

    def own() -> Sent:
        weight = torch.ones(x.shape[:2], dtype=wide, device=x.device) if mask is None else mask.to(wide)
        return Sent(whole=Added((x * weight[..., None]).sum(1), weight.sum(1)))

    sums, number = piece.exchange(x, own).whole
    return (sums / number.clamp(min=1)[:, None]).to(x.dtype)


def first_of_pieces(x: Tensor, mask: Tensor | None, piece: Piece) -> Tensor:
    """The first real token of all pieces, [B, T, dim] -> [B, dim]."""

    def own() -> Sent:
        B, T = x.shape[:2]
        found = torch.full((B,), T > 0, device=x.device) if mask is None else mask.any(1)
        place = torch.zeros(B, dtype=torch.long, device=x.device) if mask is None or not T else mask.int().argmax(1)
        token = x[torch.arange(B, device=x.device), place] if T else x.sum(1)
        return Sent(whole=First(torch.where(found[:, None], token, 0), found))

    return piece.exchange(x, own).whole.token


def sums_of_pieces(model: nn.Module, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sums over the tokens of a piece, added up over all pieces; those of a model that has no pieces as they are."""
    piece = piece_of_model(model)
    if piece is None:
        return sums
    together = total(torch.stack([x.to(sums["loss"].dtype) for x in sums.values()])[None], piece)[0]
    return dict(zip(sums, together.unbind(), strict=True))


def piece_of_model(model: nn.Module) -> Piece | None:
    return next((x.piece for x in model.modules() if isinstance(x, Cuttable)), None)

"""Images in pieces: bands of rows of patches. The class token is in the first one."""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.models.borders import mean_of_pieces, total
from lion.nn.messages import Added, Sent
from lion.nn.pieces import Piece

if TYPE_CHECKING:
    from lion.models.vision import VisionModel


def embedded_band(model: "VisionModel", x: Tensor, piece: Piece) -> tuple[Tensor, tuple[int, int]]:
    """The tokens of some rows of pixels of an image, [B, channels, height, width], and the patches they are of."""
    p = model.config.patch_size
    before, height = _rows(x, p, piece)
    rows, columns = model.patch_embed.grid(x.shape[2], x.shape[3])
    if rows:
        tokens = model.patch_embed(x)[0]
    else:
        proj: Any = model.patch_embed.proj
        tokens = F.linear(x.new_zeros(x.shape[0], 0, proj.weight[0].numel()), proj.weight.flatten(1), proj.bias)
    own = slice(None if piece.first else 0)  # others have none of them, but gradients, lest data parallelism miss them
    first = [y for y in (model.cls_token, model.dist_token) if y is not None]
    tokens = torch.cat([*(y.expand(x.shape[0], -1, -1)[:, own] for y in first), tokens], 1)
    if model.pos_embed is not None:
        prefix = model.num_prefix_tokens
        places = model._positions(model.pos_embed, (height, columns))
        begin = prefix + before * columns
        tokens = tokens + torch.cat([places[:, :prefix][:, own], places[:, begin : begin + rows * columns]], 1)
    return model.pos_drop(tokens), (rows, columns)


def _rows(x: Tensor, patch: int, piece: Piece) -> tuple[int, int]:
    """Rows of patches in the pieces before, and in all."""
    height = x.shape[2]
    rows, incomplete = (torch.tensor([n], device=x.device) for n in (-(-height // patch), int(height % patch > 0)))
    own = Added(incomplete, rows)
    arrived = piece.exchange(x, lambda: Sent(forward=own, whole=own))
    if int(arrived.whole.sums):
        raise ValueError(
            f"a piece of an image has rows of pixels that are no multiple of {patch}; expected whole patches on all "
            "processes: fill up the image before it is cut."
        )
    return int(arrived.forward.number), int(arrived.whole.number)


def pooled_over_bands(x: Tensor, prefix: int, mean: bool, piece: Piece) -> Tensor:
    """The tokens that are classified, for `forward_head` as it is: the class tokens, or one that is the mean of all
    patches behind as many as there are class tokens."""
    own = prefix if piece.first else 0
    if mean:
        found = mean_of_pieces(x[:, own:], None, piece)[:, None]
        return torch.cat([found.expand(-1, prefix, -1), found], 1)
    tokens = x[:, :prefix] if piece.first else x[:, :1].sum(1, keepdim=True).expand(-1, prefix, -1) * 0
    return total(tokens, piece)

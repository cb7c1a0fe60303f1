"""A linear model of the k-mers of DNA, the words of 1 to k bases that a sequence has."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lion.models.heads import TokenWeights

FIRST, BASES = 1, 4  # the tokens of A, C, G and T, as lion.data.fasta has them


def vocabulary(longest: int) -> int:
    """How many k-mers of up to so many bases there are, with 0 for none."""
    return (BASES ** (longest + 1) - 1) // (BASES - 1)


def kmers(ids: Tensor, longest: int, mask: Tensor | None = None, *, both_strands: bool = False) -> Tensor:
    """[B, T] tokens -> [B, T, longest]: the k-mers of 1, 2, ... bases that begin at each token; 0 where the end or
    another token is among them.

    Args:
        both_strands: a k-mer and its reverse complement are the same.
    """
    bases = ids.long() - FIRST
    real = (bases >= 0) & (bases < BASES)
    real = real if mask is None else real & mask
    bases, real = (F.pad(x, (0, longest - 1)) for x in (bases, real))
    found, before = [], 1
    word, turned, whole = torch.zeros_like(ids).long(), torch.zeros_like(ids).long(), torch.ones_like(ids).bool()
    for k in range(longest):
        base = bases[:, k : k + ids.shape[1]]
        word, turned = word * BASES + base, turned + (BASES - 1 - base) * BASES**k
        whole = whole & real[:, k : k + ids.shape[1]]
        number = torch.minimum(word, turned) if both_strands else word
        found.append(torch.where(whole, before + number, 0))
        before += BASES ** (k + 1)
    return torch.stack(found, -1)


class KmerWeights(TokenWeights):
    """[B, T] tokens of DNA -> [B, classes] logits. Fitted before training (lion.tasks.dna_classification)."""

    def __init__(self, longest: int, classes: int, *, both_strands: bool = False):
        super().__init__(vocabulary(longest), classes)
        self.longest, self.both_strands = longest, both_strands

    def forward(self, input_ids: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(kmers(input_ids, self.longest, mask, both_strands=self.both_strands).flatten(1), None)

"""The options of a torch kernel, besides its tensors."""

from typing import NamedTuple


class Options(NamedTuple):
    """All kernels are `kernel(q, k, v, f, b, options) -> (num, den)`.

    q, k [B, T, H, D] and v [B, T, H, V] come in their own dtype. f and b are the log costs of leaving a
    token forwards and backwards, [B or 1, T or 1, H or 1, D or 1], in the accumulation dtype, which is
    also the dtype of num [B, T, H, V] and den [B, T, H, 1]. Costs may be -inf; B, T and V may be 0 (the norm
    "unmasked" asks for den alone, with V = 0), and even an empty result depends on the inputs, for autograd.
    """

    direction: str  # "both", "forward", "reverse"
    include_self: bool  # whether a token sees itself
    with_den: bool  # whether den is wanted; else it is None
    chunk_size: int | None  # None: the kernel's own

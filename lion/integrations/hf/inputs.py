"""What a batch says of its tokens, by transformers' names: which are real, and which are packed into one row."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar, get_args

import torch
from torch import Tensor

UNSEEN = (
    "position_ids begin anew, where torch.compile or torch.export cannot look at them; expected the borders of the "
    "packed sequences: cu_seq_lens_q, as of DataCollatorWithFlattening(return_flash_attn_kwargs=True)."
)
UNTOLD = (
    "position_ids do not count the tokens of a sequence one by one, but positions is 'none'; expected 0, 1, 2, ..., "
    "anew for each packed sequence, or none: the model tells places by its decays, and has no embedding of them."
)


def is_traced(x: Tensor) -> bool:
    """Whether the values of a tensor cannot be read."""
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


class Packing(TypedDict, total=False):
    """Sequences packed end to end into one row, with B = 1. (DataCollatorWithFlattening makes all of these.)"""

    cu_seqlens: Tensor | None  # [sequences + 1], their borders
    cu_seq_lens_q: Tensor | None  # the same
    cu_seq_lens_k: Tensor | None
    seq_idx: Tensor | None  # [1, T], the number of each token's sequence
    max_length_q: int | None  # of a sequence: nothing here needs it
    max_length_k: int | None


Forward = TypeVar("Forward", bound=Callable[..., Any])


def spelled_out(forward: Forward) -> Forward:
    """Show the names in `**options: Unpack[...]` in the signature: Trainer keeps the columns that it finds there."""
    signature = inspect.signature(forward)
    *named, options = signature.parameters.values()
    [kind] = get_args(options.annotation)
    named += [options.replace(name=name, kind=options.KEYWORD_ONLY, default=None) for name in kind.__annotations__]
    forward.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return forward


PACKING = tuple(Packing.__annotations__)
BORDERS = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k")


def read_batch(
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    packing: Packing,
    *,
    learned: bool,
    with_past: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The input [B, T] or [B, T, dim] that is given; its mask [B, T], True for real tokens, None if all are; and the
    borders [sequences + 1] of packed sequences, None if there are none.

    Args:
        attention_mask: [B, T], not 0 for real tokens; `with_past` it may be longer by the tokens before.
        position_ids: [B or 1, T], which begin anew with every packed sequence. (Under torch.compile and torch.export
            the borders have to be given, since values cannot be read.)
        learned: whether the model has learned positions. If not, position_ids may say nothing else.
    """
    name, given, axes = "inputs_embeds", inputs_embeds, "[B, T, dim]"
    if inputs_embeds is None:
        name, given, axes = "input_ids", input_ids, "[B, T]"
    if given is None or (input_ids is not None and inputs_embeds is not None):
        got = "neither input_ids nor inputs_embeds is" if given is None else "input_ids and inputs_embeds are"
        raise ValueError(f"{got} given; expected one of them.")
    if given.dim() != 1 + axes.count(","):
        raise ValueError(f"{name} has shape {tuple(given.shape)}; expected {axes}.")
    mask = None if attention_mask is None else _real_tokens(attention_mask, given, with_past)
    return given, mask, _packed_sequences(given, mask, packing, position_ids, learned)


def _real_tokens(attention_mask: Tensor, given: Tensor, with_past: bool) -> Tensor | None:
    B, T = given.shape[:2]
    shape = tuple(attention_mask.shape)
    fits = len(shape) == 2 and shape[0] == B and (shape[1] >= T if with_past else shape[1] == T)
    if not fits:
        raise ValueError(
            f"attention_mask has shape {shape}; expected {(B, T)} = [B, T], not 0 for real tokens: "
            "linear attention has no scores that a mask of pairs could be added to."
        )
    mask = attention_mask[:, shape[1] - T :].bool()
    return None if not is_traced(mask) and mask.all() else mask


def _packed_sequences(
    given: Tensor, mask: Tensor | None, packing: Mapping[str, Any], position_ids: Tensor | None, learned: bool
) -> Tensor | None:
    for name in packing:
        if name not in PACKING:
            raise TypeError(f"forward() got an unexpected keyword argument {name!r}")
    found = {name: packing[name] for name in BORDERS if packing.get(name) is not None}
    if len(found) > 1:
        _check_agreement(found)
    seq_idx = packing.get("seq_idx")
    if not found and seq_idx is not None:
        found = {"seq_idx": _borders("seq_idx", seq_idx, seq_idx.diff(dim=1) != 0)}
    if not found and position_ids is not None:
        found = {"position_ids": _restarts(position_ids, given, mask, learned)}
    name, borders = next(iter(found.items()), ("", None))
    if borders is not None and mask is not None:
        raise ValueError(
            f"attention_mask hides tokens, but {name} is given; expected one of them: pack sequences without padding."
        )
    return borders


def _check_agreement(borders: dict[str, Any]) -> None:
    (name, first), *others = borders.items()
    for other, x in others:
        if x is not first and not is_traced(x) and not torch.equal(x, first):
            raise ValueError(f"{other} is {x.tolist()}, and {name} {first.tolist()}; expected the same borders.")


def _restarts(position_ids: Tensor, given: Tensor, mask: Tensor | None, learned: bool) -> Tensor | None:
    """Borders where position_ids begin anew; None if they count on to the end of every row."""
    B, T = given.shape[:2]
    if position_ids.dim() != 2 or position_ids.shape[0] not in (1, B) or position_ids.shape[1] != T:
        raise ValueError(f"position_ids has shape {tuple(position_ids.shape)}; expected {(B, T)} or {(1, T)}.")
    if is_traced(position_ids):
        if mask is None:
            torch._assert_async(((position_ids == position_ids[:, :1]).sum(1) == 1).all(), UNSEEN)
        return None
    if mask is not None:
        offset = position_ids - mask.cumsum(1)
        first = offset.gather(1, mask.int().argmax(1, keepdim=True))
        if not learned and ((offset != first) & mask).any():
            raise ValueError(UNTOLD)
        return None
    breaks = position_ids.diff(dim=1) != 1
    if not breaks.any():
        return None
    if (position_ids[:, 1:] == position_ids[:, :1])[breaks].all():
        return _borders("position_ids", position_ids.expand(B, T), breaks.expand(B, T - 1))
    if not learned:
        raise ValueError(UNTOLD)
    return None


def _borders(name: str, x: Tensor, breaks: Tensor) -> Tensor | None:
    """Borders [sequences + 1] of one row x [1, T], where `breaks` [1, T - 1] are True."""
    B, T = x.shape
    if B > 1:
        if breaks.any():
            raise ValueError(
                f"{name} packs several sequences into each of {B} rows; expected one row: "
                "flatten the batch to [1, B * T]."
            )
        return None
    inner = breaks[0].nonzero()[:, 0] + 1
    return torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), T)])

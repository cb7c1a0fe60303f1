"""Whether all processes call a model alike: before its first message, or some would wait for ever."""

from typing import Any

import torch
from torch import Tensor, nn

from lion.nn.pieces import Cuttable
from lion.parallel import exchange
from lion.parallel.ranks import Ranks

FACTS = ("tensors", "batch size", "dimensions", "channels", "dtype", "gradients", "training", "autocast")
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
)


def agree(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A hook before a model's forward pass: compares 64 bytes of all processes, and raises on all if they differ."""
    ranks = next((x.piece for x in model.modules() if isinstance(x, Cuttable)), None)
    if not isinstance(ranks, Ranks) or torch.compiler.is_compiling():
        return
    given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    mine = torch.tensor(_facts(model, given), device=given[0].device if given else None)
    rows = mine.new_empty(ranks.size * len(mine))
    exchange.all_gather(rows, mine, group=ranks.group)
    of_all = rows.view(ranks.size, -1).tolist()
    for rank, facts in enumerate(of_all):
        for name, want, got in zip(FACTS, of_all[0], facts, strict=True):
            if got != want:
                raise ValueError(
                    f"{name}: {_words(name, got)} on process {rank} of the sequence, {_words(name, want)} on process "
                    "0; expected the same on all: only the number of tokens may differ."
                )


def _facts(model: nn.Module, given: list[Tensor]) -> list[int]:
    x = given[0] if given else torch.empty(0)
    needs = torch.is_grad_enabled() and (x.requires_grad or any(y.requires_grad for y in model.parameters()))
    autocast = torch.is_autocast_enabled(x.device.type)
    return [
        len(given),
        x.shape[0] if x.dim() else 0,
        x.dim(),
        x.shape[-1] if x.dim() > 2 and x.is_floating_point() else 0,  # the last dimension of tokens is their number
        _number(x.dtype),
        needs,
        model.training,
        1 + _number(torch.get_autocast_dtype(x.device.type)) if autocast else 0,
    ]


def _number(dtype: torch.dtype) -> int:
    return DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)


def _words(name: str, fact: int) -> str:
    if name == "dtype":
        return str(DTYPES[fact]).removeprefix("torch.") if fact < len(DTYPES) else "another"
    if name == "autocast":
        return str(DTYPES[fact - 1]).removeprefix("torch.") if fact else "off"
    return str(bool(fact)) if name in ("gradients", "training") else str(fact)

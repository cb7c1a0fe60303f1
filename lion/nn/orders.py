"""Token orders: the paths along which the tokens of a grid are walked.

Arithmetic on tensors throughout: height and width may be symbols of a graph that torch.export makes for every size.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

ORDER_NORMS = ("joint", "each")


def rows(height: int, width: int) -> Tensor:
    """Row by row, as the tokens come."""
    return torch.arange(height * width)


def _cut(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """x // size and x % size. (ONNX's exporter knows no remainder by a symbol.)"""
    whole = x // size
    return whole, x - whole * size


def columns(height: int, width: int) -> Tensor:
    """Column by column."""
    column, row = _cut(torch.arange(height * width), height)
    return row * width + column


def snake(height: int, width: int) -> Tensor:
    """Row by row, every other one backwards: neighbours on the path are neighbours in the grid."""
    row, column = _cut(torch.arange(height * width), width)
    return row * width + torch.where(row % 2 == 1, width - 1 - column, column)


def transposed_snake(height: int, width: int) -> Tensor:
    """Column by column, every other one backwards."""
    path = snake(width, height)  # of the transposed grid
    column, row = _cut(path, height)
    return row * width + column


ORDERS: dict[str, Callable[[int, int], Tensor]] = {
    "rows": rows,
    "columns": columns,
    "snake": snake,
    "transposed_snake": transposed_snake,
}


def grid_orders(names: Sequence[str], height: int, width: int, *, prefix: int = 0) -> Tensor:
    """[N, prefix + height x width]: tokens that are no part of the grid, as a class token, come first."""
    if torch.compiler.is_compiling():  # a compiler does not look into the cache
        return _paths.__wrapped__(tuple(names), height, width, prefix)
    return _paths(tuple(names), height, width, prefix).clone()  # what is kept is nobody's to change


@functools.lru_cache(maxsize=256)
def _paths(names: tuple[str, ...], height: int, width: int, prefix: int) -> Tensor:
    paths = torch.stack([ORDERS[name](height, width) for name in names]) + prefix
    return torch.cat([torch.arange(prefix).expand(len(names), -1), paths], 1)


def decays_of(log_decay: Any, n: int, heads: int) -> Any:
    """The decays of one of several orders, where each has its own: N * H heads. A pair is of both directions."""
    if log_decay is None or isinstance(log_decay, tuple):
        return log_decay if log_decay is None else tuple(decays_of(x, n, heads) for x in log_decay)
    axis = 0 if log_decay.dim() <= 2 else 2
    return log_decay if log_decay.shape[axis] == heads else log_decay.narrow(axis, n * heads, heads)

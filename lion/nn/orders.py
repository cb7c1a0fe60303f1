"""Token orders: the paths along which the tokens of a grid are walked."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def rows(height: int, width: int) -> Tensor:
    """Row by row, as the tokens come."""
    return torch.arange(height * width)


def columns(height: int, width: int) -> Tensor:
    """Column by column."""
    return rows(height, width).view(height, width).T.flatten()


def snake(height: int, width: int) -> Tensor:
    """Row by row, every other one backwards: neighbours on the path are neighbours in the grid."""
    grid = rows(height, width).view(height, width).clone()
    grid[1::2] = grid[1::2].flip(1)
    return grid.flatten()


def transposed_snake(height: int, width: int) -> Tensor:
    """Column by column, every other one backwards."""
    return columns(height, width)[snake(width, height)]


ORDERS: dict[str, Callable[[int, int], Tensor]] = {
    "rows": rows,
    "columns": columns,
    "snake": snake,
    "transposed_snake": transposed_snake,
}


def grid_orders(names: Sequence[str], height: int, width: int, *, prefix: int = 0) -> Tensor:
    """[N, prefix + height x width]: tokens that are no part of the grid, as a class token, come first."""
    paths = torch.stack([ORDERS[name](height, width) + prefix for name in names])
    return torch.cat([torch.arange(prefix).expand(len(names), -1), paths], 1)

"""Token orders: the paths along which the tokens of a grid are walked."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


def rows(height: int, width: int) -> np.ndarray:
    """Row by row, as the tokens come."""
    return np.arange(height * width)


def columns(height: int, width: int) -> np.ndarray:
    """Column by column."""
    return rows(height, width).reshape(height, width).T.reshape(-1)


def snake(height: int, width: int) -> np.ndarray:
    """Row by row, every other one backwards: neighbours on the path are neighbours in the grid."""
    grid = rows(height, width).reshape(height, width)
    grid[1::2] = grid[1::2, ::-1].copy()
    return grid.reshape(-1)


def transposed_snake(height: int, width: int) -> np.ndarray:
    """Column by column, every other one backwards."""
    return columns(height, width)[snake(width, height)]


ORDERS: dict[str, Callable[[int, int], np.ndarray]] = {
    "rows": rows,
    "columns": columns,
    "snake": snake,
    "transposed_snake": transposed_snake,
}


def grid_orders(names: Sequence[str], height: int, width: int, *, prefix: int = 0) -> Tensor:
    """[N, prefix + height x width]: tokens that are no part of the grid, as a class token, come first."""
    paths = _paths.__wrapped__ if torch.compiler.is_compiling() else _paths  # a compiler does not look into the cache
    return torch.from_numpy(paths(tuple(names), height, width, prefix)).clone()  # what is kept is nobody's to change


@functools.lru_cache(maxsize=256)
def _paths(names: tuple[str, ...], height: int, width: int, prefix: int) -> np.ndarray:
    paths = np.stack([ORDERS[name](height, width) + prefix for name in names])
    return np.concatenate([np.broadcast_to(np.arange(prefix), (len(names), prefix)), paths], 1)

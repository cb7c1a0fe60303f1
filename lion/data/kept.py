"""Files that lion has made itself, of others: whatever is wrong with them, they can be removed, and are made again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lion.files import DamagedFile


@contextlib.contextmanager
def reading_kept(folder: Path) -> Iterator[None]:
    """Any problem is damage, with the same remedy."""
    try:
        yield
    except Exception as problem:
        said = str(problem) if isinstance(problem, DamagedFile) else f"{folder} is damaged ({_brief(problem)})."
        remedy = "" if f"remove {folder}" in said else f" It is made again: remove {folder}."
        raise DamagedFile(said + remedy) from problem


def _brief(problem: Exception) -> str:
    text = " ".join(f"{type(problem).__name__}: {problem}".split())
    return text if len(text) <= 200 else f"{text[:199]}\u2026"


def load_numbers(path: Path, ndim: tuple[int, ...], least: int = 0) -> np.ndarray:
    """Whole numbers from an .npy file, as int64."""
    found = np.load(path)
    if not np.issubdtype(found.dtype, np.integer) or found.ndim not in ndim or (found.size and found.min() < least):
        raise DamagedFile(f"{path} is damaged: it is {found.dtype} {found.shape}, or has numbers below {least}.")
    return found.astype(np.int64)


def check_tokens(tokens: np.ndarray, count: int, path: Path) -> None:
    """That tokens which were just read are in a vocabulary of so many."""
    if tokens.size and int(tokens.max()) >= count:
        raise DamagedFile(
            f"{path} is damaged: it has the token {int(tokens.max())}; expected less than {count}. It is made again: "
            f"remove {path.parent}."
        )

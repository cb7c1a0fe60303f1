"""Files that lion makes from other files and keeps for the next use. A damaged one is made again once it is removed."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lion.data import lion_data_folder
from lion.files import DamagedFile, make_once
from lion.terminal import brief


def cached(
    kind: str, key: Any, write: Callable[[Path], object], *, folder: Path | str | None = None, name: str = ""
) -> Path:
    """The folder of the files that `key` describes; if it does not exist, `write` makes it.

    It is in `folder`, or else in `lion_data_folder() / kind`, and its name is a hash of the key, after `name` if given.
    """
    home = Path(folder).expanduser() if folder is not None else lion_data_folder() / kind
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    found = home / (f"{name}-{digest[:16]}" if name else digest[:32])
    make_once(found, write)
    return found


def stamps(paths: Iterable[Path]) -> list[list[Any]]:
    """The path, size and time of each file: together they tell whether a file has changed."""
    found = ((path, path.stat()) for path in paths)
    return [[str(path.resolve()), status.st_size, status.st_mtime_ns] for path, status in found]


@contextlib.contextmanager
def reading_cache(folder: Path) -> Iterator[None]:
    """Turns any error into DamagedFile, with the remedy: remove the folder."""
    try:
        yield
    except Exception as problem:
        words = " ".join(f"{type(problem).__name__}: {problem}".split())
        said = str(problem) if isinstance(problem, DamagedFile) else f"{folder} is damaged ({brief(words)})."
        remedy = "" if f"remove {folder}" in said else f" It is made again: remove {folder}."
        raise DamagedFile(said + remedy) from problem


def load_numbers(path: Path, ndim: tuple[int, ...], least: int = 0) -> np.ndarray:
    """Whole numbers from an .npy file, as int64."""
    found = np.load(path)
    if not np.issubdtype(found.dtype, np.integer) or found.ndim not in ndim or (found.size and found.min() < least):
        raise DamagedFile(f"{path} is damaged: it is {found.dtype} {found.shape}, or has numbers below {least}.")
    return found.astype(np.int64)


class TokenFile:
    """Base of everything that reads tokens from a cached file, memory-mapped on first use."""

    def _open_tokens(self, path: Path, count: int, vocab_size: int, dtype: str = "uint8") -> None:
        self._file, self._vocab_size, self._dtype = path, vocab_size, np.dtype(dtype)
        self._tokens: np.ndarray | None = None
        got, want = path.stat().st_size, count * self._dtype.itemsize
        if got != want:
            raise DamagedFile(f"{path} is damaged: it has {got:,} bytes; expected {want:,}: remove {path.parent}.")

    @property
    def tokens(self) -> np.ndarray:
        """All tokens, end to end; only those that are used are read from the disk."""
        if self._tokens is None:
            self._tokens = np.memmap(self._file, self._dtype, mode="r")
        return self._tokens

    def intact(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens that were just read, if they are in the vocabulary."""
        if tokens.size and int(tokens.max()) >= self._vocab_size:
            raise DamagedFile(
                f"{self._file} is damaged: it has the token {int(tokens.max())}; expected less than {self._vocab_size}."
                f" It is made again: remove {self._file.parent}."
            )
        return tokens

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_tokens": None}  # a worker process opens the file again

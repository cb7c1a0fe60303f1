"""Digests of data, which tell whether it has changed: of its content, not of names, sizes and times alone."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from torch import Tensor

from lion.progress import progress

BLOCK = 1 << 20
WHOLE = 1 << 30  # a larger array counts by evenly spaced blocks, of so many bytes together
WHOLE_FILES = 1 << 28  # the same for all files of a folder


def digest(*parts: np.ndarray | Tensor | str | None) -> str:
    """The digest of several arrays of any dtype, in their order; an array may be memory-mapped."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if part is None or isinstance(part, str):
            found.update(repr(part).encode())
            continue
        array = part.detach().cpu().contiguous().numpy() if isinstance(part, Tensor) else np.ascontiguousarray(part)
        found.update(f"{array.dtype.str} {array.shape}".encode())
        flat = array.reshape(-1).view(np.uint8)
        for start in _starts(len(flat), WHOLE):
            found.update(flat[start : start + BLOCK].data)
    return found.hexdigest()


def digest_of_files(root: Path, names: Iterable[bytes]) -> str:
    """The digest of the names and sizes of all files, and of the content of as many as `WHOLE_FILES` allows."""
    every = list(names)
    found = hashlib.blake2b(digest_size=16)
    sizes = np.zeros(len(every), np.int64)
    with progress(len(every), "files") as bar:
        bar.describe("looking for changes")
        for index, name in enumerate(every):
            path = os.path.join(os.fsencode(root), name)
            sizes[index] = os.stat(path).st_size
            found.update(name + b"\0")
            bar.advance(1)
    found.update(sizes.data)
    stride = max(1, -(-int(sizes.sum()) // WHOLE_FILES))
    for name in every[::stride]:
        with open(os.path.join(os.fsencode(root), name), "rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    return found.hexdigest()


def _starts(size: int, whole: int) -> Iterable[int]:
    """The first bytes of blocks: one after the other, or evenly spaced."""
    if size <= whole:
        return range(0, size, BLOCK)
    return np.linspace(0, size - BLOCK, whole // BLOCK, dtype=np.int64).tolist()

"""Data: where it is, how to get it, and how to read it (`lion.data.images`, `lion.data.text` and their neighbours)."""

import hashlib
from collections.abc import Sequence

import numpy as np

from lion.data.archives import ARCHIVES, File, collections_of, reading
from lion.data.fetching import (
    CHROMOSOME,
    ENCODER,
    FETCHED,
    MNIST_ZIP,
    REVIEWS,
    SPEECHES,
    SPLICE,
    fetch,
    lion_data_folder,
)

__all__ = [
    "ARCHIVES",
    "CHROMOSOME",
    "ENCODER",
    "FETCHED",
    "MNIST_ZIP",
    "REVIEWS",
    "SPEECHES",
    "SPLICE",
    "File",
    "collections_of",
    "fetch",
    "lion_data_folder",
    "reading",
    "stratified",
]


def stratified(
    labels: np.ndarray, share: float, seed: int, contents: Sequence[bytes] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two parts, the second with this share of every class: at least one, but never the last one. With
    `contents`, what is in which part is decided by them: it hardly changes when there come to be more, and what has the
    same content is in the same part."""
    if contents is not None:
        groups = {content: number for number, content in enumerate(dict.fromkeys(contents))}
        group = np.array([groups[content] for content in contents])
        first = np.unique(group, return_index=True)[1]
        in_order = np.argsort(_drawn(list(groups), seed))
        held = np.isin(group, in_order[_parts(labels[first][in_order], share, None)[1]])
        return np.flatnonzero(~held), np.flatnonzero(held)
    return _parts(labels, share, np.random.default_rng(seed))


def _parts(labels: np.ndarray, share: float, generator: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each class the first ones are held out, or with a generator any."""
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members if generator is None else generator.permutation(members)
        held[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _drawn(contents: Sequence[bytes], seed: int) -> np.ndarray:
    """A number from 0 to 1 for each, the same for the same content."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(content, digest_size=8, key=key).digest() for content in contents)
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64) / 2.0**64

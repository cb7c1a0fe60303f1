"""Splits of labelled examples, with the same share of every class in each part."""

import hashlib
from collections.abc import Sequence

import numpy as np


def stratified(
    labels: np.ndarray, share: float, seed: int, contents: Sequence[bytes] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of two parts. The second has this share of every class: at least one example, but never all.

    With `contents`, an example's content decides its part: examples of equal content are in the same part, and new
    examples hardly change the parts of the others.
    """
    if contents is None:
        return _parts(labels, share, np.random.default_rng(seed))
    groups = {content: number for number, content in enumerate(dict.fromkeys(contents))}
    group = np.array([groups[content] for content in contents])
    first = np.unique(group, return_index=True)[1]
    in_order = np.argsort([uniform(content, seed) for content in groups])
    held = np.isin(group, in_order[_parts(labels[first][in_order], share, None)[1]])
    return np.flatnonzero(~held), np.flatnonzero(held)


def _parts(labels: np.ndarray, share: float, generator: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """The first examples of each class are held out; with a generator, random ones."""
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members if generator is None else generator.permutation(members)
        held[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def uniform(content: bytes, seed: int) -> float:
    """A number from 0 to 1, the same for the same content."""
    digest = hashlib.blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") / 2**64


def digest_of(content: bytes) -> bytes:
    """What stands for a large content in `stratified`."""
    return hashlib.blake2b(content, digest_size=16).digest()

"""Long sequences with labels, cached in files: bytes end to end, of which only those that are used are read."""

import contextlib
import itertools
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
import torch

from lion.configs import checked
from lion.data import digests
from lion.data.batches import Batch, padded_width, split_keys
from lion.data.token_files import TokenFile, cached, load_numbers, reading_cache
from lion.files import DamagedFile, read_json, write_json
from lion.limits import Processes, SomeExamples, Tokens
from lion.machine import processors
from lion.ops.checks import one_of
from lion.progress import progress

SPLITS = ("train", "validation", "test")
LAYOUT = 1  # version of the files and of the rules that make their content
ABOUT = "about.json"
Job = TypeVar("Job")
Done = TypeVar("Done")


class Counts(NamedTuple):
    """The number of examples of each split."""

    train: int
    validation: int
    test: int

    def check(self) -> "Counts":
        for split, count in zip(SPLITS, self, strict=True):
            checked(SomeExamples, count, f"the count of {split}")
        return self


class Rows(NamedTuple):
    """Several sequences, end to end."""

    tokens: np.ndarray  # uint8 [sum of lengths]
    lengths: np.ndarray  # [N], or [N, 2] for pairs
    labels: np.ndarray  # uint8 [N]

    def part(self, begin: int, end: int) -> "Rows":
        """Sequences begin to end; not for pairs."""
        first, last = self.lengths[:begin].sum(), self.lengths[:end].sum()
        return Rows(self.tokens[first:last], self.lengths[begin:end], self.labels[begin:end])


# Writing.


def in_order(
    work: Callable[[Job], Done], jobs: Iterable[Job], processes: int | None = None
) -> Generator[Done, None, None]:
    """The results of jobs, in their order, from so many processes (by default one per processor)."""
    processes = processors() if processes is None else processes
    checked(Processes, processes, "processes")
    if processes == 1:
        yield from map(work, jobs)
        return
    # With "spawn", every process would run the user's script again.
    method = "fork" if sys.platform == "linux" else None
    ahead: deque[Any] = deque()
    with ProcessPoolExecutor(processes, multiprocessing.get_context(method)) as pool:
        try:
            for job in jobs:  # may be infinite
                ahead.append(pool.submit(work, job))
                if len(ahead) > 2 * processes:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for left in ahead:
                left.cancel()


def kept(name: str, key: Any, write: Callable[[Path], object]) -> Path:
    """The folder of the sequences that `key` describes; if it does not exist, `write` makes it."""
    return cached("long_range", [LAYOUT, key], write, name=name)


class SequenceWriter(contextlib.AbstractContextManager["SequenceWriter"]):
    """Adds rows to the files of a folder. Only their lengths and labels stay in memory."""

    def __init__(self, folder: Path, about: Any):
        self.folder, self.about = folder, about
        self.files: dict[str, BinaryIO] = {}
        self.lengths: dict[str, list[np.ndarray]] = {}
        self.labels: dict[str, list[np.ndarray]] = {}

    def add(self, split: str, rows: Rows) -> None:
        if split not in self.files:
            self.files[split] = (self.folder / f"{split}.tokens").open("wb")
            self.lengths[split], self.labels[split] = [], []
        self.files[split].write(np.ascontiguousarray(rows.tokens, np.uint8).data)
        self.lengths[split].append(rows.lengths)
        self.labels[split].append(rows.labels)

    def __exit__(self, kind: object, *_: object) -> None:
        for file in self.files.values():
            file.close()
        if kind is None:
            for split, lengths in self.lengths.items():
                np.save(self.folder / f"{split}.lengths.npy", np.concatenate(lengths).astype(np.int32))
                np.save(self.folder / f"{split}.labels.npy", np.concatenate(self.labels[split]).astype(np.uint8))
            write_json(self.folder / ABOUT, self.about)


def write_drawn(folder: Path, what: str, batches: Iterator[Rows], rules: Any, counts: Counts, seed: int) -> None:
    """Write drawn rows until each split has its count.

    The test split comes first, so that it is the same for any number of training examples.
    """
    about = {"rules": asdict(rules), "counts": counts._asdict(), "seed": seed}
    with SequenceWriter(folder, about) as writer, progress(sum(counts), "examples") as bar:
        bar.describe(what)
        rows, at = next(batches), 0
        for split in reversed(SPLITS):
            missing = getattr(counts, split)
            while missing:
                if at == len(rows.labels):
                    rows, at = next(batches), 0
                count = min(missing, len(rows.labels) - at)
                writer.add(split, rows.part(at, at + count))
                bar.advance(count)
                missing, at = missing - count, at + count


def joined(sequences: Iterable[bytes], labels: Iterable[int], per_example: int = 1) -> Rows:
    """Sequences with their labels; a pair (per_example=2) has one label."""
    every = list(sequences)
    lengths = np.array([len(x) for x in every], np.int64)
    tokens = np.frombuffer(b"".join(every), np.uint8)
    found = np.array(list(labels), np.uint8)
    return Rows(tokens, lengths.reshape(-1, per_example) if per_example > 1 else lengths, found)


def bunches(items: Iterable[Done], size: int) -> Iterator[list[Done]]:
    rest = iter(items)
    while bunch := list(itertools.islice(rest, size)):
        yield bunch


# Reading.


class Kind(NamedTuple):
    """The meaning of a file's bytes."""

    classes: int
    max_length: int
    vocab_size: int | None = None  # of tokens, where 0 is padding; None: bytes are numbers
    first: int = 0  # the token of the byte 0
    mean: float = 0.5  # of numbers in 0..1
    std: float = 0.5


class Sequences(TokenFile):
    """Sequences of tokens or numbers, or pairs of them, with labels, for lion's training loop."""

    def __init__(self, folder: Path, split: str, kind: Kind):
        one_of("split", split, SPLITS)
        checked(Tokens, kind.max_length, "max_length")
        self.folder, self.split = folder, split
        self.kind, self.classes, self.max_length, self.vocab_size = kind, kind.classes, kind.max_length, kind.vocab_size
        with reading_cache(folder):
            self._open()

    def _open(self) -> None:
        folder, split = self.folder, self.split
        self.about = read_json(folder / ABOUT)
        labels = load_numbers(folder / f"{split}.labels.npy", (1,))
        if labels.max(initial=0) >= self.classes:
            raise DamagedFile(f"{folder} is damaged: {split} has the label {labels.max()} of {self.classes} classes.")
        self.labels = torch.from_numpy(labels)
        self.lengths = load_numbers(folder / f"{split}.lengths.npy", (1, 2))  # [N], or [N, 2] for pairs
        self.starts = (np.cumsum(self.lengths) - self.lengths.ravel()).reshape(self.lengths.shape)
        if not 0 < len(labels) == len(self.lengths) or (self.starts < 0).any():
            raise DamagedFile(f"{folder} is damaged: {split} has {len(labels)} labels, not one for each sequence.")
        vocabulary = 256 if self.vocab_size is None else self.vocab_size - self.kind.first
        self._open_tokens(folder / f"{split}.tokens", int(self.lengths.sum()), vocabulary)
        self.ragged = bool((self.lengths != self.lengths.flat[0]).any()) or self.lengths.ndim > 1

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        return digests.digest(self.tokens, self.lengths, self.labels)

    def row(self, index: int) -> list[np.ndarray]:
        """The bytes of an example, at most `max_length`: one sequence, or two for pairs."""
        lengths = np.minimum(self.lengths[index], self.max_length)
        pieces = zip(np.atleast_1d(self.starts[index]), np.atleast_1d(lengths), strict=True)
        return [np.array(self.tokens[begin : begin + length]) for begin, length in pieces]

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], or for numbers `values` [B, T]; [B, 2, T] for pairs; `label` [B].

        Sequences of different lengths are padded with 0 to a multiple of 8, or to `max_length` if that is less, and
        have a `mask`, True for tokens.
        """
        _, indices = split_keys(keys)
        lengths = np.minimum(self.lengths[indices], self.max_length)[..., None]
        longest = int(lengths.max())
        place = np.arange(padded_width(longest, self.max_length) if self.ragged else longest)
        mask = place < lengths
        found = np.asarray(self.tokens[np.where(mask, self.starts[indices][..., None] + place, 0)])
        batch = {"label": self.labels[torch.from_numpy(indices)]}
        if self.kind.vocab_size is None:
            numbers = torch.from_numpy(found).float().div_(255)
            batch["values"] = numbers.sub_(self.kind.mean).div_(self.kind.std)
        else:
            self.intact(found[mask])
            batch["input_ids"] = torch.from_numpy(np.where(mask, found.astype(np.int64) + self.kind.first, 0))
        if self.ragged:
            batch["mask"] = torch.from_numpy(mask)
        return batch

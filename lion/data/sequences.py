"""Long sequences with labels, kept in files that are made once: bytes end to end, read where they are looked at."""

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
import torch

from lion.configs import checked
from lion.data import content, lion_data_folder
from lion.data.batches import Batch, padded_width, split_keys
from lion.data.kept import check_tokens, load_numbers, reading_kept
from lion.files import DamagedFile, make_once, read_json, write_json
from lion.limits import Processes, SomeExamples, Tokens
from lion.ops.checks import one_of
from lion.progress import Bar

SPLITS = ("train", "validation", "test")
LAYOUT = 1  # of the files, and of how what is in them is made
ABOUT = "about.json"
Job = TypeVar("Job")
Done = TypeVar("Done")


class Counts(NamedTuple):
    """How many examples each part has."""

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
    lengths: np.ndarray  # [N]; of pairs [N, 2]
    labels: np.ndarray  # uint8 [N]

    def part(self, begin: int, end: int) -> "Rows":
        """Some of them; not for pairs."""
        first, last = self.lengths[:begin].sum(), self.lengths[:end].sum()
        return Rows(self.tokens[first:last], self.lengths[begin:end], self.labels[begin:end])


# Making them.


def in_order(
    work: Callable[[Job], Done], jobs: Iterable[Job], processes: int | None = None
) -> Generator[Done, None, None]:
    """What becomes of each job, in their order, by so many processes (as many as there are processors)."""
    processes = processors() if processes is None else processes
    checked(Processes, processes, "processes")
    if processes == 1:
        yield from map(work, jobs)
        return
    # A script that is started again in every process, as elsewhere, would have to be written for that.
    method = "fork" if sys.platform == "linux" else None
    ahead: deque[Any] = deque()
    with ProcessPoolExecutor(processes, multiprocessing.get_context(method)) as pool:
        try:
            for job in jobs:  # which may be without end
                ahead.append(pool.submit(work, job))
                if len(ahead) > 2 * processes:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for left in ahead:
                left.cancel()


def processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kept(name: str, key: Any, write: Callable[[Path], object]) -> Path:
    """The folder for what `key` describes, in `lion_data_folder() / "long_range"`; if need be, `write` makes it."""
    digest = hashlib.sha256(json.dumps([LAYOUT, key]).encode()).hexdigest()[:16]
    folder = lion_data_folder() / "long_range" / f"{name}-{digest}"
    make_once(folder, write)
    return folder


class SequenceWriter(contextlib.AbstractContextManager["SequenceWriter"]):
    """Adds rows to the files of a folder. Nothing but their lengths and labels is kept in memory."""

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


def fill(writer: SequenceWriter, counts: Counts, batches: Iterator[Rows], bar: Bar) -> None:
    """Put rows into the parts until each has as many as it is to have.

    That for testing comes first, so that it is the same for any number of training examples.
    """
    rows = next(batches)
    at = 0
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
    """Sequences with their labels; of pairs, both with one."""
    every = list(sequences)
    lengths = np.array([len(x) for x in every], np.int64)
    tokens = np.frombuffer(b"".join(every), np.uint8)
    found = np.array(list(labels), np.uint8)
    return Rows(tokens, lengths.reshape(-1, per_example) if per_example > 1 else lengths, found)


def bunches(items: Iterable[Done], size: int) -> Iterator[list[Done]]:
    rest = iter(items)
    while bunch := list(itertools.islice(rest, size)):
        yield bunch


# Learning from them.


class Kind(NamedTuple):
    """What the bytes of a file are."""

    classes: int
    max_length: int
    vocab_size: int | None = None  # with 0 for padding; None: they are numbers
    first: int = 0  # the token that the byte 0 is
    mean: float = 0.5  # of numbers in 0..1
    std: float = 0.5


class Sequences:
    """Sequences of tokens or numbers, or pairs of them, with labels, for lion's training loop."""

    def __init__(self, folder: Path, split: str, kind: Kind):
        one_of("split", split, SPLITS)
        checked(Tokens, kind.max_length, "max_length")
        self.folder, self.split = folder, split
        self.kind, self.classes, self.max_length, self.vocab_size = kind, kind.classes, kind.max_length, kind.vocab_size
        self._tokens: np.ndarray | None = None
        with reading_kept(folder):
            self._open()

    def _open(self) -> None:
        folder, split = self.folder, self.split
        self.about = read_json(folder / ABOUT)
        labels = load_numbers(folder / f"{split}.labels.npy", (1,))
        if labels.max(initial=0) >= self.classes:
            raise DamagedFile(f"{folder} is damaged: {split} has the label {labels.max()} of {self.classes} classes.")
        self.labels = torch.from_numpy(labels)
        self.lengths = load_numbers(folder / f"{split}.lengths.npy", (1, 2))  # [N], of pairs [N, 2]
        self.starts = (np.cumsum(self.lengths) - self.lengths.ravel()).reshape(self.lengths.shape)
        got, want = self._file.stat().st_size, int(self.lengths.sum())
        if got != want or len(self.labels) != len(self.lengths) or not len(self.labels) or (self.starts < 0).any():
            raise DamagedFile(f"{self._file} is damaged: it has {got:,} bytes; expected {want:,}: remove {folder}.")
        self.ragged = bool((self.lengths != self.lengths.flat[0]).any()) or self.lengths.ndim > 1

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.split}.tokens"

    @property
    def tokens(self) -> np.ndarray:
        """All of them, end to end, as they are in the file; only what is looked at is read."""
        if self._tokens is None:
            self._tokens = np.memmap(self._file, np.uint8, mode="r")
        return self._tokens

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_tokens": None}  # a worker opens the file by itself

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """Of the sequences and labels: others have another."""
        return content.digest(self.tokens, self.lengths, self.labels)

    def row(self, index: int) -> list[np.ndarray]:
        """The bytes of an example, as many as are read: one sequence, or two."""
        lengths = np.minimum(self.lengths[index], self.max_length)
        pieces = zip(np.atleast_1d(self.starts[index]), np.atleast_1d(lengths), strict=True)
        return [np.array(self.tokens[begin : begin + length]) for begin, length in pieces]

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], or `values` [B, T], numbers; `label` [B]. Of pairs [B, 2, T].

        Sequences that differ in length are padded with 0 to a multiple of 8, or to `max_length` if that is less, and
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
            check_tokens(found[mask], self.kind.vocab_size - self.kind.first, self._file)
            batch["input_ids"] = torch.from_numpy(np.where(mask, found.astype(np.int64) + self.kind.first, 0))
        if self.ragged:
            batch["mask"] = torch.from_numpy(mask)
        return batch

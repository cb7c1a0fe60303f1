"""Text corpora packed into blocks of tokens: for masked language modelling, for causal models, and as passages."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from lion.configs import checked
from lion.data import digests
from lion.data.augment import draws
from lion.data.batches import IGNORED, Batch, masked, padded_width, split_keys
from lion.data.corpora import Documents, as_documents
from lion.data.splits import uniform
from lion.data.token_files import TokenFile, cached, reading_cache
from lion.data.tokenizers import TextTokenizer
from lion.files import DamagedFile, read_json, write_json
from lion.limits import ShareBelowOne, SomeShare, SomeTokens
from lion.ops.checks import one_of
from lion.progress import progress

SPLITS = ("train", "validation")
LAYOUT = 1  # version of the files of packed tokens
DTYPES = ("uint16", "uint32")  # of tokens
ABOUT = "about.json"
AT_ONCE = 1 << 21  # characters tokenised at a time


class PackedTokens(TokenFile):
    """A corpus as one row of tokens, with [SEP] (or the end-of-text token) after each document, in blocks of `length`.

    Every block starts with [CLS], if the tokenizer has it. The tokens are cached in files, under a hash of the
    documents, the tokenizer and the split.

    Args:
        documents: `lion.data.corpora.documents(...)`, or texts.
        split: "train" or "validation". A document's split depends on its text and `seed`: copies are in the same one.
        holdout: the share of the documents that are for validation.
        folder: the folder of the cache; by default `lion_data_folder() / "tokens"`.
    """

    def __init__(
        self,
        documents: Documents | Iterable[str],
        tokenizer: TextTokenizer,
        length: int,
        *,
        split: str = "train",
        holdout: float = 0.05,
        seed: int = 0,
        folder: Path | str | None = None,
    ):
        one_of("split", split, SPLITS)
        checked(ShareBelowOne, holdout, "holdout")
        checked(SomeTokens, length, "length")
        source = as_documents(documents)
        self.tokenizer, self.length, self.split = tokenizer, length, split
        self.start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
        self.stride = length - len(self.start)  # tokens of the corpus in a block
        key = [LAYOUT, source.key, tokenizer.fingerprint, holdout, seed]

        def write(unfinished: Path) -> None:
            _pack(unfinished, source, tokenizer, holdout, seed)

        self.folder = cached("tokens", key, write, folder=folder)
        with reading_cache(self.folder):
            about = read_json(self.folder / ABOUT)
            self.document_count, self.token_count = (int(about[x][split]) for x in ("documents", "tokens"))
            every = sum(int(x) for x in about["documents"].values())
            if about["dtype"] not in DTYPES:
                raise DamagedFile(f"{self.folder / ABOUT} is damaged: its dtype is {about['dtype']!r:.40}.")
            path = self.folder / f"{split}.bin"
            self._open_tokens(path, self.token_count, tokenizer.vocab_size, about["dtype"])
        if not len(self):
            more = {
                "train": "add text, or take a smaller length",
                "validation": "set holdout higher, or cut the corpus into more documents",
            }[split]
            raise ValueError(
                f"{split} has {self.document_count} of {every} documents (holdout is {holdout}), with "
                f"{self.token_count} tokens; expected at least {self.stride}, for one block: {more}."
            )

    def __len__(self) -> int:
        return self.token_count // self.stride

    def digest(self) -> str:
        return digests.digest(self.tokens)

    def blocks(self, indices: np.ndarray) -> np.ndarray:
        """The tokens of blocks, int64 [B, length]."""
        found = self.intact(self.tokens[indices[:, None] * self.stride + np.arange(self.stride)])
        starts = np.broadcast_to(np.array(self.start, np.int64), (len(found), len(self.start)))
        return np.concatenate([starts, found.astype(np.int64)], 1)

    def following(self, indices: np.ndarray) -> np.ndarray:
        """The token after each block [B]; `IGNORED` after the last one of the corpus."""
        places = (indices + 1) * self.stride
        inside = places < self.token_count
        return np.where(inside, self.intact(self.tokens[places * inside]).astype(np.int64), IGNORED)


def _pack(folder: Path, source: Documents, tokenizer: TextTokenizer, holdout: float, seed: int) -> None:
    dtype = np.dtype(DTYPES[0] if tokenizer.vocab_size <= 1 << 16 else DTYPES[1])
    end = tokenizer.sep_id if tokenizer.sep_id is not None else tokenizer.eos_id
    ends = [] if end is None else [end]
    counts = {"documents": dict.fromkeys(SPLITS, 0), "tokens": dict.fromkeys(SPLITS, 0)}
    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {x: stack.enter_context((folder / f"{x}.bin").open("wb")) for x in SPLITS}
        bar = stack.enter_context(progress(source.size, "B"))
        bar.describe("tokens")
        for texts in _bunches(source):
            for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
                split = SPLITS[uniform(text.encode(), seed) < holdout]
                files[split].write(np.array([*ids, *ends], dtype).tobytes())
                counts["documents"][split] += 1
                counts["tokens"][split] += len(ids) + len(ends)
            bar.advance(sum(map(len, texts)))
    about = {"source": source.name, "tokenizer": tokenizer.fingerprint, "holdout": holdout, "seed": seed}
    write_json(folder / ABOUT, about | {"dtype": dtype.name, **counts})


def _bunches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Many texts at once, for a tokenizer that uses all cores."""
    bunch: list[str] = []
    size = 0
    for text in texts:
        bunch.append(text)
        size += len(text)
        if size >= AT_ONCE:
            yield bunch
            bunch, size = [], 0
    if bunch:
        yield bunch


class _OfPacked:
    """A dataset whose examples are the blocks of a packed corpus."""

    packed: PackedTokens

    def __len__(self) -> int:
        return len(self.packed)

    def digest(self) -> str:
        return self.packed.digest()


class MaskedTokens(_OfPacked):
    """Blocks for masked language modelling. Of all tokens but the special ones, a share of `rate` are targets: 80 % of
    them become [MASK], 10 % another token, 10 % stay. In validation, every epoch has the same targets."""

    def __init__(self, packed: PackedTokens, rate: float, seed: int):
        checked(SomeShare, rate, "rate")
        tokenizer = packed.tokenizer
        if tokenizer.mask_id is None:
            raise ValueError("the tokenizer has no [MASK]; expected one that does, such as train_wordpiece makes.")
        self.packed, self.rate, self.seed, self.mask_id = packed, rate, seed, tokenizer.mask_id
        self.special = np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self.ordinary = np.flatnonzero(~self.special)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]; the label of a token that is not a target is -100."""
        epochs, indices = split_keys(keys)
        tokens = self.packed.blocks(indices)
        epochs = epochs * (self.packed.split == "train")
        numbers = draws(self.seed, epochs, indices, count=self.packed.length) / self.rate  # [B, length]
        return masked(tokens, numbers, ~self.special[tokens], self.mask_id, self.ordinary)


class NextTokens(_OfPacked):
    """Blocks for causal models, with the next token of each token."""

    def __init__(self, packed: PackedTokens):
        self.packed = packed

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]: labels[:, t] is the token after input_ids[:, t], already shifted; -100
        at the end of the corpus."""
        _, indices = split_keys(keys)
        tokens = self.packed.blocks(indices)
        labels = np.concatenate([tokens[:, 1:], self.packed.following(indices)[:, None]], 1)
        return {"input_ids": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}


class Passages(_OfPacked):
    """The documents of a corpus one by one, [CLS] ... [SEP]; documents longer than `packed.length` are cut."""

    def __init__(self, packed: PackedTokens):
        tokenizer = packed.tokenizer
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise ValueError("the tokenizer has no [CLS] and [SEP]; expected both, as BERT's have.")
        if packed.length < 3:
            raise ValueError(f"length is {packed.length}; expected at least 3: [CLS], a token and [SEP].")
        self.packed, self.room = packed, packed.length - 2
        self.cls_id, self.sep_id, self.pad_id = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id or 0
        ends = np.flatnonzero(packed.tokens == tokenizer.sep_id)
        if not len(ends):
            raise DamagedFile(f"{packed.folder} is damaged: no document has an end. It is made again: remove it.")
        begins = np.concatenate([[0], ends[:-1] + 1])
        pieces = -(-(ends - begins) // self.room)
        of = np.repeat(np.arange(len(ends)), pieces)  # the document of each passage
        within = np.arange(len(of)) - (np.cumsum(pieces) - pieces)[of]
        self.begins = begins[of] + within * self.room
        self.lengths = np.minimum(ends[of] - self.begins, self.room)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `length` if that is less; `mask` [B, T], True for
        tokens."""
        _, indices = split_keys(keys)
        lengths = self.lengths[indices][:, None]
        place = np.arange(padded_width(int(lengths.max()) + 2, self.packed.length)) - 1  # within the passage
        inside = (place >= 0) & (place < lengths)
        ids = self.packed.tokens[np.where(inside, self.begins[indices][:, None] + place, 0)].astype(np.int64)
        self.packed.intact(ids[inside])
        ids = np.select([inside, place < 0, place == lengths], [ids, self.cls_id, self.sep_id], self.pad_id)
        return {"input_ids": torch.from_numpy(ids), "mask": torch.from_numpy(place <= lengths)}

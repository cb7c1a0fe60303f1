"""What models of text learn from: a corpus packed into blocks of tokens, hidden tokens, next tokens, labelled texts."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from lion.configs import checked
from lion.data import content, lion_data_folder
from lion.data.augment import draws
from lion.data.batches import IGNORED, Batch, padded_width, split_keys
from lion.data.corpora import Documents, as_documents
from lion.data.kept import check_tokens, reading_kept
from lion.data.tables import Text
from lion.data.tokenizers import TextTokenizer
from lion.files import DamagedFile, make_once, read_json, write_json
from lion.limits import SomeTokens
from lion.ops.checks import one_of
from lion.progress import progress

SPLITS = ("train", "validation")
LAYOUT = 1  # of the files of packed tokens
DTYPES = ("uint16", "uint32")  # of tokens
ABOUT = "about.json"
AT_ONCE = 1 << 21  # characters tokenised at a time
MASKED, RANDOM = 0.8, 0.1  # shares of BERT's targets; the others stay


class PackedTokens:
    """A corpus as one row of tokens, each document ended by [SEP] (or what ends one), cut into blocks of `length`.

    Every block starts with [CLS], if the tokenizer has that. The tokens are kept in files, in a folder named by a hash
    of the documents, the tokenizer and the split, so that a second use is at once; they are not read into memory.

    Args:
        documents: `lion.data.corpora.documents(...)`, or texts.
        split: "train" or "validation". Which one a document is in depends on its text and `seed`: copies are together.
        holdout: the share of the documents that are for validation.
        folder: where tokens are kept; by default `lion_data_folder() / "tokens"`.
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
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout is {holdout}; expected a share from 0, for none, to less than 1.")
        checked(SomeTokens, length, "length")
        source = as_documents(documents)
        self.tokenizer, self.length, self.split = tokenizer, length, split
        self.start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
        key = json.dumps([LAYOUT, source.key, tokenizer.fingerprint, holdout, seed])
        home = Path(folder).expanduser() if folder is not None else lion_data_folder() / "tokens"
        self.folder = home / hashlib.sha256(key.encode()).hexdigest()[:32]
        make_once(self.folder, lambda unfinished: _pack(unfinished, source, tokenizer, holdout, seed))
        self._tokens: np.ndarray | None = None
        with reading_kept(self.folder):
            every = self._open()
        self._check(every, holdout)

    def _open(self) -> int:
        """How many documents both splits have."""
        about = read_json(self.folder / ABOUT)
        self.document_count, self.token_count = (int(about[x][self.split]) for x in ("documents", "tokens"))
        if about["dtype"] not in DTYPES:
            raise DamagedFile(f"{self.folder / ABOUT} is damaged: its dtype is {about['dtype']!r:.40}.")
        self.dtype = np.dtype(about["dtype"])
        got, want = self._file.stat().st_size, self.token_count * self.dtype.itemsize
        if got != want:
            raise DamagedFile(
                f"{self._file} is damaged: it has {got:,} bytes; expected {want:,}: remove {self.folder}."
            )
        return sum(int(x) for x in about["documents"].values())

    def _check(self, every: int, holdout: float) -> None:
        if not len(self):
            more = {
                "train": "add text, or take a smaller length",
                "validation": "set holdout higher, or cut the corpus into more documents",
            }[self.split]
            raise ValueError(
                f"{self.split} has {self.document_count} of {every} documents (holdout is {holdout}), with "
                f"{self.token_count} tokens; expected at least {self._stride}, for one block: {more}."
            )

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.split}.bin"

    @property
    def _stride(self) -> int:
        return self.length - len(self.start)

    @property
    def tokens(self) -> np.ndarray:
        """All of them, end to end [token_count]; only what is looked at is read."""
        if self._tokens is None:
            self._tokens = np.memmap(self._file, self.dtype, mode="r")
        return self._tokens

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_tokens": None}  # a worker opens the file by itself

    def __len__(self) -> int:
        return self.token_count // self._stride

    def digest(self) -> str:
        """Of the tokens: others have another."""
        return content.digest(self.tokens)

    def blocks(self, indices: np.ndarray) -> np.ndarray:
        """Their tokens [B, length]."""
        found = self.tokens[indices[:, None] * self._stride + np.arange(self._stride)].astype(np.int64)
        check_tokens(found, self.tokenizer.vocab_size, self._file)
        return np.concatenate(
            [np.broadcast_to(np.array(self.start, np.int64), (len(found), len(self.start))), found], 1
        )

    def following(self, indices: np.ndarray) -> np.ndarray:
        """The token after each block [B]; after the very last, `IGNORED`."""
        places = (indices + 1) * self._stride
        inside = places < self.token_count
        check_tokens(self.tokens[places * inside], self.tokenizer.vocab_size, self._file)
        return np.where(inside, self.tokens[places * inside].astype(np.int64), IGNORED)


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
                split = SPLITS[_share(text, seed) < holdout]
                files[split].write(np.array([*ids, *ends], dtype).tobytes())
                counts["documents"][split] += 1
                counts["tokens"][split] += len(ids) + len(ends)
            bar.advance(sum(map(len, texts)))
    about = {"source": source.name, "tokenizer": tokenizer.fingerprint, "holdout": holdout, "seed": seed}
    write_json(folder / ABOUT, about | {"dtype": dtype.name, **counts})


def _bunches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Many at once, for a tokenizer that uses all cores."""
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


def _share(text: str, seed: int) -> float:
    """Of all texts, evenly from 0 to 1."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode())
    return int.from_bytes(digest.digest(), "big") / 2**64


class MaskedTokens:
    """Blocks with hidden tokens, as BERT learns from. Of the tokens a share of `rate` is to be predicted: of those 80 %
    are [MASK] instead, 10 % another token, 10 % as they are. Special tokens stay. In validation every epoch has the
    same ones."""

    def __init__(self, packed: PackedTokens, rate: float, seed: int):
        if not 0 < rate <= 1:
            raise ValueError(f"rate is {rate}; expected a share of the tokens, above 0 and at most 1.")
        tokenizer = packed.tokenizer
        if tokenizer.mask_id is None:
            raise ValueError("the tokenizer has no [MASK]; expected one that does, such as train_wordpiece makes.")
        self.packed, self.rate, self.seed, self.mask_id = packed, rate, seed, tokenizer.mask_id
        self.special = np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self.ordinary = np.flatnonzero(~self.special)

    def __len__(self) -> int:
        return len(self.packed)

    def digest(self) -> str:
        return self.packed.digest()

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]; the labels of tokens that are not to be predicted are -100."""
        epochs, indices = split_keys(keys)
        tokens = self.packed.blocks(indices)
        if self.packed.split == "validation":
            epochs = np.zeros_like(epochs)
        # One number decides it all: below rate the token is a target, and where below that, what becomes of it.
        numbers = draws(self.seed, epochs, indices, count=self.packed.length) / self.rate  # [B, length]
        target = (numbers < 1) & ~self.special[tokens]
        choice = ((numbers - MASKED) / RANDOM * len(self.ordinary)).astype(np.int64)
        at_random = self.ordinary[choice.clip(0, len(self.ordinary) - 1)]
        changed = np.select([numbers < MASKED, numbers < MASKED + RANDOM], [np.int64(self.mask_id), at_random], tokens)
        return {
            "input_ids": torch.from_numpy(np.where(target, changed, tokens)),
            "labels": torch.from_numpy(np.where(target, tokens, IGNORED)),
        }


class NextTokens:
    """Blocks and, for each of their tokens, the one that follows, for causal models."""

    def __init__(self, packed: PackedTokens):
        self.packed = packed

    def __len__(self) -> int:
        return len(self.packed)

    def digest(self) -> str:
        return self.packed.digest()

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` and `labels` [B, length]: labels[:, t] is the token after input_ids[:, t], so nothing is to be
        shifted any more; -100 where the corpus ends."""
        _, indices = split_keys(keys)
        tokens = self.packed.blocks(indices)
        labels = np.concatenate([tokens[:, 1:], self.packed.following(indices)[:, None]], 1)
        return {"input_ids": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}


class Passages:
    """The documents of a corpus one by one, [CLS] ... [SEP]; what is longer than `packed.length` in several pieces."""

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

    def digest(self) -> str:
        return self.packed.digest()

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `length` if that is less; `mask` [B, T], True for
        tokens."""
        _, indices = split_keys(keys)
        lengths = self.lengths[indices][:, None]
        place = np.arange(padded_width(int(lengths.max()) + 2, self.packed.length)) - 1  # within the passage
        inside = (place >= 0) & (place < lengths)
        ids = self.packed.tokens[np.where(inside, self.begins[indices][:, None] + place, 0)].astype(np.int64)
        check_tokens(ids[inside], self.packed.tokenizer.vocab_size, self.packed._file)
        ids = np.select([inside, place < 0, place == lengths], [ids, self.cls_id, self.sep_id], self.pad_id)
        return {"input_ids": torch.from_numpy(ids), "mask": torch.from_numpy(place <= lengths)}


class LabelledTexts:
    """Texts or pairs of them, with labels: classes if they are whole numbers, or numbers to be predicted."""

    def __init__(
        self,
        texts: Sequence[Text],
        labels: Sequence[int] | Sequence[float] | np.ndarray,
        tokenizer: TextTokenizer,
        max_length: int,
    ):
        if len(texts) != len(labels) or not len(texts):
            raise ValueError(f"there are {len(texts)} texts and {len(labels)} labels; expected one label per text.")
        pairs = [text for text in texts if not isinstance(text, str)]
        if pairs and len(pairs) != len(texts):
            raise ValueError(f"{len(pairs)} of {len(texts)} texts are pairs; expected all or none.")
        self.max_length = max_length
        self.pad_id = next((x for x in (tokenizer.pad_id, tokenizer.eos_id) if x is not None), 0)
        types: list[list[int]] | None = None
        if pairs:
            both = tokenizer.encode_pairs(pairs, max_length=max_length)
            encoded, types = [ids for ids, _ in both], [kinds for _, kinds in both]
        else:
            encoded = tokenizer.encode([x for x in texts if isinstance(x, str)], specials=True, max_length=max_length)
        # Not lists: every worker would copy those, page by page, only by counting its references to them.
        self.ends = np.cumsum([len(ids) for ids in encoded])
        self.ids = np.concatenate([np.array(ids, np.int32) for ids in encoded])
        self.types = None if types is None else np.concatenate([np.array(kinds, np.int8) for kinds in types])
        numbers = np.asarray(labels)
        whole = np.issubdtype(numbers.dtype, np.integer)
        self.labels = torch.from_numpy(numbers.astype(np.int64 if whole else np.float32))

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """Of the tokens and labels: others have another."""
        return content.digest(self.ids, self.ends, self.types, self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`input_ids` [B, T], padded to a multiple of 8, or to `max_length` if that is less; `mask` [B, T], True for
        tokens; `label` [B]; for pairs `token_type_ids` [B, T], 0 for the first text and 1 for the second."""
        _, indices = split_keys(keys)
        starts = np.where(indices > 0, self.ends[indices - 1], 0)
        lengths = self.ends[indices] - starts
        width = padded_width(int(lengths.max()), self.max_length)
        mask = np.arange(width) < lengths[:, None]  # [B, T]
        places = np.where(mask, starts[:, None] + np.arange(width), 0)
        batch = {
            "input_ids": torch.from_numpy(np.where(mask, self.ids[places], self.pad_id).astype(np.int64)),
            "mask": torch.from_numpy(mask),
            "label": self.labels[torch.from_numpy(indices)],
        }
        if self.types is not None:
            batch["token_type_ids"] = torch.from_numpy(np.where(mask, self.types[places], 0).astype(np.int64))
        return batch

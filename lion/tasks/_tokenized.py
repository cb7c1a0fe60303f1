"""Tasks that read text: tokenizers, and plain text in blocks of tokens.

Models are those of `lion.integrations.hf`: transformers, too, loads what a run leaves in its folder `model`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lion.data import fetch, lion_data_folder
from lion.data.corpora import NAMED, Documents, as_documents, documents, several
from lion.data.packed import PackedTokens
from lion.data.tokenizers import TOKENIZER, TextTokenizer, load_tokenizer, train_byte_bpe, train_wordpiece
from lion.files import make_once
from lion.limits import Examples as ExampleCount
from lion.limits import ShareBelowOne, Tokens, Vocabulary
from lion.models.causal import CausalConfig
from lion.models.encoder import EncoderConfig
from lion.models.positions import spanning
from lion.progress import working
from lion.tasks import Task, Trained, cached

Model = TypeVar("Model", EncoderConfig, CausalConfig)
TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_bpe}

OF_TOKENIZER = dict.fromkeys(("model.vocab_size", "model.pad_token"), "the tokenizer (--tokenizer, --vocab_size)")


class TokenizedTask(Task):
    tokenizer: str  # a folder or file of one, or "bytes"; "": one is made of the data

    unit = "text"
    makes_tokenizer = True

    def text_tokenizer(self) -> TextTokenizer:
        raise NotImplementedError

    def digests(self) -> dict[str, str]:
        return {"tokenizer": self.text_tokenizer().fingerprint}

    def save_beside(self, folder: Path) -> None:
        self.text_tokenizer().save(folder)

    def using(self, folder: Path) -> Any:
        return replace(self, tokenizer=str(folder))  # type: ignore[type-var]


@dataclass(frozen=True)
class CorpusTask(TokenizedTask):
    """Tasks on plain text."""

    data: str = "english"  # files, patterns, "english" (12 MB of speeches), "imdb"; or hf://owner/name
    per: str = ""  # a document is a "file", a "paragraph" or a "line"; "": a file, or a paragraph if files are few
    column: str = "text"  # the one with the text, in tables
    limit: ExampleCount = 0  # read so many documents, the first ones; 0: all
    tokenizer: str = ""
    vocab_size: Vocabulary = 8192  # tokens of a tokenizer that is made
    length: Tokens = 128  # tokens of an example
    holdout: ShareBelowOne = 0.05  # share of the documents, for the eval set
    test: str = ""  # documents for the eval set, as `data`; of a set on the hub its validation part. "": by `holdout`
    test_limit: ExampleCount = 0  # read so many of them; 0: all

    trainer: ClassVar[str]  # of TRAINERS

    def text_tokenizer(self) -> TextTokenizer:
        if self.tokenizer:
            return load_tokenizer(self.tokenizer)
        return trained_tokenizer(self.trainer, self.documents(), self.vocab_size)

    def documents(self) -> Documents:
        return cached(_documents, self.data, self.per, self.column, self.limit)

    def packed(self, split: str) -> PackedTokens:
        found, tokenizer = self.documents(), self.text_tokenizer()
        if not self.test:
            return PackedTokens(found, tokenizer, self.length, split=split, holdout=self.holdout)
        if split == "validation":
            found = cached(_documents, self.test, self.per, self.column, self.test_limit, split)
        return PackedTokens(found, tokenizer, self.length, holdout=0.0)


def _documents(data: str, per: str, column: str, limit: int, split: str = "train") -> Documents:
    patterns = several(data)
    for name in {*patterns} & {*NAMED}:
        fetch(name)
    source = patterns[0] if len(patterns) == 1 else patterns
    return documents(source, column=column, per=per, limit=limit or None, split=split)


def trained_tokenizer(trainer: str, texts: Documents | Sequence[str], vocab_size: int) -> TextTokenizer:
    """A tokenizer made of the texts, once, and kept beside the other data."""
    source = as_documents(texts)
    key = hashlib.sha256(f"{source.key} {trainer} {vocab_size}".encode()).hexdigest()[:32]
    folder = lion_data_folder() / "tokenizers" / key
    with working("making a tokenizer of the texts"):
        make_once(folder, lambda unfinished: TRAINERS[trainer](source, vocab_size).save(unfinished))
    return load_tokenizer(folder)


def tokenizer_of(trained: Trained) -> TextTokenizer:
    return cached(load_tokenizer, trained.beside, file=trained.beside / TOKENIZER)


def with_room(model: Model, tokens: int) -> Model:
    """The model with learned positions, if it has them, for at least this many tokens, which its first decays know."""
    return spanning(replace(model, max_tokens=max(model.max_tokens, tokens)), tokens)


def check_text(name: str, text: str) -> str:
    """The text, if it is one: bytes of the command line that are not UTF-8 are not."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(f"{name} has {text[problem.start]!r} at {problem.start}; expected UTF-8.") from None
    return text

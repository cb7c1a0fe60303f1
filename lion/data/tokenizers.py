"""Text tokenizers: trained on documents, read from files, or the bytes of UTF-8."""

import collections
import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lion.configs import checked
from lion.data.sources.archives import reading
from lion.data.sources.fetching import fetch
from lion.data.tables import text_lines
from lion.files import read_object, replace, write_json
from lion.limits import Vocabulary
from lion.optional import need
from lion.terminal import brief

TOKENIZER, CONFIG, VOCABULARY = "tokenizer.json", "tokenizer_config.json", "vocab.txt"
BPE = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # transformers' names, and GPT-2's own
NAMED = ("minilm", "gpt2")  # that lion.data.fetch knows
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"
ROLES = {  # the names of special tokens, the most common ones first
    "pad": ("[PAD]", "<pad>", "<|padding|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "eos": (END, "<eos>", "</s>", "[SEP]"),
}
REMEDY = f"expected a {TOKENIZER} as the tokenizers package writes it"
LONGEST_RUN = 512  # characters of a word, for byte-level BPE
LONGEST_WORD = 100  # longer words are [UNK] for BERT's WordPiece
REPEATS = 1000  # of a word, in one text for training
PADDED = 128  # a model's vocabulary may be larger than its tokenizer's by less than this, for even sizes


class TextTokenizer:
    """Texts to token ids and back. Two tokenizers are equal if their contents are.

    Attributes:
        content: of tokenizer.json.
        vocab_size: larger than any id.
        pad_id, unk_id, cls_id, sep_id, mask_id, eos_id: None if there is no such token; eos_id ends a document.
        special_ids: of all special tokens.
        fingerprint: a hash of the content.
    """

    def __init__(self, content: str, vocab_size: int, specials: dict[str, int]):
        self.content, self.vocab_size = content, vocab_size
        self.special_ids = sorted(specials.values())
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()
        there = {role: [name for name in names if name in specials] for role, names in ROLES.items()}
        self.tokens = {role: names[0] for role, names in there.items() if names}
        ids = {role: specials[name] for role, name in self.tokens.items()}
        self.pad_id, self.unk_id, self.cls_id = ids.get("pad"), ids.get("unk"), ids.get("cls")
        self.sep_id, self.mask_id, self.eos_id = ids.get("sep"), ids.get("mask"), ids.get("eos")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextTokenizer) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def encode(self, texts: Sequence[str], *, specials: bool = False, max_length: int | None = None) -> list[list[int]]:
        """The ids of each text; with `specials`, [CLS] ... [SEP], as far as the tokenizer has them.

        The name of a special token in a text is ordinary text. A text is cut so that all ids fit into `max_length`.
        """
        if isinstance(texts, str):
            raise TypeError("texts is a str; expected a list of them.")
        encoded = self._encode(list(texts))
        start, end = self._frame() if specials else ([], [])
        room = self._room(max_length, len(start) + len(end))
        return [[*start, *ids[:room], *end] for ids in encoded]

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]], *, max_length: int | None = None
    ) -> list[tuple[list[int], list[int]]]:
        """The ids of [CLS] first [SEP] second [SEP], and their types: 0 for the first text, 1 for the second.

        If a pair is longer than `max_length`, its longer text is cut, or both.
        """
        start, end = self._frame()
        room = self._room(max_length, len(start) + 2 * len(end))
        encoded = self._encode([text for pair in pairs for text in pair])
        found = []
        for first, second in zip(encoded[::2], encoded[1::2], strict=True):
            if room is not None and len(first) + len(second) > room:
                shorter = min(len(first), len(second), room // 2)
                keep = (shorter, room - shorter) if len(first) <= len(second) else (room - shorter, shorter)
                first, second = first[: keep[0]], second[: keep[1]]
            left, right = [*start, *first, *end], [*second, *end]
            found.append(([*left, *right], [0] * len(left) + [1] * len(right)))
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        raise NotImplementedError

    def save(self, folder: Path | str) -> None:
        """Write tokenizer.json, and tokenizer_config.json for transformers' PreTrainedTokenizerFast."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / TOKENIZER, lambda path: path.write_text(self.content, encoding="utf-8"))
        names = {f"{role}_token": token for role, token in self.tokens.items()}
        inputs = ["input_ids", *(["token_type_ids"] if self.cls_id is not None else []), "attention_mask"]
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        write_json(folder / CONFIG, about | names)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        raise NotImplementedError

    def _frame(self) -> tuple[list[int], list[int]]:
        end = self.sep_id if self.sep_id is not None else self.eos_id
        return [x for x in (self.cls_id,) if x is not None], [x for x in (end,) if x is not None]

    @staticmethod
    def _room(max_length: int | None, taken: int) -> int | None:
        if max_length is None:
            return None
        if max_length <= taken:
            raise ValueError(f"max_length is {max_length}; expected more than {taken}, the special tokens.")
        return max_length - taken


class ByteTokenizer(TextTokenizer):
    """The bytes of UTF-8 as ids 0 to 255, then [PAD] [CLS] [SEP] [MASK]. It needs no package."""

    def __init__(self) -> None:
        specials = {name: 256 + i for i, name in enumerate(name for name in BERT if name != "[UNK]")}
        super().__init__(json.dumps(_bytes_as_tokenizer(specials)), 256 + len(specials), specials)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [list(text.encode()) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class FastTokenizer(TextTokenizer):
    """A tokenizer of the `tokenizers` package, from the content of tokenizer.json. `name` is its file, for errors."""

    def __init__(self, content: str, name: str = "the tokenizer"):
        package = need("tokenizers", "tokenizers", "text")
        self.name = name
        with self._reading():
            self._tokenizer = package.Tokenizer.from_str(content)
            self._tokenizer.no_padding()  # a file may ask for both
            self._tokenizer.no_truncation()
            self._tokenizer.encode_special_tokens = True  # the name of a special token in a text is ordinary text
            specials = {x.content: i for i, x in self._tokenizer.get_added_tokens_decoder().items() if x.special}
            vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
            size = max(vocabulary.values(), default=-1) + 1
            checked(Vocabulary, size, "the largest id + 1")
            super().__init__(self._tokenizer.to_str(), size, specials)

    def __reduce__(self) -> tuple[type["FastTokenizer"], tuple[str, str]]:
        return FastTokenizer, (self.content, self.name)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        with self._reading():
            return [found.ids for found in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        with self._reading():
            return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Names the file in errors, also where the package panics: that is no Exception in Python."""
        with reading(self.name, REMEDY):
            try:
                yield
            except BaseException as problem:
                if type(problem).__name__ == "PanicException":
                    raise ValueError(str(problem)) from None
                raise


def _bytes_as_tokenizer(specials: dict[str, int]) -> dict[str, Any]:
    """The bytes as a tokenizer.json: byte-level BPE without merges."""
    # Byte-level BPE writes a byte as a character: itself if it is printable, else the next one from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = itertools.count(256)
    characters = [chr(byte if byte in printable else next(others)) for byte in range(256)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    template = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    used = {name: {"id": name, "ids": [specials[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, **flags, "special": True} for name, i in specials.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template + second,
            "special_tokens": used,
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {x: i for i, x in enumerate(characters)} | specials, "merges": []},
    }


# Training.


def train_wordpiece(
    documents: Iterable[str], vocab_size: int, lowercase: bool = True, *, alphabet: int = 1000
) -> TextTokenizer:
    """A tokenizer like BERT's; deterministic. From little text, it may have fewer tokens than `vocab_size`.

    `alphabet`: the number of different characters, the most frequent ones; Chinese needs more.
    """
    _check_size(vocab_size, len(BERT) + 1, "the special tokens and a character")
    checked(Vocabulary, alphabet, "alphabet")
    package = need("tokenizers", "tokenizers", "text")
    normal, cut = package.normalizers.BertNormalizer(lowercase=lowercase), package.pre_tokenizers.BertPreTokenizer()
    # Both work on pieces between white space, so it is enough to process each distinct piece once.
    pieces: collections.Counter[str] = collections.Counter()
    for document in _checked(documents):
        pieces.update(re.findall(r"[^ \n\r\t]+", document))
    words: collections.Counter[str] = collections.Counter()
    characters: collections.Counter[str] = collections.Counter()
    for piece, count in pieces.items():
        for word, _ in cut.pre_tokenize_str(normal.normalize_str(piece)):
            if len(word) <= LONGEST_WORD:
                words[word] += count
                characters.update(dict.fromkeys(word, count))
    first = sorted(sorted(characters), key=lambda x: -characters[x])[:alphabet]
    # `tokenizers` numbers the characters inside of words in the order of a hash table, which differs every time, and
    # breaks ties by number. So they are numbered beforehand.
    inside = [f"##{x}" for x in sorted({x for word in words for x in word[1:]} & set(first))]
    _check_size(vocab_size, len(BERT) + len(first) + len(inside), "the special tokens and every character")
    trained = package.Tokenizer(package.models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = package.pre_tokenizers.WhitespaceSplit()
    trainer = package.trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*BERT, *inside],
        initial_alphabet=first,
        limit_alphabet=alphabet,
        show_progress=False,
    )
    trained.train_from_iterator(_repeated(words), trainer)
    return _wordpiece(trained.get_vocab(), lowercase)


def _repeated(words: collections.Counter[str]) -> Iterator[str]:
    for word, count in sorted(words.items()):
        for done in range(0, count, REPEATS):
            yield " ".join([word] * min(REPEATS, count - done))


def _wordpiece(vocabulary: dict[str, int], lowercase: bool, name: str = "the tokenizer") -> TextTokenizer:
    package = need("tokenizers", "tokenizers", "text")
    made = package.Tokenizer(
        package.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    )
    made.normalizer = package.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
    made.decoder = package.decoders.WordPiece()
    made.add_special_tokens([name for name in BERT if name in vocabulary])
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        made.post_processor = package.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
        )
    return FastTokenizer(made.to_str(), name)


def train_byte_bpe(documents: Iterable[str], vocab_size: int) -> TextTokenizer:
    """A tokenizer like GPT-2's, for causal models: lossless for any text. Its one special token ends a text."""
    package = need("tokenizers", "tokenizers", "text")
    byte_level = package.pre_tokenizers.ByteLevel
    _check_size(vocab_size, 257, "every byte and the end of a text")
    made = package.Tokenizer(package.models.BPE())
    made.pre_tokenizer = byte_level(add_prefix_space=False)
    made.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END], initial_alphabet=sorted(byte_level.alphabet()), show_progress=False
    )
    made.train_from_iterator(_cut(_checked(documents)), trainer)
    return FastTokenizer(made.to_str())


def _cut(documents: Iterable[str]) -> Iterator[str]:
    """Documents, cut within very long runs of letters or white space: training takes quadratic time for them."""
    for document in documents:
        begin = 0
        if len(document) > LONGEST_RUN:
            for run in re.finditer(r"\S+|\s+", document):
                for end in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
                    yield document[begin:end]
                    begin = end
        yield document[begin:]


def _check_size(vocab_size: int, least: int, what: str) -> None:
    checked(Vocabulary, vocab_size, "vocab_size")
    if vocab_size < least:
        raise ValueError(f"vocab_size is {vocab_size}; expected at least {least}, for {what}.")


def _checked(documents: Iterable[str]) -> Iterator[str]:
    if isinstance(documents, str):
        raise TypeError("documents is a str; expected a list of them, or lion.data.corpora.documents(path).")
    empty = True
    for document in documents:
        empty = empty and not document.strip()
        yield document
    if empty:
        raise ValueError("documents has no text; expected some to train on.")


# Reading.


def load_tokenizer(path: Path | str, *, lowercase: bool | None = None) -> TextTokenizer:
    """A tokenizer from a tokenizer.json, a BERT vocab.txt, or a folder with one of them or with GPT-2's two files; or
    by name: "bytes", and "minilm" (BERT's) and "gpt2", which are fetched.

    `lowercase`: whether a vocab.txt is for lower-case text; by default from the tokenizer_config.json beside it, and if
    there is none, from the case of its tokens.
    """
    if path == "bytes":
        return ByteTokenizer()
    file = fetch(path) if isinstance(path, str) and path in NAMED else Path(path).expanduser()
    if file.is_dir():
        for names in BPE:
            vocabulary, merges = (file / name for name in names)
            if vocabulary.is_file() and merges.is_file() and not (file / TOKENIZER).is_file():
                return _load_bpe(vocabulary, merges)
        file = next((file / name for name in (TOKENIZER, VOCABULARY) if (file / name).is_file()), file)
    if not file.is_file():
        got = f"{file} has neither" if file.is_dir() else f"{file} is not there"
        raise FileNotFoundError(f"{got}; expected {TOKENIZER} or {VOCABULARY}, or a folder with one of them.")
    if file.suffix == ".txt":
        return _load_vocabulary(file, lowercase)
    with reading(str(file), REMEDY):
        content = file.read_text(encoding="utf-8")
        parsed = json.loads(content)
    simple = ByteTokenizer()
    if parsed == json.loads(simple.content):
        return simple
    need("tokenizers", "tokenizers", "text")
    return FastTokenizer(content, str(file))


def tokenizer_of_model(folder: Path, vocab_size: int) -> TextTokenizer:
    """The tokenizer in a model's folder, if its vocabulary fits the model's."""
    found = load_tokenizer(folder)
    if not vocab_size - PADDED < found.vocab_size <= vocab_size:
        raise ValueError(
            f"the tokenizer in {folder} has {found.vocab_size:,} tokens, and the model {vocab_size:,}; expected that "
            f"which the model was trained with: put its {TOKENIZER} there."
        )
    return found


def _load_bpe(vocabulary: Path, merges: Path) -> TextTokenizer:
    """GPT-2's tokenizer, from its own files."""
    package = need("tokenizers", "tokenizers", "text")
    with reading(str(vocabulary.parent), f"expected {vocabulary.name} and {merges.name} of a byte-level BPE"):
        lines = [line.rstrip("\n") for line in text_lines(merges)]
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        made = package.Tokenizer(package.models.BPE(read_object(vocabulary), pairs))
    made.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = package.decoders.ByteLevel()
    made.add_special_tokens([END])
    return FastTokenizer(made.to_str(), str(vocabulary.parent))


def _load_vocabulary(path: Path, lowercase: bool | None) -> TextTokenizer:
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(text_lines(path), 1):
        token = line.rstrip("\n")
        if token in vocabulary or not token:
            got = f"{brief(token, 40)!r} again, as line {vocabulary[token] + 1}" if token else "no token"
            raise ValueError(f"{path}, line {number} has {got}; expected every token once, one on a line.")
        vocabulary[token] = number - 1
    if "[UNK]" not in vocabulary:
        raise ValueError(f"{path} has no [UNK]; expected a vocabulary of BERT's kind, with a token on every line.")
    if lowercase is None and (path.parent / CONFIG).is_file():
        lowercase = read_object(path.parent / CONFIG).get("do_lower_case")
        if not isinstance(lowercase, bool | None):
            raise ValueError(f"{path.parent / CONFIG}: do_lower_case is {lowercase!r}; expected true or false.")
    if lowercase is None:
        lowercase = all(token == token.lower() for token in vocabulary if not token.startswith("["))
    return _wordpiece(vocabulary, lowercase, str(path))

"""Tokenizers: the same from the same documents, read back as they were saved, and the same in `transformers`."""

import json
import pickle
import re
import sys

import pytest

from lion.data import lion_data_folder
from lion.data.tokenizers import (
    BERT,
    ByteTokenizer,
    FastTokenizer,
    TextTokenizer,
    load_tokenizer,
    train_byte_bpe,
    train_wordpiece,
)

pytest.importorskip("tokenizers")

DOCUMENTS = [
    "The quick brown fox jumps over the lazy dog.\nThe dog sleeps; the fox does not.",
    "Café, naïve, ÜBER: the foxes' dogs jumped over 東京 and back.",
    "",
    "A lazy\u00a0afternoon\u2003for \u200bfoxes and\x1cdogs!",
] * 3


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


@pytest.fixture(scope="module")
def wordpiece():
    return train_wordpiece(DOCUMENTS, 120)


@pytest.fixture(scope="module")
def bpe():
    return train_byte_bpe(DOCUMENTS, 300)


@pytest.fixture(scope="module")
def every(wordpiece, bpe):
    return {"wordpiece": wordpiece, "bpe": bpe, "bytes": ByteTokenizer()}


def test_wordpiece(wordpiece):
    assert wordpiece.vocab_size == 120
    ids = [wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id, wordpiece.sep_id, wordpiece.mask_id]
    assert ids == wordpiece.special_ids == [0, 1, 2, 3, 4]
    assert wordpiece.eos_id == wordpiece.sep_id
    vocabulary = json.loads(wordpiece.content)["model"]["vocab"]
    assert list(vocabulary)[:5] == list(BERT)
    assert sorted(vocabulary.values()) == list(range(120))
    assert {"the", "fox", "dog", "東", "##s"} <= {*vocabulary}
    assert "##東" not in vocabulary  # it stands by itself always
    (ids,) = wordpiece.encode(["The CAFÉ fox!"])
    assert wordpiece.decode(ids) == "the cafe fox!"
    assert wordpiece.encode(["z\u0431"]) == [[wordpiece.unk_id]]
    cased = train_wordpiece(DOCUMENTS, 120, lowercase=False)
    assert cased.decode(cased.encode(["The Café"])[0]) == "The Café"
    few = train_wordpiece(DOCUMENTS, 60, alphabet=5)
    assert sum(len(token) == 1 for token in json.loads(few.content)["model"]["vocab"]) == 5


def test_words_are_counted_as_the_package_counts_them():
    package = pytest.importorskip("tokenizers")
    plain = package.Tokenizer(package.models.WordPiece(unk_token="[UNK]"))
    plain.normalizer = package.normalizers.BertNormalizer()
    plain.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
    options = {"vocab_size": 10_000, "special_tokens": list(BERT), "show_progress": False}
    plain.train_from_iterator(DOCUMENTS, package.trainers.WordPieceTrainer(**options))
    mine = json.loads(train_wordpiece(DOCUMENTS, 10_000).content)["model"]["vocab"]
    # Merged as far as there is anything to merge, each has every word; on the way there, ties may be broken otherwise.
    assert {"afternoon", "foxes", "anddogs", "jumped"} <= mine.keys() & plain.get_vocab().keys()
    for vocabulary in (mine, plain.get_vocab()):
        found = package.Tokenizer(package.models.WordPiece(vocabulary, unk_token="[UNK]"))
        found.normalizer, found.pre_tokenizer = plain.normalizer, plain.pre_tokenizer
        for document in DOCUMENTS:
            tokens = found.encode(document).tokens
            assert tokens == [
                word for word, _ in plain.pre_tokenizer.pre_tokenize_str(plain.normalizer.normalize_str(document))
            ]
    single = [
        {token for token in vocabulary if len(token.removeprefix("##")) == 1}
        for vocabulary in (mine, plain.get_vocab())
    ]
    assert single[0] == single[1]


def test_the_same_documents_give_the_same_bytes(wordpiece, bpe):
    """Though every hash table of the package has an order of its own."""
    assert {train_wordpiece(DOCUMENTS, 120).content for _ in range(20)} == {wordpiece.content}
    assert {train_byte_bpe(DOCUMENTS, 300).content for _ in range(20)} == {bpe.content}
    assert train_wordpiece(DOCUMENTS[::-1], 120) == wordpiece  # nor does the order of documents matter


def test_byte_bpe(bpe):
    assert bpe.vocab_size == 300
    assert (bpe.eos_id, bpe.special_ids) == (0, [0])
    assert (bpe.pad_id, bpe.unk_id, bpe.cls_id, bpe.sep_id, bpe.mask_id) == (None,) * 5
    assert len(bpe.encode([DOCUMENTS[0]])[0]) < len(DOCUMENTS[0])


def test_bytes():
    tokenizer = ByteTokenizer()
    assert tokenizer.vocab_size == 260
    assert tokenizer.encode(["aß"]) == [[97, 195, 159]]
    assert tokenizer.encode(["a"], specials=True) == [[257, 97, 258]]
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (256, 257, 258, 259)
    assert (tokenizer.unk_id, tokenizer.eos_id) == (None, 258)
    assert tokenizer.decode([257, 195, 97]) == "\ufffda"


@pytest.mark.parametrize("name", ["bpe", "bytes"])
def test_any_text_comes_back(every, name):
    for text in (*DOCUMENTS, "\t 日本 \U0001f981\n\n  x", "".join(map(chr, range(1, 400))), "[SEP] <|endoftext|>"):
        (ids,) = every[name].encode([text])
        assert every[name].decode(ids) == text
        assert not {*ids} & {*every[name].special_ids}


def test_special_tokens_in_a_text_are_text(every):
    for tokenizer in every.values():
        (ids,) = tokenizer.encode(["[MASK] [SEP] [CLS] <|endoftext|>"])
        assert not {*ids} & {*tokenizer.special_ids} - {tokenizer.unk_id}


def test_lengths_and_pairs(every):
    for name, tokenizer in every.items():
        start, end = ([], [tokenizer.eos_id]) if name == "bpe" else ([tokenizer.cls_id], [tokenizer.sep_id])
        a, b = tokenizer.encode(["the fox jumps over", "dogs"])
        assert tokenizer.encode(["the fox jumps over"], specials=True) == [start + a + end]
        assert tokenizer.encode(["the fox jumps over"], max_length=3) == [a[:3]]
        assert tokenizer.encode(["the fox jumps over"], specials=True, max_length=4) == [
            start + a[: 4 - len(start + end)] + end
        ]
        ((ids, types),) = tokenizer.encode_pairs([("the fox jumps over", "dogs")])
        assert ids == start + a + end + b + end
        assert types == [0] * len(start + a + end) + [1] * len(b + end)
        taken = len(start) + 2
        for keep in range(1, len(a) + len(b) + 2):
            for texts, lengths in ((("the fox jumps over", "dogs"), (len(a), len(b))),):
                ((ids, types),) = tokenizer.encode_pairs([texts], max_length=taken + keep)
                first, second = types.count(0) - len(start) - 1, types.count(1) - 1
                assert first + second == min(keep, sum(lengths))
                assert second == min(lengths[1], keep // 2)  # the longer one is cut, then both
                assert ids == start + a[:first] + end + b[:second] + end
    with fails(ValueError, "max_length is 2; expected more than 2, the special tokens."):
        every["bytes"].encode(["a"], specials=True, max_length=2)
    with fails(TypeError, "texts is a str; expected a list of them."):
        every["bytes"].encode("a")


def test_saved_and_loaded(tmp_path, every):
    for name, tokenizer in every.items():
        tokenizer.save(tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
        for found in (
            load_tokenizer(tmp_path / name),
            load_tokenizer(str(tmp_path / name / "tokenizer.json")),
            pickle.loads(pickle.dumps(tokenizer)),
        ):
            assert found == tokenizer
            assert hash(found) == hash(tokenizer)
            assert type(found) is type(tokenizer)
            assert found.encode(DOCUMENTS) == tokenizer.encode(DOCUMENTS)
            assert found.special_ids == tokenizer.special_ids
    assert every["bytes"] == load_tokenizer("bytes") != every["bpe"]
    assert every["bpe"] != "bpe"


def test_bytes_need_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ByteTokenizer().save(tmp_path)
    assert load_tokenizer(tmp_path) == ByteTokenizer()
    (tmp_path / "tokenizer.json").write_text("{}")
    for use in (
        lambda: load_tokenizer(tmp_path),
        lambda: train_byte_bpe(DOCUMENTS, 300),
        lambda: train_wordpiece(DOCUMENTS, 300),
    ):
        with fails(ImportError, "tokenizers is needed for this: pip install 'lion-attention[text]'"):
            use()


def test_bytes_are_the_same_in_the_package():
    tokenizer = ByteTokenizer()
    found = FastTokenizer(tokenizer.content)
    texts = [*DOCUMENTS, "".join(map(chr, range(1, 3000))), "[SEP]"]
    assert found.encode(texts) == tokenizer.encode(texts)
    assert (found.special_ids, found.vocab_size) == (tokenizer.special_ids, tokenizer.vocab_size)


def test_transformers_reads_them(tmp_path, every):
    transformers = pytest.importorskip("transformers")
    for name, tokenizer in every.items():
        tokenizer.save(tmp_path / name)
        found = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / name)
        framed = name != "bpe"  # which puts nothing around what is to be continued
        texts = [text for text in DOCUMENTS if text]
        assert found(texts)["input_ids"] == tokenizer.encode(texts, specials=framed)
        ((ids, types),) = tokenizer.encode_pairs([("the fox", "jumps")])
        if framed:
            assert found("the fox", "jumps")["input_ids"] == ids
            assert found("the fox", "jumps")["token_type_ids"] == types
        for role in ("pad", "unk", "cls", "sep", "mask", "eos"):
            assert getattr(found, f"{role}_token_id") == getattr(tokenizer, f"{role}_id")


def write_vocabulary(folder, tokens):
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return folder / "vocab.txt"


def test_a_vocabulary(tmp_path):
    tokens = [*BERT, "un", "##able", "##aff", "the", "\u2028x"]
    path = write_vocabulary(tmp_path, tokens)
    found = load_tokenizer(tmp_path)
    assert found == load_tokenizer(path)
    assert found.vocab_size == len(tokens)
    assert found.encode(["The unaffable", "x"], specials=True) == [[2, 8, 5, 7, 6, 3], [2, 1, 3]]
    assert load_tokenizer(path, lowercase=False).encode(["The"]) == [[1]]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(path).encode(["The"]) == [[1]]
    (tmp_path / "tokenizer_config.json").unlink()
    write_vocabulary(tmp_path, [*BERT, "The", "the"])
    assert load_tokenizer(path).encode(["The the"]) == [[5, 6]]  # by its tokens it is not of lower case
    write_vocabulary(tmp_path, [*BERT, "the", "the"])
    with fails(ValueError, f"{path}, line 7 has 'the' again, as line 6; expected every token once, one on a line."):
        load_tokenizer(path)
    write_vocabulary(tmp_path, [*BERT, "", "the"])
    with fails(ValueError, f"{path}, line 6 has no token; expected every token once, one on a line."):
        load_tokenizer(path)
    write_vocabulary(tmp_path, ["the"])
    message = f"{path} has no [UNK]; expected a vocabulary of BERT's kind, with a token on every line."
    with fails(ValueError, message):
        load_tokenizer(path)


def test_other_names_of_special_tokens():
    package = pytest.importorskip("tokenizers")
    made = package.Tokenizer(package.models.WordLevel({"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3}, unk_token="a"))
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<mask>"])
    made.enable_padding(length=64)  # which a file may ask for, and a set of texts does by itself
    made.enable_truncation(8)
    found = FastTokenizer(made.to_str())
    assert isinstance(found, TextTokenizer)
    assert (found.cls_id, found.sep_id, found.eos_id, found.pad_id, found.mask_id) == (0, 2, 2, 1, 4)
    assert found.vocab_size == 5
    assert found.encode(["a"], specials=True) == [[0, 3, 2]]


def test_what_cannot_be_loaded_or_trained(tmp_path, monkeypatch):
    wanted = "expected tokenizer.json or vocab.txt, or a folder with one of them."
    with fails(FileNotFoundError, f"{tmp_path} has neither; {wanted}"):
        load_tokenizer(tmp_path)
    with fails(FileNotFoundError, f"{tmp_path / 'x.json'} is not there; {wanted}"):
        load_tokenizer(tmp_path / "x.json")
    path = tmp_path / "tokenizer.json"
    for content in ("{", "{}"):
        path.write_text(content)
        remedy = r"expected a tokenizer\.json as the tokenizers package writes it\."
        with pytest.raises(ValueError, match=rf"^{path} cannot be read \(.+\): {remedy}$"):
            load_tokenizer(path)
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    for name in ("minilm", "gpt2"):  # which would be fetched
        offline = (
            f"{name} is not in {tmp_path}/{name}, and LION_OFFLINE is set; expected 0 to fetch it, or its files there."
        )
        with fails(ConnectionError, offline):
            load_tokenizer(name)
    with pytest.raises(ValueError, match=r"^vocab_size is 20; expected at least \d+, for the special tokens and every"):
        train_wordpiece(DOCUMENTS, 20)
    with fails(ValueError, "vocab_size is 256; expected at least 257, for every byte and the end of a text."):
        train_byte_bpe(DOCUMENTS, 256)
    for train in (train_wordpiece, train_byte_bpe):
        with fails(ValueError, "documents has no text; expected some to train on."):
            train([" "], 300)
        with fails(TypeError, "documents is a str; expected a list of them, or lion.data.corpora.documents(path)."):
            train("a text", 300)


@pytest.mark.skipif(not (lion_data_folder() / "minilm").exists(), reason="lion.data.fetch('minilm')")
def test_the_vocabulary_of_bert():
    found = load_tokenizer("minilm")
    assert found.vocab_size == 30522
    assert (found.pad_id, found.unk_id, found.cls_id, found.sep_id, found.mask_id) == (0, 100, 101, 102, 103)
    assert found.encode(["Hello, world!"], specials=True) == [[101, 7592, 1010, 2088, 999, 102]]
    assert found == load_tokenizer(lion_data_folder() / "minilm" / "model" / "vocab.txt")


def test_the_files_of_gpt2(tmp_path, bpe):
    """Its own two files, and transformers' names for them, make the same tokenizer."""
    inside = json.loads(bpe.content)["model"]
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in inside["merges"]), ""])
    for names in (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")):
        folder = tmp_path / names[0]
        folder.mkdir()
        (folder / names[0]).write_text(json.dumps(inside["vocab"]))
        (folder / names[1]).write_text(merges)
        found = load_tokenizer(folder)
        assert found.eos_id == inside["vocab"]["<|endoftext|>"]
        assert found.vocab_size == bpe.vocab_size
        texts = ["Of the people, by the people", " two  spaces\n", "naïve 日本"]
        assert found.encode(texts) == bpe.encode(texts)
        assert [found.decode(ids) for ids in found.encode(texts)] == texts
    (folder / names[1]).write_text("one two three\n")
    with pytest.raises(ValueError, match=r"expected vocab\.json and merges\.txt of a byte-level BPE"):
        load_tokenizer(folder)


@pytest.mark.skipif(not (lion_data_folder() / "gpt2").exists(), reason="lion.data.fetch('gpt2')")
def test_the_vocabulary_of_gpt2():
    found = load_tokenizer("gpt2")
    assert (found.vocab_size, found.eos_id) == (50257, 50256)
    assert found.encode(["Hello world, it's 2026!"]) == [[15496, 995, 11, 340, 338, 1160, 2075, 0]]


def test_ids_that_no_memory_is_enough_for(tmp_path, bpe):
    content = json.loads(bpe.content)
    content["model"]["vocab"]["a"] = 2**32 - 2
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"the largest id \+ 1 is 4294967295; expected a whole number from 1 to 4,194,304"
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"), [("[]", "it has a list"), ('{"do_lower_case": "no"}', "is 'no'; expected")]
)
def test_a_config_beside_a_vocabulary(content, said, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json.* {said}"):
        load_tokenizer(tmp_path)

"""Sets of text: every token of every document once, in its own part; what a batch is depends on its keys alone."""

import json
import multiprocessing
import os
import pickle
import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from lion.data.batches import IGNORED
from lion.data.corpora import as_documents, documents
from lion.data.packed import MaskedTokens, NextTokens, PackedTokens, Passages
from lion.data.tokenizers import ByteTokenizer, TextTokenizer
from lion.files import DamagedFile
from lion.train.sampler import Sampler

TEXTS = [f"document {i}: " + "lorem ipsum dolor sit amet. " * (i % 7) for i in range(200)]
BYTES = ByteTokenizer()


class Causal(ByteTokenizer):
    """With one special token, that ends a text."""

    def __init__(self):
        TextTokenizer.__init__(self, "causal", 257, {"<|endoftext|>": 256})


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def same(batch):
    return batch


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    return tmp_path / "tokens"


def packed(length=32, **options):
    return PackedTokens(TEXTS, BYTES, length, **{"holdout": 0.2} | options)


def texts_of(found, end):
    """What documents its tokens are."""
    row = found.tokens.tolist()
    assert row[-1] == end
    return "".join(chr(x) if x < 256 else "\0" for x in row).split("\0")[:-1]


@pytest.mark.parametrize("tokenizer", [BYTES, Causal()], ids=["bert", "causal"])
def test_every_token_of_every_document_once(folder, tokenizer):
    parts = [PackedTokens(TEXTS, tokenizer, 32, split=split, holdout=0.2) for split in ("train", "validation")]
    found = [texts_of(part, tokenizer.eos_id) for part in parts]
    assert not {*found[0]} & {*found[1]}
    assert {*found[0], *found[1]} == {*TEXTS}
    assert [len(texts) for texts in found] == [part.document_count for part in parts]
    assert [text for text in TEXTS if text in {*found[0]}] == found[0]  # in order
    assert 20 < len(found[1]) < 60
    for part in parts:
        row = part.blocks(np.arange(len(part)))
        assert row.shape == (len(part), 32)
        if tokenizer.cls_id is not None:
            assert (row[:, 0] == tokenizer.cls_id).all()
            row = row[:, 1:]
        np.testing.assert_array_equal(row.ravel(), part.tokens[: row.size])
        assert 0 <= part.token_count - row.size < row.shape[1]  # what does not fill a block is left out


def test_the_split_is_by_text_and_seed(folder):
    held = {seed: {*texts_of(packed(seed=seed, split="validation"), BYTES.eos_id)} for seed in (0, 1)}
    assert held[0] != held[1]
    twice = PackedTokens([*TEXTS[::-1], *TEXTS], BYTES, 32, holdout=0.2, split="validation")
    assert {*texts_of(twice, BYTES.eos_id)} == held[0]  # copies are together, wherever they are
    assert twice.document_count == 2 * len(held[0])
    assert packed(holdout=0.0).document_count == 200
    nested = {*texts_of(packed(holdout=0.1, split="validation"), BYTES.eos_id)}
    assert nested < held[0]


def test_tokens_are_kept(folder, monkeypatch):
    calls = []
    encode = ByteTokenizer._encode
    monkeypatch.setattr(ByteTokenizer, "_encode", lambda self, texts: calls.append(len(texts)) or encode(self, texts))
    first = packed()
    assert sum(calls) == 200
    for again in (packed(length=64), packed(split="validation"), packed(folder=folder)):
        assert again.folder == first.folder
    assert sum(calls) == 200
    others = [
        packed(seed=1),
        packed(holdout=0.1),
        PackedTokens(TEXTS[1:], BYTES, 32),
        PackedTokens(TEXTS, Causal(), 32),
    ]
    assert len({first.folder, *(other.folder for other in others)}) == 5
    assert sorted(path.name for path in first.folder.iterdir()) == ["about.json", "train.bin", "validation.bin"]
    assert not list(folder.glob(".*"))
    about = json.loads((first.folder / "about.json").read_text())
    assert about["tokenizer"] == BYTES.fingerprint
    assert sum(about["documents"].values()) == 200
    assert isinstance(first.tokens, np.memmap)
    assert first.tokens.dtype == np.uint16


def test_files_that_change_are_tokenised_again(folder, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("\n".join(TEXTS))
    first = PackedTokens(documents(path, per="line"), BYTES, 32)
    assert PackedTokens(documents(path, per="line"), BYTES, 32).folder == first.folder
    path.write_text("\n".join(TEXTS[1:]))
    second = PackedTokens(documents(path, per="line"), BYTES, 32)
    assert second.folder != first.folder
    assert "document 0: " not in texts_of(second, BYTES.eos_id)


def test_large_vocabularies(folder):
    class Large(ByteTokenizer):
        def __init__(self):
            super().__init__()
            self.vocab_size = 70_000
            self.fingerprint = "large"

        def _encode(self, texts):
            return [[x + 69_000 for x in ids] for ids in super()._encode(texts)]

    found = PackedTokens(TEXTS, Large(), 32)
    assert found.tokens.dtype == np.uint32
    assert found.tokens.max() > 69_000


def test_a_failure_leaves_nothing_behind(folder):
    def read():
        yield from TEXTS
        raise OSError("the line went dead")

    source = as_documents(TEXTS)
    broken = type(source)("x", read, source.key, 0)
    with pytest.raises(OSError, match="dead"):
        PackedTokens(broken, BYTES, 32)
    assert [path for path in folder.iterdir() if path.is_dir()] == []
    left = PackedTokens(source, BYTES, 64).folder
    os.rename(left, left.with_name(f".{left.name}.123456"))  # as a process leaves it that is killed
    assert len(PackedTokens(source, BYTES, 64)) > 0
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [left.name]


def _pack_in_another_process(folder, queue):
    queue.put(len(PackedTokens(TEXTS, BYTES, 32, folder=folder)))


def test_several_processes_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_pack_in_another_process, args=(tmp_path, queue)) for _ in range(4)]
    for process in processes:
        process.start()
    counts = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert counts == {len(PackedTokens(TEXTS, BYTES, 32, folder=tmp_path))}


def test_packed_tokens_that_are_wrong(folder):
    with fails(ValueError, "split is 'test'; expected one of 'train', 'validation'."):
        packed(split="test")
    with fails(ValueError, "holdout is 1; expected a number from 0 to below 1."):
        packed(holdout=1)
    with fails(ValueError, "length is 1; expected a whole number from 2 to 1,073,741,824."):
        packed(length=1)
    with fails(TypeError, "documents is a str; expected a list of them, or lion.data.corpora.documents(path)."):
        PackedTokens("a text", BYTES, 8)
    got = "validation has 0 of 1 documents (holdout is 0.05), with 0 tokens; expected at least 7, for one block"
    remedy = "set holdout higher, or cut the corpus into more documents."
    with fails(ValueError, f"{got}: {remedy}"):
        PackedTokens(["a single document"], BYTES, 8, split="validation")
    got = "train has 1 of 1 documents (holdout is 0.05), with 2 tokens; expected at least 7, for one block"
    with fails(ValueError, f"{got}: add text, or take a smaller length."):
        PackedTokens(["a"], BYTES, 8)
    found = packed()
    path = found.folder / "train.bin"
    size = path.stat().st_size
    os.truncate(path, size - 2)
    message = f"{path} is damaged: it has {size - 2:,} bytes; expected {size:,}: remove {found.folder}."
    with fails(DamagedFile, message):
        packed()


def keys(count, epoch=0):
    return [(epoch, index) for index in range(count)]


def test_masked_tokens_have_berts_shares(folder):
    found = packed(length=128)
    batch = MaskedTokens(found, 0.3, seed=0).__getitems__(
        [key for epoch in range(20) for key in keys(len(found), epoch)]
    )
    tokens = torch.from_numpy(np.tile(found.blocks(np.arange(len(found))), (20, 1)))
    inputs, labels = batch["input_ids"], batch["labels"]
    assert (inputs.dtype, labels.dtype) == (torch.int64, torch.int64)
    target = labels != IGNORED
    assert torch.equal(labels[target], tokens[target])
    assert torch.equal(inputs[~target], tokens[~target])
    ordinary = tokens < 256
    assert not (target & ~ordinary).any()
    count = int(ordinary.sum())

    def near(got, want, of):
        assert abs(got.float().mean() - want) < 4 * (want * (1 - want) / of) ** 0.5

    near(target[ordinary], 0.3, count)
    masked, kept = inputs[target] == BYTES.mask_id, inputs[target] == tokens[target]
    near(masked, 0.8, 0.3 * count)
    near(kept, 0.1 + 0.1 / 256, 0.3 * count)
    others = inputs[target][~masked & ~kept]
    assert others.max() < 256  # no special tokens
    assert len(others.unique()) == 256
    near(others < 128, 0.5, len(others))
    shares = target.float().mean(0)  # at every place alike
    assert shares[0] == 0  # [CLS]
    assert (shares[1:] - shares[1:].mean()).abs().max() < 0.06


def test_everything_may_be_a_target(folder):
    batch = MaskedTokens(packed(), 1.0, seed=0).__getitems__(keys(8))
    special = batch["input_ids"].new_tensor([BYTES.cls_id, BYTES.sep_id])
    assert ((batch["labels"] == IGNORED) == torch.isin(batch["input_ids"], special)).all()


def test_a_block_depends_on_its_key_alone(folder):
    found = packed()
    sets = {"masked": MaskedTokens(found, 0.15, seed=3), "next": NextTokens(found)}
    for name, examples in sets.items():
        every = [(epoch, index) for epoch in (0, 7) for index in range(6)]
        alone = {key: examples.__getitems__([key]) for key in every}
        orders = [every, every[::-1], every[3:9]]
        for workers in (0, 2):
            loader = DataLoader(examples, batch_sampler=orders, num_workers=workers, collate_fn=same)
            for order, batch in zip(orders, loader, strict=True):
                for row, key in enumerate(order):
                    assert all(torch.equal(x[row], alone[key][part][0]) for part, x in batch.items())
        differs = [not torch.equal(alone[0, i]["input_ids"], alone[7, i]["input_ids"]) for i in range(6)]
        assert all(differs) if name == "masked" else not any(differs)
    other = MaskedTokens(found, 0.15, seed=4).__getitems__([(0, 0)])
    assert not torch.equal(other["input_ids"], sets["masked"].__getitems__([(0, 0)])["input_ids"])


def test_the_masks_of_validation_are_fixed(folder):
    found = MaskedTokens(packed(split="validation"), 0.15, seed=3)
    batches = [found.__getitems__(keys(8, epoch)) for epoch in (0, 7)]
    for part in ("input_ids", "labels"):
        assert torch.equal(batches[0][part], batches[1][part])
    assert (batches[0]["labels"] != IGNORED).any()


def test_workers_open_the_file_by_themselves(folder):
    found = packed(length=64)
    unopened = pickle.dumps(found)
    want = found.blocks(np.arange(3))
    content = pickle.dumps(found)
    assert len(content) == len(unopened)  # it is without the tokens
    np.testing.assert_array_equal(pickle.loads(content).blocks(np.arange(3)), want)


@pytest.mark.parametrize("tokenizer", [BYTES, Causal()], ids=["bert", "causal"])
def test_next_tokens(folder, tokenizer):
    found = PackedTokens(TEXTS, tokenizer, 32)
    batch = NextTokens(found).__getitems__(keys(len(found)))
    inputs, labels = batch["input_ids"], batch["labels"]
    start = len(found.start)
    row = torch.from_numpy(found.tokens.astype(np.int64))
    used = len(found) * (32 - start)
    assert torch.equal(inputs[:, start:].flatten(), row[:used])
    assert torch.equal(labels[:, :-1], inputs[:, 1:])
    assert torch.equal(labels[:-1, -1], inputs[1:, start])
    assert labels[-1, -1] == (row[used] if used < len(row) else IGNORED)
    exact = PackedTokens(["x" * 9], tokenizer, 2 + start, holdout=0.0)
    batch = NextTokens(exact).__getitems__(keys(len(exact)))
    assert len(exact) == 5
    assert batch["labels"][-1].tolist() == [*[ord("x")] * start, tokenizer.eos_id, IGNORED]


def test_what_cannot_be_masked(folder):
    with fails(ValueError, "rate is 0; expected a number above 0 and up to 1."):
        MaskedTokens(packed(), 0, seed=0)
    with fails(ValueError, "the tokenizer has no [MASK]; expected one that does, such as train_wordpiece makes."):
        MaskedTokens(PackedTokens(TEXTS, Causal(), 32), 0.15, seed=0)


def test_sets_are_what_training_takes(folder):
    found = MaskedTokens(packed(), 0.15, seed=0)
    stream = Sampler(len(found), 16, seed=0, steps=range(3))
    batches = list(DataLoader(found, batch_sampler=stream, collate_fn=same))
    assert [tuple(batch["input_ids"].shape) for batch in batches] == [(16, 32)] * 3


# One by one.


def test_passages_are_the_documents(folder):
    """Every one of them whole, in pieces that fit."""
    found = Passages(packed(length=40))
    batch = found.__getitems__([(0, i) for i in range(len(found))])
    ids, mask = batch["input_ids"], batch["mask"]
    assert ids.shape == mask.shape == (len(found), 40)
    assert (ids[:, 0] == BYTES.cls_id).all()
    assert (ids[~mask] == BYTES.pad_id).all()
    last = mask.sum(1) - 1
    assert (ids.gather(1, last[:, None]) == BYTES.sep_id).all()
    joined, pieces = "", set()
    for row, end in zip(ids.tolist(), last.tolist(), strict=True):
        text = BYTES.decode(row[1:end])
        assert 0 < len(text) <= 38
        joined += text
        pieces.add(len(text))
    assert 38 in pieces
    assert len(pieces) > 2
    assert joined == "".join(texts_of(found.packed, BYTES.sep_id))


def test_a_passage_depends_on_its_key_alone(folder):
    found = Passages(packed(length=200))
    short = int(found.lengths.argmin())
    alone, among = found.__getitems__([(3, short)]), found.__getitems__([(0, 0), (0, short), (1, 5)])
    width = alone["input_ids"].shape[1]
    assert width == -(-(found.lengths[short] + 2) // 8) * 8 < among["input_ids"].shape[1]
    assert torch.equal(alone["input_ids"][0], among["input_ids"][1, :width])
    assert torch.equal(alone["mask"][0], among["mask"][1, :width])
    assert not among["mask"][1, width:].any()


def test_passages_need_room(folder):
    with fails(ValueError, "length is 2; expected at least 3: [CLS], a token and [SEP]."):
        Passages(packed(length=2))
    with fails(ValueError, "the tokenizer has no [CLS] and [SEP]; expected both, as BERT's have."):
        Passages(PackedTokens(TEXTS, Causal(), 32, holdout=0.2))

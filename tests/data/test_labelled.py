"""Labelled texts: read as they were written; what is wrong is said with the row, and what would be right."""

import csv
import json
import re
import sys
import types

import numpy as np
import pytest
import torch

from lion.data import FETCHED, lion_data_folder
from lion.data.glue import GLUE, glue
from lion.data.labelled import LabelledTexts, imdb, labelled
from lion.data.tokenizers import ByteTokenizer
from lion.tasks._base import forget
from lion.tasks.text_classification import TextClassificationTask
from tests import SEED
from tests.data.test_packed import Causal

REVIEWS = FETCHED["imdb"].file
BYTES = ByteTokenizer()


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


TEXTS = ["fine", 'he said "no", twice', "two\nlines", "Ünïcode", "x" * 200_000]
LABELS = ["good", "bad", "bad", "good", "good"]


def write_table(path, columns):
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".arrow":
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table(columns)
        with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(columns), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


FORMATS = [".csv", ".tsv", ".jsonl", ".parquet", ".arrow"]


@pytest.mark.parametrize("ending", FORMATS)
def test_formats(tmp_path, ending):
    path = write_table(tmp_path / f"x{ending}", {"id": range(5), "Review": TEXTS, "sentiment": LABELS})
    found = labelled(path)
    assert found.texts == TEXTS
    assert found.classes == ["bad", "good"]
    assert found.labels.tolist() == [1, 0, 0, 1, 1]
    assert found.labels.dtype == np.int64
    assert labelled(str(path), classes=["good", "bad"]).labels.tolist() == [0, 1, 1, 0, 0]
    other = labelled(path, "sentiment", "id")
    assert (other.texts, other.labels.tolist(), other.classes) == (LABELS, [*range(5)], list("01234"))


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ({"sentence1": "a", "sentence2": "b"}, ("a", "b")),
        ({"hypothesis": "b", "premise": "a"}, ("a", "b")),
        ({"question": "a", "sentence": "b"}, ("a", "b")),
        ({"sentence": "a", "other": "b"}, "a"),
        ({"title": "b", "Text": "a"}, "a"),
        ({"year": "b", "Quote": "a"}, "a"),
    ],
)
def test_columns_are_found_by_their_usual_names(tmp_path, columns, texts):
    path = write_table(tmp_path / "x.csv", {**{name: [x, x] for name, x in columns.items()}, "Label": [0, 1]})
    assert labelled(path).texts == [texts] * 2
    pair = labelled(path, text_column=tuple(columns))
    assert pair.texts == [tuple(columns.values())] * 2


def test_kinds_of_labels(tmp_path):
    def read(values, **options):
        found = labelled(write_table(tmp_path / "x.jsonl", {"text": ["a"] * len(values), "label": values}), **options)
        return found.labels.tolist(), found.classes

    assert read([10, 2, 10]) == ([1, 0, 1], ["2", "10"])  # by number, not by letter
    assert read([1.0, "0", True]) == ([1, 0, 1], ["0", "1"])
    assert read([0.5, 2, "1"]) == ([0.5, 2, 1], None)
    assert read([3, 4, 4], numbers=True) == ([3, 4, 4], None)
    assert read([0.5, 2, 2], numbers=False) == ([0, 1, 1], ["0.5", "2"])
    assert read(["10", "x", " x"]) == ([0, 1, 1], ["10", "x"])
    assert read(["x", "x"], classes=["y", "x"]) == ([1, 1], ["y", "x"])
    path = tmp_path / "x.jsonl"
    with fails(ValueError, f"{path} has 'x' in every row of 'label'; expected two classes or more."):
        read(["x", "x"])
    with fails(ValueError, f"{path}, line 2 has 'z' in 'label'; expected one of 'y', 'x'."):
        read(["x", "z"], classes=["y", "x"])
    with fails(ValueError, f"{path}, line 2 has 'z' in 'label'; expected a number."):
        read(["1", "z"], numbers=True)


def test_columns_that_are_not_there(tmp_path):
    path = write_table(tmp_path / "x.csv", {"words": ["a"], "kind": ["b"]})
    with fails(ValueError, f"text_column for {path} is 'word'; expected one of 'words', 'kind'. Did you mean 'words'?"):
        labelled(path, text_column="word")
    with fails(ValueError, f"label_column for {path} is 'label'; expected one of 'words', 'kind'."):
        labelled(path, "words", "label")
    usual = "has no column with a usual name for its texts (text, review, sentence, content, ...)"
    with fails(ValueError, f"{path} {usual}; its columns are 'words', 'kind': say which: --text_column NAME."):
        labelled(path)
    usual = "has no column with a usual name for its labels (label, labels, sentiment, class, ...)"
    with fails(ValueError, f"{path} {usual}; its columns are 'words', 'kind': say which: --label_column NAME."):
        labelled(path, "words")
    with fails(ValueError, "text_column is ('words',); expected the name of a column, or of two for pairs."):
        labelled(path, ("words",), "kind")
    path.write_text(f"{'long ' * 50},1,x\nb,2,y\n")  # no names at all
    with pytest.raises(ValueError, match=r"its columns are 'column 1', 'column 2', 'column 3': say which: --text_col"):
        labelled(path)
    path.write_text("text,label,text\n")
    with fails(ValueError, f"{path}, line 1 has two columns 'text'; expected different names."):
        labelled(path)


def test_rows_that_are_wrong(tmp_path):
    path = tmp_path / "x.csv"
    start = 'text,label\n"two\nlines",1\n\n'
    remedy = (
        "expected 2, as in line 1 ('text', 'label'): put double quotes around a field that holds ',' or a line end."
    )
    for row, count in (("well, well,0", 3), ("well", 1)):
        path.write_text(start + row)
        with fails(ValueError, f"{path}, line 5 has {count} fields; {remedy}"):
            labelled(path)
    path.write_text(start + '" ",0')
    remedy = "expected some text: fill it in, or leave the row out."
    with fails(ValueError, f"{path}, line 5 has an empty text in 'text'; {remedy}"):
        labelled(path)
    path.write_text(start + "x, ")
    remedy = "expected one in every row: add it, or leave it out."
    with fails(ValueError, f"{path}, line 5 has no label in 'label'; {remedy}"):
        labelled(path)
    for row in ('"x" y,0', '"x,0\ny,1\n'):
        path.write_text(start + row)
        with pytest.raises(ValueError, match=rf"^{path}, line 5 cannot be read \(.+\); expected fields in double quot"):
            labelled(path)
    path.write_bytes(start.encode() + b"x\xff,0")
    with pytest.raises(ValueError, match=rf"^{path}, line 5 has the byte 0xff, which is not UTF-8; "):
        labelled(path)
    for content in ("", "text,label\n"):
        path.write_text(content)
        with fails(ValueError, f"{path} has no rows; expected texts with labels."):
            labelled(path)
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "label": 1}\n{"text": "b"}')
    with fails(ValueError, f"{path}, line 2 has no 'label'; expected one in every row: its fields are 'text'."):
        labelled(path)
    path.write_text('{"text": 5, "label": 1}')
    with fails(ValueError, f"{path}, line 1 has a int in 'text'; expected text."):
        labelled(path)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_rows_without_lines(tmp_path, ending):
    path = write_table(tmp_path / f"x{ending}", {"text": ["a", "b", "c"], "label": [0, 1, None]})
    with fails(ValueError, f"{path}, row 3 has no 'label'; expected one in every row: its fields are 'text', 'label'."):
        labelled(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=rf"^{path} "):
        labelled(path)


def test_files_that_are_not_there(tmp_path):
    with fails(FileNotFoundError, f"{tmp_path / 'x.csv'} is not there; expected a file."):
        labelled(tmp_path / "x.csv")
    (tmp_path / "y.csv").mkdir()
    with fails(FileNotFoundError, f"{tmp_path / 'y.csv'} is a folder; expected a file."):
        labelled(tmp_path / "y.csv")
    endings = ".csv, .tsv, .txt, .jsonl, .ndjson, .json, .parquet, .arrow"
    with fails(ValueError, f"{tmp_path / 'x.xlsx'} ends in '.xlsx'; expected one of {endings}."):
        labelled(tmp_path / "x.xlsx")


def test_missing_packages(tmp_path, monkeypatch):
    for ending, package in ((".parquet", "pyarrow.parquet"), (".arrow", "pyarrow")):
        monkeypatch.setitem(sys.modules, package, None)
        (tmp_path / f"x{ending}").write_bytes(b"")
        with fails(ImportError, "pyarrow is needed for this: pip install 'lion-attention[tables]'"):
            labelled(tmp_path / f"x{ending}")


def write_reviews(folder, count=40):
    rows = [("text", "label", "source")]
    rows += [(f"Review<br /><br />number {i}!", i % 2, "imdb") for i in range(count)]
    rows += [("review NUMBER 3", 1, "imdb"), ("short", 1, "rotten_tomatoes")]  # the first for a second time
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / REVIEWS).open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def test_imdb(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    missing = f"imdb is not in {tmp_path / 'imdb'}; expected {REVIEWS}: lion.data.fetch('imdb')."
    with fails(FileNotFoundError, missing):
        imdb("train")
    write_reviews(tmp_path / "imdb")
    train, test = imdb("train"), imdb("test")
    assert train.classes == ["negative", "positive"]
    assert np.bincount(train.labels).tolist() == [16, 16]
    assert np.bincount(test.labels).tolist() == [4, 4]
    assert {*train.texts, *test.texts} == {f"Review\n\nnumber {i}!" for i in range(40)}
    assert all(int(text.split()[-1][:-1]) % 2 == label for text, label in zip(test.texts, test.labels, strict=True))
    assert imdb("test").texts == test.texts == imdb("test", data=tmp_path / "imdb" / REVIEWS).texts
    assert imdb("test", seed=1).texts != test.texts
    assert len(imdb("test", holdout=0.5).texts) == 20
    with fails(ValueError, "split is 'dev'; expected one of 'train', 'test'."):
        imdb("dev")
    (tmp_path / "imdb" / REVIEWS).write_text("text,label\na,1\n")
    path = tmp_path / "imdb" / REVIEWS
    with fails(ValueError, f"{path}, line 2 has no 'source'; expected {REVIEWS} as fetched."):
        imdb("train")


# Batches.


def keys(count):
    return [(0, index) for index in range(count)]


def test_labelled_texts():
    texts = ["ab", "a longer text", "", "x" * 100]
    found = LabelledTexts(texts, [0, 2, 1, 1], BYTES, max_length=30)
    assert len(found) == 4
    batch = found.__getitems__([(0, 1), (5, 0), (0, 2)])
    assert {name: tuple(x.shape) for name, x in batch.items()} == {"input_ids": (3, 16), "mask": (3, 16), "label": (3,)}
    assert [x.dtype for x in batch.values()] == [torch.int64, torch.bool, torch.int64]
    assert batch["label"].tolist() == [2, 0, 1]
    for ids, mask, given in zip(batch["input_ids"], batch["mask"], (texts[1], texts[0], ""), strict=True):
        assert ids[mask].tolist() == [BYTES.cls_id, *given.encode(), BYTES.sep_id]
        assert (ids[~mask] == BYTES.pad_id).all()
        assert mask.tolist() == sorted(mask.tolist(), reverse=True)
    assert found.__getitems__([(0, 0)])["input_ids"].shape == (1, 8)
    cut = found.__getitems__([(0, 3), (0, 0)])
    assert cut["input_ids"].shape == (2, 30)  # not 32: a model may have room for no more
    assert cut["input_ids"][0].tolist() == [BYTES.cls_id, *b"x" * 28, BYTES.sep_id]
    scores = LabelledTexts(texts, np.array([0.5, 1, 2, 3]), Causal(), max_length=32)
    batch = scores.__getitems__(keys(2))
    assert (batch["label"].dtype, batch["label"].tolist()) == (torch.float32, [0.5, 1])
    assert batch["input_ids"][0].tolist() == [*b"ab", 256, *[256] * 13]  # it has no other token to fill up with
    assert batch["mask"][0].sum() == 3


def test_labelled_pairs():
    found = LabelledTexts([("ab", "c"), ("a", "defgh"), ("x" * 50, "y" * 50)], [1, 0, 1], BYTES, max_length=16)
    batch = found.__getitems__(keys(3))
    cls, sep, pad = BYTES.cls_id, BYTES.sep_id, BYTES.pad_id
    assert batch["input_ids"].tolist() == [
        [cls, *b"ab", sep, *b"c", sep, *[pad] * 10],
        [cls, *b"a", sep, *b"defgh", sep, *[pad] * 7],
        [cls, *b"x" * 6, sep, *b"y" * 7, sep],
    ]
    types = batch["token_type_ids"]
    assert types.dtype == torch.int64
    assert types.tolist() == [[0] * 4 + [1] * 2 + [0] * 10, [0] * 3 + [1] * 6 + [0] * 7, [0] * 8 + [1] * 8]


def test_labelled_texts_that_are_wrong():
    with fails(ValueError, "there are 2 texts and 1 labels; expected one label per text."):
        LabelledTexts(["a", "b"], [1], BYTES, max_length=8)
    with fails(ValueError, "there are 0 texts and 0 labels; expected one label per text."):
        LabelledTexts([], [], BYTES, max_length=8)
    with fails(ValueError, "1 of 2 texts are pairs; expected all or none."):
        LabelledTexts(["a", ("b", "c")], [1, 0], BYTES, max_length=8)
    with fails(ValueError, "max_length is 2; expected more than 2, the special tokens."):
        LabelledTexts(["a", "b"], [1, 0], BYTES, max_length=2)


# GLUE. Rows as the official files have them.

PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
MNLI = ["index", "promptID", "pairID", "genre", *PARSES]
STSB = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]
ROWS = {
    "cola": (None, [["gj04", "1", "", 'A "b'], ["gj04", "0", "*", "C d"]]),
    "sst2": (["sentence", "label"], [['A "b', "1"], ["C d", "0"]]),
    "mrpc": (
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        [["1", "70", "71", 'A "b', "other"], ["0", "72", "73", "C d", "other"]],
    ),
    "qqp": (
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        [["1", "2", "3", 'A "b', "other", "1"], ["4", "5", "6", "C d", "other", "0"]],
    ),
    "stsb": (
        STSB,
        [[*"0123456", 'A "b', "other", "5.000"], [*"1123456", "C d", "other", "1.25"]],
    ),
    "mnli": (
        [*MNLI, "sentence1", "sentence2", "label1", "gold_label"],
        [[*"01234567", 'A "b', "other", "neutral", "neutral"], [*"11234567", "C d", "other", "neutral", "entailment"]],
    ),
    "qnli": (
        ["index", "question", "sentence", "label"],
        [["0", 'A "b', "other", "not_entailment"], ["1", "C d", "other", "entailment"]],
    ),
    "rte": (
        ["index", "sentence1", "sentence2", "label"],
        [["0", 'A "b', "other", "not_entailment"], ["1", "C d", "other", "entailment"]],
    ),
}
WANTED = {"stsb": [5, 1.25]}


def write_tsv(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in ([header] if header else []) + rows))
    return path


@pytest.mark.parametrize("task", GLUE)
def test_glue_in_its_official_files(tmp_path, task):
    header, rows = ROWS[task]
    known = GLUE[task]
    matched = "_matched" if task == "mnli" else ""
    write_tsv(tmp_path / known.folder / "train.tsv", header, rows * 2)
    if task == "mnli":  # which has more labels where it is tested
        header = [*header[:-1], *(f"label{i}" for i in range(2, 6)), "gold_label"]
        rows = [[*row[:-1], *["neutral"] * 4, row[-1]] for row in rows]
        write_tsv(tmp_path / known.folder / "dev_mismatched.tsv", header, rows * 3)
        assert len(glue(task, tmp_path, "validation_mismatched").texts) == 6
    write_tsv(tmp_path / known.folder / f"dev{matched}.tsv", header, rows)
    for name, folder in ((task, tmp_path), (known.folder, tmp_path / known.folder)):
        found = glue(name, folder, "validation")
        assert found.texts == (['A "b', "C d"] if len(known.columns) == 1 else [('A "b', "other"), ("C d", "other")])
        assert found.labels.tolist() == WANTED.get(task, [1, 0])
        assert found.labels.dtype == (np.float32 if task == "stsb" else np.int64)
        assert found.classes == (None if task == "stsb" else list(known.classes))
        assert len(glue(name, folder, "train").texts) == 4


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("task", GLUE)
def test_glue_from_hugging_face(tmp_path, task, ending):
    known = GLUE[task]
    columns = {name: [f"{name} {i}" for i in range(3)] for name in known.columns} | {
        "label": [1, 0, 1],
        "idx": range(3),
    }
    split = "validation_matched" if task == "mnli" else "validation"
    place = tmp_path / task / (split if ending == ".arrow" else "")
    place.mkdir(parents=True)
    name = "data-00000-of-00001" if ending == ".arrow" else f"{split}-00000-of-00001"
    path = write_table(place / f"{name}{ending}", columns)
    found = glue(task, tmp_path, "validation")
    texts = [columns[name] for name in known.columns]
    assert found.texts == (texts[0] if len(texts) == 1 else list(zip(*texts, strict=True)))
    assert found.labels.tolist() == [1, 0, 1]
    write_table(path, columns | {"label": [0, 1, -1]})  # as the test sets are
    with pytest.raises(ValueError, match=rf"^{path}, row 3 has the label -1(\.0)?; expected "):
        glue(task, tmp_path, "validation")
    write_table(path, {"label": [0]})
    with pytest.raises(ValueError, match=rf"^{path} has no column '{known.columns[0]}'; expected it for "):
        glue(task, tmp_path, "validation")


@pytest.mark.parametrize("task", GLUE)
def test_glue_from_the_hub(monkeypatch, task):
    calls = []

    def load_dataset(*names, **options):
        calls.append((names, options))
        yield from ({"idx": i, "label": i, **dict.fromkeys(GLUE[task].columns, f"text {i}")} for i in range(2))

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    found = glue(task, "hf://nyu-mll/glue", "validation")
    assert found.labels.tolist() == [0, 1]
    assert found.texts == [f"text {i}" if len(GLUE[task].columns) == 1 else (f"text {i}",) * 2 for i in range(2)]
    split = "validation_matched" if task == "mnli" else "validation"
    assert calls == [(("nyu-mll/glue", task), {"split": split, "streaming": True})]
    forget()
    assert TextClassificationTask(dataset=task, data="hf://nyu-mll/glue").texts("train").labels.tolist() == [0, 1]


def test_glue_that_is_wrong(tmp_path, caplog):
    with pytest.raises(ValueError, match=r"^task is 'wnli'; expected one of 'cola', .* Did you mean 'qnli'\?$"):
        glue("WNLI", tmp_path, "train")
    with fails(ValueError, "split is 'test'; expected one of 'train', 'validation'."):
        glue("rte", tmp_path, "test")
    where = "there, or in a folder RTE of it: give that as data (--data FOLDER, or --data hf://nyu-mll/glue)."
    wanted = f"RTE is not in {tmp_path}; expected dev.tsv, validation-*.parquet or validation/*.arrow {where}"
    with fails(FileNotFoundError, wanted):
        glue("rte", tmp_path, "validation")
    header, rows = ROWS["rte"]
    path = write_tsv(tmp_path / "train.tsv", header, [*rows, rows[0][:3]])
    with fails(ValueError, f"{path}, line 4 has 3 fields; expected 4: get it again."):
        glue("rte", tmp_path, "train")
    write_tsv(path, header, [*rows, [*rows[0][:3], "maybe"]])
    known = "'entailment', 'not_entailment', '0', '1'"
    with fails(ValueError, f"{path}, line 4 has the label 'maybe'; expected one of {known}."):
        glue("rte", tmp_path, "train")
    write_tsv(path, header[:2], [])
    with fails(ValueError, f"{path}, line 1 has 2 fields; expected at least 4, as RTE has."):
        glue("rte", tmp_path, "train")
    write_tsv(path, None, [])
    with fails(ValueError, f"{path} has no rows; expected those of RTE."):
        glue("rte", tmp_path, "train")
    header, rows = ROWS["stsb"]
    write_tsv(path, header, [*rows[:1], [*rows[0][:9], "six"]])
    with fails(ValueError, f"{path}, line 3 has the label 'six'; expected a score from 0 to 5."):
        glue("stsb", tmp_path, "train")
    header, rows = ROWS["qqp"]
    write_tsv(path, header, [rows[0][:4], *rows])  # the official file has some of these
    assert len(glue("qqp", tmp_path, "train").texts) == 2
    assert caplog.messages == [f"{path}: left out 1 rows with fields missing"]


@pytest.mark.skipif(not (lion_data_folder() / "imdb").exists(), reason="lion.data.fetch('imdb')")
def test_the_reviews():
    train, test = imdb("train"), imdb("test")
    assert np.bincount(train.labels).tolist() == [9945, 9976]
    assert np.bincount(test.labels).tolist() == [2486, 2494]
    assert not {*train.texts} & {*test.texts}


@pytest.mark.parametrize(("different", "told"), [(10, False), (11, True)])
def test_many_whole_numbers_may_be_amounts(tmp_path, different, told):
    path = tmp_path / "years.csv"
    path.write_text("text,label\n" + "".join(f"words,{1990 + n % different}\n" for n in range(40)))
    wanted = f"{different} whole numbers, taken for classes; if they are amounts: --numbers"
    assert labelled(path).notes.get("labels") == (wanted if told else None)
    assert "labels" not in labelled(path, numbers=True).notes


def test_names_that_look_like_numbers(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("text,label\n" + "".join(f"words,{x}\n" for x in ("007", "7", "1e2", "100", "7.0")))
    assert labelled(path).classes == ["007", "7", "100", "1e2"]
    assert labelled(path).labels.tolist() == [0, 1, 3, 2, 1]


class Words:
    """A tokenizer of words that are numbers."""

    pad_id, eos_id = 0, None

    def encode(self, texts, *, specials, max_length=None):
        return [[1, *map(int, text.split()), 2][:max_length] for text in texts]


def test_windows_and_tokens_left_out_in_training():
    texts = [" ".join(str(10 * n + i) for i in range(3, 3 + length)) for n, length in ((10, 40), (100, 4))]
    whole = LabelledTexts(texts, [0, 1], Words())
    rows = [
        x[m].tolist()
        for x, m in zip(*(whole.__getitems__([(0, 0), (0, 1)])[k] for k in ("input_ids", "mask")), strict=False)
    ]
    parts = LabelledTexts(texts, [0, 1], Words(), crop=16, seed=SEED)
    assert parts.row_lengths.tolist() == [16, 6]
    seen = set()
    for epoch in range(40):
        batch = parts.__getitems__([(epoch, 0), (epoch, 1)])
        assert batch["input_ids"].shape == (2, 16)
        window, short = (x[m].tolist() for x, m in zip(batch["input_ids"], batch["mask"], strict=True))
        first = rows[0].index(window[1])
        assert window == [1, *rows[0][first : first + 15]]
        assert short == rows[1]
        seen.add(first)
    assert len(seen) > 10
    assert max(seen) <= 42 - 15
    again = parts.__getitems__([(39, 0), (39, 1)])
    assert all(torch.equal(again[name], batch[name]) for name in batch)  # by seed, epoch and index alone

    fewer = LabelledTexts(texts, [0, 1], Words(), drop=0.5, seed=SEED)
    counts = []
    for epoch in range(40):
        batch = fewer.__getitems__([(epoch, 0), (epoch, 1)])
        left = [x[m].tolist() for x, m in zip(batch["input_ids"], batch["mask"], strict=True)]
        for some, row in zip(left, rows, strict=True):
            assert some[0] == 1
            assert some == [x for x in row if x in some]  # in their order
        counts.append(len(left[0]))
        assert batch["mask"].shape[1] < max(map(len, left)) + 8  # no wider than needed
    assert 16 < sum(counts) / 40 < 28
    assert not torch.equal(fewer.__getitems__([(0, 0)])["input_ids"], fewer.__getitems__([(1, 0)])["input_ids"])


def test_pairs_stay_whole_but_for_tokens_left_out():
    class Pairs(Words):
        def encode_pairs(self, pairs, *, max_length=None):
            return [([1, 5, 6, 2, 7, 8, 9, 2], [0, 0, 0, 0, 1, 1, 1, 1]) for _ in pairs]

    found = LabelledTexts([("5 6", "7 8 9")], [0], Pairs(), crop=4, drop=0.4, seed=SEED)
    for epoch in range(20):
        batch = found.__getitems__([(epoch, 0)])
        ids, kinds = batch["input_ids"][batch["mask"]], batch["token_type_ids"][batch["mask"]]
        assert ids[0] == 1
        assert all(kinds[ids == x].eq(kind).all() for x, kind in ((5, 0), (6, 0), (7, 1), (8, 1), (9, 1)))

"""Tables of people's own: what they look like is found out, and all that is wrong is said at once."""

import json
import random
import re

import numpy as np
import pytest

from lion.data.findings import LISTED, BadData, Findings
from lion.data.labelled import LabelledTexts, chosen_cut, labelled
from lion.data.labelled_dna import labelled_sequences
from lion.data.labelled_series import labelled_series
from lion.data.tables import records, text_lines
from lion.data.tokenizers import ByteTokenizer
from tests import SEED

TEXTS = ["a fine film, really", "dull; and long", "so\tso", "a|b", 'he said "no"', "Ünïcode"] * 3
LABELS = ["good", "bad", "bad", "good", "bad", "good"] * 3


def write(path, rows, delimiter, encoding="utf-8"):
    quoted = ('"' + x.replace('"', '""') + '"' if set(x) & set('",;\t|') else x for row in rows for x in row)
    fields = list(quoted)
    width = len(rows[0])
    lines = [delimiter.join(fields[i : i + width]) for i in range(0, len(fields), width)]
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize(("delimiter", "name"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_and_headers(tmp_path, ending, delimiter, name, header):
    rows = [["review", "sentiment"]] * header + [list(row) for row in zip(TEXTS, LABELS, strict=True)]
    found = labelled(write(tmp_path / f"x{ending}", rows, delimiter))
    assert (found.texts, found.classes) == (TEXTS, ["bad", "good"])
    assert [found.classes[i] for i in found.labels] == LABELS
    assert found.notes["format"] == f"{name} between fields, {'a' if header else 'no'} header"
    names = ("review", "sentiment") if header else ("column 1", "column 2")
    assert found.notes["columns"] == "texts from {!r}, labels from {!r}".format(*names)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(tmp_path, encoding):
    rows = [["text", "label"], *([text, label] for text, label in zip(TEXTS, LABELS, strict=True))]
    found = labelled(write(tmp_path / "x.csv", rows, ";", encoding))
    assert found.texts == TEXTS
    assert found.notes["format"].endswith(", UTF-16") == ("16" in encoding)
    (tmp_path / "x.txt").write_bytes("one\r\ntwö\n".encode(encoding))
    assert list(text_lines(tmp_path / "x.txt")) == ["one\n", "twö\n"]


def test_encodings_that_are_none(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"line 2 has the byte 0xe9, which is not UTF-8; expected UTF-8 text: iconv"):
        labelled(path)
    path.write_bytes("text,label\nx,1\n".encode("utf-16") + b"\x00\xdc")  # half of a pair
    with pytest.raises(ValueError, match="which is not UTF-16"):
        labelled(path)
    path.write_bytes(bytes(range(1, 255)) * 2 + b"\0" * 9)
    with pytest.raises(ValueError, match="is not UTF-8"):
        labelled(path)


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["0.5,a", "1.5,b"], ["a", "b"]),  # numbers first: fewer different values in the last column only in doubt
        (["x,the first", "y,the second", "x,the third"], ["the first", "the second", "the third"]),
        (["alpha,1", "beta,2"], ["alpha", "beta"]),
        (["ACGTACGT,gene", "ACGTTTTT,other", "ACCCCCCC,gene"], ["ACGTACGT", "ACGTTTTT", "ACCCCCCC"]),
    ],
)
def test_without_a_header(tmp_path, lines, texts):
    (tmp_path / "x.csv").write_text("\n".join(lines))
    columns = {"text_column": "column 2", "label_column": "column 1"} if lines[0][0] == "0" else {}
    found = labelled(tmp_path / "x.csv", **columns)
    assert found.texts == texts
    assert "no header" in found.notes["format"]


def test_a_header_with_names_of_its_own(tmp_path):
    (tmp_path / "x.csv").write_text(";words;kind\n0;a;x\n1;b;y\n2;c;x\n")  # as pandas writes it, with an index
    found = labelled(tmp_path / "x.csv", "words", "kind")
    assert (found.texts, found.classes) == (["a", "b", "c"], ["x", "y"])
    (tmp_path / "y.csv").write_text("2020;kind\n1;x\n2;y\n")  # asked for: no data, though it looks like that
    assert labelled(tmp_path / "y.csv", "2020", "kind").texts == ["1", "2"]


ROWS = [{"text": "a b", "label": "x"}, {"text": "c\nd", "label": "y"}, {"text": "e", "label": "x"}]


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        (".json", json.dumps(ROWS)),
        (".json", json.dumps(ROWS, indent=2)),
        (".json", "".join(json.dumps(row) + "\n" for row in ROWS)),
        (".json", json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]})),
        (".json", json.dumps({name: {str(i): row[name] for i, row in enumerate(ROWS)} for name in ROWS[0]}, indent=1)),
        (".jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        (".ndjson", "\n".join(json.dumps(row) for row in ROWS)),
    ],
)
def test_json(tmp_path, ending, content):
    path = tmp_path / f"x{ending}"
    for encoding in ("utf-8", "utf-16"):
        path.write_bytes(content.encode(encoding))
        found = labelled(path)
        assert (found.texts, found.classes, found.labels.tolist()) == (["a b", "c\nd", "e"], ["x", "y"], [0, 1, 0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a"', r"x\.json is no JSON \(.*\); expected an array of objects, an object of columns, or"),
        ("[" * 100_000, r"x\.json is no JSON"),
        ('{"text": ["a", "b"], "label": ["x"]}', r"x\.json, row 1 has a list in 'text'"),
        ('{\n"text": ["a", "b"], "label": ["x"]}', r"is an object with 'text', 'label'; expected an array of objects"),
        ('{\n"text": "a"}', r"is an object with 'text'; expected an array"),
        ("[1, 2]", r"has 2 bad rows \(2 that are no objects\)"),
        ('[{"text": "a", "label": 1}, 5, {"text": "b", "label": 2}]', r"x\.json, row 2 is a int; expected an object"),
        ("[]", "has no rows"),
        ("word", r"row 1 is no JSON"),
    ],
)
def test_json_that_is_wrong(tmp_path, content, message):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        labelled(tmp_path / "x.json")


def bad_table(path, more=0):
    lines = ["text,label", "fine,x", ",x", "no label,", "a,b,c", '"wrong" quotes,x', "good,y"]
    path.write_text("\n".join([*lines, *(["empty,"] * more)]) + "\n")
    return path


def test_all_that_is_wrong_at_once(tmp_path):
    path = bad_table(tmp_path / "x.csv")
    with pytest.raises(BadData) as caught:
        labelled(path)
    head, *lines = str(caught.value).splitlines()
    kinds = "1 with too many or too few fields", "1 with wrong quotes", "1 with an empty text", "1 without a label"
    assert head.startswith(f"{path} has 4 bad rows (")
    assert all(kind in head for kind in kinds)
    assert head.endswith("; expected none: repair them, or leave them out with --skip-bad")
    assert [line.split(" has ")[0].split(" cannot ")[0] for line in lines] == [f"  - line {n}" for n in (3, 4, 5, 6)]
    bad_table(path, more=53)
    with pytest.raises(BadData) as caught:
        labelled(path)
    head, *lines = str(caught.value).splitlines()
    assert "57 bad rows (54 without a label, " in head
    assert (len(lines), lines[-1]) == (LISTED + 1, "  - and 37 more")


def test_bad_rows_are_skipped_and_counted(tmp_path):
    found = labelled(bad_table(tmp_path / "x.csv", more=3), skip_bad=True)
    assert (found.texts, found.rows) == (["fine", "good"], [2, 7])
    assert found.notes["skipped"].startswith("7 rows: 4 without a label, ")
    other = labelled(bad_table(tmp_path / "y.csv"), classes=["x", "z"], skip_bad=True)  # y is another class
    assert (other.texts, other.labels.tolist()) == (["fine"], [0])
    assert "1 with another class" in other.notes["skipped"]
    path = tmp_path / "z.csv"
    path.write_text("text,score\na,1.5\nb,many\nc,2\n")
    numbers = labelled(path, numbers=True, skip_bad=True)
    assert (numbers.texts, numbers.labels.tolist()) == (["a", "c"], [1.5, 2])
    path.write_text("text,label\n,x\n,y\n")
    with pytest.raises(ValueError, match="has no label in any row of 'label'"):
        labelled(path, skip_bad=True)


def test_a_quote_that_is_never_closed_is_not_skipped(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('text,label\na,x\n"b,y\nc,x\nd,y\n')
    with pytest.raises(ValueError, match="line 3 cannot be read"):
        labelled(path, skip_bad=True)
    path.write_text('text,label\na,x\n"b,y\nc,x\n"d" e,y\nf,y\n')  # closed by that of another row
    found = labelled(path, skip_bad=True)
    assert (found.texts, found.notes["skipped"]) == (["a", "f"], "3 rows: 3 with wrong quotes")


def test_without_findings_a_bad_row_raises(tmp_path):
    with pytest.raises(ValueError, match=r"line 6 cannot be read|line 5 has 3 fields"):
        list(records(bad_table(tmp_path / "x.csv")))
    assert len(list(records(tmp_path / "x.csv", findings=Findings(tmp_path / "x.csv")))) == 4


def test_bad_sequences(tmp_path):
    table, fasta = tmp_path / "x.csv", tmp_path / "x.fa"
    table.write_text("seq,label\nACGT,x\nAC-GT,x\nPROTEIN,y\nAAAA,y\n")
    fasta.write_text(">a|x\nACGT\n>b|x\nAC-GT\nAC*GT\n>c\nACGT\n>d|y\n>e|y\nAAAA\n")
    with pytest.raises(BadData, match=re.escape("has 2 bad rows (2 with letters that are no nucleotides)")):
        labelled_sequences(table)
    with pytest.raises(BadData, match=re.escape("has 3 bad sequences (1 with letters that are no nucleotides, ")):
        labelled_sequences(fasta)
    for path, skipped in ((table, "2 rows"), (fasta, "3 sequences")):
        found = labelled_sequences(path, skip_bad=True)
        assert [x.tolist() for x in found.tokens] == [[1, 2, 3, 4], [1, 1, 1, 1]]
        assert found.labels.tolist() == [0, 1]
        assert found.notes["skipped"].startswith(skipped)


# Labels that are missing.

NOTHING = ["n/a", "NA", "?", "nan", "NaN", "null", "none", "", " "]
READ = {  # what reads a file, its name, and its content for some labels
    "texts": (labelled, "x.csv", lambda y: "\n".join(["text,score", *(f"words {i},{x}" for i, x in enumerate(y))])),
    "DNA": (labelled_sequences, "x.csv", lambda y: "\n".join(["sequence,score", *(f"ACGT,{x}" for x in y)])),
    "FASTA": (labelled_sequences, "x.fa", lambda y: "".join(f">a|{x}\nACGT\n" for x in y)),
    "wide": (labelled_series, "x.csv", lambda y: "\n".join(["s,u,score", *(f"1,2,{x}" for x in y)])),
    "long": (
        labelled_series,
        "x.csv",
        lambda y: "\n".join(["id,v,score", *(f"{i},{step},{x}" for i, x in enumerate(y) for step in (1, 2))]),
    ),
    "ts": (labelled_series, "x.ts", lambda y: "\n".join(["@classLabel true", "@data", *(f"1,2:{x}" for x in y)])),
    "no header": (labelled_series, "x.tsv", lambda y: "\n".join(f"{x}\t1\t2" for x in y)),
}


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("labels", [["0.5", "1.25", "3"], ["3", "10", "3"]])
def test_a_missing_label_among_numbers(tmp_path, kind, labels):
    read, name, content = READ[kind]
    path = tmp_path / name
    numbers = "0.5" in labels and kind != "ts"  # which says itself that it has classes
    for nothing in NOTHING:
        path.write_text(content([*labels, nothing]))
        with pytest.raises(BadData, match="no label"):
            read(path)
        path.write_text(content([labels[0], nothing, *labels[1:], nothing]))
        with pytest.raises(BadData, match=r"without a label"):
            read(path)
        found = read(path, skip_bad=True)
        assert "without a label" in found.notes["skipped"]
        assert found.classes == (None if numbers else sorted({*labels}, key=float))
        values = found.labels if numbers else [found.classes[i] for i in found.labels]
        assert [float(x) for x in values] == [float(x) for x in labels]


@pytest.mark.parametrize("kind", READ)
def test_a_class_may_be_called_none(tmp_path, kind):
    read, name, content = READ[kind]
    path = tmp_path / name
    labels = ["none", "some", "NA", "n/a", "some", "null", "1"]
    path.write_text(content(labels))
    found = read(path)
    assert [found.classes[i] for i in found.labels] == labels
    path.write_text(content(["none", "NA", "none"]))
    assert read(path).classes == ["NA", "none"]
    # Of an eval set, the classes are known: all of its rows may have this one.
    path.write_text(content(["none"]))
    assert read(path, classes=["some", "none"]).labels.tolist() == [1]
    path.write_text(content(["1", "none", "2"]))
    assert read(path, classes=["1", "2", "none"]).labels.tolist() == [0, 2, 1]


def test_a_missing_label_and_a_wrong_one(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,score\na,1.5\nb,many\nc,NA\nd,2\n")
    with pytest.raises(BadData, match=r"has 2 bad rows \(1 without a label, 1 without a number\)"):
        labelled(path, numbers=True)
    assert labelled(path).classes == ["1.5", "2", "NA", "many"]  # texts, as one of them is
    path.write_text("text,score\na,1.5\nb,NA\nd,2\n")
    said = "line 3 has 'NA' in 'score', and no label; expected a number, as in other rows: add it, or leave it out; or"
    with pytest.raises(BadData, match=said):
        labelled(path)
    path.write_text("text,score\na,NA\nb,NA\n")
    with pytest.raises(ValueError, match="'NA' in every row of 'score'; expected two classes"):
        labelled(path)


# Lengths.


def test_where_texts_are_cut():
    generator = np.random.default_rng(SEED)
    usual = generator.integers(5, 200, 1000)
    assert chosen_cut(usual) == 0
    assert chosen_cut(np.append(usual, 512)) == 0  # not worth a loss
    assert chosen_cut(np.append(usual, 50_000)) == 256
    cut = chosen_cut(np.append(usual * 4, 50_000))
    assert cut == 832  # a multiple of 64, above 99 of 100
    assert chosen_cut(np.full(100, 9000)) == 2048
    assert chosen_cut(np.append(usual * 7, 2000)) == 0


def test_whole_texts():
    words = random.Random(SEED).choices("abc ", k=300)
    texts = ["short", "".join(words), "x"]
    whole, cut = (LabelledTexts(texts, [0, 1, 0], ByteTokenizer(), most) for most in (0, 16))
    assert whole.lengths.tolist() == cut.lengths.tolist() == [7, 302, 3]
    keys = [(0, 0), (0, 1)]
    assert whole.__getitems__(keys)["mask"].sum(1).tolist() == [7, 302]
    assert cut.__getitems__(keys)["mask"].sum(1).tolist() == [7, 16]
    assert whole.__getitems__(keys[:1])["input_ids"].shape == (1, 8)
    pairs = LabelledTexts([("ab", "c" * 50), ("d", "e")], [0, 1], ByteTokenizer(), 12)
    assert pairs.lengths.tolist() == [55, 5]
    assert pairs.__getitems__(keys)["mask"].sum(1).tolist() == [12, 5]

"""lion predict, with the runs of tests/legacy: where inputs come from, how results are written, what is wrong."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion.cli import main

RUNS = Path(__file__).parents[1] / "legacy" / "runs"
DIGIT = RUNS.parent / "data" / "digit.png"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def predict(capsys, monkeypatch):
    """`lion predict` of a run; what it prints, says and returns."""

    def call(kind, *arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="latin1"))
        capsys.readouterr()
        code = main(["predict", str(RUNS / kind), *map(str, arguments)])
        printed = capsys.readouterr()
        return printed.out, printed.err, code

    return call


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_inputs_of_all_kinds_at_once(predict, here):
    (here / "one.txt").write_text("a fine\nfilm")
    (here / "lines.txt").write_text("dull\ngreat\n")
    (here / "t.csv").write_text("id,review\n1,poor\n")
    given = ["a film", "one.txt", "t.csv", "-", "--file", "lines.txt", "--format", "csv"]
    out, err, code = predict("text", *given, stdin=b"superb\nvery dull\n")
    assert code == 0
    assert [(x["input"], x["text"]) for x in rows(out)] == [
        ("lines.txt, line 1", "dull"),
        ("lines.txt, line 2", "great"),
        ("a film", ""),
        ("one.txt", ""),
        ("t.csv, line 2", "poor"),
        ("line 1", "superb"),
        ("line 2", "very dull"),
    ]
    assert {x["class"] for x in rows(out)} <= {"good", "bad"}
    assert err.splitlines() == [
        "one.txt: a file, read as one text (with --file, one a line)",
        "t.csv: a file, read as a table",
    ]


def test_options_may_stand_before_inputs(predict):
    out, _, code = predict("text", "--best", "1", "a film", "--form", "full", "dull")
    assert code == 0
    assert len(out.splitlines()) == 4


def test_batches_predict_as_single_inputs_do(predict):
    texts = [" ".join(["a great film"] * n) for n in (1, 5, 2, 9)]
    sequences = ["ACGT" * n for n in (1, 7, 3)]
    for kind, given in (("text", texts), ("dna_classes", sequences)):
        found = [rows(predict(kind, *given, "--format", "csv", "--batch", n)[0]) for n in ("1", "4")]
        alone, together = ([(x["class"], float(x["probability"])) for x in some] for some in found)
        assert [x for x, _ in alone] == [x for x, _ in together]
        assert [p for _, p in alone] == pytest.approx([p for _, p in together], abs=1e-5)
        assert len(alone) == len(given)


def test_standard_input_where_there_is_no_other(predict, monkeypatch):
    out, _, code = predict("text", "--format", "jsonl", stdin=b"\xef\xbb\xbfgreat\nd\xc3\xbcster\n")
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [x["text"] for x in found] == ["great", "düster"]
    assert found[0].keys() == {"input", "text", "class", "probability"}
    out, err, code = predict("text", stdin=b"")
    assert code == 1
    assert "there is nothing to predict; expected an input, at least." in err
    monkeypatch.setattr(sys, "stdin", None)
    out, err, code = predict("text")
    assert code == 1
    assert err == (
        "lion predict: there is nothing to predict; expected INPUT, --file FILE, or lines on standard input.\n"
    )


def test_lines_of_standard_input_are_never_files(predict, here):
    (here / "one.txt").write_text("a film")
    out, _, code = predict("text", "--format", "csv", stdin=b"one.txt\n")
    assert code == 0
    assert rows(out)[0]["text"] == "one.txt"


def test_a_bad_input_does_not_lose_the_others(predict):
    for size in ("1", "2", "8"):
        given = ["--format", "csv", "--batch", size]
        out, err, code = predict("text", *given, stdin=b"great\n\ndull\n\xff\nfine\n")
        assert code == 1
        found = rows(out)
        assert [bool(x["class"]) for x in found] == [True, False, True, False, True]
        assert found[1]["error"] == "a text is empty; expected some words."
        assert "expected UTF-8" in found[3]["error"]
        (line,) = err.splitlines()
        assert line == (
            "lion predict: 2 of 5 inputs have an error and no result; the first: line 2: a text is empty; expected "
            "some words."
        )


def test_a_bad_line_of_a_file_does_not_lose_the_others(predict, here):
    (here / "t.csv").write_bytes(b'text,label\ngreat,1\ndull\n"a" b,1\nd\xff,1\nfine,1\n')
    (here / "t.txt").write_bytes(b"great\n\xff\nfine\n")
    (here / "g.fa").write_bytes(b">a\nACGT\n>b\nAC\xffT\n>c\nTTTT\n")
    for kind, name, wanted in (("text", "t.csv", "1...1"), ("text", "t.txt", "1.1"), ("dna_classes", "g.fa", "1.1")):
        for form in ("csv", "table", "json"):
            out, err, code = predict(kind, "--file", name, "--format", form)
            assert code == 1
            assert "inputs have an error and no result; the first: " in err
            if form == "csv":
                assert "".join("1" if x["class"] else "." for x in rows(out)) == wanted
                assert all(bool(x["class"]) != bool(x["error"]) for x in rows(out))
    out, err, _ = predict("text", "--file", "t.csv", "--format", "csv", "--out", "found.csv")
    assert [x["input"] for x in rows((here / "found.csv").read_text())] == [f"t.csv, line {n}" for n in range(2, 7)]
    assert "3 of 5 inputs have an error" in err


def test_a_word_like_a_file_is_not_classified(predict):
    out, err, code = predict("text", "two.txt", "a film")
    assert code == 1
    assert "two.txt is not there, and is called like a file" in err
    lines = out.splitlines()
    assert lines[2].split()[:4] == ["two.txt", "-", "-", "error:"]
    assert lines[3].startswith("a film ")


def test_images(predict, here):
    for name in ("a/1.png", "a/b/2.PNG", ".hidden/3.png", "a/.4.png"):
        (here / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.open(DIGIT).save(here / "pictures" / name)
    (here / "pictures" / "a" / "notes.txt").write_text("no picture")
    (here / "pictures" / "broken.png").write_bytes(b"no picture")
    (here / "empty").mkdir()
    out, _err, code = predict("images", "pictures", "empty", "none.png", DIGIT, "--format", "csv")
    assert code == 1
    found = rows(out)
    assert [x["input"] for x in found] == [
        "pictures/broken.png",
        "pictures/a/1.png",
        "pictures/a/b/2.PNG",
        "empty",
        "none.png",
        str(DIGIT),
    ]
    assert found[0].keys() == {"input", "class", "probability", "error"}
    assert [x["class"] for x in found] == ["", "5", "5", "", "", "5"]
    assert "empty has no images; expected files .jpg" in found[3]["error"]
    assert found[4]["error"] == "none.png is not there; expected an image, or a folder of them."
    out, _, code = predict("images", "--format", "csv", stdin=f"{DIGIT}\npictures/a\n".encode())
    assert code == 0
    assert [x["class"] for x in rows(out)] == ["5"] * 3


def test_sequences(predict, here):
    (here / "g.fa").write_text(">a one\nACGT\nGG\n>b\nAC!T\n>c\nTTTT\n")
    out, _err, code = predict("dna_classes", "--file", "g.fa", "ACGT", "--format", "csv")
    assert code == 1
    assert [(x["input"], bool(x["error"])) for x in rows(out)] == [
        ("g.fa, a", False),
        ("g.fa, b", True),
        ("g.fa, c", False),
        ("ACGT", False),
    ]
    out, _, code = predict("dna", "AC[MASK]GT", "--best", "9", "--format", "json")
    assert code == 0
    assert {x["class"] for x in json.loads(out)[0]["best"]} == set("ACGT")


def test_formats(predict, here):
    given = ["a great film", "", "--best", "2"]
    out, _, _ = predict("text", *given)
    assert out.splitlines()[0].split() == ["input", "class", "probability"]
    assert len(out.splitlines()) == 2 + 2 + 1
    out, _, _ = predict("text", *given, "--format", "csv")
    best, empty = rows(out)
    assert list(best) == ["input", "class", "probability", "class_2", "probability_2", "error"]
    assert float(best["probability"]) + float(best["probability_2"]) == pytest.approx(1, abs=1e-5)
    assert empty == dict.fromkeys(best, "") | {"error": "a text is empty; expected some words."}
    plain = json.loads(predict("text", *given, "--format", "json")[0])
    assert plain[0]["best"][0] == {"class": plain[0]["class"], "probability": plain[0]["probability"]}
    assert plain[1] == {"input": "", "error": "a text is empty; expected some words."}
    lines = predict("text", *given, "--format", "jsonl")[0].splitlines()
    assert [json.loads(line) for line in lines] == plain
    assert json.loads(predict("text", "--format", "json", stdin=b"")[0]) == []
    out, err, code = predict("text", "a film", "--format", "xml")
    assert code == 1
    assert "format is 'xml'; expected one of 'table', 'csv', 'json', 'jsonl'." in err


def test_columns_of_a_table_keep_their_widths(predict):
    out, _, _ = predict("text", "--best", "1", "--batch", "2", stdin=b"a\nb\nc\nd\n")
    lines = out.splitlines()
    assert len(lines) == 2 + 4
    assert len({line.index("%") for line in lines[2:]}) == 1


def test_texts_of_a_table_are_short_and_printable(predict):
    out, _, code = predict("text", "x\x1b[31m\ny " * 100, "--best", "1")
    assert code == 0
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3
    assert max(map(len, out.splitlines())) < 80


def test_a_file_for_results(predict, here):
    out, err, code = predict("text", "a film", "dull", "--out", "out.csv")
    assert (out, err, code) == ("", "2 results in out.csv\n", 0)
    assert len(rows((here / "out.csv").read_text())) == 2
    predict("text", "a film", "--out", "out.json")
    assert len(json.loads((here / "out.json").read_text())) == 1
    predict("text", "a film", "--out", "out.txt")
    assert (here / "out.txt").read_text().startswith("input ")
    predict("text", "a film", "--out", "out.txt", "--format", "jsonl")
    assert json.loads((here / "out.txt").read_text())["input"] == "a film"
    _, err, code = predict("text", "", "a film", "--out", "out.csv")
    assert code == 1
    assert len(rows((here / "out.csv").read_text())) == 2
    _, err, code = predict("text", "--file", "out.csv", "--out", here / "out.csv")
    assert code == 1
    assert f"out is {here}/out.csv, which is an input, too; expected another file." in err
    assert len(rows((here / "out.csv").read_text())) == 2
    _, err, code = predict("text", "a film", "--out", "none/out.csv")
    assert code == 1
    assert err.startswith("lion predict: out.csv could not be written to none")


def test_columns(predict, here):
    (here / "t.csv").write_text("one,two\na,b\n")
    out, err, code = predict("text", "--file", "t.csv")
    assert code == 1
    assert "its columns are 'one', 'two': say which with --column NAME." in err
    out, _, code = predict("text", "--file", "t.csv", "--column", "two", "--format", "csv")
    assert code == 0
    assert rows(out)[0]["text"] == "b"


def test_runs_that_predict_nothing(predict):
    out, err, code = predict("causal", "a film", "another")
    assert (out, code) == ("", 1)
    assert "does not predict classes of single inputs; use it so: lion generate" in err


def test_backends(predict, capsys):
    found = {predict("dna_classes", "ACGT", "--backend", name, "--form", "scan")[0] for name in ("auto", "torch")}
    assert len(found) == 1
    _, err, code = predict("dna_classes", "ACGT", "--backend", "moon")
    assert code == 1
    assert "backend is 'moon'; expected one of 'auto', " in err
    assert main(["eval", str(RUNS / "images"), "--backend", "torch"]) == 0
    assert "loss 2.3, accuracy 0.1727" in capsys.readouterr().out
    assert main(["eval", str(RUNS / "images"), "--backend", "moon"]) == 1
    assert "lion eval: backend is 'moon'; expected one of 'auto', " in capsys.readouterr().err


def test_results_are_written_while_inputs_come_in(predict, capsys, monkeypatch):
    class Lines:
        def isatty(self):
            return False

        def __iter__(self):
            for text in ("great", "dull"):
                yield text
                assert json.loads(capsys.readouterr().out)["text"] == text

    monkeypatch.setattr(sys, "stdin", Lines())
    assert predict("text", "--format", "jsonl", "--batch", "1") == ("", "", 0)

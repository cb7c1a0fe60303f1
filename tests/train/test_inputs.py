"""Where inputs of predictions come from: words, files, lines."""

from types import SimpleNamespace

import pytest

from lion.tasks import Input
from lion.tasks.text_classification import KnownTexts
from lion.train.inputs import guarded, of_file, of_lines, of_word, plain


def run(reads="text", pairs=False, **fields):
    """As much of a run as inputs need."""
    task = SimpleNamespace(reads=reads, inputs=lambda trained, path: [Input(path, path.upper())], **fields)
    return SimpleNamespace(task=task, known=KnownTexts(pairs=pairs))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def word(text, **options):
    said = []
    return list(of_word(run(**options), text, said.append)), said


def test_a_word_is_a_text(here):
    assert word("a film") == ([Input("a film", "a film")], [])
    assert word("and/or") == ([Input("and/or", "and/or")], [])
    assert word("It cost 3.50") == ([Input("It cost 3.50", "It cost 3.50")], [])
    assert word("x" * 5000)[0][0].given == "x" * 5000
    assert word("~nobody/x")[0][0].given == "~nobody/x"


def test_a_word_is_a_file(here):
    (here / "one.txt").write_text("two\nlines\n")
    (here / "plain").write_text("a film")
    (here / "films.csv").write_text("text,label\na film,1\n")
    (here / "genes.fa").write_text(">a\nAC\n")
    said = ["one.txt: a file, read as one text (with --file, one a line)"]
    assert word("one.txt") == ([Input("one.txt", "two\nlines\n")], said)
    assert word("plain")[0] == [Input("plain", "a film")]
    found, said = word("films.csv")
    assert found == [Input("films.csv, line 2", "a film", "a film")]
    assert said == ["films.csv: a file, read as a table"]
    assert word("genes.fa", reads="sequence") == ([Input("genes.fa, a", "AC")], ["genes.fa: a file, read as FASTA"])
    assert word("genes.fa")[0] == [Input("genes.fa", ">a\nAC\n")]  # for texts, FASTA is one


@pytest.mark.parametrize("name", ["one.txt", "x.csv", "a/b.JSONL", "g.fa.gz", "photo.jpg"])
def test_what_is_called_like_a_file_is_no_text(name):
    with pytest.raises(FileNotFoundError, match=f"^{name} is not there, and is called like a file; expected a file or"):
        word(name)


def test_a_text_that_ends_like_a_file_is_said_to_be_one():
    found, said = word("look into notes.txt")
    assert found == [Input("look into notes.txt", "look into notes.txt")]
    assert said == ["look into notes.txt: read as a text, as there is no such file"]


def test_a_folder_is_no_text(here):
    (here / "film").mkdir()
    with pytest.raises(ValueError, match=r"^film is a folder; expected a text, or files: film/\*\.txt\."):
        word("film")


def test_paths_are_the_tasks_own(here):
    assert word("missing.png", reads="file")[0] == [Input("missing.png", "MISSING.PNG")]
    assert next(iter(of_file(run("file"), here / "x"))).name == str(here / "x")
    assert [x.given for x in of_lines(run("file"), ["a\n", "b"])] == ["A", "B"]
    assert [x.given for x in plain(run("file"), [here / "c"])] == [str(here / "c").upper()]


def test_lines(here):
    (here / "texts.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\nthree")
    found = list(of_file(run(), here / "texts.txt"))
    assert [x.given for x in found] == ["one", "", "three"]
    assert found[2].name == f"{here}/texts.txt, line 3"
    assert list(of_lines(run(), ["\ufeffa\n"])) == [Input("line 1", "a", "a")]


TABLES = {
    "review,label\na,1\n": ("", {}, ["a"]),
    "Text,other\na,1\n": ("", {}, ["a"]),
    "what,other\na,b\n": ("other", {}, ["b"]),
    "text,body\na,b\n": ("", {"text_column": "body"}, ["b"]),
    "words\na\n": ("", {}, ["a"]),
    "premise,hypothesis,text\na,b,c\n": ("", {"pairs": True}, [("a", "b")]),
    "x,y,text\na,b,c\n": ("x,y", {"pairs": True}, [("a", "b")]),
    "x,y\na\tb,c\n": ("x", {"pairs": True}, ["a\tb"]),
    "left,right\na,b\n": ("", {"pairs": True, "text_column": "left,right"}, [("a", "b")]),
}


@pytest.mark.parametrize("content", TABLES)
def test_columns_of_tables(content, here):
    column, options, wanted = TABLES[content]
    (here / "t.csv").write_text(content)
    assert [x.given for x in of_file(run(**options), here / "t.csv", column)] == wanted


def test_columns_that_are_not_there(here):
    (here / "t.csv").write_text("one,two\na,b\n")
    (here / "t.txt").write_text("a\n")
    with pytest.raises(
        ValueError, match=r"t\.csv has no column with a usual name.*'one', 'two': say which with --column"
    ):
        list(of_file(run(), here / "t.csv"))
    with pytest.raises(ValueError, match=r"t\.csv is 'three'; expected one of 'one', 'two'"):
        list(of_file(run(), here / "t.csv", "three"))
    with pytest.raises(ValueError, match=r"column is 'one', but .* is read without columns; expected none"):
        list(of_file(run(), here / "t.txt", "one"))


def test_rows_that_are_wrong(here):
    (here / "t.jsonl").write_text('{"text": "a"}\n{"text": 3}\n{"other": "b"}\n{"text": "\\ud800"}\n{"text": "c"}\n')
    found = list(of_file(run(), here / "t.jsonl"))
    assert [x.given if isinstance(x.given, str) else type(x.given) for x in found] == [
        "a",
        *[ValueError] * 3,
        "c",
    ]
    assert "line 2 has a int in 'text'; expected text" in str(found[1].given)


def test_fasta(here):
    (here / "g.fa").write_text(">a first\nAC\nGT\n\n>\nTT\n>c\n")
    found = list(of_file(run("sequence"), here / "g.fa"))
    assert [(x.name.removeprefix(f"{here}/"), x.given) for x in found] == [
        ("g.fa, a", "ACGT"),
        ("g.fa, line 5", "TT"),
        ("g.fa, c", ""),
    ]
    (here / "g.fa").write_text("ACGT\n")
    with pytest.raises(ValueError, match=r"g\.fa, line 1 has no '>' and name before it"):
        list(of_file(run("sequence"), here / "g.fa"))


def test_files_that_are_not_there(here):
    for name in ("none.txt", "none.csv", "none.fa"):
        (found,) = guarded("x", of_file(run("sequence"), here / name))
        assert f"{here}/{name} is not there; expected a file." in str(found.given)
    (found,) = guarded("x", of_file(run(), here))
    assert f"{here} is a folder; expected a file." in str(found.given)


@pytest.mark.parametrize("end", ['"b,1\nc,1\n', "b\0,1\nc,1\n"])  # a quote that is never closed, a zero byte
def test_what_was_read_before_an_error_is_kept(here, end):
    (here / "t.csv").write_text(f"text,label\na,1\n{end}")
    first, second = guarded("t.csv", of_file(run(), here / "t.csv"))
    assert first.given == "a"
    assert second.name == "t.csv"
    assert "line 3" in str(second.given)


BAD = {  # name: content, and for each line of a row its text, or a part of the error
    "fields.csv": ("text,label\na,1\nb\nc,1\nd,1,2\ne,1\n", ["a", "1 fields", "c", "3 fields", "e"]),
    "quotes.csv": ('text,label\na,1\n"b" b,1\nc,1\n', ["a", "cannot be read ('", "c"]),
    "rest.csv": ('text,label\n"b" b,1\nc\nd,1\n"e,1\nf,1\n', ["cannot be read", "1 fields", "d", "up to line 6"]),
    "bytes.csv": (b"text;label\na;1\nb\xff;1\nc;\xff\nd;1\n", ["a", "the byte 0xff in 'text'", "c", "d"]),
    "objects.jsonl": ('{"text": "a"}\n{"text"\n5\n{"text": "d"}\n', ["a", "is no JSON", "is a int", "d"]),
    "bytes.jsonl": (b'{"text": "a"}\n{"text": "\xe9"}\n{"text": "c"}\n', ["a", "the byte 0xe9", "c"]),
    "rows.json": ('[{"text": "a"}, 5, {"text": "c"}]', ["a", "is a int", "c"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_does_not_lose_the_others(here, name):
    content, wanted = BAD[name]
    (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = list(guarded("last", of_file(run(), here / name)))
    assert len(found) == len(wanted)
    first = 1 if "json" in name else 2
    for number, (x, part) in enumerate(zip(found, wanted, strict=True), first):
        assert x.name == "last" or x.name.endswith(f"{name}, {'row' if name == 'rows.json' else 'line'} {number}")
        assert x.given == part or (isinstance(x.given, ValueError) and part in str(x.given))


def test_bad_rows_far_into_a_table_are_in_their_places(here):
    """Behind the rows by which the format is found out, and among them: those are read ahead."""
    rows = [f"text {i},{i}" for i in range(200)]
    for i in (3, 30, 60, 199):
        rows[i] = '"wrong" quotes,1' if i % 2 else "alone"
    (here / "t.csv").write_text("\n".join(["text,label", *rows]))
    found = list(of_file(run(), here / "t.csv"))
    assert [x.name.rpartition(" ")[2] for x in found] == [str(i + 2) for i in range(200)]
    assert [i for i, x in enumerate(found) if isinstance(x.given, ValueError)] == [3, 30, 60, 199]


def test_a_header_that_cannot_be_read_is_no_row(here):
    (here / "t.csv").write_text('"te" xt\na\nb\n')
    (found,) = guarded("t.csv", of_file(run(), here / "t.csv"))
    assert "line 1 cannot be read" in str(found.given)


def test_lines_with_bytes_that_are_no_text(here):
    (here / "t.txt").write_bytes(b"one\nt\xffwo\nthree\n")
    assert [x.given for x in of_file(run(), here / "t.txt")] == ["one", "t\udcffwo", "three"]  # told by the task
    (here / "g.fa").write_bytes(b">a\nAC\n>b\nA\xffC\n>c\nGT\n")
    assert [x.given for x in of_file(run("sequence"), here / "g.fa")] == ["AC", "A\udcffC", "GT"]

"""Documents: read as they were written, one after the other; what is wrong with a file is said with its line."""

import gzip
import json
import re
import sys
import types

import pytest

from lion.data import corpora as module
from lion.data import lion_data_folder
from lion.data.corpora import as_documents, corpus, documents
from lion.data.tables import text_blocks, text_lines


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_files_folders_and_patterns(tmp_path):
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "a.txt").write_bytes("\ufeffÄ first\r\n\r\nmore\r".encode())  # a byte order mark, old line ends
    (tmp_path / "b" / "deep" / "c.txt").write_text("third")
    (tmp_path / "b" / "notes.md").write_text("not read")
    (tmp_path / "b" / ".hidden.txt").write_text("not read")
    write_lines(tmp_path / "b" / "b.jsonl", [{"text": "one", "id": 1}, {"text": " "}, {"text": "two"}])
    with gzip.open(tmp_path / "b" / "c4.json.gz", "wt") as file:
        file.write('{"text": "zipped"}\n\n')
    first, rest = ["Ä first\n\nmore\n"], ["one", "two", "zipped", "third"]
    assert list(corpus(tmp_path)) == first + rest
    assert list(corpus(tmp_path / "a.txt")) == first
    assert list(corpus([tmp_path / "b", str(tmp_path / "*.txt")])) == first + rest
    assert list(corpus(f"{tmp_path}/**/*.txt")) == [*first, "third"]
    assert list(corpus([tmp_path / "a.txt", f"{tmp_path}/a*"])) == first  # once
    both = corpus(tmp_path)
    assert list(both) == list(both)  # and again
    assert both.size == sum(path.stat().st_size for path in tmp_path.rglob("*.*") if path.suffix != ".md") - 8


def test_what_is_one_document(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n\n\n \nc\n")
    assert list(corpus(path)) == ["a\nb\n\n\n \nc\n"]
    assert list(corpus(path, per="paragraph")) == ["a\nb", "c"]
    assert list(corpus(path, per="line")) == ["a", "b", "c"]
    with fails(ValueError, "per is 'word'; expected one of '', 'file', 'paragraph', 'line'."):
        corpus(path, per="word")


@pytest.mark.parametrize("mark", ["\n\n", "\n", " ", ""])
def test_long_files_come_in_parts(tmp_path, monkeypatch, mark):
    monkeypatch.setattr(module, "PART", 100)
    monkeypatch.setattr("lion.data.tables.BLOCK", 30)
    content = mark.join("äbc" * 5 for _ in range(40))
    (tmp_path / "x.txt").write_text(content)
    parts = list(corpus(tmp_path))
    assert "".join(parts) == content
    assert all(50 < len(part) <= 100 for part in parts[:-1])
    assert all(part.endswith("äbc" * 5 + mark) for part in parts[:-1]) or not mark


def test_blocks_and_lines_are_the_same_however_they_are_cut(tmp_path, monkeypatch):
    content = "Zeile eins\r\n\r\n€uro\rdrei\n\nend €"
    (tmp_path / "x").write_bytes(content.encode())
    for size in (1, 2, 3, 7, 1 << 20):
        monkeypatch.setattr("lion.data.tables.BLOCK", size)
        assert "".join(text_blocks(tmp_path / "x")) == "Zeile eins\n\n€uro\ndrei\n\nend €"
        assert list(text_lines(tmp_path / "x")) == ["Zeile eins\n", "\n", "€uro\n", "drei\n", "\n", "end €"]


def test_a_big_file_is_not_read_at_once(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("word " * (1 << 19) + "\0")
    parts = iter(corpus(path))
    assert len(next(parts)) <= module.PART  # long before the end, which is wrong
    with fails(ValueError, f"{path}, line 1 has a zero byte; expected text: is this a binary file?"):
        list(parts)


def test_what_does_not_match(tmp_path):
    with fails(ValueError, "paths is empty; expected a file, a folder or a pattern such as 'books/*.txt'."):
        corpus([])
    for missing in (tmp_path / "no.txt", f"{tmp_path}/*.txt"):
        wanted = "expected a file, a folder or a pattern such as 'books/*.txt'."
        with fails(ValueError, f"{missing} matches no file; {wanted}"):
            corpus(missing)
    endings = ".txt, .jsonl, .json, .parquet, .arrow"
    with fails(ValueError, f"{tmp_path} has no texts; expected files that end in {endings}."):
        corpus(tmp_path)
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    with fails(ValueError, f"{tmp_path / 'x.pdf'} ends in '.pdf'; expected one of {endings}, .csv, .tsv."):
        corpus(tmp_path / "x.pdf")


def test_a_table_is_a_corpus_if_it_is_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "table.csv").write_text('text,label\n"two, three",1\n')
    assert list(corpus(tmp_path)) == ["one"]
    assert list(corpus([tmp_path, tmp_path / "table.csv"])) == ["one", "two, three"]


def test_what_is_not_text(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes("one\ntwo\nfünf".encode("latin1"))
    remedy = "iconv -f latin1 -t utf-8, if it is text at all."
    with fails(ValueError, f"{path}, line 3 has the byte 0xfc, which is not UTF-8; expected UTF-8 text: {remedy}"):
        list(corpus(path))
    path.write_bytes(b"one\ntwo \0")
    with fails(ValueError, f"{path}, line 2 has a zero byte; expected text: is this a binary file?"):
        list(corpus(path))
    path.write_text(" \n")
    with fails(ValueError, f"{path} had no text in them; expected some."):
        list(corpus(path))
    path = tmp_path / "y.txt.gz"
    path.write_bytes(gzip.compress(b"text" * 1000)[:-9])
    with pytest.raises(ValueError, match=rf"^{path} cannot be read \(.+\): get it again, or allow to read it\.$"):
        list(corpus(path))


def test_lines_that_are_wrong(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", [{"text": "a"}, {"content": "b", "id": 1}])
    remedy = "its fields are 'content', 'id': say which holds the text as column."
    with fails(ValueError, f"{path}, line 2 has no 'text'; {remedy}"):
        list(corpus(path))
    write_lines(path, [{"content": "b", "id": 1}, {"content": None}])
    found = iter(corpus(path, column="content"))
    assert next(found) == "b"
    with fails(ValueError, f"{path}, line 2 has a NoneType in 'content'; expected text."):
        next(found)
    path.write_text('{"text": "a"}\n{"text": ')
    with pytest.raises(ValueError, match=rf"^{path}, line 2 is no JSON \(.+\); expected an object on every line, as "):
        list(corpus(path))
    path.write_text('\n["a"]')
    with fails(ValueError, f"{path}, line 2 is a list; expected an object, {{...}}."):
        list(corpus(path))
    path.write_text('{"text": "\\ud800"}')
    with pytest.raises(ValueError, match=rf"^{path}, line 1 has half a character in 'text' \(.+\); expected text"):
        list(corpus(path))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"text": [f"text {i}" for i in range(600)], "id": range(600)}), path)
    assert list(corpus(path)) == [f"text {i}" for i in range(600)]
    with fails(
        ValueError, f"{path}, row 1 has no 'x'; its fields are 'text', 'id': say which holds the text as column."
    ):
        list(corpus(path, column="x"))
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(ValueError, match=rf"^{path} cannot be read \(.+\): get it again\.$"):
        list(corpus(path))


def test_limits_and_keys(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", [{"text": str(i)} for i in range(5)])
    assert list(documents(path, limit=2)) == ["0", "1"]
    keys = [documents(path).key, documents(path, limit=2).key, documents(path, column="id").key]
    assert len(set(keys)) == 3
    assert documents(str(path)).key == keys[0]
    write_lines(path, [{"text": str(i)} for i in range(6)])
    assert documents(path).key != keys[0]
    with fails(ValueError, "limit is 0; expected a whole number from 1 to 1,000,000,000,000."):
        documents(path, limit=0)
    assert as_documents(["a", "b"]).key == as_documents(iter(["a", "b"])).key != as_documents(["ab"]).key
    with fails(TypeError, "documents is a str; expected a list of them, or lion.data.corpora.documents(path)."):
        as_documents("a text")


def test_documents_of_a_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    needed = (
        "datasets is needed for this: pip install 'lion-attention[hub]'; or give files of your own as data (--data)."
    )
    with fails(ImportError, f"hf://allenai/c4/en is on the Hugging Face hub; {needed}"):
        documents("hf://allenai/c4/en")
    for wrong in ("hf://c4", "hf://a/b/c/d", "hf://allenai//en"):
        with fails(ValueError, f"source is {wrong!r}; expected hf://owner/name or hf://owner/name/configuration."):
            documents(wrong)
    calls = []

    def load_dataset(*names, **options):
        calls.append((names, options))
        return ({"text": f"text {i}", "url": ""} if i != 1 else {"text": ""} for i in range(1000))

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    found = documents("hf://allenai/c4/en", limit=3)
    assert calls == []  # not before it is read
    assert list(found) == list(found) == ["text 0", "text 2", "text 3"]
    assert calls == [(("allenai/c4", "en"), {"split": "train", "streaming": True})] * 2
    held_out = documents("hf://allenai/c4/en", limit=3, split="validation")
    assert held_out.key != found.key
    assert next(iter(held_out)) == "text 0"
    assert calls.pop()[1]["split"] == "validation"
    assert next(iter(documents("hf://stas/openwebtext-10k"))) == "text 0"
    assert calls[-1][0] == ("stas/openwebtext-10k",)

    def out_of_reach(*names, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", out_of_reach)
    remedy = "expected the Hugging Face hub, or files of your own as data (--data)."
    with fails(ConnectionError, f"hf://a/b cannot be read (no route to host); {remedy}"):
        list(documents("hf://a/b"))
    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", load_dataset)
    message = "hf://a/b, row 1 has no 'x'; its fields are 'text', 'url': say which holds the text as column."
    with fails(ValueError, message):
        list(documents("hf://a/b", column="x"))


def test_what_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    with fails(
        FileNotFoundError, f"english is not in {tmp_path}/english; expected speeches: lion.data.fetch('english')."
    ):
        documents("english")


@pytest.mark.skipif(not (lion_data_folder() / "english").exists(), reason="lion.data.fetch('english')")
def test_the_speeches():
    found = list(documents("english"))
    assert len(found) == len(set(found)) == 249
    assert sum(map(len, found)) == 12_181_093
    assert found[0].startswith("Fellow-Citizens of the Senate and House of Representatives:")

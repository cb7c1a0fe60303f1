"""What is wrong with texts, tokenizers and models: one line that names the place, and nothing left behind."""

import os
import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion import files
from lion.cli import main
from lion.data.tokenizers import ByteTokenizer
from lion.integrations import hf
from lion.models.saving import load_model
from lion.train.loop import train
from tests.tasks.texts import shrunk

pytestmark = pytest.mark.usefixtures("data")
GOOD = "review,sentiment\n" + "a lovely film,pos\na dull film,neg\n" * 10  # 21 lines
MODEL = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "vocab_size": 300}
SMALL = [str(part) for name, x in {**MODEL, "steps": 1, "batch": 4}.items() for part in (f"--{name}", x)]


@pytest.fixture(scope="module")
def runs(texts, tmp_path_factory):
    """Finished ones, to be copied before they are spoilt."""
    home = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LION_DATA", str(home / "data"))
        for name in ("mlm", "text", "causal"):
            data = texts / ("reviews.csv" if name == "text" else "*.txt")
            train(replace(shrunk(name, data=str(data)), steps=1, epochs=0, batch=4), home / name)
    return home


@pytest.fixture
def fails(capsys):
    def check(arguments, *parts):
        capsys.readouterr()
        assert main([str(x) for x in arguments]) == 1
        error = capsys.readouterr().err
        assert len(error.strip().splitlines()) == 1
        for part in parts:
            assert part in error

    return check


@pytest.fixture
def training_fails(fails, tmp_path):
    def check(recipe, options, *parts):
        more = [f"--{'max_length' if recipe == 'text' else 'length'}", 16, *SMALL, "--out", tmp_path / "run"]
        fails(["train", recipe, *options, *more], *parts)
        assert not (tmp_path / "run").exists()

    return check


TABLES = {  # name: (content, what else is given, what is said)
    "column.csv": (GOOD, ["--text-column", "nope"], ["{path} is 'nope'; expected one of 'review', 'sentiment'."]),
    "label.csv": (GOOD, ["--label-column", "nope"], ["{path} is 'nope'; expected one of 'review', 'sentiment'."]),
    "text.csv": (GOOD + ",pos\n", [], ["{path}, line 22 has an empty text in 'review'", "leave the row out"]),
    "nothing.csv": ("", [], ["{path} has no rows; expected texts with labels."]),
    "header.csv": ("review,sentiment\n", [], ["{path} has no rows; expected texts with labels."]),
    "few.csv": (GOOD + "alone\n", [], ["{path}, line 22 has 1 fields; expected 2, as in line 1"]),
    "many.csv": (GOOD + "a,pos,b\n", [], ["{path}, line 22 has 3 fields; expected 2", "put double quotes around"]),
    "quote.csv": (GOOD + '"open,pos\na,neg\n', [], ["{path}, line 22 cannot be read", "expected fields in double quo"]),
    "latin.csv": (GOOD.encode() + b"caf\xe9,pos\n", [], ["{path}, line 22 has the byte 0xe9, which is not UTF-8"]),
    "zero.csv": (GOOD.encode() + b"a\0b,pos\n", [], ["{path}, line 22 has a zero byte"]),
    "two.csv": ("review,sentiment\na,x\nb,y\n", [], ["{path} has 2 rows, too few to hold any out", "--test FILE"]),
    "lines.jsonl": ('{"text": "a", "label": 0}\n{"text": \n', [], ["{path}, line 2 is no JSON", "an object on every"]),
    "table.parquet": (b"PAR1 and so on", [], ["{path} cannot be read", "get it again."]),
    "table.csv.gz": (b"\x1f\x8b\x08", [], ["{path} cannot be read", "get it again"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, training_fails, tmp_path):
    content, options, said = TABLES[name]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    training_fails("text", ["--data", path, *options], *(part.format(path=path) for part in said))


def test_a_parquet_file_cut_off(training_fails, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    parquet.write_table(arrow.table({"text": ["a b"] * 40, "label": ["x", "y"] * 20}), path)
    os.truncate(path, path.stat().st_size // 2)
    training_fails("text", ["--data", path], f"{path} cannot be read", "get it again.")


def test_a_test_file_that_is_wrong(training_fails, texts, tmp_path):
    """It is read last; the folder is free for the next attempt."""
    data, test = texts / "reviews.csv", tmp_path / "test.csv"
    training_fails("text", ["--data", data, "--test", test], f"{test} is not there")
    test.write_text("review,sentiment\nfine,pos\nso so,mixed\n")
    said = f"{test}, line 3 has 'mixed' in 'sentiment'; expected one of 'neg', 'pos'."
    training_fails("text", ["--data", data, "--test", test], said)
    test.write_text("review,sentiment\nfine,pos\n")
    options = ["--data", data, "--test", test, "--max_length", 16, *SMALL, "--out", tmp_path / "run"]
    assert main(["train", "text", *map(str, options)]) == 0


def test_corpora(training_fails, texts, runs, tmp_path):
    training_fails(
        "mlm", ["--data", tmp_path / "*.txt"], f"{tmp_path}/*.txt matches no file; expected a file, a folder"
    )
    (tmp_path / "bad.txt").write_bytes(b"fine\nbad \xff\n")
    training_fails("mlm", ["--data", tmp_path / "bad.txt"], f"{tmp_path}/bad.txt, line 2 has the byte 0xff")
    (tmp_path / "empty.txt").write_text(" \n")
    training_fails("mlm", ["--data", tmp_path / "empty.txt"], f"{tmp_path}/empty.txt had no text")
    (tmp_path / "short.txt").write_text("three short words")
    training_fails("mlm", ["--data", tmp_path / "short.txt"], "for one block: add text, or take a smaller length.")
    causal = runs / "causal" / "model"
    options = ["--data", texts / "*.txt", "--tokenizer", causal]
    training_fails("mlm", options, f"the tokenizer '{causal}' has no [MASK]", "leave --tokenizer out")
    kept = [x.name for x in (tmp_path.parent / "text data").rglob(".*")]
    assert not kept


def test_the_column_of_a_corpus(training_fails, texts, tmp_path):
    path = texts / "reviews.csv"
    training_fails("mlm", ["--data", path], f"{path}, line 2 has no 'text'; its fields are 'review', 'sentiment'")
    task = shrunk("mlm", data=str(path), column="review").task
    assert next(iter(task.documents())).endswith(tuple("abcdefghijklmnopqrstuvwxyz"))


def spoil(runs, name, tmp_path, content):
    """A copy of a run, with other content in its file of weights."""
    folder = tmp_path / name
    shutil.copytree(runs / name, folder)
    path = folder / "model" / "model.safetensors"
    path.write_bytes(content(path.read_bytes()))
    return folder, path


SPOILT = {"cut off": lambda x: x[:-200], "a piece": lambda x: x[:40], "empty": lambda x: b""}


@pytest.mark.parametrize("how", SPOILT)
def test_damaged_weights(how, runs, texts, fails, training_fails, tmp_path):
    mlm, weights = spoil(runs, "mlm", tmp_path, SPOILT[how])
    said = f"{weights} is damaged: "
    remedy = f"To write it once more, from the last checkpoint: lion train --resume --out {mlm}"
    fails(["eval", mlm], said, remedy)
    fails(["predict", mlm, "the [MASK] was"], said, remedy)
    training_fails("text", ["--data", texts / "reviews.csv", "--start", mlm], said, "get it again")
    with pytest.raises(files.DamagedFile, match="get it again"):
        hf.LionForMaskedLM.from_pretrained(mlm / "model")
    causal, weights = spoil(runs, "causal", tmp_path, SPOILT[how])
    fails(["generate", causal], f"{weights} is damaged: ")
    with pytest.raises(files.DamagedFile, match="get it again"):
        hf.LionForCausalLM.from_pretrained(causal / "model")


def test_damaged_weights_are_written_once_more(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(runs / "data"))
    folder, weights = spoil(runs, "mlm", tmp_path, SPOILT["cut off"])
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    assert weights.read_bytes() == (runs / "mlm" / "model" / "model.safetensors").read_bytes()


def test_no_weights(runs, texts, fails, training_fails, tmp_path):
    folder, weights = spoil(runs, "mlm", tmp_path, SPOILT["empty"])
    weights.unlink()
    fails(["eval", folder], f"{weights} is missing", "lion train --resume")
    training_fails("text", ["--data", texts / "reviews.csv", "--start", folder], f"{folder}/model cannot be loaded")


def test_tokenizers_of_other_models(runs, texts, fails, training_fails, tmp_path):
    for name in ("text", "mlm"):
        shutil.copytree(runs / name, tmp_path / name)
        ByteTokenizer().save(tmp_path / name / "model")
        size = load_model(runs / name / "model").config.vocab_size
        said = f"the tokenizer in {tmp_path / name}/model has 260 tokens, and the model {size}"
        fails(["predict", tmp_path / name, "the [MASK] film"], said, "put its tokenizer.json there")
        fails(["eval", tmp_path / name], said)
    data = ["--data", texts / "reviews.csv"]
    training_fails("text", [*data, "--start", tmp_path / "mlm"], "has 260 tokens, and the model")
    said = f"tokenizer is 'bytes', but the model in {runs}/mlm has one of its own"
    training_fails("text", [*data, "--start", runs / "mlm", "--tokenizer", "bytes"], said, "leave --tokenizer out")
    task = shrunk("text", data=str(data[1]), start=str(runs / "mlm"), tokenizer=str(runs / "mlm" / "model")).task
    assert task.resolved().model.vocab_size == load_model(runs / "mlm" / "model").config.vocab_size


def test_nothing_to_start_from(runs, texts, training_fails, tmp_path):
    data = ["--data", texts / "reviews.csv", "--start"]
    wanted = "expected the folder of a run of `lion train mlm` or `text`, of its model, or of a BERT; or 'minilm'."
    training_fails("text", [*data, tmp_path / "nothing"], wanted)
    training_fails("text", [*data, runs / "causal"], "a model of the kind 'lion_causal'", wanted)
    shutil.copytree(runs / "mlm", tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "model")
    training_fails(
        "text", [*data, tmp_path / "half"], f"the run in {tmp_path}/half is not finished: lion train --resume"
    )


def test_runs_that_are_not_there(runs, fails, tmp_path):
    for command in (["eval"], ["predict"], ["generate"]):
        more = ["words"] if command == ["predict"] else []
        fails([*command, tmp_path / "nothing", *more], f"there is no run in {tmp_path}/nothing")
    shutil.copytree(runs / "text", tmp_path / "half")
    for name in ("model", "checkpoints"):
        shutil.rmtree(tmp_path / "half" / name)
    fails(["predict", tmp_path / "half", "words"], f"the run in {tmp_path}/half is not finished, and has no checkpoint")
    fails(["predict", runs / "mlm", "no gap"], "the text has 0 [MASK]; expected one")
    fails(["predict", runs / "text", ""], "a text is empty")
    fails(["eval", runs / "mlm", "--test", "x.csv"], "x.csv matches no file")


@pytest.mark.parametrize("wrong", [50, -1])
def test_ids_that_have_no_embedding(wrong):
    size = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = hf.LionForMaskedLM(hf.LionConfig(**size, intermediate_size=32, positions="learned"))
    ids = torch.tensor([[3, wrong]])
    said = f"^input_ids has the id {wrong}; expected 0 to 49, as the model has embeddings: is this the tokenizer"
    with pytest.raises(ValueError, match=said):
        model(ids)
    with pytest.raises(
        ValueError, match=r"^token_type_ids has the id 2; expected 0 to 1, as the model has embeddings\."
    ):
        model(ids.clamp(0, 9), token_type_ids=torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match=r"^position_ids has the id 512; expected 0 to 511"):
        model(ids.clamp(0, 9), position_ids=torch.tensor([[0, 512]]))
    causal = hf.LionForCausalLM(hf.LionCausalConfig(**size)).eval()
    for use_cache in (True, False):
        with pytest.raises(ValueError, match=said):
            causal(ids, use_cache=use_cache)

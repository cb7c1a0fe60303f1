"""Text classifiers that start from a trained BERT."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

import transformers

from lion import recipes
from lion.data.tokenizers import load_tokenizer
from lion.integrations.hf import LionForSequenceClassification
from lion.tasks import _berts, _starts
from lion.train.evaluate import examine, most_likely, predict
from lion.train.loop import train
from tests.tasks.teachers import save_teacher
from tests.tasks.texts import shrunk

pytestmark = pytest.mark.usefixtures("data")


forget = _berts.trained_bert.cache_clear


@pytest.fixture
def minilm(tmp_path, monkeypatch):
    """A small BERT in the place of MiniLM, whose tokens are bytes."""
    folder = tmp_path / "bert"
    save_teacher(folder, transformers.BertModel, 64)
    monkeypatch.setattr(_berts, "fetch", lambda name: folder)
    monkeypatch.setattr(_starts, "MOST", 20.0)  # tokens of a word
    forget()
    yield folder
    forget()


@pytest.mark.parametrize(
    ("variant", "named", "length", "places"),
    [("lion_d", True, 64, True), ("lion_d", False, 65, False), ("softmax", False, None, True)],
)
def test_the_first_layers_of_a_bert(texts, minilm, variant, named, length, places):
    """With its positions, if there are enough of them."""
    task = recipes.recipe("text").task
    wanted = replace(task.model, depth=1, variant=variant, dropout=0.3)
    start = "minilm" if named else str(minilm)
    task = replace(task, data=str(texts / "reviews.csv"), start=start, model=wanted, max_length=length).resolved()
    assert task.start == start
    found = task.model
    assert (found.dim, found.heads, found.depth, found.variant, found.dropout) == (16, 2, 1, variant, 0.3)
    assert task.text_tokenizer() == load_tokenizer(minilm)
    bert, model = transformers.BertModel.from_pretrained(minilm), task.make_model()
    assert isinstance(model, LionForSequenceClassification)
    encoder = model.lion.encoder
    assert torch.equal(encoder.embeddings.words.weight, bert.embeddings.word_embeddings.weight)
    assert torch.equal(encoder.layers[0].mlp.fc1.weight, bert.encoder.layer[0].intermediate.dense.weight)
    if places:
        assert torch.equal(encoder.embeddings.positions.weight, bert.embeddings.position_embeddings.weight)
        assert task.max_length <= 64
    else:
        assert encoder.embeddings.positions is None


def test_a_bert_is_no_start_for_a_hydra(texts, minilm):
    task = recipes.recipe("text").task
    task = replace(task, data=str(texts / "reviews.csv"), model=replace(task.model, variant="hydra"))
    with pytest.raises(ValueError, match=r"model.variant is 'hydra', and start 'minilm': .* or no start: --start ''"):
        task.resolved()
    assert replace(task, start="", vocab_size=300).resolved().model.variant == "hydra"


def test_windows_of_texts_have_no_places(texts, minilm):
    """Their positions would not be those that the whole text is read with."""
    task = replace(recipes.recipe("text").task, data=str(texts / "reviews.csv"), start=str(minilm), max_length=64)
    found = replace(task, crop=32).resolved()
    assert (found.model.positions, found.crop) == ("none", 32)
    training, held_out = found.train_set(0), found.eval_set()
    assert training.crop == 32
    assert not held_out.crop
    words = found.facts(training, held_out)["training"]
    assert "a window of 32 tokens of" in words
    assert replace(task, crop=64).resolved().model.positions == "learned"  # no text is longer
    softmax = replace(task, crop=32, model=replace(task.model, variant="softmax")).resolved()
    assert (softmax.model.positions, softmax.crop) == ("learned", 0)


def test_a_run_that_started_from_a_bert_is_on_its_own(texts, minilm, tmp_path, monkeypatch, capsys):
    run = replace(shrunk("text", data=str(texts / "reviews.csv"), start="minilm"), steps=4, epochs=0, save_every=2)
    train(run, tmp_path / "run")
    assert "start       MiniLM: its words and 1 of its 2 layers, with other attention" in capsys.readouterr().out
    metrics = train(replace(run, steps=5), tmp_path / "run", resume=True)
    monkeypatch.setattr(_berts, "fetch", no_network)
    forget()
    assert examine(tmp_path / "run").metrics == pytest.approx(metrics)
    assert len(most_likely(predict(tmp_path / "run", ["a fine film"]))) == 1


def no_network(name):
    raise OSError("there is no network")


def test_without_minilm_a_model_starts_from_nothing(texts, minilm, monkeypatch, caplog):
    task = replace(recipes.recipe("text").task, data=str(texts / "reviews.csv"), vocab_size=300)
    assert task.resolved().start == "minilm"
    monkeypatch.setattr(_starts, "MOST", 2.0)
    assert task.resolved().start == ""
    assert "MiniLM reads English; of these texts, a word has" in caplog.text
    monkeypatch.setattr(_starts, "MOST", 20.0)
    monkeypatch.setattr(_berts, "fetch", no_network)
    forget()
    assert task.resolved().start == ""
    assert "MiniLM cannot be fetched, and the model starts from nothing: there is no network" in caplog.text


def test_another_tokenizer_leaves_minilm_out(texts, minilm):
    task = replace(recipes.recipe("text").task, data=str(texts / "reviews.csv"), vocab_size=300)
    made = replace(task, start="").text_tokenizer()
    made.save(minilm.parent / "words")
    found = replace(task, tokenizer=str(minilm.parent / "words")).resolved()
    assert (found.start, found.text_tokenizer()) == ("", made)

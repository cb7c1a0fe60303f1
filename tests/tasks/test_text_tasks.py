"""Text: every task from its data to its use, on small files; and every recipe, shrunk to one step."""

import csv
import io
import math
import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from lion import recipes
from lion.cli import main
from lion.models.saving import load_model
from lion.tasks.causal import Sampling, generate
from lion.train.config import Optim
from lion.train.evaluate import examine, most_likely, predict
from lion.train.folder import load_run
from lion.train.loop import train
from lion.train.optim import make_optimizer
from lion.train.sampler import Sampler
from tests.tasks.texts import shrunk, write_glue, write_imdb

pytestmark = pytest.mark.usefixtures("data")


def test_hidden_words(texts, tmp_path):
    """Trained, saved, evaluated in every form, used from the command line and by transformers."""
    import transformers

    run = replace(shrunk("mlm", data=str(texts / "*.txt")), steps=6, epochs=0, eval_every=6)
    metrics = train(run, tmp_path / "run")
    assert set(metrics) == {"loss", "accuracy"}
    for form in ("rnn", "full"):
        again = examine(tmp_path / "run", form=form).metrics
        assert again["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    guesses = most_likely(predict(tmp_path / "run", ["the [MASK] was great"], best=2))
    assert len(guesses[0]) == 2
    with pytest.raises(ValueError, match=r"has 0 \[MASK\]; expected one"):
        most_likely(predict(tmp_path / "run", ["no gap"]))
    folder = tmp_path / "run" / "model"
    fill = transformers.pipeline("fill-mask", model=str(folder), tokenizer=str(folder))
    assert fill("the [MASK] was great", top_k=1)[0]["token_str"] == guesses[0][0].label


@pytest.mark.parametrize("name", ["mlm", "causal"])
def test_going_on_exactly(name, texts, tmp_path):
    run = replace(shrunk(name, data=str(texts / "*.txt")), steps=4, epochs=0, save_every=2, eval_every=4, ema=0.9)
    train(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    for gone in ("model", "checkpoints/step-00000004"):
        shutil.rmtree(tmp_path / "parts" / gone)
    train(run, tmp_path / "parts", resume=True)
    whole, parts = (load_model(tmp_path / x / "model").state_dict() for x in ("whole", "parts"))
    assert all(torch.equal(x, parts[key]) for key, x in whole.items())


def test_classes_of_texts(texts, tmp_path, capsys):
    run = shrunk("text", data=str(texts / "reviews.csv"))
    run = replace(run, optim=replace(run.optim, lr=1e-2), epochs=8, batch=16, eval_every=100)
    metrics = train(run, tmp_path / "run")
    assert metrics["accuracy"] == 1
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "a superb film", "very dull"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-2] == "pos"
    with pytest.raises(ValueError, match="a text is empty"):
        most_likely(predict(tmp_path / "run", [" "]))
    with pytest.raises(ValueError, match="no causal language model"):
        generate(tmp_path / "run", "a")


def test_going_on_from_hidden_words(texts, tmp_path):
    """A classifier that starts from a pretrained model has its weights, its size and its tokenizer."""
    run = replace(shrunk("mlm", data=str(texts / "*.txt")), steps=2, epochs=0)
    train(run, tmp_path / "pretrained")
    task = replace(recipes.recipe("text").task, data=str(texts / "reviews.csv"), start=str(tmp_path / "pretrained"))
    task = task.resolved()
    assert (task.model.dim, task.model.dropout) == (16, 0.1)  # its size; but the dropout of this recipe
    model = task.make_model()
    old = load_model(tmp_path / "pretrained" / "model")
    assert torch.equal(model.lion.encoder.embeddings.words.weight, old.lion.encoder.embeddings.words.weight)
    assert task.text_tokenizer() == run.task.text_tokenizer()
    with pytest.raises(ValueError, match="expected the folder of a run of `lion train mlm`"):
        replace(task, start=str(tmp_path / "nothing")).resolved()


def test_numbers_for_texts(texts, tmp_path, capsys):
    path = tmp_path / "scores.csv"
    path.write_text("text,score\n" + "".join(f"{' '.join(['great'] * n)} film,{n / 4}\n" for n in range(1, 40)))
    run = shrunk("text", data=str(path), label_column="score", max_length=48)
    metrics = train(replace(run, steps=3, epochs=0), tmp_path / "run")
    assert set(metrics) == {"loss", "spearman", "pearson", "rmse"}
    assert -1 <= metrics["spearman"] <= 1
    with pytest.raises(ValueError, match=r"^great has the value [-\d.]+, and no classes\.$"):
        most_likely(predict(tmp_path / "run", ["great"]))
    texts = ["great film", " ", "great great great film"]
    found = list(predict(tmp_path / "run", iter(texts)))
    assert [x.value is None for x in found] == [False, True, False]
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), *texts]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["input", "value"]
    assert float(lines[2].split()[-1]) == pytest.approx(found[0].value, rel=1e-4)
    assert main(["predict", str(tmp_path / "run"), texts[0], "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["input,value,error", f"great film,{found[0].value:.6g},"]


def test_whole_numbers_for_texts(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("text,score\n" + "".join(f"film {n},{n}\n" for n in range(30)))
    task = shrunk("text", data=str(path), label_column="score").task
    assert len(task.resolved().classes) == 30
    assert replace(task, numbers=True).resolved().metrics == ("spearman", "pearson", "rmse")
    path.write_text("text,score\n" + "".join(f"film {n},{'b' if n % 2 else 'a'}\n" for n in range(30)))
    assert replace(task, classes=("b", "a")).resolved().classes == ("b", "a")  # in the order that is asked for
    with pytest.raises(ValueError, match="has 'b' in 'score'; expected one of 'a', 'c'"):
        replace(task, classes=("a", "c")).resolved()


def test_copies_are_held_out_together(tmp_path):
    path = tmp_path / "copies.csv"
    rows = [f"film {n % 20},{'good' if n % 2 else 'bad'}" for n in range(200)]
    path.write_text("\n".join(["text,label", *rows]))
    task = shrunk("text", data=str(path)).task
    held = {split: set(task.texts(split).texts) for split in ("train", "test")}
    assert held["test"]
    assert not held["train"] & held["test"]
    path.write_text("\n".join(["text,label", *rows, "another film,good", "one more,bad"]))
    assert held["train"] <= set(task.texts("train").texts)  # and none of them moves because there are more


def test_pairs(tmp_path, capsys):
    path = tmp_path / "pairs.csv"
    path.write_text("one,two,label\n" + "".join(f"film {n},movie {n},{n % 2}\n" for n in range(30)))
    run = shrunk("text", data=str(path), text_column="one,two")
    train(replace(run, steps=1, epochs=0), tmp_path / "run")
    for wrong in ("film", "film\tmovie\tplay"):
        with pytest.raises(ValueError, match=r"is of pairs of texts, and this has .; expected TEXT_A<TAB>TEXT_B"):
            most_likely(predict(tmp_path / "run", [wrong]))
    with pytest.raises(ValueError, match="a text is empty"):
        most_likely(predict(tmp_path / "run", ["film\t"]))
    with_tab, pair = most_likely(predict(tmp_path / "run", ["film 1\tmovie 1", ("film 1", "movie 1")]))
    assert with_tab == pair
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "--file", str(path), "--format", "csv", "--batch", "7"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 30
    assert rows[1]["text"] == "film 1\tmovie 1"
    assert (rows[1]["class"], float(rows[1]["probability"])) == (pair[0].label, pytest.approx(pair[0].probability))
    # A pair is not a text: the model is told which is which.
    both = trained_logits(tmp_path / "run", [("film 1", "movie 1")])
    assert not torch.equal(both, trained_logits(tmp_path / "run", [("movie 1", "film 1")]))


def trained_logits(folder, examples):
    trained = load_run(folder)
    return torch.stack([x.logits for x in trained.task.predict_batch(trained, examples)])


def test_a_single_file_with_spaces_in_its_name(tmp_path):
    """Which has to be cut into paragraphs for some to be held out."""
    folder = tmp_path / "my books"
    folder.mkdir()
    (folder / "one.txt").write_text("\n\n".join(f"this is paragraph {n} of a book" for n in range(200)))
    for data in (folder / "one.txt", folder / "*.txt"):
        task = shrunk("mlm", data=str(data)).task
        assert all(len(task.packed(split)) for split in ("train", "validation"))


def test_longer_than_the_positions(texts, tmp_path):
    task = shrunk("mlm.softmax", data=str(texts / "*.txt")).task
    assert replace(task, length=700).resolved().model.max_tokens == 700


def test_an_eval_set_of_its_own(texts, tmp_path):
    """All documents of `data` are for training then; and a finished run can be evaluated on others."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(" ".join(f"{name} film was {i}" for i in range(40)))
    (tmp_path / "new.txt").write_text("\n\n".join((tmp_path / name).read_text() for name in ("a", "b", "c")))
    task = shrunk("mlm", data=str(texts / "*.txt"), test=str(tmp_path / "new.txt")).task
    packed = {split: task.packed(split) for split in ("train", "validation")}
    assert packed["train"].document_count == 60
    assert packed["validation"].document_count == 3
    assert replace(task, test_limit=2).packed("validation").document_count == 2

    run = replace(shrunk("mlm", data=str(texts / "*.txt")), steps=2, epochs=0, eval_every=2)
    train(run, tmp_path / "run")
    other = examine(tmp_path / "run", test=str(tmp_path / "new.txt")).metrics
    assert other["loss"] != examine(tmp_path / "run").metrics["loss"]


def test_text_that_goes_on(texts, tmp_path, capsys, caplog):
    run = replace(shrunk("causal", data=str(texts / "*.txt")), steps=6, epochs=0, eval_every=6)
    metrics = train(run, tmp_path / "run")
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert examine(tmp_path / "run", form="rnn").metrics["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    pieces = []
    greedy = Sampling(temperature=0)
    made = generate(tmp_path / "run", "the film", tokens=8, sampling=greedy, show=pieces.append)
    assert made.startswith("the film")
    assert "".join(pieces) == made
    for mode in ("cache", "attention"):
        assert generate(tmp_path / "run", "the film", tokens=8, sampling=greedy, mode=mode) == made
    assert generate(tmp_path / "run", "the", tokens=4, sampling=Sampling(seed=1)).startswith("the")
    assert generate(tmp_path / "run", "the", tokens=4, sampling=Sampling(0.0, beams=2)).startswith("the")
    capsys.readouterr()
    assert main(["generate", str(tmp_path / "run"), "--prompt", "the film", "--tokens", "8", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.strip() == made.strip()
    assert main(["generate", str(tmp_path / "run"), "--mode", "memory"]) == 1
    assert "expected one of 'recurrence', 'cache', 'attention'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="lion generate"):
        most_likely(predict(tmp_path / "run", ["the"]))
    shutil.rmtree(tmp_path / "run" / "model")  # as of a run that was stopped
    assert generate(tmp_path / "run", "the film", tokens=8, sampling=greedy) == made
    assert "is not finished: step 6 of 6, from its last checkpoint" in caplog.text


MESSAGES = {
    "there is no data; expected a table": {},
    "expected one of 'file', 'imdb', 'cola'": {"dataset": "imdb2"},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_wrong_with_the_data(message):
    with pytest.raises(ValueError, match=message):
        replace(recipes.recipe("text").task, **MESSAGES[message]).resolved()


def test_a_column_that_is_not_there(texts):
    with pytest.raises(ValueError, match="review"):
        shrunk("text", data=str(texts / "reviews.csv"), text_column="comment").task.resolved()


def test_a_label_not_seen_in_training(texts, tmp_path):
    (tmp_path / "test.csv").write_text("review,sentiment\nfine,mixed\n")
    task = shrunk("text", data=str(texts / "reviews.csv"), test=str(tmp_path / "test.csv")).task.resolved()
    with pytest.raises(ValueError, match="mixed"):
        task.eval_set()


def different(name):
    """Not the same as another but for the variant."""
    if name.split(".")[0] not in ("mlm", "text", "glue", "causal"):
        return False
    return name.split("_")[-1] in ("mlm", "text", "causal", "s", "softmax") or "glue.m2_base" in name


@pytest.mark.parametrize("name", list(filter(different, recipes.RECIPES)))
def test_a_step_of_every_recipe(name, texts, tmp_path, monkeypatch):
    run = shrunk(name)
    if name.startswith("glue."):
        data = write_glue(tmp_path, run.task.dataset)
    elif "imdb" in name:
        data = write_imdb(tmp_path)
    else:
        data = str(texts / ("reviews.csv" if name.startswith("text") else "*.txt"))
    task = replace(run.task, data=data, tokenizer="").resolved()
    examples = task.train_set(0)
    (keys,) = Sampler(len(examples), 4, 0, range(1))
    network = task.make_model()
    loss, _ = task.loss(network, examples.__getitems__(keys), seed=0, step=0)
    loss.backward()
    assert loss.isfinite()
    assert task.measure(network.eval(), task.eval_set().__getitems__([(0, 0), (0, 1)]))["examples"] >= 1


def test_decoupled_decay():
    """Weights shrink by weight_decay itself at the largest learning rate."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = make_optimizer(model, Optim(lr=1e-2, weight_decay=0.1, decoupled=True))
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.step()
    torch.testing.assert_close(model.weight, torch.full((2, 2), 0.9))

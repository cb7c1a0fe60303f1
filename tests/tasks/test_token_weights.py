"""The linear model of tokens that a network for texts is trained beside."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lion import recipes
from lion.data.batches import LabelledRows
from lion.models.heads import TokenWeights
from lion.tasks._calibration import calibration
from lion.tasks._token_weights import FOLDS, WORK, count_tokens, fit
from lion.train.evaluate import examine
from lion.train.loop import train
from tests.tasks.texts import shrunk

VOCABULARY = 40
SPECIALS = [0, 1]


def rows(count=120, classes=3, seed=0):
    """Texts whose class is told by a token, 10 + class, among others that tell nothing."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    texts = [np.array([0, *generator.integers(14, VOCABULARY, 6), 10 + label, 1], np.int32) for label in labels]
    return LabelledRows(texts, labels), labels


def counted(texts):
    return count_tokens(texts, VOCABULARY, SPECIALS)


def test_logits_are_those_of_scikit_learn(monkeypatch):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    texts, labels = rows()
    tokens = np.split(texts.ids, texts.ends[:-1])
    words = [" ".join(f"w{i}" for i in x if i not in SPECIALS) for x in tokens]
    inputs = TfidfVectorizer(sublinear_tf=True).fit_transform(words)
    want = LogisticRegression(C=10, max_iter=300).fit(inputs, labels).decision_function(inputs)

    module = TokenWeights(VOCABULARY, 3)
    monkeypatch.setattr("lion.tasks._token_weights.calibration", lambda *_: 1.0)
    fit(counted(texts), labels, 3).whole.fill(module)
    ids = torch.from_numpy(np.stack(tokens)).long()
    torch.testing.assert_close(module(ids, None).numpy(), want.astype(np.float32), atol=2e-2, rtol=0)


def test_logits_are_as_sure_as_they_are_right():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 4000)
    logit = np.where(generator.random(4000) < 0.8, 1, -1) * np.where(labels, 0.5, -0.5)  # right in 80 %
    factor = calibration(np.stack([-logit, logit], 1), labels)
    assert factor == pytest.approx(np.log(0.8 / 0.2), rel=0.1)
    few = np.eye(2)[[0, 1, 0, 1]] - 0.5
    assert calibration(few, np.array([0, 1, 0, 1])) < 2  # all of four are right: that may be chance


@pytest.mark.parametrize("classes", [2, 3])
def test_packed_and_padded_texts_have_the_same_logits(classes):
    texts, labels = rows(classes=classes)
    module = TokenWeights(VOCABULARY, classes)
    fit(counted(texts), labels, classes).whole.fill(module)
    long, short = torch.tensor([[0, 10, 20, 20, 21, 1]]), torch.tensor([[0, 11, 30, 1]])
    alone = torch.cat([module(long, None), module(short, None)])

    padded = torch.cat([long, torch.cat([short, torch.tensor([[12, 12]])], 1)])
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    torch.testing.assert_close(module(padded, mask), alone)
    packed = torch.cat([long, short], 1)
    torch.testing.assert_close(module(packed, None, torch.tensor([0, 6, 10])), alone)


def test_texts_without_a_known_token_have_the_bias():
    texts, labels = rows()
    module = TokenWeights(VOCABULARY, 3)
    fit(counted(texts), labels, 3).whole.fill(module)
    torch.testing.assert_close(module(torch.tensor([[0, 2, 3, 1]]), None)[0], module.bias)


def test_a_text_gets_the_logits_of_a_model_that_has_not_seen_it():
    """Where labels are random, a model is right about the texts it was fitted to, and no other."""
    texts, _ = rows(300)
    labels = np.random.default_rng(1).integers(0, 2, 300)
    found = fit(counted(texts), labels, 2)
    module = TokenWeights(VOCABULARY, 2)
    found.whole.fill(module)
    ids = torch.from_numpy(np.stack(np.split(texts.ids, texts.ends[:-1]))).long()
    seen = module(ids, None).argmax(1).numpy() == labels
    unseen = found.others.argmax(1) == labels
    assert seen.mean() > 0.6 > unseen.mean()


@pytest.mark.parametrize("count", [FOLDS, 7, 2])
def test_classes_with_one_example_and_few_texts(count):
    texts, _ = rows(count)
    labels = np.array([0] * (count - 1) + [1])
    found = fit(counted(texts), labels, 2)
    assert np.isfinite(found.others).all()
    assert np.isfinite(found.whole.weight).all()


def test_numbers():
    texts, labels = rows()
    found = fit(counted(texts), labels - 1.0, 0)
    assert found.others.shape == (120, 1)
    assert np.corrcoef(found.others[:, 0], labels)[0, 1] > 0.9


def test_many_texts_are_fitted_by_some_of_them(monkeypatch):
    texts, labels = rows(600)
    monkeypatch.setattr("lion.tasks._token_weights.WORK", 200 * 3 * 7)
    assert WORK > 10**6
    found = fit(counted(texts), labels, 3)
    assert (found.others.argmax(1) == labels).mean() > 0.95


def test_a_run_saves_it_and_uses_it(texts, tmp_path):
    run = shrunk("text", data=str(texts / "reviews.csv"))
    assert run.task.token_weights
    train(run, tmp_path / "run")
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert model.config.classifier_token_weights
    assert model.token_weights.weight.abs().sum() > 0
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        whole, given = model(ids).logits, model(ids, token_logits=torch.zeros(1, model.num_labels)).logits
    torch.testing.assert_close(whole - given, model.token_weights(ids, None))
    with pytest.raises(ValueError, match="expected input_ids"):
        model(inputs_embeds=torch.zeros(1, 3, model.config.hidden_size))
    assert examine(tmp_path / "run").metrics["accuracy"] == pytest.approx(_result(tmp_path / "run")["accuracy"])


@pytest.mark.parametrize("size", [30, 50])
def test_other_vocabularies(size, tmp_path):
    from lion.integrations.hf import LionConfig, LionForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = LionConfig(vocab_size=VOCABULARY, classifier_token_weights=True, num_labels=3, **sizes)
    model = LionForSequenceClassification(config).eval()
    texts, labels = rows()
    fit(counted(texts), labels, 3).whole.fill(model.token_weights)
    ids = torch.tensor([[0, 11, 20, 20, 1]])
    with torch.no_grad():
        before = model(ids).logits
        model.resize_token_embeddings(size)
        assert len(model.token_weights.idf) == size
        torch.testing.assert_close(model(ids).logits, before)
        model.save_pretrained(tmp_path)
        again = LionForSequenceClassification.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(again(ids).logits, before)
        again(torch.tensor([[size - 1]]))


def test_it_can_be_left_out(texts):
    task = shrunk("text", data=str(texts / "reviews.csv"), token_weights=False).task.resolved()
    assert task.make_model().token_weights is None
    assert "token_logits" not in task.train_set(0).__getitems__([(0, 0)])


def test_a_model_with_other_classes_fits_its_own(texts, tmp_path):
    """A run that goes on from one of other classes."""
    train(shrunk("text", data=str(texts / "reviews.csv")), tmp_path / "run")
    other = tmp_path / "topics.csv"
    other.write_text("text,label\n" + "".join(f"a text about {x} {i},{x}\n" for i in range(9) for x in "abcd"))
    task = replace(recipes.recipe("text").task, data=str(other), start=str(tmp_path / "run")).resolved()
    assert task.make_model().token_weights.weight.shape[0] == 4


def _result(folder):
    import json

    return json.loads((folder / "result.json").read_text())

"""A student of a BERT: the same as its teacher where that can be, closer to it after learning otherwise."""

import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

import transformers

from lion.cli import main
from lion.data.tokenizers import ByteTokenizer, load_tokenizer
from lion.integrations.hf import LionModel
from lion.models.saving import load_model
from lion.recipes import recipe
from lion.tasks import _berts
from lion.tasks._base import forget
from lion.tasks.text_distillation import TextDistillationTask, embedding, unexplained
from lion.train.config import Optim, Run
from lion.train.loop import train
from tests import SEED
from tests.tasks.teachers import save_teacher

WORDS = ["when", "in", "the", "course", "of", "human", "events", "it", "becomes", "necessary", "for", "one", "people"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Teachers, and texts of one paragraph each."""
    home = tmp_path_factory.mktemp("home")
    save_teacher(home / "teacher", transformers.BertModel, 64)
    save_teacher(home / "roberta", transformers.RobertaModel, ByteTokenizer().pad_id + 1 + 64)
    texts = [" ".join(WORDS[n % 5 : n % 7 + 6]) + f" {n}" for n in range(120)]
    (home / "texts.txt").write_text("\n\n".join(texts))
    return home


@pytest.fixture(autouse=True)
def data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path_factory.getbasetemp() / "distill data"))
    forget()
    _berts.trained_bert.cache_clear()


def task(home, **changes):
    options = {"data": str(home / "texts.txt"), "teacher": str(home / "teacher"), "length": 48, "holdout": 0.3}
    return TextDistillationTask(**options | changes).resolved()


@pytest.mark.parametrize("teacher", ["teacher", "roberta"])
def test_as_softmax_the_student_is_the_teacher(home, teacher):
    of = task(home, variant="softmax", teacher=str(home / teacher))
    assert of.positions == "learned"
    batch = of.eval_set().__getitems__([(0, i) for i in range(8)])
    assert not batch["mask"].all()
    model = of.make_model().train()  # with dropout, it would be another
    with torch.no_grad():
        loss, shown = of.loss(model, batch, seed=0, step=0)
        sums = of.measure(model, batch)
    assert float(loss) == pytest.approx(0, abs=1e-6)
    assert float(shown["cosine"]) == pytest.approx(1)
    assert float(sums["cosine"]) == pytest.approx(8)
    assert float(sums["cosine of tokens"]) == pytest.approx(8)


def test_a_student_learns(home, tmp_path):
    """Its words stay the teacher's; it is saved with the tokenizer, and runs at lengths that the teacher does not."""
    run = replace(recipe("distill.text"), task=task(home), optim=Optim(lr=1e-2), steps=40, epochs=0, batch=16)
    batch = run.task.eval_set().__getitems__([(0, i) for i in range(16)])
    with torch.no_grad():
        before = run.task.measure(run.task.make_model(), batch)
    metrics = train(run, tmp_path / "run")
    assert set(metrics) == {"cosine", "cosine of tokens"}
    student = load_model(tmp_path / "run" / "model").eval()
    with torch.no_grad():
        after = run.task.measure(student, batch)
    for name in metrics:
        assert 1 - after[name] / 16 < 0.8 * (1 - before[name] / 16), name
    assert isinstance(student, LionModel)
    assert student.config.positions == "none"
    teacher = transformers.BertModel.from_pretrained(home / "teacher")
    assert torch.equal(student.get_input_embeddings().weight, teacher.get_input_embeddings().weight)
    assert load_tokenizer(tmp_path / "run" / "model") == ByteTokenizer()
    assert student(torch.randint(0, 256, (1, 200))).last_hidden_state.isfinite().all()


def test_from_the_command_line(home, tmp_path, capsys):
    fields = ["--data", str(home / "texts.txt"), "--teacher", str(home / "teacher"), "--length", "48"]
    fields += [
        "--holdout",
        "0.3",
        "--steps",
        "2",
        "--variant",
        "lion_lit",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["distill", "text", *fields]) == 0
    assert "cosine of tokens 0." in capsys.readouterr().out
    assert main(["train", "distill.text", "--resume", "--out", str(tmp_path / "run")]) == 0
    assert load_model(tmp_path / "run" / "model").config.positions == "learned"  # nothing else tells places
    assert main(["predict", str(tmp_path / "run"), "a text"]) == 1
    assert "embeds texts" in capsys.readouterr().err


def test_unexplained_counts_every_channel_the_same():
    torch.manual_seed(SEED)
    teacher, wrong = torch.randn(1000, 3), torch.randn(1000, 3)
    assert float(unexplained(teacher, teacher)) == 0
    assert float(unexplained(teacher.mean(0).expand(1000, 3), teacher)) == pytest.approx(1, rel=1e-4)
    scale = torch.tensor([1.0, 100.0, 1e-3])
    want = float(unexplained(teacher + 0.1 * wrong, teacher))
    assert float(unexplained((teacher + 0.1 * wrong) * scale, teacher * scale)) == pytest.approx(want, rel=1e-3)


def test_an_embedding_is_the_mean_of_real_tokens():
    states, real = torch.randn(2, 5, 3), torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    found = embedding(states, real)
    assert torch.allclose(found, torch.stack([states[0].mean(0), states[1, :2].mean(0)]))


def test_a_run_goes_on_for_longer(home, tmp_path):
    run = Run(task(home), Optim(), steps=1, batch=4, precision="float32")
    train(run, tmp_path / "run")
    train(run.changed({"steps": "2"}), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "checkpoints" / "step-00000002").exists()


def test_what_cannot_be(home, tmp_path):
    for changes, message in {
        ("tokenizer", "bytes"): "tokenizer is 'bytes'; expected none: it is the teacher's.",
        ("variant", "lion"): "variant is 'lion'; expected one of",
    }.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            task(home, **dict([changes]))
    with pytest.raises(ValueError, match=r"expected 'minilm' or the folder of a BERT that transformers wrote\.$"):
        task(home, teacher=str(tmp_path)).make_model()


def test_teachers_that_are_none(home, tmp_path):
    config = transformers.DistilBertConfig(vocab_size=300, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    transformers.DistilBertModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="a model of the kind 'distilbert'; expected one of 'bert', 'roberta'"):
        task(home, teacher=str(tmp_path))
    with pytest.raises(ValueError, match="length is 65, but the teacher reads 64 tokens"):
        task(home, length=65)

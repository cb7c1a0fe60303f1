"""Learning from another model."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lion.cli import main
from lion.train import distill
from lion.train.config import Run
from lion.train.distill import Distill, distillation_loss, give_teacher, load_teacher
from lion.train.loop import train
from tests.train.runs import as_options, small


def test_the_losses():
    student, teacher = torch.randn(5, 3), torch.randn(5, 3)
    hard = distillation_loss(student, teacher, Distill("hard", "x"))
    torch.testing.assert_close(hard, F.cross_entropy(student, teacher.argmax(-1)))
    soft = distillation_loss(student, teacher, Distill("soft", "x", temperature=2.0))
    p, q = (teacher / 2).softmax(-1), (student / 2).softmax(-1)
    torch.testing.assert_close(soft, 4 * (p * (p / q).log()).sum(-1).mean())


class Constant(nn.Module):
    """Always sure that it is a 3."""

    def forward(self, x):
        return F.one_hot(torch.full((len(x),), 3), 10).float() * 20


def make_constant():
    return Constant()


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_any_module_can_teach(kind, tmp_path):
    give_teacher("constant", Constant())
    run = small(distill__teacher="constant", distill__kind=kind, distill__alpha="1", steps="30", optim__lr="1e-2")
    metrics = train(run, tmp_path / "run")
    assert metrics["accuracy"] == pytest.approx(0.1, abs=0.02)  # of a tenth it is true


def test_a_run_can_teach_a_token(tmp_path):
    train(small(), tmp_path / "teacher")
    run = small("digits.deit_distilled", distill__teacher=str(tmp_path / "teacher"), distill__kind="hard")
    train(run, tmp_path / "student")


def test_who_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"distill.kind is 'soft'; expected --distill.teacher too"):
        Distill("soft")
    with pytest.raises(ValueError, match="expected the folder of a run or a model, or 'module:function'"):
        load_teacher(str(tmp_path))
    with pytest.raises(ValueError, match="which makes a list; expected a module"):
        load_teacher("builtins:list")
    assert isinstance(load_teacher("tests.train.test_distill:make_constant"), nn.Module)
    with pytest.raises(ValueError, match="the teacher has 4 classes; expected 3"):
        distillation_loss(torch.zeros(2, 3), torch.zeros(2, 4), Distill("soft", "x"))


MADE = []  # a function leaves its trace here
FUNCTION = f"{__name__}:make_and_note"


def make_and_note():
    MADE.append(1)
    return Constant()


def test_a_file_names_no_function(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lion.train.distill._load", distill._load.__wrapped__)  # made again every time
    folder = str(tmp_path / "run")
    teacher = ["--distill.teacher", FUNCTION]
    options = [*as_options(steps="4", save_every="2"), *teacher, "--distill.kind", "soft"]
    assert main(["train", "digits.lion_s", "--out", folder, *options]) == 0
    assert MADE  # it was typed
    MADE.clear()
    before = (tmp_path / "run" / "run.json").read_text()
    message = (
        f"lion train: distill.teacher is {FUNCTION!r} in {folder}/run.json, a function, which no file may name; give "
        f"it again: --distill.teacher {FUNCTION}\n"
    )
    resume = ["train", "digits.lion_s", "--resume", "--out", folder, "--steps", "6"]
    for more in ([], ["--distill.alpha", "0.3"], ["--distill.kind", "hard"]):  # copies of the file's config
        capsys.readouterr()
        assert main([*resume, *more]) == 1
        assert capsys.readouterr().err == message
        assert (tmp_path / "run" / "run.json").read_text() == before
    assert main(["eval", folder]) == 0  # without the teacher
    assert MADE == []
    assert main([*resume, *teacher]) == 0
    assert MADE
    assert "going on from step 4 of 6" in capsys.readouterr().out


def test_a_name_stays_the_files(tmp_path):
    run = Run.from_json(small(distill__teacher=FUNCTION, distill__kind="soft").to_json(), "x/run.json")
    for copied in (run, copy.deepcopy(run), pickle.loads(pickle.dumps(run)), replace(run, steps=3)):
        assert copied.task.distill.teacher == FUNCTION
        with pytest.raises(ValueError, match=r"in x/run.json, a function, which no file may name; give it again"):
            load_teacher(copied.task.distill.teacher)
    given = run.changed({"distill.teacher": FUNCTION})
    assert given == run
    assert isinstance(load_teacher(given.task.distill.teacher), Constant)
    with pytest.raises(ValueError, match="no file may name"):  # even though it was made in this process before
        load_teacher(run.task.distill.teacher)


def test_deits_teacher_comes_from_timm(monkeypatch):
    ours, timm = pytest.importorskip("lion.integrations.timm"), pytest.importorskip("timm")
    name = "lion.integrations.timm:deit_teacher"
    assert ours.TEACHER in timm.list_pretrained("regnety_160.*")
    asked = []
    monkeypatch.setattr(timm, "create_model", lambda model, **options: asked.append((model, options)) or Constant())
    assert isinstance(distill._load.__wrapped__(name), Constant)
    assert asked == [("regnety_160.deit_in1k", {"pretrained": True})]

    def offline(*args, **options):
        raise ConnectionError("no route")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(OSError, match=r"timm's regnety_160.deit_in1k, .*\(no route\); expected a connection to the"):
        distill._load.__wrapped__(name)

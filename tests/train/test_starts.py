"""A run that fails before its first step leaves nothing behind, and does not block the next."""

import pytest

from lion.data.images import MemorySet
from lion.tasks.images import ImageTask
from lion.train.folder import RunFolder
from lion.train.loop import train
from lion.train.report import Report
from tests.train.runs import small


def broken(message="there is not enough memory"):
    def fail(*_, **__):
        raise MemoryError(message)

    return fail


PLACES = {
    "the data": (MemorySet, "digest"),
    "the model": (ImageTask, "make_model"),
    "the report": (Report, "__init__"),
    "what was read": (ImageTask, "facts"),
    "the first step": (ImageTask, "loss"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_failed_start_leaves_nothing(place, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(*PLACES[place], broken())
        for folder in ("runs/deep/run", "there"):
            with pytest.raises(MemoryError):
                train(small(steps="1"), tmp_path / folder)
    assert [x.name for x in tmp_path.iterdir()] == ["there"]
    assert [x.name for x in (tmp_path / "there").iterdir()] == ["notes.txt"]


def test_the_next_start_is_free(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ImageTask, "loss", broken())
        with pytest.raises(MemoryError):
            train(small(steps="1"), tmp_path / "run")
        patch.setattr(RunFolder, "withdraw", lambda self: None)  # as if it had been killed
        with pytest.raises(MemoryError):
            train(small(steps="1"), tmp_path / "run")
    assert (tmp_path / "run" / "run.json").exists()
    train(small(steps="1"), tmp_path / "run")
    with pytest.raises(ValueError, match="has a run already"):
        train(small(steps="1"), tmp_path / "run")


def test_a_later_failure_keeps_the_run(tmp_path, monkeypatch):
    ordinary = ImageTask.loss

    def second(self, model, batch, *, seed, step):
        if step:
            raise MemoryError
        return ordinary(self, model, batch, seed=seed, step=step)

    monkeypatch.setattr(ImageTask, "loss", second)
    with pytest.raises(MemoryError):
        train(small(steps="2"), tmp_path / "run")
    assert (tmp_path / "run" / "run.json").exists()
    assert (tmp_path / "run" / "data.json").exists()


def test_a_failed_resumption_keeps_the_run(tmp_path, monkeypatch):
    train(small(steps="1"), tmp_path / "run")
    before = sorted(x.name for x in (tmp_path / "run").iterdir())
    monkeypatch.setattr(ImageTask, "loss", broken())
    with pytest.raises(MemoryError):
        train(small(steps="2"), tmp_path / "run", resume=True)
    assert {*before} <= {x.name for x in (tmp_path / "run").iterdir()}

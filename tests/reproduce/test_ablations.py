"""The plans of the ablations, of distillation and of the learned decays."""

import argparse
import json
import math

import pytest

from lion import recipes
from lion.bench.command import add_bench
from lion.cli import main
from lion.cli.training import _fields
from lion.reproduce.cost import PEAK, SHARE, gpu_hours
from lion.reproduce.exhibits import NOT_CONVERGED, NOT_RUN, SCALES, SHOWS, exhibits, ours, printed
from lion.reproduce.page import judged, write_pages
from lion.reproduce.paper import ablations
from lion.reproduce.steps import Workplace
from lion.tasks._base import forget
from tests.data import write_cifar

NAMES = ("table13", "table14", "table15", "table16", "figure12")
BRIEFLY = "--epochs 0 --steps 2 --batch 4 --model.dim 16 --model.heads 2 --model.patch_size 16 --ema 0"


def made(name, scale="laptop"):
    return exhibits()[name].make(scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_run_is_there(name, scale, tmp_path):
    parser = argparse.ArgumentParser()
    add_bench(parser.add_subparsers())
    place = Workplace(tmp_path)
    steps = made(name, scale).steps
    assert steps
    for step in steps:
        command = place.command(step)
        if not step.trains:
            parser.parse_args(command)
            continue
        run = recipes.recipe(command[1])
        fields = dict(_fields(command[2:], run))
        folder = fields.pop("out")
        assert run.changed(fields).seed == int(fields["seed"])
        assert folder == str(place.folder(step))
        assert step.minutes > 0 if scale == "laptop" else step.minutes == 0


PRINTED = {
    "table13": [75.66, 67.55, 77.56],
    "table14": [73.88, 77.33, NOT_CONVERGED, 73.15, 73.61, 68.54, 65.28, NOT_CONVERGED, 77.56],
    "table15": [67.95, 70.23, 70.44],
    "table16": [71.08, 69.61, 73.93, 77.56, 70.24, 70.42, 80.07],
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_numbers_and_what_they_show(name, tmp_path):
    for scale in SCALES:
        exhibit = made(name, scale)
        (table,) = exhibit.tables
        assert [row[0].printed for row in table.rows.values() if row[0].printed is not None] == PRINTED[name]
        claims = judged(exhibit, Workplace(tmp_path))
        assert {x.paper for x in claims} == {SHOWS}
        assert {x.ours for x in claims} == {NOT_RUN}


def test_what_did_not_converge_is_below_all():
    numbers = printed(made("table14"))
    assert numbers("[8] none", "accuracy, %").mean == -math.inf


def test_rows_without_a_change_share_their_runs():
    for base in ("_cifar10", ""):
        known = "cifar10" if base else "cifar100"
        assert recipes.recipe(f"ablation.softmax{base}") == recipes.recipe(f"{known}.softmax")
        assert recipes.recipe(f"ablation.lit{base}") == recipes.recipe(f"{known}.lion_lit")
    models = [
        recipes.recipe(made(name).tables[0].rows[row][0].steps[0].words[1]).task.model
        for name in ("table13", "table14", "table16")
        for row in made(name).tables[0].rows
    ]
    assert len(set(models)) == len(models) - 1  # LION-S is in two of them


def test_the_teacher_is_part_of_the_cost():
    student, _, distilled = (gpu_hours(row[0].steps[0]) for row in made("table15", "paper").tables[0].rows.values())
    images = 300 * 1_281_167
    assert distilled - student > images * 2 * 15.9e9 / (PEAK * SHARE) / 3600


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    write_cifar("cifar10", tmp_path / "data" / "cifar10")
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    forget()
    yield
    forget()


def carry_out(steps, place):
    """What Plan does, in this process."""
    for step in steps:
        assert main(place.command(step)) == 0
        place.finish(step, minutes=0.1)


def test_distillation_end_to_end(cifar, tmp_path):
    place = Workplace(tmp_path / "runs", tuple(BRIEFLY.split()))
    exhibit = made("table15").only([ablations.TEACHER, ablations.DISTILLED])
    carry_out(exhibit.steps, place)
    teacher, student, _ = exhibit.steps
    run = json.loads((place.folder(student) / "run.json").read_text())["run"]
    assert run["task"]["distill"] == {
        **run["task"]["distill"],
        "kind": "hard",
        "teacher": str(place.folder(teacher)),
    }
    assert run["task"]["model"]["distillation_token"]
    assert json.loads((place.folder(teacher) / "model" / "config.json").read_text())["config"]["depth"] == 0
    found = ours(exhibit, place)
    for row in (ablations.TEACHER, ablations.DISTILLED):
        assert 0 <= found(row, "accuracy, %").mean <= 100
    page = write_pages(exhibits()["table15"], exhibit, "laptop", place, tmp_path / "page")
    assert "LION-S (distilled)" in page.read_text()


def test_decays_end_to_end(cifar, tmp_path):
    place = Workplace(tmp_path / "runs", (*BRIEFLY.split(), "--optim.lr", "0.3"))
    whole = made("figure12")
    exhibit = whole.only(["images"])
    carry_out(exhibit.steps, place)
    found = ours(exhibit, place)
    assert found("images", "range at first").mean == pytest.approx(2.0**7, rel=0.3)  # two heads, in RetNet's range
    assert found("images", "range across layers").mean > 1
    (figure,) = whole.figures
    results = [place.result(step) for step in figure.steps]
    assert [x is None for x in results] == [False, True]
    assert figure.draw(results, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert not figure.draw([None, None], tmp_path / "b.png")

"""The figures of causal language models: their plans, and both run with tiny models."""

import copy
import random

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from lion import files, recipes
from lion.cli import main
from lion.reproduce.exhibits import DOES_NOT, NOT_RUN, SHOWS, Missing, exhibits, ours
from lion.reproduce.page import NOT_PRINTED, judged, write_pages
from lion.reproduce.paper import causal
from lion.reproduce.paper.causal import GPT, LINATT, LION, MODELS, PERPLEXITY, RECURRENCE, SAME, column
from lion.reproduce.steps import Workplace
from lion.tasks._base import forget
from tests import SEED
from tests.reproduce.test_beyond import fields_of

SMALL = "--length 16 --vocab_size 300 --holdout 0.3 --model.dim 16 --model.depth 1 --model.heads 2 --batch 4 --steps 2"


def exhibit(name, scale="laptop"):
    return exhibits()[name].make(scale)


def carry_out(steps, place):
    """The steps in this process: `lion reproduce` starts one for each."""
    for step in steps:
        assert main(place.command(step)) == 0
        place.finish(step, minutes=1)


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_every_training_is_a_recipe_and_its_fields(scale):
    steps = exhibit("figure5", scale).steps
    trainings = [step for step in steps if step.trains]
    for step in trainings:
        task = recipes.recipe(step.words[1]).changed(fields_of(step)).task
        assert task.length == (256 if scale == "laptop" else 1024)
        assert (task.model.variant == MODELS[LION]) == (task.model.positions == "none")
    measurements = [step for step in steps if not step.trains]
    assert (len(trainings), len(measurements)) == ((6, 2) if scale == "laptop" else (3, 1))
    for step in measurements:  # of runs with one seed
        assert len(step.needs) == 3
        assert len({run.words[-1] for run in step.needs}) == 1


def test_the_papers_own_numbers(tmp_path):
    verdicts = [x.paper for x in judged(exhibit("figure5"), Workplace(tmp_path))]
    assert verdicts == [SHOWS, SHOWS, NOT_PRINTED]
    assert {x.paper for x in judged(exhibit("figure6"), Workplace(tmp_path))} == {NOT_PRINTED}


def test_perplexity_against_length(tmp_path, monkeypatch):
    generator = random.Random(SEED)
    words = ["the", "a", "film", "actor", "scene", "was", "very", "great", "dull"]
    for n in range(30):
        (tmp_path / f"{n}.txt").write_text(" ".join(generator.choices(words, k=60)) + ".")
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(causal.SEEDS, "laptop", 1)
    forget()
    place = Workplace(tmp_path / "runs", ("--data", f"{tmp_path}/*.txt", *SMALL.split()))
    figure5 = exhibit("figure5")
    carry_out(figure5.steps, place)
    forget()
    numbers = ours(figure5, place)
    for row in MODELS:  # at the training length: what the run itself has found, of all held-out text
        assert numbers(row, column(1)).mean == pytest.approx(numbers(row, PERPLEXITY).mean, rel=0.1)
    assert numbers(LION, column(16)).mean > 1
    for row in (GPT, LINATT):
        with pytest.raises(Missing):
            numbers(row, column(2))
    assert NOT_RUN not in [x.ours for x in judged(figure5, place)]
    page = write_pages(exhibits()["figure5"], figure5, "laptop", place, tmp_path / "page")
    assert page.with_name("lengths.png").stat().st_size > 1000
    assert f"| {LION} | {numbers(LION, column(1)).mean:.2f} | " in page.with_name("README.md").read_text()


def test_the_next_token(tmp_path, monkeypatch):
    monkeypatch.setitem(causal.SIZE, "laptop", "tiny")
    monkeypatch.setattr(causal, "POSITIONS", (4, 256))
    figure6, place = exhibit("figure6"), Workplace(tmp_path)
    [step] = figure6.steps
    carry_out([step], place)
    numbers = ours(figure6, place)
    assert numbers("LION-S", SAME).mean == 16
    for row in causal.MODES:
        for unit in (causal.ms, causal.mib):
            assert numbers(row, unit(256)).mean > 0
    verdicts = {x.words: x.ours for x in judged(figure6, place)}
    assert verdicts["all modes give the same tokens"] == SHOWS
    assert verdicts["the memory of the cache grows: after 256 tokens more than twice that after 4"] == SHOWS
    write_pages(exhibits()["figure6"], figure6, "laptop", place, tmp_path / "page")
    assert (tmp_path / "page" / "costs.png").stat().st_size > 1000

    found = place.result(step)
    worse = copy.deepcopy(found)
    worse["agreement"][0]["same"] = False
    for x in worse["results"]:
        if (x["mode"], x["position"]) == (causal.MODES[RECURRENCE], 256):
            x["seconds"], x["kept_bytes"] = 10 * x["seconds"], 1 << 30
    files.write_json(place.folder(step) / step.result, worse)
    place.finish(step, minutes=1)
    verdicts = {x.words.partition(":")[0]: x.ours for x in judged(figure6, place)}
    assert verdicts["all modes give the same tokens"] == DOES_NOT
    assert verdicts["the latency of the recurrence is constant"] == DOES_NOT
    assert verdicts["the memory of the recurrence is constant"] == DOES_NOT
    assert verdicts["after 256 tokens the recurrence takes the least memory"] == DOES_NOT

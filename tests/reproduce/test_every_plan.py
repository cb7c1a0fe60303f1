"""Every training of every plan, shrunk to a step on small files; every measurement of images, with small models."""

import argparse
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from lion import recipes
from lion.bench import vision
from lion.bench.command import add_bench
from lion.cli import main
from lion.data import FETCHED
from lion.files import read_json, write_json
from lion.reproduce.exhibits import NOT_RUN, exhibits
from lion.reproduce.page import judged
from lion.reproduce.steps import Workplace
from lion.tasks._base import forget
from lion.tasks.images import ImageTask
from lion.tasks.long_range import LongRangeTask
from lion.tasks.text_classification import TextClassificationTask
from lion.train import distill
from lion.train.sampler import Sampler
from tests import SEED
from tests.data import write_cifar, write_folder
from tests.reproduce.test_text import options_of
from tests.tasks.texts import write_glue, write_imdb, write_texts

ELSEWHERE = ("start", "distill.teacher", "data", "test", "seed")  # other runs, and data that is not here
SMALL = {"dim": 16, "depth": 1, "heads": 2}


def fields_of(step):
    return {name: x for name, x in options_of(step).items() if name not in ELSEWHERE}


SIZE = re.compile(r"_(tiny|small|base|large)(?= |$)|(?<=^glue)\.\w+(?=_)")  # and the recipe: shrunk, they are the same


def trainings(scale):
    """One seed of every training of all plans, by its recipe and fields. Of the arena at its own lengths, see
    tests/tasks/test_long_range.py."""
    found = {}
    for named in exhibits().values():
        for step in named.make(scale).steps:
            fields = fields_of(step) if step.trains else {}
            if step.trains and not step.words[1].startswith("lra."):
                name = " ".join([step.words[1], *(f"{name}={x}" for name, x in fields.items())])
                found.setdefault(SIZE.sub("", name), step)
    return found


EVERY = {f"{scale} {name}": step for scale in ("laptop", "paper") for name, step in trainings(scale).items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("plans")
    for name in ("cifar10", "cifar100"):
        write_cifar(name, folder / name)
    for split in ("train", "val"):
        write_folder(folder / "imagenet" / split)
    write_texts(folder / "texts")
    (folder / "imdb").mkdir()
    write_imdb(folder / "imdb")
    for name in ("mnli", "rte", "qqp", "qnli", "sst2", "stsb", "mrpc", "cola"):
        write_glue(folder / name, name)
    (folder / "splice").mkdir()
    rows = [f"{', '.join('ACGT'[(n * i) % 4] for i in range(60))}, {('EI', 'IE', 'N')[n % 3]}" for n in range(30)]
    (folder / "splice" / FETCHED["splice"].file).write_text("\n".join(["@relation splice", "@data", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LION_DATA", str(folder))
        forget()
        yield folder
    forget()


def shrunk(step, files):
    """The task of a step's run, with a small model and small data."""
    task = recipes.recipe(step.words[1]).changed(fields_of(step)).task
    if isinstance(task, ImageTask):
        large = task.dataset != "cifar10"
        small = {**SMALL, "depth": min(task.model.depth, 1), "patch_size": 8 if large else 16}
        return replace(task, image_size=16 if large else 0, model=replace(task.model, **small))
    task = replace(task, model=replace(task.model, **SMALL))
    if isinstance(task, LongRangeTask):
        return replace(task, counts=(6, 4, 4)) if task.name == "listops" else task
    if isinstance(task, TextClassificationTask):
        home = {} if task.dataset == "imdb" else {"data": str(next((files / task.dataset).iterdir()))}
        return replace(task, max_length=24, vocab_size=300, **home)
    if hasattr(task, "length"):
        return replace(task, length=16, holdout=0.3, vocab_size=300, tokenizer="", test="", data=f"{files}/texts/*.txt")
    return task


class Teacher(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, images):
        return torch.eye(self.classes)[:1].expand(len(images), -1)


@pytest.mark.parametrize("name", EVERY)
def test_a_step_of_every_training(name, files, monkeypatch):
    task = shrunk(EVERY[name], files).resolved()
    if isinstance(task, ImageTask) and task.distill.kind != "none":
        monkeypatch.setitem(distill._given, task.distill.teacher, Teacher(task.model.num_classes))
    examples = task.train_set(0)
    (keys,) = Sampler(len(examples), 4, 0, range(1))
    torch.manual_seed(SEED)
    network = task.make_model()
    loss, _ = task.loss(network, examples.__getitems__(keys), seed=0, step=0)
    loss.backward()
    assert loss.isfinite()
    assert all(x.grad is None or x.grad.isfinite().all() for x in network.parameters())
    assert task.measure(network.eval(), task.eval_set().__getitems__([(0, 0)]))["examples"] > 0


def test_every_measurement_is_a_command():
    parser = argparse.ArgumentParser()
    add_bench(parser.add_subparsers())
    found = {step for scale in ("laptop", "paper") for x in exhibits().values() for step in x.make(scale).steps}
    measurements = [step for step in found if not step.trains]
    assert len(measurements) > 20
    for step in measurements:
        args = parser.parse_args([x if isinstance(x, str) else x.name for x in step.words])
        assert args.what == step.words[1]


def test_accuracies_have_two_seeds_at_laptop_scale():
    for named in exhibits().values():
        for table in named.make("laptop").tables:
            for row, cells in table.rows.items():
                for cell in cells:
                    single = row == "the teacher, a convolutional network"
                    assert not cell.steps or not cell.steps[0].trains or len(cell.steps) == 2 - single, (
                        named.name,
                        row,
                    )


real_config_for = vision.config_for


@pytest.fixture
def small_models(monkeypatch):
    def config_for(model, size, pixels):
        real = real_config_for(model, size, pixels)
        return replace(real, dim=24, heads=3, depth=1, num_classes=5, patch_size=8)

    monkeypatch.setattr(vision, "config_for", config_for)


@pytest.mark.parametrize("name", ["table12", "figure1", "figure3", "figure10"])
def test_measurements_of_images_have_what_is_read_of_them(name, small_models, little_garbage, tmp_path):
    exhibit, place = exhibits()[name].make("laptop"), Workplace(tmp_path)
    (step,) = (x for x in exhibit.steps if not x.trains)
    words = list(step.words)
    first = words.index("--pixels") + 1
    count = next(n for n, x in enumerate(words[first:]) if not x.isdigit())
    sides = list(map(int, words[first : first + count]))
    words[first : first + count] = ["16"]
    path = tmp_path / "found.json"
    assert main([*words, "--json", str(path), *(["--rounds", "1"] if "--rounds" not in words else [])]) == 0
    found = read_json(path)
    found["results"] = [{**x, "pixels": side} for side in sides for x in found["results"]]
    place.folder(step).mkdir(parents=True)
    write_json(place.folder(step) / step.result, found)
    place.finish(step, minutes=1)
    for table in exhibit.tables:
        for row, cells in table.rows.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if step in cell.steps:
                    assert cell.read(found) is not None, (row, column)
    if name != "table12":  # which needs trainings, too
        assert NOT_RUN not in {x.ours for x in judged(exhibit, place)}
    for figure in exhibit.figures:
        assert figure.draw([found for _ in figure.steps], tmp_path / "a.png")


def test_all_tables_and_figures_are_there():
    paper = {*(f"table{n}" for n in range(1, 17)), *(f"figure{n}" for n in range(1, 13))}
    assert set(exhibits()) == paper | {"twosided", "halflives"}

"""Every recipe for images, shrunk to one step on files in the real formats. (tests/tasks has those for text.)"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lion import recipes
from lion.tasks._base import forget
from lion.tasks.images import ImageTask
from lion.train import distill
from lion.train.sampler import Sampler
from tests import SEED
from tests.data import write_cifar, write_folder, write_mnist


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist")
    write_cifar("cifar10", folder / "cifar10")
    write_cifar("cifar100", folder / "cifar100")
    for split in ("train", "val"):
        write_folder(folder / "imagenet" / split)
    write_folder(folder / "folder")
    return folder


def different(name: str) -> bool:
    """Not the same as another but for the variant: every variant is tried with the digits."""
    family, _, member = name.partition(".")
    if not isinstance(recipes.recipe(name).task, ImageTask):
        return False
    if family == "ablation":
        return member.endswith("_cifar10")
    if family == "distill":
        return member in ("cifar10_teacher", "cifar10_lion_s", "imagenet_lion_s_tiny")
    return family in ("digits", "images") or member in ("lion_s", "softmax", "vim", "lion_s_2scan_small")


class Teacher(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.forward = logits


@pytest.mark.parametrize("name", list(filter(different, recipes.RECIPES)))
def test_a_step_of_every_recipe(name, data, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(data))
    forget()
    run = recipes.recipe(name)
    size = 0 if run.task.dataset in ("digits", "mnist", "cifar10") else 16
    patch = {"digits": 4, "mnist": 14, "cifar10": 16}.get(run.task.dataset, 8)
    model = replace(run.task.model, dim=16, heads=2, depth=min(run.task.model.depth, 1), patch_size=patch)
    task = replace(run.task, image_size=size, model=model).resolved()
    examples = task.train_set(0)
    (keys,) = Sampler(len(examples), 4, 0, range(1))
    torch.manual_seed(SEED)
    if task.distill.kind != "none":
        one_class = lambda x: torch.eye(task.model.num_classes)[:1].expand(len(x), -1)  # noqa: E731
        monkeypatch.setitem(distill._given, task.distill.teacher, Teacher(one_class))
    network = task.make_model()
    loss, shown = task.loss(network, examples.__getitems__(keys), seed=0, step=0)
    loss.backward()
    assert loss.isfinite()
    assert 0 <= shown["accuracy"] <= 1
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    sums = task.measure(network.eval(), task.eval_set().__getitems__([(0, 0), (0, 1)]))
    assert sums["examples"] == 2


def test_ablations_change_what_they_say():
    models = {name: run().task.model for name, run in recipes.RECIPES.items() if name.startswith("ablation.")}
    assert models["ablation.lion_s_forward_cifar10"].direction == "forward"
    assert models["ablation.vector_decay"].decay == "selective_diagonal"
    assert models["ablation.softmax_no_positions"].positions == "none"
    plain = recipes.recipe("cifar10.lion_s").task.model
    assert models["ablation.lion_s_both_cifar10"] == replace(plain, class_token=False, pool="mean")
    # Each is a model of its own.
    others = [model for name, model in models.items() if name.endswith("_cifar10")]
    assert len(set(others)) == len(others)


def test_distillation_is_deits():
    for name, base in (("imagenet_lion_s_tiny", "imagenet.lion_s_tiny"), ("cifar10_lion_s", "cifar10.lion_s")):
        run, plain = recipes.recipe(f"distill.{name}"), recipes.recipe(base)
        assert (run.task.distill.kind, run.task.distill.alpha) == ("hard", 0.5)
        assert run.task.model == replace(plain.task.model, distillation_token=True)
        assert replace(run, task=plain.task) == plain
    assert recipes.recipe("distill.imagenet_lion_s_tiny").task.distill.teacher == "lion.integrations.timm:deit_teacher"


def test_the_teacher_of_cifar10_is_convolutions_alone():
    task = recipes.recipe("distill.cifar10_teacher").task
    model = replace(task, model=replace(task.model, num_classes=10)).make_model()
    kinds = [type(x) for x in model.modules()]
    assert not len(model.blocks)
    assert kinds.count(nn.Linear) == 1  # the classifier
    assert kinds.count(nn.Conv2d) == 7
    assert [x.kernel_size for x in model.modules() if isinstance(x, nn.Conv2d)].count((3, 3)) == 6
    assert f"{sum(x.numel() for x in model.parameters()):,}" == "305,514"


def test_known_images_are_fetched_where_there_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    forget()
    fetched = []

    def fetch(name):
        fetched.append(name)
        write_cifar(name, tmp_path / name)

    monkeypatch.setattr("lion.tasks.images.fetch", fetch)
    task = recipes.recipe("cifar10.lion_s").task
    assert task.resolved().model.num_classes == 10
    assert fetched == ["cifar10"]
    forget()
    assert task.resolved().model.num_classes == 10
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "half.gz").touch()
    with pytest.raises(FileNotFoundError, match=r"mnist is not in .*/mnist; expected IDX files"):
        recipes.recipe("mnist.lion_s").task.resolved()
    assert fetched == ["cifar10"]
    forget()

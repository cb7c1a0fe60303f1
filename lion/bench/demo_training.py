"""The demo's training: small models of one size on scikit-learn's digits, and one of them in every form."""

import shutil
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion import recipes
from lion.bench.report.page import FormResult, TrainedRun
from lion.bench.timing import Work, interleaved, training
from lion.models.saving import load_model
from lion.nn.layers import set_form
from lion.ops.kernels import FORMS
from lion.progress import Bar
from lion.terminal import table
from lion.train.config import Run
from lion.train.loop import train

MODELS = ("lion_s", "lion_d", "lion_lit", "softmax")


def train_all(folder: Path, changes: dict[str, str]) -> dict[str, TrainedRun]:
    """Train one model after the other, then time a step of each, interleaved."""
    runs: dict[str, Run] = {}
    accuracy = {}
    for name in MODELS:
        run = runs[name] = recipes.recipe(f"digits.{name}").changed(changes)
        print(f"{name}:", flush=True)
        shutil.rmtree(folder / name, ignore_errors=True)  # of the demo before
        accuracy[name] = train(run, folder / name, recipe=f"digits.{name}")["accuracy"]
    models = {name: load_model(folder / name / "model") for name in MODELS}
    batch = runs["softmax"].task.train_set(0).__getitems__([(0, i) for i in range(runs["softmax"].batch)])
    seconds, _ = interleaved({name: _step(models[name], batch) for name in MODELS}, rounds=20)
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    return {name: TrainedRun(folder / name, accuracy[name], seconds[name] * 1e3, sizes[name]) for name in MODELS}


def _step(model: nn.Module, batch: dict[str, Tensor]) -> Work:
    """A training step without the optimizer, which is the same for all."""
    parameters = list(model.train().parameters())
    return training(lambda: F.cross_entropy(model(batch["image"]), batch["label"]), parameters)


def in_every_form(folder: Path, bar: Bar) -> dict[str, FormResult]:
    """The predictions of one trained model on the evaluation set, form by form."""
    model = load_model(folder / "model").eval()
    images = recipes.recipe("digits.lion_s").task.eval_set()
    batch = images.__getitems__([(0, i) for i in range(len(images))])
    found: dict[str, FormResult] = {}
    first: Tensor | None = None
    for form in FORMS:
        set_form(model, form)
        with torch.no_grad():
            model(batch["image"][:8])
            began = time.perf_counter()
            logits = model(batch["image"])
            spent = time.perf_counter() - began
        first = logits if first is None else first
        right = (logits.argmax(-1) == batch["label"]).float().mean().item()
        differ = int((logits.argmax(-1) != first.argmax(-1)).sum())
        off = (logits - first).abs().max().item()
        found[form] = FormResult(right, differ, off, spent * 1e3 / len(images))
        bar.advance()
    return found


def training_table(runs: dict[str, TrainedRun]) -> str:
    softmax = runs["softmax"].step_ms
    rows = [
        (name, f"{x.parameters:,}", f"{x.accuracy:.2%}", f"{x.step_ms:.1f}", f"{x.step_ms / softmax:.2f}")
        for name, x in runs.items()
    ]
    return table(("model", "parameters", "accuracy", "step ms", "of softmax's"), rows)


def forms_table(forms: dict[str, FormResult]) -> str:
    rows = [
        (name, f"{x.accuracy:.2%}", str(x.differ), f"{x.logits:.1e}", f"{x.image_ms:.3f}") for name, x in forms.items()
    ]
    return table(("form", "accuracy", "other predictions", "logits differ by", "ms per image"), rows)

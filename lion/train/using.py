"""What a finished run is used for: evaluating it again, and classifying images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion.files import read_json
from lion.models.saving import load_model
from lion.nn.layers import set_form
from lion.progress import progress
from lion.train.config import Run
from lion.train.loop import CONFIG
from lion.train.task import means, summed


class Trained(NamedTuple):
    run: Run
    model: nn.Module
    to_predict: dict[str, Any]


def load_run(folder: Path) -> Trained:
    """A run that is finished, its model ready for use."""
    if not (folder / CONFIG).exists():
        raise ValueError(f"there is no run in {folder}; expected a folder that `lion train` has made.")
    content = read_json(folder / CONFIG)
    if not (folder / "model").exists():
        raise ValueError(f"the run in {folder} is not finished: lion train --resume --out {folder}")
    return Trained(Run.from_json(content["run"]), load_model(folder / "model").eval(), content["to_predict"])


def evaluate(folder: Path, *, form: str = "auto", batch: int = 64) -> dict[str, float]:
    """The held-out metrics of a run, computed in some form."""
    run, model, _ = load_run(folder)
    set_form(model, form)
    examples = run.task.eval_set()
    sums: dict[str, Tensor] = {}
    with torch.no_grad(), progress(total=len(examples), unit=run.task.unit) as bar:
        for first in range(0, len(examples), batch):
            keys = [(0, i) for i in range(first, min(first + batch, len(examples)))]
            sums = summed(sums, run.task.measure(model, examples.__getitems__(keys)))
            bar.advance(len(keys))
    return means({name: float(x) for name, x in sums.items()})


class Guess(NamedTuple):
    label: str
    probability: float


def predict(folder: Path, paths: Sequence[Path], *, form: str = "auto", best: int = 3) -> list[list[Guess]]:
    """The most likely classes of each image, the likeliest first."""
    from lion.data.images import read_image

    run, model, known = load_run(folder)
    set_form(model, form)
    config = run.task.model  # type: ignore[attr-defined]
    mean, std = (torch.tensor(known[name])[:, None, None] for name in ("mean", "std"))
    guesses = []
    for path in paths:
        image = read_image(path, size=config.image_size, channels=config.in_channels)
        with torch.no_grad():
            chances = model(((image - mean) / std)[None]).softmax(-1)[0]
        top = chances.topk(min(best, len(chances)))
        guesses.append([Guess(known["classes"][i], p) for p, i in zip(*(x.tolist() for x in top), strict=True)])
    return guesses

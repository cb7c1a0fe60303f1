"""What a finished run is used for: evaluating it again, classifying images and texts, filling gaps."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion.data import fasta
from lion.data.tokenizers import tokenizer_of_model
from lion.files import DamagedFile, read_json
from lion.models.saving import load_model
from lion.nn.layers import set_form
from lion.ops.checks import Form
from lion.progress import progress
from lion.train.config import Run
from lion.train.loop import CONFIG
from lion.train.task import means, summed, task_kind


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
    try:
        model = load_model(folder / "model").eval()
    except (DamagedFile, FileNotFoundError) as problem:
        remedy = f"To write it once more, from the last checkpoint: lion train --resume --out {folder}"
        raise DamagedFile(f"{problem} {remedy}") from None
    run = Run.from_json(content["run"], str(folder / CONFIG))
    if hasattr(run.task, "text_tokenizer"):
        config: Any = model.config
        tokenizer_of_model(folder / "model", config.vocab_size)  # or words would be other words
    return Trained(run, model, content["to_predict"])


def evaluate(folder: Path, *, form: Form = "auto", batch: int | None = None, test: str = "") -> dict[str, float]:
    """The held-out metrics of a run, computed in some form, so many examples at once (as in training). What has labels
    may be tested on something else: a task's `test`."""
    run, model, _ = load_run(folder)
    batch = run.batch // run.accumulate or 1 if batch is None else batch
    if batch < 1:
        raise ValueError(f"batch is {batch}; expected at least 1.")
    set_form(model, form)
    task: Any = run.task.using(folder / "model")
    if test:
        if not hasattr(task, "test"):
            raise ValueError(
                f"test is {test!r}, but the run in {folder} has nothing else to be tested on; expected none."
            )
        task = dataclasses.replace(task, test=test)
    examples = task.eval_set()
    sums: dict[str, Tensor] = {}
    with torch.no_grad(), progress(total=len(examples), unit=task.unit) as bar:
        for first in range(0, len(examples), batch):
            keys = [(0, i) for i in range(first, min(first + batch, len(examples)))]
            sums = summed(sums, task.measure(model, examples.__getitems__(keys)))
            bar.advance(len(keys))
    return task.concluded(means(sums))


class Guess(NamedTuple):
    label: str
    probability: float


def predict(folder: Path, inputs: Sequence[str], *, form: Form = "auto", best: int = 3) -> list[list[Guess]]:
    """The most likely classes of each image (a path) or text, the likeliest first; of a model that learned from hidden
    words, what [MASK] hides."""
    run, model, known = load_run(folder)
    kind = task_kind(run.task)
    if kind in NOTHING_TO_CHOOSE:
        raise ValueError(f"the run in {folder} {NOTHING_TO_CHOOSE[kind].format(folder=folder)}")
    set_form(model, form)
    guesses = []
    with torch.no_grad():
        for one in inputs:
            chances, names = PREDICTORS[kind](Trained(run, model, known), folder, one)
            top = chances.topk(min(best, len(chances)))
            guesses.append([Guess(names(i), p) for p, i in zip(*(x.tolist() for x in top), strict=True)])
    return guesses


# Probabilities, and their names by number.
Chances = tuple[Tensor, Callable[[int], str]]


def _of_image(trained: Trained, folder: Path, path: str) -> Chances:
    from lion.data.images import read_image

    known, config = trained.to_predict, trained.run.task.model  # type: ignore[attr-defined]
    mean, std = (torch.tensor(known[name])[:, None, None] for name in ("mean", "std"))
    image = read_image(Path(path), size=config.image_size, channels=config.in_channels)
    return trained.model(((image - mean) / std)[None]).softmax(-1)[0], known["classes"].__getitem__


def _of_text(trained: Trained, folder: Path, text: str) -> Chances:
    from lion.data.tokenizers import load_tokenizer

    known = trained.to_predict
    if not known["classes"]:
        raise ValueError(f"the run in {folder} predicts numbers, not classes; use transformers' pipelines for those.")
    if known.get("pairs"):
        raise ValueError(f"the run in {folder} is of pairs of texts; use transformers' pipelines for those.")
    if not text.strip():
        raise ValueError("a text is empty; expected some words.")
    ids = load_tokenizer(folder / "model").encode([text], specials=True, max_length=known["max_length"])
    return trained.model(torch.tensor(ids)).logits.softmax(-1)[0], known["classes"].__getitem__


def _of_gap(trained: Trained, folder: Path, text: str) -> Chances:
    from lion.data.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(folder / "model")
    parts = text.split("[MASK]")
    if len(parts) != 2 or tokenizer.mask_id is None:
        raise ValueError(f"the text has {len(parts) - 1} [MASK]; expected one: what it hides is to be found.")
    before, after = tokenizer.encode(parts)
    start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
    ids = torch.tensor([[*start, *before, tokenizer.mask_id, *after]])
    chances = trained.model(ids).logits[0, len(start) + len(before)].softmax(-1)
    return chances, lambda i: tokenizer.decode([i])


def _of_dna(trained: Trained, folder: Path, sequence: str) -> Chances:
    known = trained.to_predict
    if not known["classes"]:
        raise ValueError(f"the run in {folder} predicts numbers, not classes; expected one with classes.")
    bases = fasta.encode(sequence)
    if not len(bases):
        raise ValueError("a sequence is empty; expected some nucleotides.")
    ids = [fasta.CLS, *bases][: known["max_length"] or None]
    return trained.model(torch.tensor([ids])).softmax(-1)[0], known["classes"].__getitem__


def _of_hidden_base(trained: Trained, folder: Path, sequence: str) -> Chances:
    parts = sequence.split("[MASK]")
    if len(parts) != 2:
        raise ValueError(f"the sequence has {len(parts) - 1} [MASK]; expected one: what it hides is to be found.")
    before, after = (fasta.encode(part).tolist() for part in parts)
    output = trained.model(torch.tensor([[*before, fasta.MASK, *after]]))
    return output[0, len(before)].softmax(-1), lambda i: fasta.VOCABULARY[fasta.A + i]


PREDICTORS: dict[str, Callable[[Trained, Path, str], Chances]] = {
    "images": _of_image,
    "text": _of_text,
    "mlm": _of_gap,
    "dna_classes": _of_dna,
    "dna": _of_hidden_base,
}
NOTHING_TO_CHOOSE = {
    "long_range": "is of the Long Range Arena; evaluate it: lion eval {folder} --test test.",
    "causal": "goes on with a text, it has nothing to choose from: lion generate.",
    "text_distill": "embeds texts, it has nothing to choose from: LionModel.from_pretrained('{folder}/model').",
}

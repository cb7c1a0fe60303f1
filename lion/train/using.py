"""What a finished run is used for: evaluating it again, classifying images and texts, filling gaps."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion.configs import checked, from_json
from lion.data import fasta
from lion.data.tokenizers import tokenizer_of_model
from lion.files import DamagedFile
from lion.limits import Batch, Count, Positive, TokensOrAll
from lion.models.saving import load_model
from lion.models.vision import VisionConfig
from lion.nn.layers import set_form
from lion.ops.checks import Form
from lion.progress import progress
from lion.train.config import Run, read_run
from lion.train.folder import CONFIG
from lion.train.task import means, summed, task_kind


@dataclass(frozen=True)
class Known:
    """What a task's `to_predict` has left in run.json."""

    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = (0.0,)  # of an image's channels
    std: tuple[Positive, ...] = (1.0,)
    max_length: TokensOrAll = 0
    pairs: bool = False

    def name(self, number: int) -> str:
        return self.classes[number]


class Trained(NamedTuple):
    run: Run
    model: nn.Module
    to_predict: Known


# Fields of a model's config that its data decides.
BY_DATA = ("num_classes", "in_channels", "vocab_size", "classes", "answer")


def load_run(folder: Path) -> Trained:
    """A run that is finished, its model ready for use."""
    if not (folder / CONFIG).exists():
        raise ValueError(f"there is no run in {folder}; expected a folder that `lion train` has made.")
    saved = read_run(folder / CONFIG)
    known = from_json(Known, saved.to_predict, f"{folder / CONFIG}: to_predict")
    if not (folder / "model").exists():
        raise ValueError(f"the run in {folder} is not finished: lion train --resume --out {folder}")
    try:
        model = load_model(folder / "model").eval()
    except (DamagedFile, FileNotFoundError) as problem:
        remedy = f"To write it once more, from the last checkpoint: lion train --resume --out {folder}"
        raise DamagedFile(f"{problem} {remedy}") from None
    if hasattr(saved.run.task, "text_tokenizer"):
        config: Any = model.config
        if not hasattr(config, "vocab_size"):
            raise ValueError(f"the model in {folder}/model reads no text, and the run in {folder} does.")
        tokenizer_of_model(folder / "model", config.vocab_size)  # or words would be other words
    return Trained(saved.run, model, known)


def evaluate(folder: Path, *, form: Form = "auto", batch: int | None = None, test: str = "") -> dict[str, float]:
    """The held-out metrics of a run, computed in some form, so many examples at once (as in training). What has labels
    may be tested on something else: a task's `test`."""
    run, model, _ = load_run(folder)
    batch = run.batch // run.accumulate or 1 if batch is None else checked(Batch, batch, "batch")
    set_form(model, form)
    task: Any = run.task.using(folder / "model")
    if test:
        if not hasattr(task, "test"):
            raise ValueError(
                f"test is {test!r}, but the run in {folder} has nothing else to be tested on; expected none."
            )
        task = dataclasses.replace(task, test=test)
    _check_model(task, model, folder)
    examples = task.eval_set()
    sums: dict[str, Tensor] = {}
    with torch.no_grad(), progress(total=len(examples), unit=task.unit) as bar:
        for first in range(0, len(examples), batch):
            keys = [(0, i) for i in range(first, min(first + batch, len(examples)))]
            sums = summed(sums, task.measure(model, examples.__getitems__(keys)))
            bar.advance(len(keys))
    return task.concluded(means(sums))


def _check_model(task: Any, model: Any, folder: Path) -> None:
    """A model of other data than the run's would stumble over it."""
    if type(getattr(task, "model", None)) is not type(model.config):
        return
    wanted = task.resolved().model
    for name in BY_DATA:
        got, want = (getattr(config, name, None) for config in (model.config, wanted))
        if got != want:
            raise ValueError(
                f"the model in {folder}/model has {name} {got!r}; expected {want!r}, as the data of {folder / CONFIG}."
            )


class Guess(NamedTuple):
    label: str
    probability: float


def predict(folder: Path, inputs: Sequence[str], *, form: Form = "auto", best: int = 3) -> list[list[Guess]]:
    """The most likely classes of each image (a path) or text, the likeliest first; of a model that learned from hidden
    words, what [MASK] hides."""
    checked(Count, best, "best")
    run, model, known = load_run(folder)
    kind = task_kind(run.task)
    if kind in NOTHING_TO_CHOOSE:
        raise ValueError(f"the run in {folder} {NOTHING_TO_CHOOSE[kind].format(folder=folder)}")
    set_form(model, form)
    guesses = []
    with torch.no_grad():
        for one in inputs:
            chances, names = PREDICTORS[kind](Trained(run, model, known), folder, one)
            if known.classes and len(known.classes) != len(chances):
                raise ValueError(
                    f"{folder / CONFIG}: to_predict.classes has {len(known.classes)} names; expected {len(chances)}, "
                    "as many as the model has classes."
                )
            top = chances.topk(min(best, len(chances)))
            guesses.append([Guess(names(i), p) for p, i in zip(*(x.tolist() for x in top), strict=True)])
    return guesses


def check_text(name: str, text: str) -> str:
    """The text, if it is one: bytes of the command line that are not UTF-8 are not."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(f"{name} has {text[problem.start]!r} at {problem.start}; expected UTF-8.") from None
    return text


# Probabilities, and their names by number.
Chances = tuple[Tensor, Callable[[int], str]]


def _of_image(trained: Trained, folder: Path, path: str) -> Chances:
    from lion.data.images import read_image

    known, config = trained.to_predict, trained.model.config
    if not isinstance(config, VisionConfig):
        raise ValueError(f"the model in {folder}/model reads no images, and the run in {folder} does.")
    for name, numbers in (("mean", known.mean), ("std", known.std)):
        if len(numbers) not in (1, config.in_channels):
            raise ValueError(
                f"{folder / CONFIG}: to_predict.{name} has {len(numbers)} numbers; expected {config.in_channels}, one "
                "for each channel."
            )
    mean, std = (torch.tensor(x)[:, None, None] for x in (known.mean, known.std))
    image = read_image(Path(path), size=config.image_size, channels=config.in_channels)
    return trained.model(((image - mean) / std)[None]).softmax(-1)[0], known.name


def _of_text(trained: Trained, folder: Path, text: str) -> Chances:
    from lion.data.tokenizers import load_tokenizer

    known = trained.to_predict
    if not known.classes:
        raise ValueError(f"the run in {folder} predicts numbers, not classes; use transformers' pipelines for those.")
    if known.pairs:
        raise ValueError(f"the run in {folder} is of pairs of texts; use transformers' pipelines for those.")
    if not text.strip():
        raise ValueError("a text is empty; expected some words.")
    ids = load_tokenizer(folder / "model").encode(
        [check_text("a text", text)], specials=True, max_length=known.max_length or None
    )
    return trained.model(torch.tensor(ids)).logits.softmax(-1)[0], known.name


def _of_gap(trained: Trained, folder: Path, text: str) -> Chances:
    from lion.data.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(folder / "model")
    parts = check_text("the text", text).split("[MASK]")
    if len(parts) != 2 or tokenizer.mask_id is None:
        raise ValueError(f"the text has {len(parts) - 1} [MASK]; expected one: what it hides is to be found.")
    before, after = tokenizer.encode(parts)
    start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
    ids = torch.tensor([[*start, *before, tokenizer.mask_id, *after]])
    chances = trained.model(ids).logits[0, len(start) + len(before)].softmax(-1)
    return chances, lambda i: tokenizer.decode([i])


def _of_dna(trained: Trained, folder: Path, sequence: str) -> Chances:
    known = trained.to_predict
    if not known.classes:
        raise ValueError(f"the run in {folder} predicts numbers, not classes; expected one with classes.")
    bases = fasta.encode(sequence)
    if not len(bases):
        raise ValueError("a sequence is empty; expected some nucleotides.")
    ids = [fasta.CLS, *bases][: known.max_length or None]
    return trained.model(torch.tensor([ids])).softmax(-1)[0], known.name


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

"""Classes of texts or of pairs of texts, or a number for each."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from lion.data import fetch, lion_data_folder, stratified
from lion.data.batches import padded
from lion.data.glue import GLUE, glue
from lion.data.labelled import Labelled, LabelledTexts, Text, imdb, labelled
from lion.data.tokenizers import TextTokenizer, load_tokenizer, tokenizer_of_model
from lion.files import read_json
from lion.limits import Tokens, TokensOrAll, Vocabulary
from lion.machine import to_train
from lion.models.encoder import ENCODERS, EncoderConfig, init_linear
from lion.models.positions import placed
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Known, Prediction, Trained, cached, register_task
from lion.tasks._labelled import LabelledTask
from lion.tasks._tokenized import TokenizedTask, check_text, tokenizer_of, trained_tokenizer, with_room
from lion.train.config import Optim, Run
from lion.train.distill import model_folder

if TYPE_CHECKING:
    from lion.integrations.hf import LionConfig


@dataclass(frozen=True)
class KnownTexts(Known):
    max_length: TokensOrAll = 0
    pairs: bool = False


@register_task("text_classification")
@dataclass(frozen=True)
class TextClassificationTask(TokenizedTask, LabelledTask):
    dataset: str = "file"  # a key of TEXT_SETS
    data: str = ""  # the file, or where the set is if not in the usual place
    test: str = ""  # a file for the eval set; "": what the set has for that, of a file a tenth; mnli: also "mismatched"
    text_column: str = ""  # of a file; "": the one with a usual name. Of a pair: two, with a comma
    label_column: str = ""
    classes: tuple[str, ...] = ()  # found in the data
    numbers: bool = False  # labels are numbers, not classes
    tokenizer: str = ""
    vocab_size: Vocabulary = 8192
    max_length: Tokens = 256
    start: str = ""  # a run of `mlm` or `text`, or its model, to go on from; `model` then counts for its dropout only
    model: EncoderConfig = field(default_factory=EncoderConfig)

    known = KnownTexts
    usage = "lion predict {run} 'a text'"

    def __post_init__(self):
        super().__post_init__()
        one_of("dataset", self.dataset, TEXT_SETS)

    def resolved(self) -> "TextClassificationTask":
        if self.dataset == "file" and not self.data:
            raise ValueError("there is no data; expected --data FILE, a .csv, .tsv, .jsonl or .parquet of texts.")
        train = self.texts("train")
        found = replace(self, classes=tuple(train.classes or ()), numbers=train.classes is None)
        tokenizer = found.text_tokenizer()
        if self.start:
            model = replace(_config_of(self.start).encoder(), dropout=self.model.dropout)
            if model.positions == "learned" and self.max_length > model.max_tokens:
                raise ValueError(
                    f"max_length is {self.max_length}, but the model in {self.start} has learned positions for "
                    f"{model.max_tokens} tokens; expected no more."
                )
            return replace(found, model=model)
        model = replace(self.model, vocab_size=tokenizer.vocab_size, pad_token=tokenizer.pad_id)
        return replace(found, model=with_room(model, self.max_length))

    @property
    def metrics(self) -> tuple[str, ...]:
        return super().metrics if self.numbers else TEXT_METRICS.get(self.dataset, ("accuracy",))

    def texts(self, split: str) -> Labelled:
        if split == "train" or not self.test:
            return TEXT_SETS[self.dataset](self, split)
        if (self.dataset, self.test) == ("mnli", "mismatched"):
            return _glue(self, "validation_mismatched")
        return self.read_texts(self.test, functools.partial(self.texts, "train"))

    def read_texts(self, path: str, train: Callable[[], Labelled] | None = None) -> Labelled:
        pair = tuple(self.text_column.split(","))
        return self.read_file(labelled, path, pair if len(pair) == 2 else self.text_column, train)

    def text_tokenizer(self) -> TextTokenizer:
        if self.start:
            folder = _model_folder(self.start)
            own = tokenizer_of_model(folder, _config_of(self.start).vocab_size)
            if self.tokenizer and load_tokenizer(self.tokenizer) != own:
                raise ValueError(
                    f"tokenizer is {self.tokenizer!r}, but the model in {folder} has one of its own; expected none: "
                    "leave --tokenizer out, or --start."
                )
            return own
        if self.tokenizer:
            return load_tokenizer(self.tokenizer)
        texts = [part for text in self.texts("train").texts for part in ([text] if isinstance(text, str) else text)]
        return trained_tokenizer("wordpiece", texts, self.vocab_size)

    def make_model(self) -> nn.Module:
        from lion.integrations.hf import LionConfig, LionForSequenceClassification

        labels = list(self.classes) or ["value"]
        names = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        kind = "regression" if self.numbers else "single_label_classification"
        config = LionConfig.of(self.model, **names, problem_type=kind)
        if not self.start:
            return to_train(lambda: LionForSequenceClassification(config))
        return classifier_from(_model_folder(self.start), config)

    def train_set(self, seed: int) -> Examples:
        return self._examples("train")

    def eval_set(self) -> Examples:
        return self._examples("test")

    def _examples(self, split: str) -> LabelledTexts:
        found = self.texts(split)
        return LabelledTexts(found.texts, found.labels, self.text_tokenizer(), self.max_length)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["mask"], batch.get("token_type_ids")).logits

    def using(self, folder: Path) -> "TextClassificationTask":
        return replace(self, tokenizer=str(folder), start="")

    def to_predict(self) -> Known:
        pairs = not isinstance(self.texts("train").texts[0], str)
        return KnownTexts(self.classes, self.max_length, pairs)

    def example(self, trained: Trained, given: Text) -> Text:
        """given: a text, or a pair of them; as one string with a tab between them."""
        parts: tuple[str, ...] = (given,) if isinstance(given, str) else given
        if isinstance(given, str) and trained.known.pairs:
            parts = tuple(given.split("\t"))
        if len(parts) != 1 + trained.known.pairs:
            wanted = "TEXT_A<TAB>TEXT_B" if trained.known.pairs else "one text"
            kind = "pairs of texts" if trained.known.pairs else "single texts"
            raise ValueError(f"the run in {trained.folder} is of {kind}, and this has {len(parts)}; expected {wanted}.")
        for part in parts:
            if not check_text("a text", part).strip():
                raise ValueError("a text is empty; expected some words.")
        return (parts[0], parts[1]) if trained.known.pairs else parts[0]

    def predict_batch(self, trained: Trained, examples: list[Any]) -> list[Prediction]:
        tokenizer, most = tokenizer_of(trained), trained.known.max_length or None
        batch: Batch = {}
        if trained.known.pairs:
            both = tokenizer.encode_pairs(examples, max_length=most)
            rows = [ids for ids, _ in both]
            batch["token_type_ids"], _ = padded([kinds for _, kinds in both], 0)
        else:
            rows = tokenizer.encode(examples, specials=True, max_length=most)
        pad = next((x for x in (tokenizer.pad_id, tokenizer.eos_id) if x is not None), 0)
        batch["input_ids"], batch["mask"] = padded(rows, pad)
        batch = {name: x.to(trained.device) for name, x in batch.items()}
        return [Prediction(x) for x in self.outputs(trained.model, batch)]


def _model_folder(start: str) -> Path:
    folder = model_folder(start)
    wanted = "the folder of a run of `lion train mlm` or `text`, or of its model"
    if folder is None:
        if (Path(start).expanduser() / "run.json").exists():
            raise ValueError(f"the run in {start} is not finished: lion train --resume --out {start}")
        raise ValueError(f"start is {start!r}; expected {wanted}.")
    plain = read_json(folder / "config.json")
    kind = plain.get("model_type", plain.get("kind")) if isinstance(plain, dict) else None
    if kind != "lion":
        raise ValueError(f"start is {start!r}, which has a model of the kind {kind!r}; expected {wanted}.")
    return folder


def _config_of(start: str) -> "LionConfig":
    from lion.integrations.hf import LionConfig

    return LionConfig.from_pretrained(_model_folder(start))


def classifier_from(folder: Path, config: "LionConfig") -> nn.Module:
    """A model's encoder; and its classifier, if it has the same classes, otherwise a new one."""
    from lion.integrations.hf import LionConfig, LionForSequenceClassification
    from lion.models.saving import load_pretrained

    model, found = load_pretrained(LionForSequenceClassification, folder, config=config, ignore_mismatched_sizes=True)
    new = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    for name in sorted(new):
        if not name.startswith(("classifier.", "lion.pooler.")):
            raise ValueError(f"{folder} does not fit its config.json: {name} is missing, or of another shape.")
    if "classifier.weight" not in new and LionConfig.from_pretrained(folder).id2label != config.id2label:
        init_linear(model.classifier, config.initializer_range)
    return model


def _file(task: TextClassificationTask, split: str) -> Labelled:
    """A file of the user's own. Without one for the eval set, a tenth of every class is held out."""
    found = task.read_texts(task.data)
    if task.test:
        return found
    strata = np.zeros(len(found.labels), int) if found.classes is None else np.asarray(found.labels)
    contents = [str(text).encode() for text in found.texts]
    kept = stratified(strata, 0.1, 0, contents)[split == "test"]
    if not len(kept):
        raise ValueError(
            f"{task.data} has {len(found.labels)} rows, too few to hold any out; expected two of a class, at least: "
            "add some, or give others with --test FILE."
        )
    return Labelled([found.texts[i] for i in kept], np.asarray(found.labels)[kept], found.classes)


def _imdb(task: TextClassificationTask, split: str) -> Labelled:
    if not task.data:
        fetch("imdb")
    return cached(imdb, split, data=task.data or None)


def _glue(task: TextClassificationTask, split: str) -> Labelled:
    folder = task.data or lion_data_folder() / "glue" / task.dataset
    return cached(glue, task.dataset, folder, {"test": "validation"}.get(split, split))


TEXT_SETS: dict[str, Callable[[TextClassificationTask, str], Labelled]] = {
    "file": _file,
    "imdb": _imdb,
    **dict.fromkeys(GLUE, _glue),
}
# Metrics of data sets, the first for curves and tables. Other sets have the accuracy.
TEXT_METRICS = {
    "file": LabelledTask.metrics_of_classes,
    "qqp": ("f1", "accuracy"),
    "mrpc": ("f1", "accuracy"),
    "cola": ("matthews", "accuracy"),
    "stsb": LabelledTask.metrics_of_numbers,
}


@register_recipe("text")
def text(variant: str = "lion_s") -> Run:
    """Classes of your own texts: `lion train text --data reviews.csv`."""
    task = TextClassificationTask(model=placed(replace(ENCODERS["small"], variant=variant, depth=2, dropout=0.1)))
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=4, batch=32)


@register_recipe("text.imdb_{variant}", variant=VARIANTS)
def text_imdb(variant: str) -> Run:
    """Film reviews, positive or not: 24,901 of IMDB's, a fifth of them held out."""
    model = placed(replace(ENCODERS["small"], variant=variant, dim=128, depth=2, mlp_dim=512, dropout=0.3))
    run = text(variant)
    return replace(run, task=TextClassificationTask(dataset="imdb", max_length=384, model=model), epochs=3)

"""Text as tasks: hidden tokens, next tokens, and what a text is labelled with.

Models are those of `lion.integrations.hf`: what a run leaves in its folder `model` is for transformers to load, too.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor, nn

from lion.configs import check
from lion.data import fetch, lion_data_folder
from lion.data.batches import IGNORED
from lion.data.corpora import NAMED, Documents, documents, several
from lion.data.labelled import LabelledTexts
from lion.data.packed import MaskedTokens, NextTokens, PackedTokens
from lion.data.tokenizers import TextTokenizer, load_tokenizer, tokenizer_of_model, train_byte_bpe, train_wordpiece
from lion.files import make_once, read_json, stamp
from lion.limits import Examples as ExampleCount
from lion.limits import ShareBelowOne, SomeShare, Tokens, Vocabulary
from lion.machine import to_train
from lion.models.causal import CausalConfig
from lion.models.encoder import EncoderConfig, init_linear
from lion.ops.checks import one_of
from lion.train.labelled import LabelledTask
from lion.train.task import Batch, Examples, Task, classified

if TYPE_CHECKING:
    from lion.data.labelled import Labelled
    from lion.integrations.hf import LionConfig

Model = TypeVar("Model", EncoderConfig, CausalConfig)
TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_bpe}


@dataclass(frozen=True)
class CorpusTask(Task):
    """What tasks on plain text have in common."""

    data: str = "english"  # files, patterns, "english" (12 MB of speeches), "imdb"; or hf://owner/name
    per: str = ""  # a document is a "file", a "paragraph" or a "line"; "": a file, or a paragraph if files are few
    column: str = "text"  # of tables, the one with the text
    limit: ExampleCount = 0  # of documents, the first ones; 0: all
    tokenizer: str = ""  # a folder or file of one, or "bytes"; "": one is made of the data
    vocab_size: Vocabulary = 8192  # of that
    length: Tokens = 128  # tokens of an example
    holdout: ShareBelowOne = 0.05  # of the documents

    unit: ClassVar[str] = "text"
    trainer: ClassVar[str]

    def __post_init__(self):
        check(self)

    def text_tokenizer(self) -> TextTokenizer:
        if self.tokenizer:
            return load_tokenizer(self.tokenizer)
        return trained_tokenizer(self.trainer, self.documents(), self.vocab_size)

    def documents(self) -> Documents:
        return _documents(self.data, self.per, self.column, self.limit)

    def packed(self, split: str) -> PackedTokens:
        return PackedTokens(self.documents(), self.text_tokenizer(), self.length, split=split, holdout=self.holdout)

    def digests(self) -> dict[str, str]:
        return {"tokenizer": self.text_tokenizer().fingerprint}

    def save_beside(self, folder: Path) -> None:
        self.text_tokenizer().save(folder)


@dataclass(frozen=True)
class MlmTask(CorpusTask):
    model: EncoderConfig = field(default_factory=EncoderConfig)
    mask: SomeShare = 0.3  # of the tokens, in training
    eval_mask: SomeShare = 0.15

    tunable: ClassVar[tuple[str, ...]] = ("mask", "eval_mask")
    makes_tokenizer: ClassVar[bool] = True
    trainer: ClassVar[str] = "wordpiece"

    def resolved(self) -> "MlmTask":
        tokenizer = self.text_tokenizer()
        if tokenizer.mask_id is None:
            raise ValueError(
                f"the tokenizer {self.tokenizer!r} has no [MASK]; expected one that has: leave --tokenizer out, and it "
                "is made of the data."
            )
        model = replace(self.model, vocab_size=tokenizer.vocab_size, pad_token=tokenizer.pad_id)
        return replace(self, model=with_room(model, self.length))

    def make_model(self) -> nn.Module:
        from lion.integrations.hf import LionConfig, LionForMaskedLM

        return to_train(lambda: LionForMaskedLM(LionConfig.of(self.model)))

    def train_set(self, seed: int) -> Examples:
        return MaskedTokens(self.packed("train"), self.mask, seed)

    def eval_set(self) -> Examples:
        return MaskedTokens(self.packed("validation"), self.eval_mask, 0)

    def using(self, folder: Path) -> "MlmTask":
        return replace(self, tokenizer=str(folder))

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"][batch["labels"] != IGNORED]
        logits = model(batch["input_ids"], labels=batch["labels"], sparse_logits=True).logits  # [targets, vocab]
        return classified(logits, labels)


@dataclass(frozen=True)
class CausalTask(CorpusTask):
    model: CausalConfig = field(default_factory=CausalConfig)
    length: Tokens = 256

    trainer: ClassVar[str] = "bpe"
    makes_tokenizer: ClassVar[bool] = True

    def resolved(self) -> "CausalTask":
        model = replace(self.model, vocab_size=self.text_tokenizer().vocab_size)
        return replace(self, model=with_room(model, self.length))

    def make_model(self) -> nn.Module:
        from lion.integrations.hf_causal import LionCausalConfig, LionForCausalLM

        eos = self.text_tokenizer().eos_id
        return to_train(lambda: LionForCausalLM(LionCausalConfig.of(self.model, eos_token_id=eos)))

    def train_set(self, seed: int) -> Examples:
        return NextTokens(self.packed("train"))

    def eval_set(self) -> Examples:
        return NextTokens(self.packed("validation"))

    def using(self, folder: Path) -> "CausalTask":
        return replace(self, tokenizer=str(folder))

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        logits = model(batch["input_ids"], use_cache=False).logits
        real = batch["labels"] != IGNORED
        return classified(logits[real], batch["labels"][real])


@dataclass(frozen=True)
class TextTask(LabelledTask):
    """Classes of texts or of pairs of them, or a number for each."""

    dataset: str = "file"  # a key of TEXT_SETS
    data: str = ""  # the file, or where the set is if not in the usual place
    test: str = ""  # a file to evaluate on; "": what the set has for that, of a file a tenth; mnli: also "mismatched"
    text_column: str = ""  # of a file; "": the one with a usual name. Of a pair: two, with a comma
    label_column: str = ""
    classes: tuple[str, ...] = ()  # found in the data
    numbers: bool = False  # labels are numbers, not classes
    tokenizer: str = ""
    vocab_size: Vocabulary = 8192
    max_length: Tokens = 256
    start: str = ""  # a run of `mlm` or `text`, or its model, to go on from; of `model`, only the dropout counts then
    model: EncoderConfig = field(default_factory=EncoderConfig)

    unit: ClassVar[str] = "text"
    makes_tokenizer: ClassVar[bool] = True

    def __post_init__(self):
        check(self)
        one_of("dataset", self.dataset, TEXT_SETS)

    def resolved(self) -> "TextTask":
        if self.dataset == "file" and not self.data:
            raise ValueError("there is no data; expected --data FILE, a .csv, .tsv, .jsonl or .parquet of texts.")
        train = self.texts("train")
        numbers = train.classes is None
        found = replace(self, classes=() if numbers else tuple(train.classes or ()), numbers=numbers)
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

    def texts(self, split: str) -> "Labelled":
        known = TEXT_SETS[self.dataset]
        if split == "train" or not self.test:
            return known(self, split)
        if (self.dataset, self.test) == ("mnli", "mismatched"):
            return _glue(self.dataset, self.data, "validation_mismatched")
        classes = self.classes if self.classes or self.numbers else tuple(known(self, "train").classes or ())
        return _labelled(self.test, self.text_column, self.label_column, classes, not classes)

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

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["mask"], batch.get("token_type_ids")).logits

    def using(self, folder: Path) -> "TextTask":
        return replace(self, tokenizer=str(folder), start="")

    def to_predict(self) -> dict[str, Any]:
        pairs = not isinstance(self.texts("train").texts[0], str)
        return {"classes": list(self.classes), "max_length": self.max_length, "pairs": pairs}

    def digests(self) -> dict[str, str]:
        return {"tokenizer": self.text_tokenizer().fingerprint}

    def save_beside(self, folder: Path) -> None:
        self.text_tokenizer().save(folder)

    def _examples(self, split: str) -> LabelledTexts:
        found = self.texts(split)
        return LabelledTexts(found.texts, found.labels, self.text_tokenizer(), self.max_length)


def with_room(model: Model, tokens: int) -> Model:
    """With learned positions for so many tokens, at least, if it has such."""
    return replace(model, max_tokens=max(model.max_tokens, tokens))


@functools.lru_cache(maxsize=8)
def _documents(data: str, per: str, column: str, limit: int) -> Documents:
    patterns = several(data)
    for name in {*patterns} & {*NAMED}:
        fetch(name)
    source = patterns[0] if len(patterns) == 1 else patterns
    return documents(source, column=column, per=per, limit=limit or None)


def trained_tokenizer(trainer: str, texts: Documents | Sequence[str], vocab_size: int) -> TextTokenizer:
    """Made of the texts, once, and kept beside the other data."""
    from lion.data.corpora import as_documents

    source = as_documents(texts)
    key = hashlib.sha256(f"{source.key} {trainer} {vocab_size}".encode()).hexdigest()[:32]
    folder = lion_data_folder() / "tokenizers" / key
    make_once(folder, lambda unfinished: TRAINERS[trainer](source, vocab_size).save(unfinished))
    return load_tokenizer(folder)


def _model_folder(start: str) -> Path:
    path = Path(start).expanduser()
    wanted = "the folder of a run of `lion train mlm` or `text`, or of its model"
    for folder in (path / "model", path):
        if (folder / "config.json").exists():
            plain = read_json(folder / "config.json")
            kind = plain.get("model_type", plain.get("kind")) if isinstance(plain, dict) else None
            if kind != "lion":
                raise ValueError(f"start is {start!r}, which has a model of the kind {kind!r}; expected {wanted}.")
            return folder
    if (path / "run.json").exists():
        raise ValueError(f"the run in {start} is not finished: lion train --resume --out {start}")
    raise ValueError(f"start is {start!r}; expected {wanted}.")


def _config_of(start: str) -> "LionConfig":
    from lion.integrations.hf import LionConfig

    return LionConfig.from_pretrained(_model_folder(start))


def classifier_from(folder: Path, config: "LionConfig") -> nn.Module:
    """A model's encoder; and its classifier, if it tells the same classes apart, otherwise a new one."""
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


def _file(task: TextTask, split: str) -> "Labelled":
    """The user's own; without one to test on, a tenth of every class is held out."""
    import numpy as np

    from lion.data import stratified
    from lion.data.labelled import Labelled

    found = _labelled(task.data, task.text_column, task.label_column, task.classes, task.numbers or None)
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


def _labelled(
    path: str, text_column: str, label_column: str, classes: tuple[str, ...] = (), numbers: bool | None = None
) -> "Labelled":
    file, columns = Path(path).expanduser(), tuple(text_column.split(","))
    text = None if not text_column else columns if len(columns) == 2 else text_column
    return _read(file, stamp(file), text, label_column or None, classes or None, numbers)


@functools.lru_cache(maxsize=4)
def _read(
    path: Path,
    _: object,  # what tells whether the file has changed
    text_column: Any,
    label_column: str | None,
    classes: tuple[str, ...] | None,
    numbers: bool | None,
) -> "Labelled":
    from lion.data.labelled import labelled

    return labelled(path, text_column, label_column, classes=classes, numbers=numbers)


@functools.lru_cache(maxsize=4)
def _imdb(data: str, split: str) -> "Labelled":
    from lion.data.labelled import imdb

    if not data:
        fetch("imdb")
    return imdb(split, data=data or None)


@functools.lru_cache(maxsize=4)
def _glue(name: str, data: str, split: str) -> "Labelled":
    from lion.data.glue import glue

    return glue(name, data or lion_data_folder() / "glue" / name, split)


def _glue_set(name: str) -> "Callable[[TextTask, str], Labelled]":
    return lambda task, split: _glue(name, task.data, "train" if split == "train" else "validation")


GLUE = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
TEXT_SETS: "dict[str, Callable[[TextTask, str], Labelled]]" = {
    "file": _file,
    "imdb": lambda task, split: _imdb(task.data, split),
    **{name: _glue_set(name) for name in GLUE},
}
# Of each set, the first one for curves and tables; of all others the accuracy.
TEXT_METRICS = {
    "file": LabelledTask.metrics_of_classes,
    "qqp": ("f1", "accuracy"),
    "mrpc": ("f1", "accuracy"),
    "cola": ("matthews", "accuracy"),
    "stsb": LabelledTask.metrics_of_numbers,
}

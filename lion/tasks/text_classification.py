"""Classes of texts or of pairs of texts, or a number for each."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from torch import Tensor, nn

from lion.data import fetch, lion_data_folder, stratified
from lion.data.batches import padded
from lion.data.glue import GLUE, glue
from lion.data.labelled import Labelled, LabelledTexts, Text, chosen_cut, imdb, labelled
from lion.data.tokenizers import TextTokenizer, load_tokenizer
from lion.limits import OneOf, Positive, Share, ShareBelowOne, TokensOrAll, Vocabulary
from lion.machine import to_train
from lion.models.encoder import ENCODERS, EncoderConfig
from lion.models.heads import POOLINGS
from lion.models.positions import placed, spanning
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.progress import working
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Known, Prediction, Shown, Trained, cached, register_task
from lion.tasks._berts import FETCHED
from lion.tasks._labelled import LabelledTask, Plain, read_notes
from lion.tasks._starts import start_of, usable
from lion.tasks._token_weights import TokenModel, count_tokens, fit
from lion.tasks._tokenized import OF_TOKENIZER, TokenizedTask, check_text, tokenizer_of, trained_tokenizer, with_room
from lion.terminal import plural
from lion.train.config import Optim, Run


@dataclass(frozen=True)
class KnownTexts(Known):
    max_length: TokensOrAll = 0
    pairs: bool = False


@register_task("text_classification")
@dataclass(frozen=True)
class TextClassificationTask(TokenizedTask, LabelledTask):
    dataset: str = "file"  # "file": your own; or imdb, or a task of GLUE
    data: str = ""  # the file, or where the set is if not in the usual place
    test: str = ""  # a file for the eval set; "": what the set has for that, of a file a tenth; mnli: also "mismatched"
    text_column: str = ""  # the one with the text; "": the one with a usual name. Pairs: two, with a comma
    label_column: str = ""
    skip_bad: bool = False  # leave out rows that cannot be used
    classes: tuple[str, ...] = ()  # their names in order; "": as found in the data
    numbers: bool = False  # labels are numbers, not classes
    label_scale: tuple[float, Positive] | None = (0.0, 1.0)  # mean and deviation of numbers; none: found in the data
    smoothing: Share = 0.0  # of classes in training: so much of each goes to all alike
    tokenizer: str = ""
    vocab_size: Vocabulary = 8192  # tokens of a tokenizer that is made
    max_length: TokensOrAll | None = None  # tokens of a text; 0: all; none: one in a hundred is cut, if much longer
    crop: TokensOrAll = 0  # in training, a random window of so many tokens of longer texts; 0: all. Pairs stay whole,
    # and all texts where positions are learned
    drop_tokens: ShareBelowOne = 0.0  # in training, about this share of a text's tokens is left out, others every epoch
    start: str = ""  # to go on from: a run of `mlm` or `text`, its model (all of `model` but dropout is decided then),
    # or the first layers of "minilm" or of a BERT's folder (all but its size can be chosen); "": nothing
    pooling: Annotated[str, OneOf(POOLINGS)] = "cls"  # what is classified: the first token, or the "mean"
    token_weights: bool = False  # a linear model of the tokens is fitted first, and the network learns what that leaves
    model: EncoderConfig = field(default_factory=EncoderConfig)

    tunable = ("smoothing", "crop", "drop_tokens")
    decided = OF_TOKENIZER
    known = KnownTexts
    usage = "lion predict {run} 'a text'"

    def __post_init__(self):
        super().__post_init__()
        one_of("dataset", self.dataset, TEXT_SETS)

    def resolved(self) -> "TextClassificationTask":
        if self.dataset == "file" and not self.data:
            raise ValueError(
                "there is no data; expected a table (.csv, .tsv, .json or .parquet) with a column `text` and a column "
                "`label`, a row for each text: lion train text --data reviews.csv"
            )
        train = self.texts("train")
        found = replace(self, classes=tuple(train.classes or ()), numbers=train.classes is None)
        found = replace(found, label_scale=self.scale_of(train))
        found = replace(found, start=usable(self.start, self.tokenizer, [_joined(x) for x in train.texts]))
        tokenizer = found.text_tokenizer()
        if found.start:
            longest = found._cut(tokenizer) or int(found._lengths(tokenizer).max())
            model = start_of(found.start).model(self.model, longest, self.crop)
            most = model.max_tokens if model.positions == "learned" else 0
            return found._placed(model, found._cut(tokenizer, most))
        model = replace(self.model, vocab_size=tokenizer.vocab_size, pad_token=tokenizer.pad_id)
        cut = found._cut(tokenizer)
        if model.positions == "learned":
            cut = cut or int(found._lengths(tokenizer).max())
            model = with_room(model, cut)
        return found._placed(model, cut)

    def _placed(self, model: EncoderConfig, cut: int) -> "TextClassificationTask":
        """With this model. A window of a text does not know its place: none is taken where positions are learned."""
        crop = 0 if model.positions == "learned" else self.crop
        return replace(self, model=spanning(model, crop or cut or model.max_tokens), max_length=cut, crop=crop)

    def _cut(self, tokenizer: TextTokenizer, most: int = 0) -> int:
        """The tokens that texts are cut to; `most`: those that there are learned positions for."""
        cut = chosen_cut(self._lengths(tokenizer)) if self.max_length is None else self.max_length
        if not most:
            return cut
        needed = cut or int(self._lengths(tokenizer).max())
        if self.max_length is not None and needed > most:
            what = "" if cut else f" (all), and a text has {needed:,} tokens"
            raise ValueError(
                f"max_length is {cut}{what}, but the model in {self.start} has learned positions for {most} tokens; "
                "expected no more."
            )
        return min(cut or most, most)

    def _lengths(self, tokenizer: TextTokenizer) -> np.ndarray:
        splits = [self.texts(split) for split in ("train", "test")]
        return np.concatenate([LabelledTexts(x.texts, x.labels, tokenizer).lengths for x in splits])

    @property
    def metrics(self) -> tuple[str, ...]:
        return super().metrics if self.numbers else TEXT_METRICS.get(self.dataset, ("accuracy",))

    def texts(self, split: str) -> Labelled:
        if split == "train" or not self.test:
            return TEXT_SETS[self.dataset](self, split)
        if (self.dataset, self.test) == ("mnli", "mismatched"):
            return _glue(self, "validation_mismatched")
        return self.read_texts(self.test, functools.partial(self.texts, "train"))

    def source(self) -> str:
        return self.data or f"the set {self.dataset}"

    def held_out(self) -> str:
        if self.test or self.dataset == "file":
            return super().held_out()
        return "a fifth of every class" if self.dataset == "imdb" else "its validation set"

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        found = super().facts(train_set, eval_set)
        parts = []
        if train_set.crop and (long := int((train_set.lengths > train_set.crop).sum())):
            parts.append(f"a window of {train_set.crop:,} tokens of {plural(long, 'longer text')}")
        if self.drop_tokens:
            parts.append(f"{1 - self.drop_tokens:.0%} of the tokens")
        if parts:
            words = " and ".join(parts)
            found["training"] = f"sees {words}, others in every epoch; evaluation and prediction read all"
        if self.start:
            found["start"] = start_of(self.start).words(self.model)
        if self.token_weights:
            reached = self.reached(self._token_model().score)
            words = f"a linear model of the tokens (TF-IDF), fitted first{reached}"
            found["beside"] = f"{words}: the network learns what it leaves"
        return found

    def notes(self) -> Mapping[str, str]:
        return read_notes(*(self.texts(split).notes for split in ("train", "test")))

    def read_texts(self, path: str, train: Callable[[], Labelled] | None = None) -> Labelled:
        pair = tuple(self.text_column.split(","))
        return self.read_file(labelled, path, pair if len(pair) == 2 else self.text_column, train)

    def text_tokenizer(self) -> TextTokenizer:
        if self.start:
            own = start_of(self.start).tokenizer()
            if self.tokenizer and load_tokenizer(self.tokenizer) != own:
                raise ValueError(
                    f"tokenizer is {self.tokenizer!r}, but the model in {self.start} has one of its own; expected "
                    "none: leave --tokenizer out, or --start."
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
        own = {"classifier_pooling": self.pooling, "classifier_token_weights": self.token_weights}
        config = LionConfig.of(self.model, **names, problem_type=kind, **own)
        model: Any
        if self.start:
            model = start_of(self.start).classifier(config)
        else:
            model = to_train(lambda: LionForSequenceClassification(config))
        if self.token_weights:
            self._token_model().whole.fill(model.token_weights)
        return model

    def train_set(self, seed: int) -> Examples:
        others = {"token_logits": self._token_model().others} if self.token_weights else {}
        return self._examples("train", crop=self.crop, drop=self.drop_tokens, seed=seed, **others)

    def _token_model(self) -> TokenModel:
        return cached(_token_model, self)

    def eval_set(self) -> Examples:
        return self._examples("test")

    def _examples(self, split: str, **parts: Any) -> LabelledTexts:
        found = self.texts(split)
        with working("tokenizing the texts"):
            return LabelledTexts(found.texts, found.labels, self.text_tokenizer(), self.max_length or 0, **parts)

    def plain(self) -> Plain | None:
        if self.dataset != "file":
            return None
        train, test = self.texts("train"), self.texts("test")
        return Plain("texts", *(([_joined(x) for x in part.texts], np.asarray(part.labels)) for part in (train, test)))

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        given = {name: batch[name] for name in ("token_type_ids", "token_logits") if name in batch}
        return model(batch["input_ids"], batch["mask"], **given).logits

    def shown(self, index: int, examples: Any) -> Shown:
        text = self.texts("test").texts[index]
        return Shown("text", text if isinstance(text, str) else " / ".join(text))

    def using(self, folder: Path) -> "TextClassificationTask":
        return replace(self, tokenizer=str(folder), start="")

    def to_predict(self) -> Known:
        pairs = not isinstance(self.texts("train").texts[0], str)
        return KnownTexts(self.classes, self.max_length or 0, pairs)

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


def _token_model(task: TextClassificationTask) -> TokenModel:
    texts, tokenizer = task._examples("train"), task.text_tokenizer()
    labels, (mean, std) = texts.labels.numpy(), task.label_scale or (0.0, 1.0)
    if task.numbers:
        labels = (labels - mean) / std
    with working("fitting a linear model of the tokens"):
        return fit(count_tokens(texts, task.model.vocab_size, tokenizer.special_ids), labels, len(task.classes))


def _joined(text: Text) -> str:
    return text if isinstance(text, str) else "\n".join(text)


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
    return found.part(kept)


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
    """Classes of your own texts or numbers, in a table with columns for both: `lion train text --data reviews.csv`."""
    model = placed(replace(ENCODERS["small"], variant=variant, depth=2, dropout=0.1))
    parts: dict[str, Any] = {"crop": 128, "drop_tokens": 0.3, "token_weights": True}
    task = TextClassificationTask(label_scale=None, start=FETCHED, pooling="mean", model=model, **parts)
    optim = Optim(lr=3e-4, head=10.0, weight_decay=0.01, schedule="linear", warmup=0.1)
    return Run(task, optim, epochs=3, min_steps=200, batch=32, group_by_length=True)


@register_recipe("text.imdb_{variant}", variant=VARIANTS)
def text_imdb(variant: str) -> Run:
    """Film reviews, positive or not: 24,901 of IMDB's, a fifth of them held out."""
    model = placed(replace(ENCODERS["small"], variant=variant, dim=128, depth=2, mlp_dim=512, dropout=0.3))
    task = TextClassificationTask(dataset="imdb", max_length=384, model=model)
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=3, batch=32)

"""Classes of DNA sequences, or a number for each."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from torch import Tensor, nn

from lion.data import fasta, fetch
from lion.data.batches import padded
from lion.data.labelled_dna import LabelledDna, LabelledSequences, labelled_sequences, splice, split_sequences
from lion.limits import CountOrAll, OneOf, Positive, Share, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LongConfig, LongModel, fitted
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Known, Prediction, Shown, Trained, register_task
from lion.tasks._labelled import LabelledTask, Plain, read_notes
from lion.tasks.dna import OF_DNA, TOKENS
from lion.train.config import Optim, Run


@dataclass(frozen=True)
class KnownSequences(Known):
    max_length: TokensOrAll = 0


@register_task("dna_classification")
@dataclass(frozen=True)
class DnaClassificationTask(LabelledTask):
    dataset: Annotated[str, OneOf(("file", "splice"))] = "file"  # "file": your own; "splice" is fetched
    data: str = ""  # the file: a table (.csv, .tsv, .json, .parquet) or FASTA with labels in its headers
    test: str = ""  # a file for the eval set; "": a fifth is held out
    sequence_column: str = ""  # the one with the sequence, in a table; "": the one with a usual name
    label_column: str = ""
    skip_bad: bool = False  # leave out rows that cannot be used
    classes: tuple[str, ...] = ()  # their names in order; "": as found in the data
    numbers: bool = False  # labels are numbers, not classes
    label_scale: tuple[float, Positive] | None = (0.0, 1.0)  # mean and deviation of numbers; none: found in the data
    smoothing: Share = 0.0  # of classes in training: so much of each goes to all alike
    max_length: TokensOrAll = 0  # tokens; 0: all of a sequence
    reverse_complement: bool = False  # read half of them from the other strand: where that makes no difference
    aligned: bool | None = None  # a place means the same in all sequences, and is learned; none: if all have one length
    tokens: CountOrAll = 0  # the most that are made of the longest, by model.stride; 0: as that is
    model: LongConfig = field(default_factory=LongConfig)

    unit = "sequence"
    share = "a fifth"
    tunable = ("reverse_complement", "smoothing")
    decided = OF_DNA | {"model.max_tokens": "the longest sequence, or --max_length", "model.summaries": "--aligned"}
    known = KnownSequences
    usage = "lion predict {run} ACGTACGT"
    reads = "sequence"

    def resolved(self) -> "DnaClassificationTask":
        if self.dataset == "file" and not self.data:
            raise ValueError(
                "there is no data; expected a table (.csv, .tsv, .jsonl or .parquet) with a column `sequence` and a "
                "column `label`, or FASTA with labels in its headers: lion train dna.classify --data genes.csv"
            )
        train = self._sequences("train")
        classes = tuple(train.classes or ())
        lengths = {1 + len(x) for split in ("train", "test") for x in self._sequences(split).tokens}
        aligned = len(lengths) == 1 if self.aligned is None else self.aligned
        model = replace(self.model, vocab_size=TOKENS, classes=len(classes) or 1, answer="sequence")
        model = fitted(model, self.max_length or max(lengths), self.tokens, aligned=aligned)
        scale = self.scale_of(train)
        found = replace(self, classes=classes, numbers=train.classes is None, label_scale=scale)
        return replace(found, aligned=aligned, model=model)

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def train_set(self, seed: int) -> Examples:
        return LabelledSequences(
            self._sequences("train"), self.max_length or None, reverse_complement=self.reverse_complement, seed=seed
        )

    def eval_set(self) -> Examples:
        return LabelledSequences(self._sequences("test"), self.max_length or None)

    def plain(self) -> Plain | None:
        if self.dataset != "file":
            return None
        parts = (self._sequences(split) for split in ("train", "test"))
        return Plain("sequences", *(([fasta.decode(x) for x in part.tokens], part.labels) for part in parts))

    def source(self) -> str:
        return self.data or f"the set {self.dataset}"

    def notes(self) -> Mapping[str, str]:
        return read_notes(*(self._sequences(split).notes for split in ("train", "test")))

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["mask"])

    def shown(self, index: int, examples: Any) -> Shown:
        return Shown("text", fasta.decode(self._sequences("test").tokens[index]))

    def to_predict(self) -> Known:
        return KnownSequences(self.classes, self.max_length)

    def example(self, trained: Trained, given: str) -> list[int]:
        """given: a sequence."""
        bases = fasta.encode(given)
        if not len(bases):
            raise ValueError("a sequence is empty; expected some nucleotides.")
        return [fasta.CLS, *bases.tolist()][: trained.known.max_length or None]

    def predict_batch(self, trained: Trained, examples: list[list[int]]) -> list[Prediction]:
        ids, mask = (x.to(trained.device) for x in padded(examples, fasta.PAD))
        return [Prediction(x) for x in self.outputs(trained.model, {"input_ids": ids, "mask": mask})]

    def _sequences(self, split: str) -> LabelledDna:
        if split == "test" and self.test:
            train = functools.partial(self._sequences, "train")
            return self.read_file(labelled_sequences, self.test, self.sequence_column, train)
        if self.dataset == "splice":
            if not self.data:
                fetch("splice")
            return splice(split, data=self.data or None)
        found = self.read_file(labelled_sequences, self.data, self.sequence_column)
        return found if self.test else split_sequences(found)[split == "test"]


@register_recipe("dna.classify")
def dna_classify(variant: str = "lion_s") -> Run:
    """Classes of DNA sequences, or numbers, in a table or FASTA: `lion train dna.classify --data genes.csv`."""
    model = LongConfig(variant=variant, dim=128, depth=2, heads=4, stem=9, stem_depth=3, dropout=0.1)
    task = DnaClassificationTask(label_scale=None, tokens=512, model=model)
    optim = Optim(lr=1e-3, weight_decay=0.05, warmup=0.1)
    return Run(task, optim, epochs=8, min_steps=800, batch=32, group_by_length=True)


@register_recipe("dna.splice", "dna.splice_{variant}", variant=("lion_lit", "lion_d", "lion_s", "softmax"))
def dna_splice(variant: str = "lion_s") -> Run:
    """Splice junctions, 3,190 sequences of 60 nucleotides, asked of their middle: with learned positions."""
    model = LongConfig(variant=variant, dim=128, depth=3, heads=4, stem=9, dropout=0.1, positions="learned")
    task = DnaClassificationTask(dataset="splice", aligned=True, label_scale=None, model=model)
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=10, batch=32)

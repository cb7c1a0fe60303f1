"""Classes of DNA sequences, or a number for each."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from torch import Tensor, nn

from lion.data import fasta, fetch
from lion.data.alignment import aligned_sequences, either_strand
from lion.data.batches import padded
from lion.data.labelled_dna import LabelledDna, LabelledSequences, labelled_sequences, splice, split_sequences
from lion.limits import CountOrAll, OneOf, Positive, Share, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LongConfig, LongModel, fitted
from lion.progress import working
from lion.recipes import register_recipe
from lion.streaming import answered
from lion.tasks import Batch, Examples, Known, Prediction, Shown, Trained, cached, register_task
from lion.tasks._labelled import LabelledTask, Plain, read_notes
from lion.tasks._token_weights import TokenModel, count_kmers, fit, longest_kmers
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
    reverse_complement: bool | None = False  # read half from the other strand, where it is all the same; none: if it is
    aligned: bool | None = None  # a place means the same in all sequences, and is learned; none: found in the data
    kmer_weights: bool = False  # unless aligned: a linear model of k-mers is fitted first, and its logits are added
    tokens: CountOrAll = 0  # the most that are made of the longest, by model.stride; 0: as that is
    model: LongConfig = field(default_factory=LongConfig)

    unit = "sequence"
    share = "a fifth"
    tunable = ("reverse_complement", "smoothing")
    decided = OF_DNA | {
        "model.max_tokens": "the longest sequence, or --max_length",
        "model.summaries": "--aligned",
        "model.kmers": "--kmer_weights and the data",
        "model.both_strands": "--reverse_complement",
    }
    known = KnownSequences
    usage = "lion predict {run} ACGTACGT"
    reads = "sequence"
    cut = {"input_ids": 1, "mask": 1}  # noqa: RUF012

    def resolved(self) -> "DnaClassificationTask":
        if self.dataset == "file" and not self.data:
            raise ValueError(
                "there is no data; expected a table (.csv, .tsv, .jsonl or .parquet) with a column `sequence` and a "
                "column `label`, or FASTA with labels in its headers: lion train dna.classify --data genes.csv"
            )
        train = self._sequences("train")
        classes = tuple(train.classes or ())
        lengths = {1 + len(x) for split in ("train", "test") for x in self._sequences(split).tokens}
        aligned = self.aligned
        if aligned is None:
            aligned = len(lengths) == 1 and aligned_sequences(train.tokens, train.labels)
        turned = self.reverse_complement
        if turned is None:
            turned = either_strand(train.tokens, train.labels)
        model = replace(self.model, vocab_size=TOKENS, classes=len(classes) or 1, answer="sequence")
        model = fitted(model, self.max_length or max(lengths), self.tokens, aligned=aligned)
        if self.kmer_weights and not aligned:
            longest = longest_kmers(np.array([len(x) for x in self._kept(train)]))
            model = replace(model, kmers=longest, both_strands=turned)
        scale = self.scale_of(train)
        found = replace(self, classes=classes, numbers=train.classes is None, label_scale=scale)
        return replace(found, aligned=aligned, reverse_complement=turned, model=model)

    def make_model(self) -> nn.Module:
        model = to_train(lambda: LongModel(self.model))
        if model.kmer_weights is not None:
            self._kmer_model().whole.fill(model.kmer_weights)
        return model

    def train_set(self, seed: int) -> Examples:
        others = {"token_logits": self._kmer_model().others} if self.model.kmers else {}
        return self._examples("train", reverse_complement=bool(self.reverse_complement), seed=seed, **others)

    def _kmer_model(self) -> TokenModel:
        return cached(_kmer_model, self)

    def _examples(self, split: str, **parts: Any) -> LabelledSequences:
        return LabelledSequences(self._sequences(split), self.max_length or None, **parts)

    def _kept(self, found: LabelledDna) -> list[np.ndarray]:
        """The sequences as far as the model reads them."""
        return [x[: self.max_length - 1] for x in found.tokens] if self.max_length else found.tokens

    def eval_set(self) -> Examples:
        return self._examples("test")

    def plain(self) -> Plain | None:
        if self.dataset != "file":
            return None
        parts = (self._sequences(split) for split in ("train", "test"))
        return Plain("sequences", *(([fasta.decode(x) for x in part.tokens], part.labels) for part in parts))

    def source(self) -> str:
        return self.data or f"the set {self.dataset}"

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        found = super().facts(train_set, eval_set)
        if len({len(x) for split in ("train", "test") for x in self._sequences(split).tokens}) == 1:
            means = "means the same in all sequences, and is learned" if self.aligned else "means nothing by its place"
            found["places"] = f"a base {means} (--aligned {str(not self.aligned).lower()}: the other way)"
        strand = "makes no difference: half are read from the other" if self.reverse_complement else "matters"
        other = str(not self.reverse_complement).lower()
        found["strands"] = f"which one {strand} (--reverse_complement {other}: the other way)"
        if self.model.kmers:
            reached = self.reached(self._kmer_model().score)
            words = f"a linear model of k-mers of up to {self.model.kmers} bases, fitted first{reached}"
            found["beside"] = f"{words}: the network learns what it leaves"
        return found

    def notes(self) -> Mapping[str, str]:
        return read_notes(*(self._sequences(split).notes for split in ("train", "test")))

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["mask"], batch.get("token_logits"))

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
        return [Prediction(x) for x in answered(trained.model, ids, mask)]

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


def _kmer_model(task: DnaClassificationTask) -> TokenModel:
    found, model, (mean, std) = task._sequences("train"), task.model, task.label_scale or (0.0, 1.0)
    labels = (found.labels - mean) / std if task.numbers else found.labels
    with working("fitting a linear model of k-mers"):
        counts = count_kmers(task._kept(found), model.kmers, both_strands=model.both_strands)
        return fit(counts, labels, len(task.classes))


@register_recipe("dna.classify")
def dna_classify(variant: str = "lion_s") -> Run:
    """Classes of DNA sequences, or numbers, in a table or FASTA: `lion train dna.classify --data genes.csv`."""
    model = LongConfig(variant=variant, dim=128, depth=2, heads=4, stem=9, stem_depth=3, dropout=0.1)
    parts: dict[str, Any] = {"reverse_complement": None, "kmer_weights": True}
    task = DnaClassificationTask(label_scale=None, tokens=512, model=model, **parts)
    optim = Optim(lr=1e-3, weight_decay=0.05, warmup=0.1)
    return Run(task, optim, epochs=5, min_steps=800, batch=32, group_by_length=True)


@register_recipe("dna.splice", "dna.splice_{variant}", variant=("lion_lit", "lion_d", "lion_s", "softmax"))
def dna_splice(variant: str = "lion_s") -> Run:
    """Splice junctions, 3,190 sequences of 60 nucleotides, asked of their middle: with learned positions."""
    model = LongConfig(variant=variant, dim=128, depth=3, heads=4, stem=9, dropout=0.1, positions="learned")
    task = DnaClassificationTask(dataset="splice", aligned=True, label_scale=None, model=model)
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=10, batch=32)

"""DNA as tasks: hidden nucleotides of a genome, and classes of sequences."""

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from lion import files
from lion.configs import check
from lion.data import fasta, fetch
from lion.data.batches import IGNORED
from lion.data.corpora import several
from lion.data.genomes import MaskedNucleotides, Windows
from lion.data.labelled_dna import LabelledDna, LabelledSequences, labelled_sequences, splice, split_sequences
from lion.limits import OneOf, ShareBelowOne, SomeShare, Tokens, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LongConfig, LongModel
from lion.models.positions import placed
from lion.train.labelled import LabelledTask
from lion.train.task import Batch, Examples, Task, classified

TOKENS = len(fasta.VOCABULARY)
SETS = ("file", "splice")


@dataclass(frozen=True)
class DnaTask(Task):
    """Hidden nucleotides are to be found from those around them."""

    data: str = "chromosome"  # FASTA files; "chromosome": the first of C. elegans, which is fetched
    length: Tokens = 16384  # nucleotides of a window
    mask: SomeShare = 0.15  # of them, to be found
    holdout: ShareBelowOne = 0.1  # of the genome
    block: Tokens = 1 << 18  # nucleotides that are held out in one piece
    reverse_complement: bool = True  # half of the windows for training are read from the other strand
    model: LongConfig = field(default_factory=LongConfig)

    unit: ClassVar[str] = "window"
    tunable: ClassVar[tuple[str, ...]] = ("mask", "reverse_complement")

    def __post_init__(self):
        check(self)

    def resolved(self) -> "DnaTask":
        return replace(self, model=of_tokens(self.model, self.length, classes=fasta.BASES, answer="token"))

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def windows(self, split: str) -> Windows:
        return Windows(_genome(self.data), self.length, split, holdout=self.holdout, block=self.block)

    def train_set(self, seed: int) -> Examples:
        return MaskedNucleotides(self.windows("train"), self.mask, seed, reverse_complement=self.reverse_complement)

    def eval_set(self) -> MaskedNucleotides:
        return MaskedNucleotides(self.windows("validation"), self.mask)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        targets = batch["labels"] != IGNORED
        return classified(model(batch["input_ids"])[targets], batch["labels"][targets] - fasta.A)


@dataclass(frozen=True)
class DnaClassesTask(LabelledTask):
    """Classes of sequences, or a number for each."""

    dataset: Annotated[str, OneOf(SETS)] = "file"  # or "splice", which is fetched
    data: str = ""  # the file: a table (.csv, .tsv, .jsonl, .parquet) or FASTA with labels in its headers
    test: str = ""  # a file to evaluate on; "": a fifth is held out
    sequence_column: str = ""  # of a table; "": the one with a usual name
    label_column: str = ""
    classes: tuple[str, ...] = ()  # found in the data
    numbers: bool = False  # labels are numbers, not classes
    max_length: TokensOrAll = 0  # tokens; 0: all of a sequence
    reverse_complement: bool = False  # read half of them from the other strand: where that makes no difference
    model: LongConfig = field(default_factory=LongConfig)

    unit: ClassVar[str] = "sequence"
    tunable: ClassVar[tuple[str, ...]] = ("reverse_complement",)

    def __post_init__(self):
        check(self)

    def resolved(self) -> "DnaClassesTask":
        if self.dataset == "file" and not self.data:
            raise ValueError(
                "there is no data; expected --data FILE, a .csv, .tsv, .jsonl, .parquet or FASTA of sequences and "
                "their labels."
            )
        train = self._sequences("train")
        classes = tuple(train.classes or ())
        longest = 1 + max(len(x) for part in ("train", "test") for x in self._sequences(part).tokens)
        model = of_tokens(self.model, self.max_length or longest, classes=len(classes) or 1, answer="sequence")
        return replace(self, classes=classes, numbers=train.classes is None, model=model)

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def train_set(self, seed: int) -> Examples:
        return LabelledSequences(
            self._sequences("train"), self.max_length or None, reverse_complement=self.reverse_complement, seed=seed
        )

    def eval_set(self) -> Examples:
        return LabelledSequences(self._sequences("test"), self.max_length or None)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["mask"])

    def to_predict(self) -> dict[str, Any]:
        return {"classes": list(self.classes), "max_length": self.max_length}

    def _sequences(self, split: str) -> LabelledDna:
        if self.dataset == "splice" and not (split == "test" and self.test):
            if not self.data:
                fetch("splice")
            return splice(split, data=self.data or None)
        columns = self.sequence_column, self.label_column
        if split == "test" and self.test:
            classes = self.classes if self.classes or self.numbers else tuple(self._sequences("train").classes or ())
            return _labelled(self.test, *columns, classes, not classes)
        found = _labelled(self.data, *columns, self.classes, self.numbers or None)
        return found if self.test else split_sequences(found)[split == "test"]


def of_tokens(model: LongConfig, length: int, *, classes: int, answer: str) -> LongConfig:
    """The model of nucleotides, as long as they are."""
    return placed(replace(model, vocab_size=TOKENS, classes=classes, answer=answer), length)


def _genome(data: str) -> fasta.Genome:
    names = several(data)
    for name in {*names} & {*fasta.NAMED}:
        fetch(name)
    return fasta.Genome(names)


def _labelled(
    path: str, sequence_column: str, label_column: str, classes: tuple[str, ...] = (), numbers: bool | None = None
) -> LabelledDna:
    file = Path(path).expanduser()
    return _read(file, files.stamp(file), sequence_column or None, label_column or None, classes or None, numbers)


@functools.lru_cache(maxsize=4)
def _read(
    path: Path,
    _: object,  # what tells whether the file has changed
    sequence_column: str | None,
    label_column: str | None,
    classes: tuple[str, ...] | None,
    numbers: bool | None,
) -> LabelledDna:
    return labelled_sequences(path, sequence_column, label_column, classes=classes, numbers=numbers)

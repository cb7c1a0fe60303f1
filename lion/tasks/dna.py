"""Masked nucleotides of a genome."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lion.data import fasta, fetch
from lion.data.corpora import several
from lion.data.genomes import MaskedNucleotides, Windows, fitted
from lion.limits import ShareBelowOne, SomeShare, Tokens
from lion.machine import to_train
from lion.models.heads import IGNORED
from lion.models.long_range import LongConfig, LongModel
from lion.models.positions import placed, spanning
from lion.recipes import register_recipe
from lion.streaming import answered
from lion.tasks import Batch, Examples, Prediction, Task, Trained, classified, register_task
from lion.terminal import plural
from lion.train.config import Optim, Run

TOKENS = len(fasta.VOCABULARY)
OF_DNA = dict.fromkeys(("model.vocab_size", "model.classes", "model.answer"), "the data")


@register_task("dna")
@dataclass(frozen=True)
class DnaTask(Task):
    data: str = "chromosome"  # FASTA files; "chromosome": the first of C. elegans, which is fetched
    length: Tokens = 16384  # nucleotides of a window; fewer, if the genome is small
    mask: SomeShare = 0.15  # share of the nucleotides that are hidden
    holdout: ShareBelowOne = 0.1  # share of the genome, for the eval set
    block: Tokens = 1 << 18  # nucleotides that are held out in one piece; fewer, if the genome is small
    reverse_complement: bool = True  # half of the windows for training are read from the other strand
    model: LongConfig = field(default_factory=LongConfig)

    unit = "window"
    tunable = ("mask", "reverse_complement")
    decided = OF_DNA | {"model.max_tokens": "--length"}
    usage = "lion predict {run} ACGT[MASK]ACGT"
    reads = "sequence"
    cut = {"input_ids": 1, "labels": 1}  # noqa: RUF012

    def resolved(self) -> "DnaTask":
        model = replace(self.model, vocab_size=TOKENS, classes=fasta.BASES, answer="token")
        length, block = fitted(self._genome(), self.length, holdout=self.holdout, block=self.block)
        return replace(self, length=length, block=block, model=spanning(placed(model, length), length))

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def _genome(self) -> fasta.Genome:
        names = several(self.data)
        for name in {*names} & {*fasta.NAMED}:
            fetch(name)
        return fasta.Genome(names)

    def windows(self, split: str) -> Windows:
        return Windows(self._genome(), self.length, split, holdout=self.holdout, block=self.block)

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        genome, small = self._genome(), self.length < DnaTask.length or self.block < DnaTask.block
        gaps = int(np.diff(genome.gaps, axis=1).sum())
        without = f", {gaps:,} in gaps, which are left out" if gaps else ""
        usual = f"; usual are {DnaTask.length:,} and {DnaTask.block:,}, for larger genomes" if small else ""
        return {
            "genome": f"{len(genome):,} nucleotides in {plural(len(genome.names), 'record')} of {self.data}{without}",
            "split": f"{plural(len(train_set), 'window')} to train on, {len(eval_set):,} to evaluate on",
            "windows": f"of {self.length:,} nucleotides, held out in blocks of {self.block:,}{usual}",
        }

    def train_set(self, seed: int) -> Examples:
        return MaskedNucleotides(self.windows("train"), self.mask, seed, reverse_complement=self.reverse_complement)

    def eval_set(self) -> MaskedNucleotides:
        return MaskedNucleotides(self.windows("validation"), self.mask)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        targets = batch["labels"] != IGNORED
        return classified(model(batch["input_ids"])[targets], batch["labels"][targets] - fasta.A)

    def predict(self, trained: Trained, given: str) -> Prediction:
        """given: a sequence with one [MASK]."""
        parts = given.split("[MASK]")
        if len(parts) != 2:
            raise ValueError(f"the sequence has {len(parts) - 1} [MASK]; expected one: the nucleotide to predict.")
        before, after = (fasta.encode(part).tolist() for part in parts)
        ids = torch.tensor([[*before, fasta.MASK, *after]], device=trained.device)
        return Prediction(answered(trained.model, ids)[0, len(before)], lambda i: fasta.VOCABULARY[fasta.A + i])


@register_recipe("dna", "dna.{variant}", variant=("lion_lit", "lion_d", "lion_s", "softmax"))
def dna(variant: str = "lion_s") -> Run:
    """Masked nucleotides of a genome, by default a chromosome of C. elegans: `lion train dna --data genome.fa`."""
    task = DnaTask(model=LongConfig(variant=variant, dim=128, depth=4, heads=4, stem=9))
    optim = Optim(lr=3e-3, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(task, optim, epochs=2, batch=1)

"""Masked nucleotides of a genome."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from lion.data import fasta, fetch
from lion.data.corpora import several
from lion.data.genomes import MaskedNucleotides, Windows
from lion.limits import ShareBelowOne, SomeShare, Tokens
from lion.machine import to_train
from lion.models.heads import IGNORED
from lion.models.long_range import LongConfig, LongModel
from lion.models.positions import placed
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Prediction, Task, Trained, classified, register_task
from lion.train.config import Optim, Run

TOKENS = len(fasta.VOCABULARY)


@register_task("dna")
@dataclass(frozen=True)
class DnaTask(Task):
    data: str = "chromosome"  # FASTA files; "chromosome": the first of C. elegans, which is fetched
    length: Tokens = 16384  # nucleotides of a window
    mask: SomeShare = 0.15  # of them
    holdout: ShareBelowOne = 0.1  # of the genome, for the eval set
    block: Tokens = 1 << 18  # nucleotides that are held out in one piece
    reverse_complement: bool = True  # half of the windows for training are read from the other strand
    model: LongConfig = field(default_factory=LongConfig)

    unit = "window"
    tunable = ("mask", "reverse_complement")
    usage = "lion predict {run} ACGT[MASK]ACGT"
    reads = "sequence"

    def resolved(self) -> "DnaTask":
        model = replace(self.model, vocab_size=TOKENS, classes=fasta.BASES, answer="token")
        return replace(self, model=placed(model, self.length))

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def windows(self, split: str) -> Windows:
        names = several(self.data)
        for name in {*names} & {*fasta.NAMED}:
            fetch(name)
        return Windows(fasta.Genome(names), self.length, split, holdout=self.holdout, block=self.block)

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
        return Prediction(trained.model(ids)[0, len(before)], lambda i: fasta.VOCABULARY[fasta.A + i])


@register_recipe("dna", "dna.{variant}", variant=("lion_lit", "lion_d", "lion_s", "softmax"))
def dna(variant: str = "lion_s") -> Run:
    """Masked nucleotides of a genome: `lion train dna --data genome.fa`, by default a chromosome of C. elegans."""
    task = DnaTask(model=LongConfig(variant=variant, dim=128, depth=4, heads=4, stem=9))
    optim = Optim(lr=3e-3, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(task, optim, epochs=2, batch=1)

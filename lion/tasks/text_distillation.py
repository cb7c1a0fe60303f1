"""Distillation of text encoders: a trained BERT's attention is replaced, and the student learns its hidden states."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.data.digests import digest
from lion.data.packed import Passages
from lion.data.tokenizers import TextTokenizer, load_tokenizer
from lion.legacy import takes_old_names
from lion.limits import OneOf, ShareBelowOne, Weight
from lion.models.encoder import EncoderConfig
from lion.nn.variants import VARIANTS
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, register_task
from lion.tasks._berts import FETCHED, bert_folder, trained_bert
from lion.tasks._tokenized import CorpusTask
from lion.train.config import Optim, Run


@register_task("text_distillation")
@takes_old_names
@dataclass(frozen=True)
class TextDistillationTask(CorpusTask):
    """`lion.integrations.hf.convert` makes the student from the teacher. Its word embeddings and its pooler stay as
    they are. The layers between them learn the teacher's hidden states of all tokens, and its embedding of the text,
    the mean of the last hidden states."""

    data: str = "english imdb"
    per: str = "paragraph"
    holdout: ShareBelowOne = 0.01
    teacher: str = FETCHED  # "minilm", or the folder of a BERT or RoBERTa of transformers, with its tokenizer
    variant: Annotated[str, OneOf(VARIANTS)] = "lion_s"  # the kind of attention: `lion list variants`
    positions: str = ""  # "learned": the teacher's, for as many tokens as it takes; "": only for variants without decay
    embedding: Weight = 1.0  # weight of the embedding in the loss, beside the hidden states

    metric = "cosine"
    tunable = ("embedding",)
    decided = dict.fromkeys(("tokenizer", "vocab_size"), "the teacher, whose tokenizer is used")
    makes_tokenizer = False
    usage = "LionModel.from_pretrained('{run}/model'), which embeds texts"

    def __post_init__(self):
        super().__post_init__()
        if self.tokenizer:
            raise ValueError(f"tokenizer is {self.tokenizer!r}; expected none: it is the teacher's.")

    def resolved(self) -> "TextDistillationTask":
        self._check_length()
        if self.positions:
            return self
        return replace(self, positions="none" if EncoderConfig(variant=self.variant).tells_order else "learned")

    def _check_length(self) -> None:
        from lion.integrations.hf.conversion import positions_of

        most = len(positions_of(_teacher(self.teacher)))
        if self.length > most:
            raise ValueError(f"length is {self.length}, but the teacher reads {most} tokens; expected no more.")

    def text_tokenizer(self) -> TextTokenizer:
        return load_tokenizer(bert_folder(self.teacher))

    def using(self, folder: Path) -> "TextDistillationTask":
        return self

    def digests(self) -> dict[str, str]:
        return super().digests() | {"teacher": digest(*_teacher(self.teacher).state_dict().values())}

    def make_model(self) -> nn.Module:
        from lion.integrations.hf import convert

        student = convert(_teacher(self.teacher), self.variant, positions=self.positions)
        for module in student.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # the teacher's states are targets without noise
        for module in (student.get_input_embeddings(), student.pooler):
            if module is not None:
                module.requires_grad_(False)
        return student

    def train_set(self, seed: int) -> Examples:
        return Passages(self.packed("train"))

    def eval_set(self) -> Examples:
        return Passages(self.packed("validation"))

    def loss(self, model: nn.Module, batch: Batch, *, seed: int, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        student, teacher = self._states(model, batch)
        real = batch["mask"]
        layers = [unexplained(s[real], t[real]) for s, t in zip(student[1:], teacher[1:], strict=True)]
        cosine = F.cosine_similarity(embedding(student[-1], real), embedding(teacher[-1], real)).mean()
        states = torch.stack(layers).mean()
        return states + self.embedding * (1 - cosine), {"unexplained": states, "cosine": cosine}

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        student, teacher = (states[-1].float() for states in self._states(model, batch))
        real = batch["mask"]
        of_text = F.cosine_similarity(embedding(student, real), embedding(teacher, real))
        of_tokens = (F.cosine_similarity(student, teacher, dim=-1) * real).sum(1) / real.sum(1)
        return {
            "cosine": of_text.sum(),
            "cosine of tokens": of_tokens.sum(),
            "examples": of_text.new_tensor(len(of_text)),
        }

    def _states(self, model: nn.Module, batch: Batch) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The student's and the teacher's hidden states: the input of the first layer, and the output of each."""
        ids, mask = batch["input_ids"], batch["mask"]
        with torch.no_grad():
            wanted = _teacher(self.teacher).to(ids.device)(ids, mask.long(), output_hidden_states=True).hidden_states
        return model(ids, mask, output_hidden_states=True).hidden_states, wanted


def unexplained(student: Tensor, teacher: Tensor) -> Tensor:
    """The share of the teacher's variance over tokens that the student lacks, both [tokens, dim]. Every channel counts
    the same, though in BERTs a few are many times as large as the others."""
    variance = teacher.var(0, correction=0).clamp(min=1e-6)
    return ((student - teacher).square().mean(0) / variance).mean()


def embedding(states: Tensor, real: Tensor) -> Tensor:
    """Embeddings of texts, [B, dim]: the means of their real tokens' states, [B, T, dim]."""
    weight = real[..., None].to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1)


def _teacher(name: str) -> Any:
    return trained_bert(name, "teacher")


@register_recipe("distill.text")
def distill_text() -> Run:
    """A trained BERT's attention replaced, and its hidden states learned from plain text: `lion distill text --data
    'corpus/*.txt'`."""
    optim = Optim(lr=5e-4, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(TextDistillationTask(), optim, epochs=1, batch=32)

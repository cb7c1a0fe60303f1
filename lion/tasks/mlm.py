"""Masked language modelling on plain text."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from lion.data.packed import MaskedTokens
from lion.limits import SomeShare
from lion.machine import to_train
from lion.models.encoder import EncoderConfig, encoder_config
from lion.models.heads import IGNORED
from lion.nn.variants import VARIANTS
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Prediction, Trained, register_task
from lion.tasks._base import scored
from lion.tasks._tokenized import OF_TOKENIZER, CorpusTask, check_text, tokenizer_of, with_room
from lion.train.config import Optim, Run


@register_task("mlm")
@dataclass(frozen=True)
class MlmTask(CorpusTask):
    model: EncoderConfig = field(default_factory=EncoderConfig)
    mask: SomeShare = 0.3  # share of the tokens that are hidden in training
    eval_mask: SomeShare = 0.15  # the same for the eval set

    tunable = ("mask", "eval_mask")
    decided = OF_TOKENIZER
    trainer = "wordpiece"
    usage = "lion predict {run} 'a text with one [MASK]'"

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

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"]
        # One item: the loss is the sum over the masked tokens, and logits are theirs alone, [masked, vocab].
        output = model(batch["input_ids"], labels=labels, sparse_logits=True, num_items_in_batch=1)
        return scored(output.loss, output.logits, labels[labels != IGNORED])

    def predict(self, trained: Trained, given: str) -> Prediction:
        """given: a text with one [MASK]."""
        tokenizer = tokenizer_of(trained)
        parts = check_text("the text", given).split("[MASK]")
        if len(parts) != 2 or tokenizer.mask_id is None:
            raise ValueError(f"the text has {len(parts) - 1} [MASK]; expected one: the token to predict.")
        before, after = tokenizer.encode(parts)
        start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
        ids = torch.tensor([[*start, *before, tokenizer.mask_id, *after]], device=trained.device)
        return Prediction(trained.model(ids).logits[0, len(start) + len(before)], lambda i: tokenizer.decode([i]))


OF_HYDRA = {"depth": 3, "mlp_dim": 0}  # as many parameters


@register_recipe("mlm", "mlm.{variant}", variant=(*VARIANTS, "hydra"))
def mlm(variant: str = "lion_s") -> Run:
    """Masked language modelling on plain text, by default 12 MB of English speeches: `lion train mlm --data
    'corpus/*.txt'`."""
    blocks: dict[str, Any] = OF_HYDRA if variant == "hydra" else {"depth": 2, "mlp_dim": 512}
    model = replace(encoder_config("small", variant), dim=128, dropout=0.0, init_std=0.08, **blocks)
    # Many small steps of a small model: without decays it takes thousands to learn which tokens are neighbours.
    optim = Optim(lr=2e-3, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(MlmTask(model=model), optim, epochs=4, batch=8)

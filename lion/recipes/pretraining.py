"""Recipes for pretraining text models on the paper's corpora."""

from dataclasses import replace

from lion.models.causal import CausalConfig
from lion.models.encoder import encoder_config
from lion.recipes import register_recipe
from lion.tasks.causal import CausalTask
from lion.tasks.mlm import MlmTask
from lion.train.config import Optim, Run

BERT = Optim(betas=(0.9, 0.98), eps=1e-6, schedule="linear", warmup=0.06, final=0.0, decoupled=True)


C4 = {"data": "hf://allenai/c4/en", "limit": 100_000_000, "test": "hf://allenai/c4/en", "test_limit": 10_000}


def _c4(variant: str, size: str, optim: Optim, **masks: float) -> Run:
    model = encoder_config(size, variant)
    task = MlmTask(**C4, tokenizer="minilm", model=model, **masks)  # type: ignore[arg-type]  # BERT's own vocabulary
    return Run(task, optim, steps=70_000, batch=4096, precision="bfloat16", workers=8, eval_every=2000)


OF_C4 = ("lion_lit", "lion_d", "lion_s", "softmax", "hydra")


@register_recipe("mlm.c4_{variant}_{size}", variant=OF_C4, size=("base", "large"))
def mlm_c4(variant: str, size: str) -> Run:
    """The paper's pretraining: C4, 128 tokens, 70,000 steps of 4,096 texts; evaluated on 10,000 texts of C4's
    validation part."""
    return _c4(variant, size, replace(BERT, lr=8e-4 if size == "base" else 2e-4, weight_decay=1e-5, final=0.2))


@register_recipe("mlm.c4_bert_base")
def mlm_c4_bert() -> Run:
    """BERT's own pretraining, for the paper's table of base size: 15% masked, a learning rate of 5e-4; on C4."""
    return _c4("softmax", "base", replace(BERT, lr=5e-4, weight_decay=1e-5, final=0.02, clip=0.0), mask=0.15)


@register_recipe("causal.openwebtext_{variant}", variant=("lion_s", "linatt_scaled", "softmax"))
def openwebtext(variant: str) -> Run:
    """GPT-2's small size on OpenWebText, with its tokenizer, as nanoGPT trains it."""
    positions = "none" if variant == "lion_s" else "learned"  # LION-S alone goes without: the paper's figure owt
    model = CausalConfig(variant=variant, positions=positions)
    data = "hf://Skylion007/openwebtext"
    task = CausalTask(data=data, holdout=0.0005, tokenizer="gpt2", length=1024, model=model)
    optim = Optim(lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95), warmup=2000 / 600_000, final=0.1)
    return Run(task, optim, steps=600_000, batch=480, accumulate=4, precision="bfloat16", eval_every=1000, workers=4)

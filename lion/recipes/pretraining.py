"""Recipes for pretraining text models on the paper's corpora."""

from dataclasses import replace

from lion.models.causal import CausalConfig
from lion.models.encoder import ENCODERS
from lion.models.positions import placed
from lion.recipes import register_recipe
from lion.tasks.causal import CausalTask
from lion.tasks.mlm import MlmTask
from lion.train.config import Optim, Run

BERT = Optim(betas=(0.9, 0.98), eps=1e-6, schedule="linear", warmup=0.06, final=0.0, decoupled=True)


@register_recipe("mlm.c4_{variant}_{size}", variant=("lion_lit", "lion_d", "lion_s", "softmax"), size=("base", "large"))
def mlm_c4(variant: str, size: str) -> Run:
    """The paper's pretraining: C4, 128 tokens, 70,000 steps of 4,096 texts."""
    model = placed(replace(ENCODERS[size], variant=variant))
    task = MlmTask(data="hf://allenai/c4/en", limit=100_000_000, tokenizer="minilm", model=model)
    optim = replace(BERT, lr=8e-4 if size == "base" else 2e-4, weight_decay=1e-5, final=0.2)
    return Run(task, optim, steps=70_000, batch=4096, precision="bfloat16", workers=8, eval_every=2000)


@register_recipe("causal.openwebtext_{variant}", variant=("lion_s", "linatt_scaled", "softmax"))
def openwebtext(variant: str) -> Run:
    """GPT-2's small size on OpenWebText, as nanoGPT trains it."""
    positions = "learned" if variant == "softmax" else "none"
    model = CausalConfig(variant=variant, positions=positions)
    task = CausalTask(data="hf://Skylion007/openwebtext", vocab_size=50257, length=1024, model=model)
    optim = Optim(lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95), warmup=2000 / 600_000, final=0.1)
    return Run(task, optim, steps=600_000, batch=480, accumulate=4, precision="bfloat16", eval_every=2000, workers=4)

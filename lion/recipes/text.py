"""Recipes for text. docs/results.md has what those reached that were run, with the command."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lion.models.causal import CausalConfig
from lion.models.encoder import ENCODERS, EncoderConfig
from lion.models.positions import placed
from lion.nn.variants import VARIANTS
from lion.train.config import Optim, Run
from lion.train.text import GLUE, CausalTask, MlmTask, TextTask
from lion.train.text_distill import TextDistillTask

PAPER = ("lion_lit", "lion_d", "lion_s", "softmax")


def _encoder(variant: str, size: str, **changes) -> EncoderConfig:
    """Without decays to tell places by, with learned positions."""
    return placed(replace(ENCODERS[size], variant=variant, **changes))


def mlm(variant: str = "lion_s") -> Run:
    """Hidden words, from plain text: `lion train mlm --data 'corpus/*.txt'`, by default 12 MB of English speeches."""
    model = _encoder(variant, "small", dim=128, depth=2, mlp_dim=512, dropout=0.0, init_std=0.08)
    # Many small steps of a small model: where no decay tells neighbours, it takes thousands to find that there are any.
    optim = Optim(lr=2e-3, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06)
    return Run(MlmTask(model=model), optim, epochs=4, batch=8)


def mlm_c4(variant: str, size: str) -> Run:
    """The paper's pretraining: C4, 128 tokens, 70,000 steps of 4,096 texts."""
    task = MlmTask(data="hf://allenai/c4/en", limit=100_000_000, tokenizer="minilm", model=_encoder(variant, size))
    optim = Optim(
        lr=8e-4 if size == "base" else 2e-4,
        weight_decay=1e-5,
        betas=(0.9, 0.98),
        eps=1e-6,
        schedule="linear",
        warmup=0.06,
        final=0.2,
        decoupled=True,
    )
    return Run(task, optim, steps=70_000, batch=4096, precision="bfloat16", workers=8, eval_every=2000)


def text(variant: str = "lion_s") -> Run:
    """Classes of your own texts: `lion train text --data reviews.csv`."""
    task = TextTask(model=_encoder(variant, "small", depth=2, dropout=0.1))
    return Run(task, Optim(lr=1e-3, weight_decay=0.05, warmup=0.1), epochs=4, batch=32)


def imdb(variant: str) -> Run:
    """Whether a film review is positive: 24,901 of IMDB's, a fifth of them held out."""
    model = _encoder(variant, "small", dim=128, depth=2, mlp_dim=512, dropout=0.3)
    run = text(variant)
    return replace(run, task=TextTask(dataset="imdb", max_length=384, model=model), epochs=3)


class Tuned(NamedTuple):
    """A recipe of the paper's table of GLUE: for each task of `ORDER` a learning rate and the rest."""

    lr: tuple[float, ...]
    weight_decay: tuple[float, ...]
    epochs: tuple[int, ...]
    plain_adamw: tuple[str, ...] = ()  # tasks with ordinary AdamW; the others have decoupled
    max_length: int = 128


ORDER = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
M2_LARGE = Tuned(
    lr=(5e-5, 5e-5, 3e-5, 5e-5, 3e-5, 8e-5, 5e-5, 8e-5),
    weight_decay=(5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 1e-6, 3e-5),
    epochs=(3, 10, 5, 2, 3, 10, 10, 8),
    plain_adamw=("rte",),
)
TUNED = {
    "bert24": Tuned(
        lr=(5e-5, 1e-5, 3e-5, 1e-5, 3e-5, 8e-5, 5e-5, 3e-5),
        weight_decay=(5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        epochs=(3, 10, 5, 3, 3, 10, 10, 10),
        max_length=256,
    ),
    "m2_base": Tuned(
        lr=(5e-5, 5e-5, 3e-5, 1e-5, 3e-5, 8e-5, 8e-5, 8e-5),
        weight_decay=(5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        epochs=(3, 10, 5, 3, 3, 10, 10, 10),
        plain_adamw=("stsb",),
    ),
    "m2_large": M2_LARGE,
    "hydra": Tuned(
        lr=(1e-4, 5e-5, 5e-5, 1e-5, 5e-5, 8e-5, 1e-4, 3e-5),
        weight_decay=(5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 8e-6, 3e-6),
        epochs=(2, 7, 3, 3, 2, 10, 10, 8),
        plain_adamw=("rte",),
        max_length=256,
    ),
    "modified": M2_LARGE._replace(lr=(1e-5,) * 8),
}


def glue(recipe: str, name: str) -> Run:
    """GLUE's tasks by the paper's five recipes, from a pretrained model: --start RUN (for rte, stsb and mrpc one that
    was trained on mnli); --data FOLDER."""
    tuned, at = TUNED[recipe], ORDER.index(name)
    task = TextTask(dataset=name, max_length=tuned.max_length, model=ENCODERS["base"])
    decoupled = name not in tuned.plain_adamw
    optim = Optim(
        lr=tuned.lr[at],
        weight_decay=tuned.weight_decay[at],
        betas=(0.9, 0.98),
        eps=1e-6,
        schedule="linear",
        warmup=0.06,
        final=0.0,
        decoupled=decoupled,
    )
    return Run(task, optim, epochs=tuned.epochs[at], batch=32)


def distill() -> Run:
    """A trained BERT's attention replaced, and its states learned from plain text: `lion distill text`."""
    return Run(TextDistillTask(), Optim(lr=5e-4, weight_decay=0.01, betas=(0.9, 0.98), warmup=0.06), epochs=1, batch=32)


def causal(variant: str = "lion_s") -> Run:
    """Text that goes on: `lion train causal --data 'corpus/*.txt'`, then `lion generate RUN --prompt "Once"`."""
    positions = "none" if VARIANTS[variant].decay != "none" or VARIANTS[variant].delta else "learned"
    model = CausalConfig(variant=variant, dim=256, depth=4, heads=4, positions=positions)
    task = CausalTask(model=model, vocab_size=4096)
    return Run(task, Optim(lr=1.5e-3, weight_decay=0.05, betas=(0.9, 0.95), warmup=0.06), epochs=3, batch=16)


def openwebtext(variant: str) -> Run:
    """GPT-2's small size on OpenWebText, as nanoGPT trains it."""
    positions = "learned" if variant == "softmax" else "none"
    model = CausalConfig(variant=variant, positions=positions)
    task = CausalTask(data="hf://Skylion007/openwebtext", vocab_size=50257, length=1024, model=model)
    optim = Optim(lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95), warmup=2000 / 600_000, final=0.1)
    return Run(task, optim, steps=600_000, batch=480, accumulate=4, precision="bfloat16", eval_every=2000, workers=4)


ABOUT = {
    "mlm": mlm.__doc__ or "",
    "text": text.__doc__ or "",
    "glue": glue.__doc__ or "",
    "distill": distill.__doc__ or "",
    "causal": causal.__doc__ or "",
}


def _recipes() -> dict[str, Callable[[], Run]]:
    found: dict[str, Callable[[], Run]] = {"mlm": mlm, "text": text, "distill.text": distill, "causal": causal}
    for variant in VARIANTS:
        found[f"mlm.{variant}"] = functools.partial(mlm, variant)
        found[f"text.imdb_{variant}"] = functools.partial(imdb, variant)
        found[f"causal.{variant}"] = functools.partial(causal, variant)
    for variant in PAPER:
        for size in ("base", "large"):
            found[f"mlm.c4_{variant}_{size}"] = functools.partial(mlm_c4, variant, size)
    for variant in ("lion_s", "linatt_scaled", "softmax"):
        found[f"causal.openwebtext_{variant}"] = functools.partial(openwebtext, variant)
    for recipe in TUNED:
        for name in GLUE:
            found[f"glue.{recipe}_{name}"] = functools.partial(glue, recipe, name)
    return dict(sorted(found.items(), key=lambda item: list(ABOUT).index(item[0].split(".")[0])))


RECIPES = _recipes()

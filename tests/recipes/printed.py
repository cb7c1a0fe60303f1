"""Every number of a recipe that the paper prints, or that stands in a file which it cites.

`ROWS` is the table: where the numbers stand (a label of the paper's source, or a cited file), which recipes have them,
and the numbers, by the field of the run or by a name of `READ`. Where the print and a cited file differ, a row has what
the recipes follow; docs/differences.md has both.
"""

import inspect
from collections.abc import Callable
from math import floor
from typing import Any, NamedTuple

import torch

from lion.data.long_range.loaders import LONG_RANGE
from lion.models.causal import CausalConfig, CausalModel
from lion.models.encoder import Encoder, EncoderConfig
from lion.models.long_range import LongModel
from lion.models.vision import VisionConfig, VisionModel
from lion.nn.decay import DECAYS
from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS
from lion.train.config import Run


class Row(NamedTuple):
    where: str
    recipes: str  # a pattern of their names; several, with spaces between them
    numbers: dict[str, Any]


# What no field of a run has.


def parameters(run: Run) -> float:
    """In millions."""
    kinds = {VisionConfig: VisionModel, EncoderConfig: Encoder, CausalConfig: CausalModel}
    with torch.device("meta"):
        model = kinds[type(run.task.model)](run.task.model)
    return sum(x.numel() for x in model.parameters()) / 1e6


def first_steps(run: Run) -> tuple[float, float]:
    """The smallest and the largest step with which HIPPO's rates begin."""
    config = run.task.model
    decay = DECAYS[config.decay or VARIANTS[config.variant].decay](config.heads, 8)
    rates = decay.log_rate.exp().reshape(config.heads, -1)[:, 0]
    return round(rates.min().item(), 6), round(rates.max().item(), 6)


def first_weights(run: Run) -> list[float]:
    """The standard deviations of the first weights of queries, keys and decays."""
    layers = [x for x in LongModel(run.task.model).modules() if isinstance(x, LionAttention)]
    parts = [x.in_proj.weight.split(list(x.columns.values())) for x in layers]
    return [round(torch.cat([part[i] for part in parts]).std().item(), 2) for i in (0, 1, 3)]


def tokens(run: Run) -> int:
    """Of the longest sequence of the arena."""
    options = inspect.signature(LONG_RANGE[run.task.name]).parameters
    return options["max_length"].default if "max_length" in options else options["size"].default ** 2


READ: dict[str, Callable[[Run], Any]] = {
    "warm-up epochs": lambda run: run.optim.warmup * run.epochs,
    "warm-up steps": lambda run: run.optim.warmup * run.steps,
    "rate for 512": lambda run: run.optim.lr * 512 / run.batch,
    "last rate": lambda run: run.optim.lr * run.optim.final,
    "examples": lambda run: run.steps * run.batch,
    "whole millions of parameters": lambda run: floor(parameters(run)),
    "millions of parameters": lambda run: round(parameters(run)),
    "tens of millions of parameters": lambda run: round(parameters(run) / 10),
    "first steps": first_steps,
    "first weights": first_weights,
    "tokens": tokens,
}

# Images: section subsec:image_hyper ("the ViT recipe", by DeiT's code), and the numbers of that code.

DEIT = {
    "epochs": 300,
    "rate for 512": 5e-4,
    "last rate": 1e-5,
    "warm-up epochs": 5,
    "optim.schedule": "cosine",
    "optim.weight_decay": 0.05,
    "optim.betas": (0.9, 0.999),
    "optim.eps": 1e-8,
    "optim.clip": 0.0,
    "optim.decoupled": False,
    "repeats": 3,
    "task.image_size": 224,
    "task.augment.timm": "rand-m9-mstd0.5-inc1",
    "task.augment.erase": 0.25,
    "task.mixup.mixup": 0.8,
    "task.mixup.cutmix": 1.0,
    "task.mixup.probability": 1.0,
    "task.mixup.switch_probability": 0.5,
    "task.smoothing": 0.1,
    "task.model.dropout": 0.0,
    "task.model.drop_path": 0.1,
    "task.model.patch_size": 16,
    "task.model.init": "deit",  # weights of std 0.02
}
DISTILLATION = {
    "task.distill.kind": "hard",
    "task.distill.alpha": 0.5,
    "task.distill.teacher": "lion.integrations.timm:deit_teacher",  # RegNetY-16GF
    "task.model.distillation_token": True,
}


def sizes(kind: str, dim: int, heads: int, depth: int = 12) -> dict[str, Any]:
    return {f"{kind}.dim": dim, f"{kind}.heads": heads, f"{kind}.depth": depth}


# Without Hydra and Vim, which have more parameters here than printed, but for Vim's tiny one: docs/differences.md.
DEIT_OR_LION = (
    "imagenet.softmax_{0} imagenet.lion_lit_{0} imagenet.lion_d*_{0} imagenet.lion_s_{0} imagenet.lion_s_2*_{0}"
)
IMAGES = [
    Row("facebookresearch/deit, main.py", "imagenet.* cifar100.* ablation.* distill.imagenet_*", DEIT),
    Row(
        "facebookresearch/deit, README.md: 16 GPUs or 4, 1,024 images", "imagenet.* distill.imagenet_*", {"batch": 1024}
    ),
    Row("facebookresearch/deit, main.py", "imagenet.* distill.imagenet_*", {"ema": 0.99996}),
    Row("docs/differences.md", "cifar100.* ablation.*", {"batch": 512, "ema": 0.9999}),
    Row("app:distill; facebookresearch/deit, main.py", "distill.imagenet_*", DISTILLATION),
    Row("DeiT, table 1", "imagenet.*_tiny distill.imagenet_*_tiny", {"task.model.dim": 192}),
    Row("DeiT, table 1", "imagenet.*_small distill.imagenet_*_small", {"task.model.dim": 384}),
    Row("DeiT, table 1", "imagenet.*_base distill.imagenet_*_base", {"task.model.dim": 768}),
    Row("DeiT, table 1", "imagenet.[ls]*_tiny cifar100.[ls]*", sizes("task.model", 192, 3)),
    Row("DeiT, table 1", "imagenet.[ls]*_small", sizes("task.model", 384, 6)),
    Row("DeiT, table 1", "imagenet.[ls]*_base", sizes("task.model", 768, 12)),
    Row("tab:imc_tiny", DEIT_OR_LION.format("tiny"), {"whole millions of parameters": 5}),
    Row("tab:imc_tiny", "imagenet.vim_tiny", {"whole millions of parameters": 7}),
    Row("tab:imagenet_grouped_all", DEIT_OR_LION.format("small"), {"millions of parameters": 22}),
    Row("tab:imagenet_grouped_all", "imagenet.vim_small", {"millions of parameters": 26}),
    Row("tab:imagenet_grouped_all", DEIT_OR_LION.format("base"), {"whole millions of parameters": 86}),
    Row("tab:imagenet_grouped_all", "imagenet.vim_base", {"millions of parameters": 98}),
    Row("subsec:rotation", "imagenet.*_2scan_*", {"task.model.orders": ("snake", "transposed_snake")}),
]


# Ablations on CIFAR-100, by what tells their rows apart.


def model(**fields: Any) -> dict[str, Any]:
    return {f"task.model.{name}": value for name, value in fields.items()}


def ways(direction: str) -> dict[str, Any]:
    return model(direction=direction, class_token=False, pool="mean")


LINEAR = {"variant": "lion_lit"}
ABLATIONS = [
    Row("tab:ablation_lambda, Fixed mask", "ablation.fixed_decay", model(variant="lion_s", decay="fixed")),
    Row("tab:ablation_lambda, Vector", "ablation.vector_decay", model(variant="lion_s", decay="selective_diagonal")),
    Row("tab:ablation_lambda, Scalar", "cifar100.lion_s", model(variant="lion_s", decay=None, positions="none")),
    Row("tab:ablation_extensive, [1]", "ablation.softmax_features",
        model(variant="softmax", positions="learned", features="unit_silu")),
    Row("tab:ablation_extensive, [2]", "ablation.softmax",
        model(variant="softmax", positions="learned", features=None)),
    Row("tab:ablation_extensive, [3]", "ablation.softmax_features_no_positions",
        model(variant="softmax", positions="none", features="unit_silu")),
    Row("tab:ablation_extensive, [4]", "ablation.softmax_no_positions",
        model(variant="softmax", positions="none", features=None)),
    Row("tab:ablation_extensive, [5]", "ablation.lit", model(**LINEAR, positions="learned", features="elu_plus_one")),
    Row("tab:ablation_extensive, [6]", "ablation.lit_identity",
        model(**LINEAR, positions="learned", features="identity", norm="none")),
    Row("tab:ablation_extensive, [7]", "ablation.lit_no_positions",
        model(**LINEAR, positions="none", features="elu_plus_one")),
    Row("tab:ablation_extensive, [8]", "ablation.lit_identity_no_positions",
        model(**LINEAR, positions="none", features="identity", norm="none")),
    Row("tab:forward, Forward", "ablation.lion_s_forward ablation.lion_s_2scan_forward", ways("forward")),
    Row("tab:forward, Backward", "ablation.lion_s_reverse ablation.lion_s_2scan_reverse", ways("reverse")),
    Row("tab:forward, Forward-backward", "ablation.lion_s_alternating", ways("alternating")),
    Row("tab:forward, Bi-directional", "ablation.lion_s_both ablation.lion_s_2scan_both", ways("both")),
]  # fmt: skip

# Masked language modelling: section subsec:details_glue, "Architectures" and "Pretraining".

PRETRAINING = {
    "task.data": "hf://allenai/c4/en",
    "task.length": 128,
    "task.mask": 0.3,
    "task.eval_mask": 0.15,
    "steps": 70_000,
    "batch": 4096,
    "examples": 286_720_000,
    "optim.decoupled": True,
    "optim.betas": (0.9, 0.98),
    "optim.eps": 1e-6,
    "optim.weight_decay": 1e-5,
    "optim.schedule": "linear",
    "optim.warmup": 0.06,
    "optim.final": 0.2,
}
BERT = model(vocab_size=30522, max_tokens=512, dropout=0.1, init_std=0.02)
M2 = {"optim.clip": 1.0, "eval_every": 2000, "workers": 8, "precision": "bfloat16"}
TRANSFORMERS = "mlm.c4_lion*_{0} mlm.c4_softmax_{0}"
BERTS = {**PRETRAINING, "task.mask": 0.15, "optim.lr": 5e-4, "optim.final": 0.02}
TEXTS = [
    Row("subsec:details_glue, Pretraining", "mlm.c4_*_base !mlm.c4_bert_base", {**PRETRAINING, "optim.lr": 8e-4}),
    Row("subsec:details_glue, Pretraining", "mlm.c4_*_large", {**PRETRAINING, "optim.lr": 2e-4}),
    Row("HazyResearch/m2, bert/yamls/pretrain/monarch-mixer-pretrain-960dim-parameter-matched.yaml",
        "mlm.c4_* !mlm.c4_bert_base", M2),
    Row("HazyResearch/m2, bert/yamls/pretrain/hf-transformer-pretrain-bert-base-uncased.yaml", "mlm.c4_bert_base",
        {**BERTS, **M2, **BERT, "optim.clip": 0.0, "task.model.variant": "softmax"}),
    Row("docs/differences.md", "mlm.c4_*", {"task.test": "hf://allenai/c4/en", "task.test_limit": 10_000}),
    Row("google-research/bert, README.md", f"{TRANSFORMERS.format('base')} mlm.c4_bert_base",
        {**BERT, **sizes("task.model", 768, 12), "task.model.mlp_dim": 3072}),
    Row("google-research/bert, README.md", TRANSFORMERS.format("large"),
        {**BERT, **sizes("task.model", 1024, 16, depth=24), "task.model.mlp_dim": 4096}),
    Row("goombalab/hydra, hydra/bert/yamls/pretrain/hydra.yaml", "mlm.c4_hydra_base",
        model(depth=23, dim=768, mlp_dim=0)),
    Row("subsec:details_glue, Architectures", "mlm.c4_hydra_large", model(depth=45, dim=1024, mlp_dim=0)),
    Row("subsec:details_glue, Architectures", "mlm.c4_*_base", {"tens of millions of parameters": 11}),
    Row("subsec:details_glue, Architectures", f"{TRANSFORMERS.format('large')}", {"millions of parameters": 334}),
]  # fmt: skip

# GLUE: every cell of the table glue_hyperparams, and beside it what the cited files have.

TASKS = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
D, A = True, False  # decoupled AdamW, and AdamW
Cells = dict[str, tuple[float, ...]]  # of a recipe: the tasks' values by field
LR, WD, EPOCHS, OPTIMIZER = "optim.lr", "optim.weight_decay", "epochs", "optim.decoupled"
PRINTED: dict[str, Cells] = {
    "bert24": {
        LR: (5e-5, 1e-5, 3e-5, 1e-5, 3e-5, 8e-5, 5e-5, 3e-5),
        WD: (5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        EPOCHS: (3, 10, 5, 3, 3, 10, 10, 10),
        OPTIMIZER: (D, D, D, D, D, D, D, D),
    },
    "m2_base": {
        LR: (5e-5, 5e-5, 3e-5, 1e-5, 3e-5, 8e-5, 8e-5, 8e-5),
        WD: (5e-6, 1e-5, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        EPOCHS: (3, 10, 5, 3, 3, 10, 10, 10),
        OPTIMIZER: (D, D, D, D, D, D, D, A),
    },
    "m2_large": {
        LR: (5e-5, 5e-5, 3e-5, 5e-5, 3e-5, 8e-5, 5e-5, 8e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 1e-6, 3e-5),
        EPOCHS: (3, 10, 5, 2, 3, 10, 10, 8),
        OPTIMIZER: (D, D, D, A, D, D, D, D),
    },
    "hydra": {
        LR: (1e-4, 5e-5, 5e-5, 1e-5, 5e-5, 8e-5, 1e-4, 3e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 8e-6, 3e-6),
        EPOCHS: (2, 7, 3, 3, 2, 10, 10, 8),
        OPTIMIZER: (D, D, D, A, D, D, D, D),
    },
    "modified": {
        LR: (1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 1e-6, 3e-5),
        EPOCHS: (3, 10, 5, 2, 3, 10, 10, 8),
        OPTIMIZER: (D, D, D, A, D, D, D, D),
    },
}
# The files of bert/yamls/finetune-glue, and of hydra/bert/yamls/finetune; what they leave out is that of the jobs
# (src/glue/finetuning_jobs.py).
CITED: dict[str, Cells] = {
    "bert24": {  # hf-transformer-finetune-glue-bert-base-uncased.yaml
        LR: (5e-5, 1e-5, 3e-5, 1e-5, 3e-5, 8e-5, 5e-5, 3e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 5e-6, 3e-6),
        EPOCHS: (3, 10, 5, 3, 3, 10, 10, 10),
        OPTIMIZER: (D, D, D, D, D, D, D, D),
    },
    "m2_base": {  # monarch-mixer-finetune-glue-960dim-parameter-matched.yaml
        LR: (5e-5, 5e-5, 3e-5, 1e-5, 3e-5, 8e-5, 8e-5, 8e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-5, 5e-6, 3e-6),
        EPOCHS: (3, 10, 5, 3, 3, 10, 10, 10),
        OPTIMIZER: (D, D, D, D, D, D, A, D),
    },
    "m2_large": {  # monarch-mixer-large-finetune-glue-1792dim-341m-parameters.yaml
        LR: (5e-5, 5e-5, 3e-5, 5e-5, 3e-5, 8e-5, 5e-5, 8e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 1e-6, 3e-6),
        EPOCHS: (3, 10, 5, 2, 3, 10, 10, 8),
        OPTIMIZER: (D, D, D, A, D, D, D, D),
    },
    "hydra": {  # hydra.yaml
        LR: (1e-4, 5e-5, 5e-5, 1e-5, 5e-5, 8e-5, 1e-4, 3e-5),
        WD: (5e-6, 1e-6, 3e-6, 1e-6, 3e-6, 8e-6, 5e-6, 3e-6),
        EPOCHS: (2, 7, 3, 3, 2, 10, 10, 10),
        OPTIMIZER: (D, D, D, D, D, D, D, D),
    },
}
BATCHES = (48, 16, 16, 16, 16, 32, 32, 32)  # of the jobs
OF_JOBS = {
    "optim.betas": (0.9, 0.98),
    "optim.eps": 1e-6,
    "optim.clip": 0.0,
    "optim.schedule": "linear",
    "optim.warmup": 0.06,
    "optim.final": 0.0,
}
GLUE = [
    Row("tab:glue_hyperparams", f"glue.{name}_{task}", {field: values[at] for field, values in cells.items()})
    for name, cells in PRINTED.items()
    for at, task in enumerate(TASKS)
]
GLUE += [
    Row("tab:glue_hyperparams, caption", "glue.m2_* glue.modified_*", {"task.max_length": 128}),
    Row("tab:glue_hyperparams, caption", "glue.bert24_* glue.hydra_*", {"task.max_length": 256}),
    Row("HazyResearch/m2, bert/src/glue/finetuning_jobs.py", "glue.*", OF_JOBS),
]
GLUE += [
    Row("HazyResearch/m2, bert/src/glue/finetuning_jobs.py", f"glue.*_{task}", {"batch": batch})
    for task, batch in zip(TASKS, BATCHES, strict=True)
]

# Causal language modelling: section subsec:causal_lm ("the default GPT-2 hyperparameters" of nanoGPT).

NANO_GPT = {
    "steps": 600_000,
    "batch": 480,
    "warm-up steps": 2000,
    "eval_every": 1000,
    "optim.lr": 6e-4,
    "last rate": 6e-5,
    "optim.schedule": "cosine",
    "optim.weight_decay": 0.1,
    "optim.betas": (0.9, 0.95),
    "optim.clip": 1.0,
    "task.length": 1024,
    "task.tokenizer": "gpt2",
    "task.holdout": 0.0005,
    **sizes("task.model", 768, 12),
    **model(dropout=0.0, vocab_size=50257, init_std=0.02, mlp_ratio=4.0),
}
CAUSAL = [
    Row(
        "karpathy/nanoGPT, train.py, config/train_gpt2.py and data/openwebtext/prepare.py",
        "causal.openwebtext_*",
        NANO_GPT,
    ),
    Row("subsec:causal_lm", "causal.openwebtext_*", {"millions of parameters": 124}),
    Row("subsec:causal_lm", "causal.openwebtext_*", {"task.metric": "perplexity"}),
    Row("subsec:causal_lm", "causal.openwebtext_lion_s", {"task.model.positions": "none"}),
    Row("fig:owt", "causal.openwebtext_softmax causal.openwebtext_linatt_scaled", {"task.model.positions": "learned"}),
]

# The Long Range Arena: section lraconfig, and bin/run_experiments/run_lra_*.sh of S5.

S5 = {  # layers, width, dropout, batch, epochs, weight decay, epochs of warm-up
    "listops": (8, 128, 0.0, 50, 40, 0.04, 1),
    "text": (6, 256, 0.1, 50, 35, 0.07, 0),
    "retrieval": (6, 128, 0.0, 32, 20, 0.05, 1),
    "image": (6, 512, 0.1, 50, 250, 0.07, 1),
    "pathfinder": (6, 192, 0.05, 64, 200, 0.03, 1),
    "pathx": (6, 128, 0.0, 32, 75, 0.06, 1),
}
OF_S5 = ("task.model.depth", "task.model.dim", "task.model.dropout", "batch", "epochs", WD, "warm-up epochs")
LENGTHS = {"text": 4096, "retrieval": 4000, "image": 1024, "pathfinder": 1024, "pathx": 16_384}
HIPPO = "lra.{0}.lion_[sd] lra.{0}.ablation_[367]"  # those that the paper has, and whose decays are not the usual ones
ARENA = [
    *(Row(f"lindermanlab/S5, bin/run_experiments, {name}", f"lra.{name}.*", dict(zip(OF_S5, numbers, strict=True)))
      for name, numbers in S5.items()),
    Row("lindermanlab/S5, run_train.py", "lra.*", {"last rate": 0.0}),
    Row("lraconfig", "lra.*", {"optim.lr": 5e-4, "optim.schedule": "cosine", "optim.decoupled": False}),
    Row("lraconfig", "lra.listops.lion_s lra.listops.ablation_3", {"first weights": [0.1, 0.1, 0.1]}),
    *(Row("tab:lra_exp, input length", f"lra.{name}.*", {"tokens": length}) for name, length in LENGTHS.items()),
    Row("docs/differences.md", "lra.listops.*", {"tokens": 2000}),
    *(Row("lindermanlab/S5, run_train.py: dt_min and dt_max", HIPPO.format(name), {"first steps": (1e-3, 0.1)})
      for name in S5 if name != "pathx"),
    Row("lindermanlab/S5, bin/run_experiments/run_lra_pathx.sh: dt_min",
        HIPPO.format("pathx"), {"first steps": (1e-4, 0.1)}),
    Row("tab:lra_exp, LION-LIT", "lra.*.lion_lit", model(variant="lion_lit")),
    Row("tab:lra_exp, LION-D", "lra.*.lion_d", model(variant="lion_d_diag", zero_order_hold=True)),
    Row("tab:lra_exp, LION-S", "lra.*.lion_s", model(variant="lion_s_diag", zero_order_hold=True)),
    Row("tab:lra_exp, LION-D w/o HIPPO", "lra.*.lion_d_random", model(variant="lion_d_diag", decay="fixed_random")),
    Row("tab:lra_exp, LION-S w/o HIPPO", "lra.*.lion_s_random", model(variant="lion_s_diag", decay="selective_random")),
    Row("tab:lra_expfull, Transformer", "lra.*.softmax", model(variant="softmax")),
    *(Row(f"tab:lra, [{n}]", f"lra.*.ablation_{n}", model(variant="lion_s_diag", **fields)) for n, fields in (
        (1, {"features": "sigmoid", "norm": "none"}),
        (2, {"features": "relu", "norm": None}),
        (4, {"features": None, "norm": "none"}),
        (5, {"features": None, "norm": "unmasked"}),
    )),
    *(Row(f"tab:lra, [{n}]", f"lra.listops.ablation_{n}", model(variant="lion_s_diag", decay=decay))
      for n, decay in ((3, "selective_hippo_scalar"), (6, "fixed_hippo"), (7, "softplus_hippo"))),
]  # fmt: skip

ROWS = [*IMAGES, *ABLATIONS, *TEXTS, *GLUE, *CAUSAL, *ARENA]

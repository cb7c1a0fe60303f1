"""`lion bench long`: classifiers of the Long Range Arena's size, up to a million tokens, beside the same model with
softmax attention, and beside transformers' Mamba-2."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from lion.bench import by_length
from lion.bench.by_length import Case, Contest, cases_of
from lion.devices import chosen
from lion.models.long_range import LONG_MODELS, LongModel
from lion.models.positions import placed
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.optional import need_transformers

SOFTMAX, MAMBA2 = "softmax", "Mamba-2"
USUAL = ("lion_lit", "lion_d", "lion_s", "lion_d_diag", "lion_s_diag")
LENGTHS = (1024, 4096, 16384, 65536, 262144, 1048576)
TRAINED_TO = 262144  # longest sequence in training
CHECKPOINTED = 16384  # longer sequences are trained with gradient checkpointing
PATIENCE = 150.0  # seconds that a run may be expected to take
SIZE, VOCABULARY = "pathx", 256


def make_model(name: str, case: Case) -> nn.Module:
    if name == MAMBA2:
        return mamba2(checkpointed=case.recomputed)
    model = LongModel(placed(replace(LONG_MODELS[SIZE], variant=name, vocab_size=VOCABULARY), case.length))
    model.set_grad_checkpointing(case.recomputed)
    return model


def mamba2(*, checkpointed: bool = False) -> nn.Module:
    """transformers' Mamba-2 of the same width and depth. It reads in one direction."""
    need_transformers()
    from transformers import Mamba2Config, Mamba2Model

    like = LONG_MODELS[SIZE]
    config = Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=like.dim,
        num_hidden_layers=like.depth,
        head_dim=64,
        num_heads=2 * like.dim // 64,
        n_groups=1,
        use_cache=False,
    )
    model = Mamba2Model(config)
    if checkpointed:
        # The older name is from before transformers 5.23.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
    return model


def run(
    *,
    lengths: Sequence[int] = LENGTHS,
    models: Sequence[str] = USUAL,
    rounds: int = 3,
    training: bool = True,
    inference: bool = True,
    mamba: bool = True,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    for name in models:
        one_of("models", name, VARIANTS)
    contest = Contest(
        tuple(dict.fromkeys((SOFTMAX, *((MAMBA2,) if mamba else ()), *models))),
        make_model,
        lambda _: VOCABULARY,
        quadratic=(SOFTMAX,),
        patience=PATIENCE,
        least=1,  # runs of minutes, with large differences
        notes=[
            f"{LONG_MODELS[SIZE].depth} layers of {LONG_MODELS[SIZE].dim} channels; {SOFTMAX}: torch's fused attention",
            f"{MAMBA2}: transformers' Mamba2Model, as wide and as deep, in one direction only and without MLPs",
            f"training with more than {CHECKPOINTED:,} tokens: with gradient checkpointing",
        ],
        device=chosen(device),
    )
    cases = cases_of(
        (SIZE,),
        lengths,
        training=training,
        inference=inference,
        trained_to=TRAINED_TO,
        batch=lambda length: 1,
        checkpointed=CHECKPOINTED,
    )
    return by_length.run(contest, cases, rounds, json_path)

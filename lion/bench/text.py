"""`lion bench text`: text encoders beside transformers' BERT with softmax attention, training and inference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from lion.bench import by_length
from lion.bench.by_length import Contest, cases_of
from lion.bench.results import check_choices
from lion.devices import chosen
from lion.models.encoder import SIZES, Encoder, EncoderConfig, encoder_config
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.optional import need_transformers

BERT = "BERT"
MATERIALISED = "BERT, materialised"
BERTS = {BERT: "sdpa", MATERIALISED: "eager"}  # transformers' names of their attention
USUAL = ("lion_lit", "lion_d", "lion_s")
LENGTHS = (128, 512, 2048, 8192, 16384)
TRAINED_TO = 8192  # longest sequence in training
TOKENS = 1024  # smallest number in a batch
PATIENCE = 240.0  # seconds that a run may be expected to take


def make_model(name: str, size: str, length: int) -> nn.Module:
    """A model without dropout, for which torch's softmax attention has no fast CPU kernel."""
    config = SIZES[size] if name in BERTS else encoder_config(size, name)
    config = replace(config, dropout=0.0, max_tokens=max(512, length))
    return bert(config, BERTS[name]) if name in BERTS else Encoder(config)


def bert(config: EncoderConfig, attention: str) -> nn.Module:
    """transformers' BERT of the same size."""
    need_transformers()
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.dim,
            num_hidden_layers=config.depth,
            num_attention_heads=config.heads,
            intermediate_size=config.mlp_dim,
            max_position_embeddings=config.max_tokens,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation=attention,
        ),
        add_pooling_layer=False,
    )
    assert model.config._attn_implementation == attention
    return model


def run(
    *,
    sizes: Sequence[str] = ("base",),
    lengths: Sequence[int] = LENGTHS,
    models: Sequence[str] = USUAL,
    rounds: int = 3,
    training: bool = True,
    inference: bool = True,
    memory_only: bool = False,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    check_choices(sizes=(sizes, SIZES))
    for name in models:
        one_of("models", name, (*VARIANTS, "hydra"))
    contest = Contest(
        (*BERTS, *dict.fromkeys(models)),
        lambda name, case: make_model(name, case.size, case.length),
        lambda size: SIZES[size].vocab_size,
        quadratic=(*BERTS, "softmax"),
        patience=PATIENCE,
        notes=[
            f"{BERT}: transformers' BertModel with torch's fused softmax attention; all without dropout",
            f"{MATERIALISED}: with T x T matrices in memory, as attention is written down; not timed",
            *(["hydra: blocks without MLPs, for as many parameters"] if "hydra" in models else []),
        ],
        device=chosen(device),
        materialised=(MATERIALISED,),
    )
    cases = cases_of(
        sizes,
        lengths,
        training=training,
        inference=inference,
        trained_to=TRAINED_TO,
        batch=lambda length: max(1, TOKENS // max(length, 1)),
    )
    return by_length.run(contest, cases, rounds, json_path, memory_only=memory_only)

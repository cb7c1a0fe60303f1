"""The linear transformers of the paper's Table 1, its own three, and some beyond it, each a few lines.

Every one is `lion.attention` with a choice of features, decay, keys, normalisation and output; LionAttention builds
the layer. What is taken over of a published model is its token mixing and its tail (skip, norm, gate); convolutions and
token shifts around it are a block's business (docs/variants.md).
"""

from dataclasses import dataclass

from lion.ops.checks import Norm

KEYS = {
    "own": "every head has its own",
    "shared": "all heads share them, and the queries too",
    "complement": "1 - decay",
}


@dataclass(frozen=True)
class Variant:
    about: str
    paper: str  # where it stands in the paper
    features: str = "unit_silu"  # of q and k: a key of feature_maps.FEATURE_MAPS
    decay: str = "none"  # and gates: a key of decay.DECAYS
    norm: Norm = "none"  # of lion.attention
    keys: str = "own"  # one of KEYS
    value_channels: int | None = None  # of a head; None: dim / heads
    key_channels: int | None = None  # of a head; None: dim / heads
    scaled: bool = False  # queries times D^-1/2, where features do not normalise
    bonus: bool = False  # a learned weight of the token itself, per channel
    decay_between: bool = False  # a key decays only by the tokens between it and the query
    delta: bool = False  # the delta rule
    skip: bool = False  # a learned part of the values goes straight to the output
    tail: tuple[str, ...] = ()  # norm and gate of the output, in this order: keys of tails.OUTPUT_NORMS and GATES
    two_sided: bool = False  # both directions have decays of their own
    state_space_init: bool = False  # as for the Long Range Arena: q and k of std 0.1, v by zero-order hold
    softmax: bool = False  # not linear at all: the baseline


VARIANTS: dict[str, Variant] = {
    "softmax": Variant("softmax attention, the baseline", "eq. 1", features="identity", softmax=True),
    "lion_lit": Variant("no decay", "Table 1, LinAtt + Scaling", norm="sum"),
    "lion_d": Variant("one learned decay per head", "Table 1, RetNet + Scaling", decay="fixed", norm="sum"),
    "lion_s": Variant("a decay per token", "Table 1, Gated RFA", decay="selective", norm="sum"),
    "lion_s_two_sided": Variant(
        "a decay per token and direction: it tells left from right",
        "beyond it",
        decay="selective",
        norm="sum",
        two_sided=True,
    ),
    "lion_d_diag": Variant(
        "a learned decay per channel, HIPPO's at first",
        "Section 4.5, LION-D (w/ HIPPO)",
        decay="fixed_hippo",
        norm="sum",
        state_space_init=True,
    ),
    "lion_s_diag": Variant(
        "a decay per token and channel, HIPPO's at first",
        "Section 4.5, LION-S (w/ HIPPO)",
        decay="selective_hippo",
        norm="sum",
        state_space_init=True,
    ),
    "linatt": Variant(
        "the linear transformer, not scaled", "Table 1, LinAtt", features="elu_plus_one", tail=("head_rms",)
    ),
    "linatt_scaled": Variant(
        "the linear transformer", "Table 1, LinAtt + Scaling", features="elu_plus_one", norm="sum"
    ),
    "retnet": Variant(
        "retention",
        "Table 1, RetNet",
        features="identity",
        decay="fixed",
        scaled=True,
        tail=("retnet", "silu"),
    ),
    "retnet_scaled": Variant(
        "retention, scaled", "Table 1, RetNet + Scaling", features="elu_plus_one", decay="fixed", norm="sum"
    ),
    "grfa": Variant(
        "gated random Fourier features", "Table 1, Gated RFA", features="fourier", decay="gated_rfa", norm="sum"
    ),
    "mamba2": Variant(
        "a state space with one decay per head",
        "Table 1, Mamba-2",
        features="identity",
        decay="mamba2",
        keys="shared",
        skip=True,
        tail=("silu", "mamba2"),
    ),
    "mamba": Variant(
        "a state space, one head per channel",
        "Table 1, Mamba",
        features="identity",
        decay="mamba",
        keys="shared",
        value_channels=1,
        key_channels=16,
        skip=True,
        tail=("silu",),
    ),
    "rwkv6": Variant(
        "receptance and a bonus for the token itself",
        "Table 1, RWKV-6",
        features="identity",
        decay="rwkv6",
        bonus=True,
        decay_between=True,
        tail=("rwkv6", "silu"),
    ),
    "gla": Variant(
        "gated linear attention",
        "Table 1, GLA",
        features="identity",
        decay="gla",
        scaled=True,
        tail=("head_rms", "silu"),
    ),
    "hgrn2": Variant(
        "keys are what is forgotten",
        "Table 1, HGRN-2",
        features="plain_silu",
        decay="hgrn2",
        keys="complement",
        tail=("hgrn2",),
    ),
    "xlstm": Variant(
        "the matrix LSTM: exponential input gates",
        "Table 1, xLSTM",
        features="identity",
        decay="xlstm",
        norm="max",
        scaled=True,
        tail=("xlstm", "sigmoid"),
    ),
    "deltanet": Variant(
        "the delta rule",
        "Table 1, DeltaNet",
        features="normalised_silu",
        delta=True,
        tail=("head_rms",),
    ),
    "gated_deltanet": Variant(
        "the delta rule with a decay per token",
        "beyond it",
        features="normalised_silu",
        decay="gated_deltanet",
        delta=True,
        tail=("head_rms", "silu"),
    ),
}

"""Text encoders: BERT's architecture, with any variant of the table in the place of its attention."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from lion.legacy import takes_old_names
from lion.limits import Classes, Deviation, Epsilon, HalfLives, HiddenOrNone, OneOf, Share, TokenId, Tokens, Vocabulary
from lion.models.baselines import BASELINES, Baseline
from lion.models.blocks import Backbone, Mlp, ModelConfig, Stage, check_mask, init_linear, make_layer
from lion.models.borders import tokens_before
from lion.models.positions import add_positions, learned_positions, placed, warn_if_blind, waves
from lion.nn.layers import LionAttention
from lion.nn.pieces import Cuttable
from lion.nn.variants import VARIANTS


@takes_old_names
@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ModelConfig):
    variant: Annotated[str, OneOf((*VARIANTS, *BASELINES))] = field(default="lion_s", kw_only=False)
    vocab_size: Vocabulary = 30522  # different tokens
    mlp_dim: HiddenOrNone = 3072  # channels inside of the MLPs; 0: blocks without an MLP
    max_tokens: Tokens = 512  # the most tokens, where positions are learned
    token_types: Classes = 2  # embeddings that tell the texts of a pair apart; 0: none
    dropout: Share = 0.1  # of the embedded tokens, and of what each block adds; of Hydra and Vim of the tokens only
    norm_eps: Epsilon = 1e-12  # of the LayerNorms
    pad_token: TokenId | None = 0  # the token that fills up short texts
    init_std: Deviation = 0.02  # standard deviation of the first weights
    attention_norm: bool | None = None  # a LayerNorm behind attention; None: for lion_lit only, which needs it
    two_sided: bool = False  # decays of their own for each direction
    half_lives: HalfLives = None  # tokens, of the first decays: first and last head (0: all of them); none: own

    def __post_init__(self):
        super().__post_init__()
        if self.pad_token is not None and self.pad_token >= self.vocab_size:
            raise ValueError(f"pad_token is {self.pad_token}; expected less than vocab_size, {self.vocab_size}.")


class Encoder(Backbone):
    """[B, T] tokens -> [B, T, dim]"""

    def __init__(self, config: EncoderConfig, layer: type["EncoderLayer"] | None = None):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList((layer or EncoderLayer)(config) for _ in range(config.depth))
        warn_if_blind(config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        all_states: bool = False,
        weights: list[Tensor] | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The last layer's output; with `all_states` the first layer's input and every layer's output.

        Args:
            input_ids: [B, T].
            mask: [B, T], True for real tokens, wherever they are. The others change nothing for them.
            cu_seqlens: the borders of sequences packed end to end, with B = 1.
            token_type_ids: [B, T], 0 by default.
            position_ids: [B, T] or [1, T], where positions are learned. By default the real tokens of each sequence
                are counted, from 0.
            inputs_embeds: [B, T, dim], in the place of input_ids and their embeddings.
            weights: a list, to which each layer's weights [B, H, T, T] are added (LionAttention.weights).
        """
        x = self.embeddings(input_ids, mask, cu_seqlens, token_type_ids, position_ids, inputs_embeds)
        states = (x,) if all_states else ()
        for layer in self.layers:
            x, found = self.run(layer, x, mask, cu_seqlens, weights is not None)
            if weights is not None:
                weights.append(found)
            if all_states:
                states = (*states, x)
        return states if all_states else x

    def stages(self) -> Iterator[Stage]:
        yield lambda x, mask: (self.embeddings(x, mask, None, None, None, None), mask)
        for layer in self.layers:
            yield lambda x, mask, layer=layer: (self.run(layer, x, mask, None)[0], mask)  # type: ignore[misc]


class Embeddings(Cuttable, nn.Module):
    """Embeddings of words, of the texts that they are in (`types`), and of positions if those are learned."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.dim, padding_idx=config.pad_token)
        self.types = nn.Embedding(config.token_types, config.dim) if config.token_types else None
        self.positions = learned_positions(config, config.max_tokens)
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        for embedding in filter(None, (self.words, self.types)):
            nn.init.normal_(embedding.weight, std=config.init_std)
        with torch.no_grad():
            if config.pad_token is not None:
                self.words.weight[config.pad_token] = 0
            if self.positions is not None:
                self.positions.weight.copy_(config.init_std * waves(config.max_tokens, config.dim))

    def forward(
        self,
        input_ids: Tensor | None,
        mask: Tensor | None,
        cu_seqlens: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither input_ids nor inputs_embeds is" if input_ids is None else "input_ids and inputs_embeds are"
            raise ValueError(f"{got} given; expected one of them.")
        if input_ids is not None and input_ids.dim() != 2:
            raise ValueError(f"input_ids has shape {tuple(input_ids.shape)}; expected [B, T].")
        x = self.words(input_ids) if inputs_embeds is None else inputs_embeds
        check_mask(mask, x.shape[:2])
        if self.types is not None:
            kinds = torch.zeros(1, 1, dtype=torch.long, device=x.device) if token_type_ids is None else token_type_ids
            x = x + self.types(kinds)
        elif token_type_ids is not None:
            raise ValueError("token_type_ids is given, but token_types is 0; expected none: leave them out.")
        counted = self.positions is not None and position_ids is None
        before = tokens_before(x, mask, self.piece) if counted else None
        return self.dropout(self.norm(add_positions(x, self.positions, position_ids, mask, cu_seqlens, before=before)))


class EncoderLayer(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        with_norm = config.variant == "lion_lit" if config.attention_norm is None else config.attention_norm
        self.attention = make_attention(config)
        self.attention_norm = nn.LayerNorm(config.dim, eps=config.norm_eps) if with_norm else nn.Identity()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = Mlp(config.dim, config.mlp_dim) if config.mlp_dim else None
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps) if config.mlp_dim else None
        self.dropout = nn.Dropout(0.0 if config.variant in BASELINES else config.dropout)
        if self.mlp is not None:
            for linear in (self.mlp.fc1, self.mlp.fc2):
                init_linear(linear, config.init_std)

    def forward(
        self, x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, weighing: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The output; with `weighing` it is computed by the weights of attention, which are returned too."""
        if not weighing:
            mixed, weights = self.attention(x, mask, cu_seqlens), None
        elif isinstance(self.attention, LionAttention):
            mixed, weights = self.attention.forward_by_weights(x, mask, cu_seqlens)
        else:
            kind = type(self.attention).__name__
            raise ValueError(f"the weights of attention are asked for, but {kind} has none; expected another variant.")
        x = self.norm1(x + self.dropout(self.attention_norm(mixed)))
        if self.mlp is not None and self.norm2 is not None:
            x = self.norm2(x + self.dropout(self.mlp(x)))
        return x, weights


def make_attention(config: EncoderConfig) -> LionAttention | Baseline:
    """A layer with BERT's initialisation, unless the variant has its own."""
    if config.variant in BASELINES:
        layer = BASELINES[config.variant](config.dim, "both")
        for linear in (module for module in layer.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(linear.weight, std=config.init_std)
        return layer
    attention = make_layer(config)
    if not attention.variant.state_space_init:
        init_linear(attention.in_proj, config.init_std)
    init_linear(attention.out_proj, config.init_std)
    return attention


SIZES: dict[str, EncoderConfig] = {
    "tiny": EncoderConfig(dim=32, depth=2, heads=2, mlp_dim=64),  # for tests
    "small": EncoderConfig(dim=256, depth=4, heads=4, mlp_dim=1024),
    "minilm": EncoderConfig(dim=384, depth=6, heads=12, mlp_dim=1536),  # 23M parameters, half of them embeddings
    "base": EncoderConfig(),  # 109M
    "large": EncoderConfig(dim=1024, depth=24, heads=16, mlp_dim=4096),  # 334M
}
# Hydra's encoder has no MLPs: blocks, for about as many parameters. 23 are of its own paper, 45 of LION's.
HYDRA_DEPTH = {"tiny": 1, "small": 7, "minilm": 11, "base": 23, "large": 45}
ENCODERS: dict[str, EncoderConfig] = {
    **SIZES,
    **{
        f"hydra_{size}": replace(SIZES[size], variant="hydra", depth=depth, mlp_dim=0, norm_eps=1e-5)
        for size, depth in HYDRA_DEPTH.items()
    },
}


def encoder_config(size: str, variant: str) -> EncoderConfig:
    """The config of a variant at a size: of ENCODERS, with learned positions where nothing else tells the order."""
    return placed(ENCODERS.get(f"{variant}_{size}") or replace(SIZES[size], variant=variant))

"""Encoders of text: BERT's architecture, with any variant of the table in the place of its attention."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lion.configs import check
from lion.legacy import takes_old_names
from lion.limits import (
    Classes,
    Depth,
    Deviation,
    Epsilon,
    Heads,
    Hidden,
    OneOf,
    Share,
    TokenId,
    Tokens,
    Vocabulary,
    Width,
)
from lion.models.blocks import make_layer, variant_tells_order
from lion.models.positions import count, warn_if_blind, waves
from lion.models.vision import KEPT, POSITIONS, Mlp
from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS


@takes_old_names
@dataclass(frozen=True)
class EncoderConfig:
    variant: Annotated[str, OneOf(VARIANTS)] = "lion_s"  # a key of lion.VARIANTS
    vocab_size: Vocabulary = 30522
    dim: Width = 768
    depth: Depth = 12
    heads: Heads = 12
    mlp_dim: Hidden = 3072
    # Where something decays, places are told by that, at any length.
    positions: Annotated[str, OneOf(POSITIONS)] = "none"
    max_tokens: Tokens = 512  # that there are learned positions for
    token_types: Classes = 2  # 0: none
    dropout: Share = 0.1
    norm_eps: Epsilon = 1e-12
    pad_token: TokenId | None = 0
    init_std: Deviation = 0.02
    features: str | None = None  # in place of the variant's own, as the next two
    decay: str | None = None
    norm: str | None = None
    attention_norm: bool | None = None  # a LayerNorm behind attention; None: for lion_lit only, which needs it

    def __post_init__(self):
        check(self)
        if self.pad_token is not None and self.pad_token >= self.vocab_size:
            raise ValueError(f"pad_token is {self.pad_token}; expected less than vocab_size, {self.vocab_size}.")

    @property
    def tells_order(self) -> bool:
        """Whether it makes a difference what order the tokens have."""
        return self.positions == "learned" or variant_tells_order(self)


class Encoder(nn.Module):
    """[B, T] tokens -> [B, T, dim]"""

    def __init__(self, config: EncoderConfig, layer: type["EncoderLayer"] | None = None):
        super().__init__()
        self.config = config
        self.grad_checkpointing = False
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
            cu_seqlens: of sequences packed end to end, with B = 1.
            token_type_ids: [B, T], 0 by default.
            position_ids: [B, T] or [1, T], where positions are learned. By default the real tokens of each sequence
                are counted, from 0.
            inputs_embeds: [B, T, dim], in the place of input_ids and their embeddings.
            weights: a list, to which each layer's weights [B, H, T, T] are added (lion.nn.weighing).
        """
        x = self.embeddings(input_ids, mask, cu_seqlens, token_type_ids, position_ids, inputs_embeds)
        states = (x,) if all_states else ()
        for layer in self.layers:
            given = x, mask, cu_seqlens, weights is not None
            if self.grad_checkpointing and torch.is_grad_enabled():
                x, found = checkpoint(layer, *given, use_reentrant=False)
            else:
                x, found = layer(*given)
            if weights is not None:
                weights.append(found)
            if all_states:
                states = (*states, x)
        return states if all_states else x

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are no weights: decays and the like."""
        return {name for name, _ in self.named_parameters() if any(part in KEPT for part in name.split("."))}


class Embeddings(nn.Module):
    """Of words, of the texts they are in, and of their places if that is learned."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.dim, padding_idx=config.pad_token)
        self.types = nn.Embedding(config.token_types, config.dim) if config.token_types else None
        self.positions = nn.Embedding(config.max_tokens, config.dim) if config.positions == "learned" else None
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        for embedding in (self.words, self.types):
            if embedding is not None:
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
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)} and dtype {str(mask.dtype).removeprefix('torch.')}; expected "
                f"{tuple(x.shape[:2])} = [B, T] and bool, True for real tokens."
            )
        if self.types is not None:
            kinds = torch.zeros(1, 1, dtype=torch.long, device=x.device) if token_type_ids is None else token_type_ids
            x = x + self.types(kinds)
        elif token_type_ids is not None:
            raise ValueError("token_type_ids is given, but token_types is 0; expected none: leave them out.")
        if self.positions is not None:
            if position_ids is None:
                position_ids = count(x, self.positions.num_embeddings, mask, cu_seqlens)
            x = x + self.positions(position_ids)
        elif position_ids is not None:
            raise ValueError(
                "position_ids is given, but positions is 'none'; expected none: leave them out. "
                "(Packed sequences are told apart by cu_seqlens.)"
            )
        return self.dropout(self.norm(x))


class EncoderLayer(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        with_norm = config.variant == "lion_lit" if config.attention_norm is None else config.attention_norm
        self.attention = make_attention(config)
        self.attention_norm = nn.LayerNorm(config.dim, eps=config.norm_eps) if with_norm else nn.Identity()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = Mlp(config.dim, config.mlp_dim)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        for linear in (self.mlp.fc1, self.mlp.fc2):
            init_linear(linear, config.init_std)

    def forward(
        self, x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, weighing: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and with `weighing` the weights of attention, by which it is computed then."""
        if weighing:
            mixed, weights = self.attention.forward_by_weights(x, mask, cu_seqlens)
        else:
            mixed, weights = self.attention(x, mask, cu_seqlens), None
        x = self.norm1(x + self.dropout(self.attention_norm(mixed)))
        return self.norm2(x + self.dropout(self.mlp(x))), weights


def make_attention(config: EncoderConfig) -> LionAttention:
    """A layer that begins as BERT's do, unless the variant has a beginning of its own."""
    attention = make_layer(config)
    if not attention.variant.state_space_init:
        init_linear(attention.in_proj, config.init_std)
    init_linear(attention.out_proj, config.init_std)
    return attention


def init_linear(linear: nn.Linear, std: float) -> None:
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)


ENCODERS: dict[str, EncoderConfig] = {
    "tiny": EncoderConfig(dim=32, depth=2, heads=2, mlp_dim=64),  # for tests
    "small": EncoderConfig(dim=256, depth=4, heads=4, mlp_dim=1024),
    "minilm": EncoderConfig(dim=384, depth=6, heads=12, mlp_dim=1536),  # 23M, half of them embeddings
    "base": EncoderConfig(),  # 109M parameters
    "large": EncoderConfig(dim=1024, depth=24, heads=16, mlp_dim=4096),  # 334M
}

"""What causal models keep of the tokens so far, as a cache of transformers.

A layer's states are of transformers' kinds: those of linear attention (`recurrent_states`), or where all tokens are
kept those of attention (`keys` and `values`), so that what reads any model's cache can read these.
"""

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionLayer

from lion.models.causal import MEMORIES, Memory, States
from lion.nn.prefill import Cache as TokensCache
from lion.ops.checks import one_of


class Kept:
    """What a layer keeps. Has the methods of transformers' layers that the kinds share."""

    is_compileable = False
    supports_early_init = False

    def __init__(self, memory: Memory):  # not the others' __init__: what they assign is read from the memory here
        self.memory = memory

    @property
    def state(self) -> dict[str, Tensor]:
        """The tensors by name, batch first."""
        return self.memory.tensors()

    @property
    def batch_size(self) -> int:
        return self.memory.kept[0].shape[0]

    @property
    def is_initialized(self) -> bool:
        return True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.memory = self.memory.map(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.memory = self.memory.map(lambda x: x.repeat_interleave(repeats, 0))


class StateLayer(Kept, LinearAttentionLayer):
    """A state of fixed size. Linear attention has no convolution, and in place of one recurrent state the tensors of
    `lion.State`, of which there are three or four."""

    record_past = False

    @property
    def number_of_states(self) -> int:
        return len(self.memory.kept.tensors())

    @property
    def recurrent_states(self) -> dict[int, Tensor]:
        return dict(enumerate(self.memory.kept.tensors().values()))

    @property
    def conv_states(self) -> dict[int, None]:
        return dict.fromkeys(range(self.number_of_states))

    @property
    def is_recurrent_states_initialized(self) -> dict[int, bool]:
        return dict.fromkeys(range(self.number_of_states), True)

    @property
    def is_conv_states_initialized(self) -> dict[int, bool]:
        return dict.fromkeys(range(self.number_of_states), False)

    @property
    def has_previous_state(self) -> dict[int, bool]:
        return self.is_recurrent_states_initialized


class TokensLayer(Kept, DynamicLayer):
    """All tokens: `keys` and `values` [B, H, T, .], and beside them in the state their decays and gains."""

    @property
    def keys(self) -> Tensor:
        return self.state["k"].transpose(1, 2)

    @property
    def values(self) -> Tensor:
        return self.state["v"].transpose(1, 2)


class LionCache(Cache):
    """What is kept of the tokens so far: lion.models.causal.States, a layer of the cache for each of the model's.

    There are layers from the first call of a model on.
    """

    def __init__(self, mode: str = "recurrence"):
        one_of("mode", mode, MEMORIES)
        super().__init__(layers=[])
        self.layers: list[Kept] = []
        self.mode = mode
        self.tokens: Tensor | None = None  # [B], how many there were of each sequence
        self.length = 0  # with the padding

    @property
    def states(self) -> States | None:
        return None if self.tokens is None else States([layer.memory for layer in self.layers], self.tokens)

    def add(self, states: States, tokens: int) -> None:
        """Take the states after so many more tokens."""
        self._take(states)
        self.length = self.length + tokens

    def _take(self, states: States) -> None:
        if not self.layers:
            kinds = [TokensLayer if isinstance(x.kept, TokensCache) else StateLayer for x in states.layers]
            self.layers = [kind(memory) for kind, memory in zip(kinds, states.layers, strict=True)]
        for layer, memory in zip(self.layers, states.layers, strict=True):
            layer.memory = memory
        self.tokens = states.tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def reset(self) -> None:
        self.layers, self.tokens, self.length = [], None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)
        if self.tokens is not None:
            self.tokens = self.tokens.index_select(0, beam_idx.to(self.tokens.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        if self.tokens is not None:
            self.tokens = self.tokens.repeat_interleave(repeats)

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, by transformers' count: -2 are two of them."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove is {tokens_to_remove}; expected minus the number of tokens.")
        states = self.states
        if tokens_to_remove and states is not None:
            self._take(states.without_last(-tokens_to_remove))
            self.length += tokens_to_remove

    @property
    def batch_size(self) -> int:
        return -1 if self.tokens is None else self.tokens.shape[0]

    @property
    def is_initialized(self) -> bool:
        return self.tokens is not None

    @property
    def is_croppable(self) -> bool:
        states = self.states
        return self.mode == "cache" if states is None else states.whole


def check_cache(cache: object) -> None:
    if not isinstance(cache, LionCache):
        raise TypeError(f"past_key_values is a {type(cache).__name__}; expected a LionCache, or None to make one.")

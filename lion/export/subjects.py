"""Models as they look from outside Python: named inputs and outputs, tensors whose sizes are known when they run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion.models.causal import Memory, States
from lion.ops.state import State

LENGTHS = (1, 2, 63, 64, 65, 197, 1000)  # tokens, of the inputs that a file is checked with
SIDES = ((1, 1), (1, 3), (3, 5), (8, 8), (11, 20))  # patches along the height and the width of an image
BATCHES = (1, 3)


class Port(NamedTuple):
    """An input or an output."""

    name: str
    shape: tuple[int | str, ...]  # a size with a name is free
    about: str
    dtype: torch.dtype = torch.float32
    below: int = 0  # whole numbers from 0 to one less
    first: float | None = None  # of a state: the value before the first token

    @property
    def kind(self) -> str:
        return str(self.dtype).removeprefix("torch.")


class Subject(NamedTuple):
    """A model to export, and everything that has to be known to run it."""

    module: nn.Module  # takes the inputs in their order, and returns the outputs
    inputs: list[Port]
    outputs: list[Port]
    example: dict[str, int]  # sizes by name, with which the graph is traced
    trials: list[dict[str, int]]  # and those it is checked with
    least: int = 2  # of every size but the batch's, for torch.export: it takes what makes one token for a constant

    def with_pairs(self) -> "Subject":
        """The same with an input that tells the two texts of a pair apart."""
        kinds = self.inputs[1]._replace(name="token_type_ids", about="0 in the first text, 1 in the second", below=2)
        return self._replace(inputs=[*self.inputs, kinds])

    def some(self, sizes: Mapping[str, int], seed: int = 0) -> list[Tensor]:
        """Inputs of these sizes: random, the first sequence of several with padding, and states as at the beginning."""
        random = torch.Generator().manual_seed(seed)
        shapes = [[n if isinstance(n, int) else sizes[n] for n in port.shape] for port in self.inputs]
        return [_some(port, shape, random) for port, shape in zip(self.inputs, shapes, strict=True)]


def _some(port: Port, shape: list[int], random: torch.Generator) -> Tensor:
    if port.first is not None:
        return torch.full(shape, port.first, dtype=port.dtype)
    if port.name == "attention_mask":
        mask = torch.ones(shape, dtype=torch.long)
        if shape[0] > 1:  # the first one is padded on the left, the last one has holes
            mask[0, ..., : shape[-1] // 3] = 0
            mask[-1, ..., 1::5] = 0
        if shape[0] > 2:  # and the one between them is padded on the right
            mask[1, ..., shape[-1] - shape[-1] // 4 :] = 0
        return mask
    if port.below:
        return torch.randint(port.below, shape, generator=random)
    return torch.randn(shape, generator=random)


def subject_of(model: nn.Module) -> Subject:
    for kind in type(model).__mro__:
        if kind.__name__ in SUBJECTS:
            return SUBJECTS[kind.__name__](model)
    known = ", ".join(SUBJECTS)
    raise ValueError(f"a {type(model).__name__} cannot be exported; expected one of lion's models: {known}.")


class Call(nn.Module):
    """A model as a function of tensors alone."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]):
        super().__init__()
        self.model, self._call = model, call

    def forward(self, *inputs: Tensor) -> Any:
        return self._call(self.model, *inputs)


def _images(model: Any) -> Subject:
    config = model.config
    patch = config.patch_size
    images = Port("images", ("batch", config.in_channels, "height", "width"), "pixels, scaled as in training")
    sizes = [{"batch": n, "height": h * patch + 1, "width": w * patch} for n in BATCHES for h, w in SIDES]
    outputs = [Port("logits", ("batch", config.num_classes or config.dim), "of the classes")]
    if config.pool == "none":
        outputs = [Port("logits", ("batch", "tokens", config.num_classes or config.dim), "of the classes, by token")]
    example = {"batch": 2, "height": 3 * patch, "width": 4 * patch}
    return Subject(Call(model, lambda model, x: model(x)), [images], outputs, example, sizes, patch + 1)


MASK = Port(
    "attention_mask", ("batch", "length"), "1 for real tokens, 0 for padding, which may be anywhere", torch.long
)


def _texts(result: str, model: Any, config: Any, output: Port, call: Callable[..., Any]) -> Subject:
    most = config.max_tokens if config.positions == "learned" else None
    ids = Port("input_ids", ("batch", "length"), "numbers of tokens", torch.long, config.vocab_size)
    return Subject(Call(model, call), [ids, MASK], [output._replace(name=result)], *_sizes(most))


def _sizes(most: int | None) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Of the example, and of the trials."""
    lengths = [n for n in LENGTHS if most is None or n <= most]
    tried = [{"batch": b, "length": n} for b in BATCHES for n in lengths]
    return {"batch": 2, "length": min(9, most or 9)}, tried


def _encoder(model: Any) -> Subject:
    output = Port("", ("batch", "length", model.config.dim), "the state of every token")
    return _texts("hidden", model, model.config, output, lambda model, ids, mask: model(ids, mask.bool()))


def _hugging_face(model: Any) -> Subject:
    config = model.lion.encoder.config
    per_token = not getattr(model, "pools", False)
    classes = getattr(model, "num_labels", config.vocab_size) if hasattr(model, "pools") else config.vocab_size
    shape: tuple[int | str, ...] = ("batch", "length", classes) if per_token else ("batch", classes)
    about = "of the tokens' classes" if per_token else "of the classes"

    def call(model: Any, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        return model(ids, mask, kinds, return_dict=True).logits

    return _texts("logits", model, config, Port("", shape, about), call)


def _hugging_face_encoder(model: Any) -> Subject:
    config = model.encoder.config
    output = Port("", ("batch", "length", config.dim), "the state of every token")

    def call(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
        return model(ids, mask, return_dict=True).last_hidden_state

    return _texts("hidden", model, config, output, call)


def _long(model: Any) -> Subject:
    config = model.config
    pair, several = config.answer == "pair", config.channels > 1
    shape: tuple[int | str, ...] = ("batch", *(2,) * pair, "length")
    most = config.max_tokens if config.positions == "learned" else None
    if most is not None and config.stride > 1:
        most *= config.stride
    if config.vocab_size:
        given = Port("input_ids", shape, "numbers of tokens", torch.long, config.vocab_size)
    else:
        given = Port("series", (*shape, *(config.channels,) * several), "numbers over time")
    about = "of the classes, by token" if config.answer == "token" else "of the classes"
    output = Port("logits", ("batch", *("length",) * (config.answer == "token"), config.classes), about)
    call = Call(model, lambda model, x, mask: model(x, mask.bool()))
    return Subject(call, [given, MASK._replace(shape=shape)], [output], *_sizes(most), config.stride + 1)


def _causal(model: Any) -> Subject:
    """Any number of tokens behind a state: a prompt, the next turn, or a single token."""
    config = model.config
    if model.blocks[0].attn.variant.softmax:
        raise ValueError("variant is 'softmax', which has no state of fixed size; expected another variant.")
    with torch.no_grad():
        layers = [x.kept for x in model.prefill(torch.zeros(1, 2, dtype=torch.long))[1].layers]
    kept = [(f"{i}.{name}", x) for i, layer in enumerate(layers) for name, x in _carried(layer)]
    past = [
        Port(f"past.{name}", ("batch", *x.shape[1:]), "the state behind the tokens so far", x.dtype, 0, _first(name))
        for name, x in kept
    ]
    if model.positions is not None:
        past.append(Port("past.tokens", ("batch",), "the count of real tokens so far", torch.long, 0, 0))
    ids = Port("input_ids", ("batch", "length"), "numbers of tokens", torch.long, config.vocab_size)
    logits = Port("logits", ("batch", config.vocab_size), "of the token that comes next")
    present = [x._replace(name=x.name.replace("past", "present"), about="for the next call", first=None) for x in past]
    most = config.max_tokens if model.positions is not None else None

    def call(model: Any, ids: Tensor, mask: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        given, real = iter(states), mask.bool()
        before = [Memory(_state(layer, given)) for layer in layers]
        tokens = next(given, torch.zeros_like(ids[:, 0]))
        places = None
        if model.positions is not None:
            places = torch.where(real, mask.cumsum(1) - mask + tokens[:, None], 0)
        hidden, after = model.prefill(ids, real, States(before, tokens), position_ids=places)
        found = [x for layer in after.layers for _, x in _carried(layer.kept)]
        return model.logits(hidden[:, -1]), *found, *([after.tokens] if model.positions is not None else [])

    return Subject(Call(model, call), [ids, MASK, *past], [logits, *present], *_sizes(most))


def _carried(state: State) -> Iterator[tuple[str, Tensor]]:
    """The tensors that the next tokens depend on. (What all of them cost is for pieces that are joined.)"""
    return ((name, x) for name, x in state.tensors().items() if name not in ("log_decay", "transition"))


def _first(name: str) -> float:
    return -torch.inf if name.endswith("log_scale") else 0.0


def _state(like: State, given: Iterator[Tensor]) -> State:
    found = {name: next(given) for name, _ in _carried(like)}
    sums = found["sums"]
    state = State(**found, log_decay=sums.new_zeros(sums.shape[0], *like.log_decay.shape[1:]))
    return state if like.transition is None else state._replace(transition=state.unknown())


def _hugging_face_causal(model: Any) -> Subject:
    return _causal(model.model)  # whose embeddings are the head's, too


SUBJECTS: dict[str, Callable[[Any], Subject]] = {  # by the name of the class, or of one that it is derived from
    "VisionModel": _images,
    "Encoder": _encoder,
    "LionModel": _hugging_face_encoder,
    "LionWithHead": _hugging_face,
    "LongModel": _long,
    "CausalModel": _causal,
    "LionForCausalLM": _hugging_face_causal,
}

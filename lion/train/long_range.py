"""The Long Range Arena as tasks."""

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from torch import Tensor, nn

from lion.configs import check
from lion.limits import Examples as ExampleCount
from lion.limits import Nesting, OneOf, PixelsOrAll, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LONG_MODELS, LongConfig, LongModel
from lion.models.positions import placed
from lion.train.task import Batch, Examples, Task, classified

if TYPE_CHECKING:
    from lion.data.long_range.sequences import Sequences


@dataclass(frozen=True)
class LongRangeTask(Task):
    name: Annotated[str, OneOf(LONG_MODELS)] = "listops"  # a key of lion.data.long_range.LONG_RANGE
    data: str = ""  # folder of the arena's own files; "": made to its rules, or fetched
    test: Annotated[str, OneOf(("", "validation", "test"))] = ""  # the part to evaluate on; "": "validation"
    # Of what is made or read; what is left at 0 or empty is as the arena has it.
    min_length: TokensOrAll = 0
    max_length: TokensOrAll = 0
    max_depth: Nesting = 0
    max_args: Nesting = 0
    size: PixelsOrAll = 0  # height and width of images
    counts: tuple[ExampleCount, ...] = ()  # of examples, for training, validation and testing
    model: LongConfig = field(default_factory=LongConfig)

    unit: ClassVar[str] = "sequence"

    def __post_init__(self):
        check(self)
        if len(self.counts) not in (0, 3):
            raise ValueError(f"counts is {self.counts}; expected three numbers: for training, validation and testing.")

    def resolved(self) -> "LongRangeTask":
        found = self._load("validation")
        model = replace(self.model, vocab_size=found.vocab_size or 0, classes=found.classes)
        model = replace(model, answer="pair" if found.lengths.ndim == 2 else "sequence")
        return replace(self, model=placed(model, found.max_length))

    def make_model(self) -> nn.Module:
        return to_train(lambda: LongModel(self.model))

    def train_set(self, seed: int) -> Examples:
        return self._load("train")

    def eval_set(self) -> Examples:
        return self._load(self.test or "validation")

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        given = batch["input_ids"] if "input_ids" in batch else batch["values"]
        return classified(model(given, batch.get("mask")), batch["label"])

    def _load(self, split: str) -> "Sequences":
        names = ("min_length", "max_length", "max_depth", "max_args", "size", "counts")
        given = tuple((name, getattr(self, name)) for name in names if getattr(self, name))  # to be hashed
        return _load(self.name, split, self.data, given)


@functools.lru_cache(maxsize=4)
def _load(name: str, split: str, data: str, options: tuple[tuple[str, Any], ...]) -> "Sequences":
    from lion.data.long_range import long_range

    return long_range(name, split, data or None, **dict(options))

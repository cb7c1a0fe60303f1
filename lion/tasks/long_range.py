"""The Long Range Arena."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from torch import Tensor, nn

from lion.limits import Examples as ExampleCount
from lion.limits import Nesting, OneOf, PixelsOrAll, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LONG_MODELS, LongConfig, LongModel
from lion.models.positions import placed, spanning
from lion.tasks import Batch, Examples, Task, cached, classified, register_task

if TYPE_CHECKING:
    from lion.data.long_range.sequences import Sequences

OPTIONS = ("min_length", "max_length", "max_depth", "max_args", "size", "counts")  # of lion.data.long_range


@register_task("long_range")
@dataclass(frozen=True)
class LongRangeTask(Task):
    name: Annotated[str, OneOf(LONG_MODELS)] = "listops"  # the task
    data: str = ""  # folder of the arena's own files; "": made to its rules, or fetched
    test: Annotated[str, OneOf(("", "validation", "test"))] = ""  # the split to evaluate on; "": "validation"
    # Sizes of the data. What is left at 0 or empty is as the arena has it.
    min_length: TokensOrAll = 0  # tokens of the shortest list
    max_length: TokensOrAll = 0  # tokens of the longest sequence
    max_depth: Nesting = 0  # of lists within lists
    max_args: Nesting = 0  # of a list
    size: PixelsOrAll = 0  # height and width of images
    counts: tuple[ExampleCount, ...] = ()  # of examples, for training, validation and testing
    model: LongConfig = field(default_factory=LongConfig)

    unit = "sequence"
    decided = dict.fromkeys(("model.vocab_size", "model.classes", "model.answer", "model.max_tokens"), "the data")
    usage = "lion eval {run} --test test"
    cut = {"input_ids": -1, "mask": -1, "values": 1}  # noqa: RUF012

    def __post_init__(self):
        super().__post_init__()
        if len(self.counts) not in (0, 3):
            raise ValueError(f"counts is {self.counts}; expected three numbers: for training, validation and testing.")

    def resolved(self) -> "LongRangeTask":
        found = self._load("validation")
        model = replace(self.model, vocab_size=found.vocab_size or 0, classes=found.classes)
        model = replace(model, answer="pair" if found.lengths.ndim == 2 else "sequence")
        return replace(self, model=spanning(placed(model, found.max_length), found.max_length))

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
        from lion.data.long_range import long_range

        options = {name: getattr(self, name) for name in OPTIONS if getattr(self, name)}
        return cached(long_range, self.name, split, self.data or None, **options)

"""The interface of tasks, and the table that they register in."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from lion.configs import check
from lion.data.batches import Batch
from lion.files import stamp
from lion.models.borders import sums_of_pieces
from lion.ops.checks import one_of

TASKS: dict[str, type["Task"]] = {}  # by kind; those whose module has been imported
T = TypeVar("T", bound="type[Task]")


def register_task(kind: str) -> Callable[[T], T]:
    """A class decorator: run.json and `lion train` call the task `kind`."""

    def register(task: T) -> T:
        package, _, module = task.__module__.rpartition(".")
        if package == "lion.tasks" and module != kind:  # by which a run's task is found again
            raise ValueError(f"the kind of {task.__name__} is {kind!r}; expected {module!r}, the name of its file.")
        task.kind = kind
        TASKS[kind] = task
        return task

    return register


def kinds() -> list[str]:
    """All kinds of tasks: the modules of lion.tasks, and what other packages have registered."""
    from lion import tasks

    modules = [module.name for module in pkgutil.iter_modules(tasks.__path__) if not module.name.startswith("_")]
    return [*modules, *(TASKS.keys() - modules)]


def task_class(kind: str) -> type["Task"]:
    one_of("kind of task", kind, kinds())
    if kind not in TASKS:
        importlib.import_module(f"lion.tasks.{kind}")
    return TASKS[kind]


class Examples(Protocol):
    """Data for a DataLoader. An example depends on its key only: (epoch, index)."""

    def __len__(self) -> int: ...

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch: ...

    def digest(self) -> str:
        """A digest of the content: other data has another."""
        ...


@dataclass(frozen=True)
class Known:
    """Facts about the data that `predict` needs, saved in run.json. A task may have a subclass with more fields."""

    classes: tuple[str, ...] = ()


class Trained(NamedTuple):
    """A run that can be used: a finished one, or the last checkpoint of one that was stopped."""

    folder: Path
    task: Any  # a Task
    model: nn.Module
    known: Any  # the task's Known
    batch: int  # examples of a micro-batch in training

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @property
    def beside(self) -> Path:
        """The folder with what `Task.save_beside` wrote."""
        finished = self.folder / "model"
        return finished if finished.exists() else self.folder / "tokenizer"


class Input(NamedTuple):
    """One thing to predict."""

    name: str  # for people: a path, a text, a line of a file
    given: Any  # for `Task.example`; or the exception, if it could not be read
    text: str = ""  # its content, where the name is a place


class Prediction(NamedTuple):
    logits: Tensor  # [classes]; where labels are numbers, the number [1]
    name: Callable[[int], str] | None = None  # of a class; None: those of `Known`


class Shown(NamedTuple):
    """An example of the eval set, for people."""

    kind: Literal["image", "text", "series"]
    content: Any  # image: uint8 [height, width, 3]; text: a str; series: numbers [time, channels], NaN where missing
    name: str = ""  # where it is from: the path of its file, for instance


class WrongRun(ValueError):
    """A run that predicts nothing, whatever the input is."""


class Task:
    """Subclasses are frozen dataclasses: their fields are all that a run needs to be repeated."""

    kind: ClassVar[str]  # as registered
    unit: ClassVar[str] = "example"  # what progress is counted in
    metric: ClassVar[str] = "accuracy"  # the one that curves and tables show
    tunable: ClassVar[tuple[str, ...]] = ()  # fields that may change when a run is resumed
    # Fields that something else decides, and what: they are not offered, and not set by hand.
    decided: ClassVar[Mapping[str, str]] = {}
    makes_tokenizer: ClassVar[bool] = False  # from its data, if the field `tokenizer` names none
    known: ClassVar[type[Known]] = Known
    # Tensors of a batch that sequence parallelism cuts, and their dimensions. With "labels" every token has one.
    cut: ClassVar[Mapping[str, int]] = {}
    usage: ClassVar[str] = "lion eval {run}"  # what to do with a finished run, for people
    reads: ClassVar[str] = "text"  # an INPUT of `lion predict`: a "text", a "sequence" of DNA, or always a "file"

    def __post_init__(self) -> None:
        check(self)

    def resolved(self) -> "Task":
        """The task with all fields filled in that the data decides: sizes, classes."""
        return self

    def make_model(self) -> nn.Module:
        raise NotImplementedError

    def train_set(self, seed: int) -> Examples:
        raise NotImplementedError

    def eval_set(self) -> Examples:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch, *, seed: int, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The batch's mean loss, and other means to show beside it. By default those of `measure`."""
        sums = self.measure(model, batch)
        if "labels" in self.cut:
            sums = sums_of_pieces(model, sums)
        count = sums.pop("examples").clamp(min=1)
        shown = {name: x / count for name, x in sums.items() if not x.dim()}
        return shown.pop("loss"), shown

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sums over the batch, and "examples", their count. A tensor [B] with a value for each example is kept."""
        raise NotImplementedError

    def concluded(self, metrics: dict[str, Any]) -> dict[str, float]:
        """The metrics of the eval set, from the means of all sums and the values that were kept."""
        return metrics

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        """What was read, for people: a name and a line for each fact. A run shows it before its first step, and keeps
        it in data.json."""
        return {}

    def shown(self, index: int, examples: Any) -> Shown | None:
        """One of these examples of the eval set, for the page of the run; None: there is nothing to show."""
        return None

    def digests(self) -> dict[str, str]:
        """Digests of what the model learns from beside the examples: a tokenizer, a teacher."""
        return {}

    def save_beside(self, folder: Path) -> None:
        """Write what else is needed to use the model into its folder: a tokenizer, for instance."""

    def using(self, folder: Path) -> "Task":
        """The task with what `save_beside` wrote, in place of making it again."""
        return self

    def to_predict(self) -> Known:
        """Facts about the data that `predict` needs."""
        return self.known()

    def test_set(self, trained: Trained, path: str) -> Examples:
        """Another eval set, for `lion eval --test`."""
        if not hasattr(self, "test"):
            raise ValueError(f"test is {path!r}, but the run in {trained.folder} has no other eval set; expected none.")
        return replace(self, test=path).eval_set()  # type: ignore[type-var]

    # Predictions. A task has `predict`; or `predict_batch`, and `example` for what may be wrong with a single input.

    def inputs(self, trained: Trained, given: str) -> Iterable[Input]:
        """All that a path stands for, if `reads` is "file"."""
        return [Input(given, given)]

    def example(self, trained: Trained, given: Any) -> Any:
        """What `predict_batch` takes, made of the `given` of an Input; a ValueError is about this one alone."""
        return given

    def predict_batch(self, trained: Trained, examples: list[Any]) -> list[Prediction]:
        """The predictions for several inputs at once."""
        return [self.predict(trained, x) for x in examples]

    def in_units(self, output: Tensor) -> Tensor:
        """A number that the model gives, in the units of the labels."""
        return output

    def predict(self, trained: Trained, given: Any) -> Prediction:
        """The prediction for one input."""
        if type(self).predict_batch is not Task.predict_batch:
            return self.predict_batch(trained, [self.example(trained, given)])[0]
        usage = self.usage.format(run=trained.folder)
        raise WrongRun(f"the run in {trained.folder} does not predict classes of single inputs; use it so: {usage}")


def classified(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """`measure` for classification: logits [N, classes], labels [N]."""
    logits = logits.float()
    if labels.device.type == "cpu" and labels.numel() and int(labels.max()) >= logits.shape[-1]:
        raise ValueError(
            f"the data has the class {int(labels.max())}; expected 0 to {logits.shape[-1] - 1}, as the model has "
            f"{logits.shape[-1]}."
        )
    return scored(F.cross_entropy(logits, labels, reduction="sum"), logits, labels)


def scored(loss: Tensor, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The same, with a loss that is known: the sum over all labels."""
    return {
        "loss": loss,
        "accuracy": (logits.argmax(-1) == labels).float().sum(),
        "examples": loss.new_tensor(len(labels)),
    }


def cached(load: Callable[..., Any], *args: Hashable, file: Path | None = None, **options: Hashable) -> Any:
    """`load(*args, **options)`, remembered by this process; where a file is named, while it stays as it is."""
    return _cached(load, args, tuple(options.items()), None if file is None else stamp(file))


@functools.lru_cache(maxsize=16)
def _cached(load: Callable[..., Any], args: tuple, options: tuple, _: object) -> Any:
    return load(*args, **dict(options))


forget = _cached.cache_clear  # all of it

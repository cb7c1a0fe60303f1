"""Runs: a task, and how it is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_args

from lion import configs, fields, files, legacy, limits
from lion.ops.checks import Form
from lion.tasks import Task, kinds, task_class
from lion.train.distill import read_from_file

SCHEDULES = ("cosine", "linear", "constant")
PRECISIONS = ("float32", "bfloat16")
EVALS = (2, 10)  # evaluations in all, at least and at most
EVAL_TIME = 0.3  # of the examples of all steps, which take three times as long to train on


@dataclass(frozen=True)
class Optim:
    """AdamW."""

    lr: limits.Positive = 1e-3  # the largest learning rate
    head: limits.Positive = 1.0  # so many times that for the classifier: a new one, behind layers that are trained
    weight_decay: limits.Weight = 0.05  # of weight matrices; biases, norms and decays have none
    betas: tuple[limits.ShareBelowOne, limits.ShareBelowOne] = (
        0.9,
        0.999,
    )  # of the running means of gradients and of their squares
    eps: limits.Epsilon = 1e-8  # added to the root of the squares
    schedule: Annotated[str, limits.OneOf(SCHEDULES)] = "cosine"  # of the learning rate, from lr to final
    warmup: limits.Share = 0.05  # part of all steps, in which the learning rate rises
    final: limits.Share = 0.01  # part of lr at the end
    clip: limits.Weight = 1.0  # the largest norm of the gradient; 0: no clipping
    decoupled: bool = False  # weights decay by weight_decay of themselves each step, not by that times lr

    def __post_init__(self):
        configs.check(self)


@dataclass(frozen=True)
class Run:
    task: Task
    optim: Optim = field(default_factory=Optim)
    steps: limits.Steps = 0  # 0: as many as `epochs` take
    epochs: limits.Epochs = 0.0  # passes over the training set
    min_steps: limits.Steps = 0  # at least so many: more epochs, where there are few examples
    batch: limits.Batch = 128  # examples per step, over all processes and micro-batches
    repeats: limits.Parts = 1  # repeated augmentation: so many copies of each example in a batch, augmented differently
    accumulate: limits.Parts = 1  # micro-batches per process and step
    precision: Annotated[str, limits.OneOf(PRECISIONS)] = "float32"  # of activations in training
    ema: limits.ShareBelowOne = 0.0  # decay of the moving average of the weights, which is evaluated and saved; 0: none
    group_by_length: bool = False  # batches of examples of about the same length: less padding
    eval_every: limits.Steps = 0  # steps between evaluations; 0: ten times in all, or less often if they take long
    save_every: limits.Steps = 0  # steps between checkpoints; 0: as often as eval_every
    keep: limits.StepsAtLeastOne = 2  # so many checkpoints, the newest
    log_every: limits.StepsAtLeastOne = 10  # steps between rows of metrics.jsonl
    workers: limits.Workers = 0  # processes that load data, at most one for each core
    seed: limits.Seed = 0  # of weights, order, augmentation and dropout
    form: Annotated[str, limits.OneOf(get_args(Form))] = "auto"  # the algorithm of attention; the results are the same
    recompute: bool = False  # gradient checkpointing, for very long sequences
    baseline: bool = True  # on data of your own, fit a simple model of scikit-learn, too, to compare with
    sequence_parallel: limits.Parts = 1  # processes that share each sequence, and have a piece of it each
    shard: bool = False  # spread weights and optimizer over the processes (FSDP2)

    def __post_init__(self):
        configs.check(self)
        if not (self.steps or self.epochs):
            raise ValueError(f"steps is {self.steps} and epochs {self.epochs:g}; expected one of them above 0.")

    def steps_for(self, examples: int) -> int:
        """The steps of the whole run, with so many examples for training."""
        return self.steps or max(1, self.min_steps, round(self.epochs * examples / self.batch))

    def eval_every_for(self, steps: int, examples: int) -> int:
        """The steps between evaluations of so many examples, which are to take a tenth of the time at most."""
        times = EVAL_TIME * steps * self.batch / max(examples, 1)
        return self.eval_every or -(-steps // int(min(max(times, EVALS[0]), EVALS[1])))

    def to_json(self) -> dict[str, Any]:
        plain = configs.to_json(self)
        plain["task"]["kind"] = self.task.kind
        return plain

    @staticmethod
    def from_json(plain: Any, where: str = "") -> "Run":
        """The run that `to_json` wrote; `where` as in lion.configs.from_json."""
        run, place = configs.an_object(plain, where or "run"), configs.inside(where, "task")
        task = read_from_file(configs.entry(run, "task", where), where.removesuffix(": run") or "a file")
        kind = configs.checked(
            Annotated[str, limits.OneOf(kinds())], legacy.task_kind(task.pop("kind", None)), f"{place}.kind"
        )
        task = {**legacy.MISSING.get(kind, {}), **task}
        return configs.from_json(Run, {**run, "task": configs.from_json(task_class(kind), task, place)}, where)

    def changed(self, changes: Mapping[str, str]) -> "Run":
        """A copy with some fields set: of the run, as "optim.lr", or of its task, as "model.dim"."""
        self._check_names(changes)
        own = {path: text for path, text in changes.items() if path.split(".")[0] in Run.__dataclass_fields__}
        task = configs.changed(self.task, {path: text for path, text in changes.items() if path not in own})
        changed = replace(configs.changed(self, own), task=task)
        # Steps go before epochs, unless epochs alone are set.
        by_epochs = "epochs" in own and "steps" not in own and changed.epochs
        others = {name: 0 for name in ("steps", "min_steps") if name not in own}
        return replace(changed, **cast(Any, others)) if by_epochs else changed

    def _check_names(self, changes: Mapping[str, str]) -> None:
        """Refuse fields that there are not, and those that something else decides."""
        known = {field.path: field for field in fields.every(self)}
        offered = [path for path, field in known.items() if not field.by]
        groups = {field.group for field in known.values()}
        for path, text in changes.items():
            if path in known and known[path].by:
                raise ValueError(f"--{path} is {configs.shown(text)}; expected none: {known[path].by} decides it.")
            first, (*above, last) = path.split(".")[0], path.split(".")
            now = ".".join([*above, legacy.FIELDS.get(last, last)])
            if {path, first, now} & known.keys() or path in groups:  # all but the second are looked into further
                continue
            meant = fields.suggestion(path, offered)
            hint = f"did you mean --{meant}?" if meant else "--show lists them all."
            raise ValueError(f"{configs.shown(f'--{path}')} is no field of this run; {hint}")


class Saved(NamedTuple):
    """The content of run.json."""

    recipe: str | None
    run: Run
    to_predict: dict[str, Any]
    command: str = ""  # that began the run, if it is known


def read_run(path: Path) -> Saved:
    """run.json, written by a run or by a person. An error names the file and the field."""
    place = f"{path}: "
    plain = configs.an_object(files.read_json(path), place)
    recipe = configs.checked(str | None, plain.get("recipe"), f"{place}recipe")
    recipe = legacy.RECIPES.get(recipe, recipe)
    run = Run.from_json(configs.entry(plain, "run", place), f"{place}run")
    command = configs.checked(str, plain.get("command", ""), f"{place}command")
    return Saved(recipe, run, dict(configs.entry(plain, "to_predict", place)), command)

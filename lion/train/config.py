"""What a run is: a task, and how it is trained."""

from dataclasses import dataclass, field, replace
from typing import Any

from lion import configs
from lion.ops.checks import one_of
from lion.train.distill import read_from_file
from lion.train.task import Task, task_kind, task_of_kind

SCHEDULES = ("cosine", "linear", "constant")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Optim:
    """AdamW."""

    lr: float = 1e-3
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    schedule: str = "cosine"
    warmup: float = 0.05  # part of all steps
    final: float = 0.01  # part of lr that is left at the end
    clip: float = 1.0  # the largest norm of the gradient; 0: any
    decoupled: bool = False  # weights decay by weight_decay of themselves each step, not by that times lr

    def __post_init__(self):
        one_of("optim.schedule", self.schedule, SCHEDULES)
        if not self.lr > 0:
            raise ValueError(f"optim.lr is {self.lr:g}; expected it above 0.")
        for name in ("warmup", "final"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"optim.{name} is {getattr(self, name):g}; expected a part, 0 to 1.")


@dataclass(frozen=True)
class Run:
    task: Task
    optim: Optim = field(default_factory=Optim)
    steps: int = 0  # or, if that is 0,
    epochs: float = 0.0
    batch: int = 128  # examples of a step, over all processes and accumulations
    accumulate: int = 1  # parts that a process's share of a batch is worked through in
    precision: str = "float32"
    ema: float = 0.0  # decay of the average of the weights, which is then what is evaluated and saved; 0: none
    eval_every: int = 0  # steps; 0: ten times in all
    save_every: int = 0  # steps; 0: as often as it is evaluated
    keep: int = 2  # checkpoints
    log_every: int = 10  # steps
    workers: int = 0  # processes that load data, one for each core at most
    seed: int = 0
    recompute: bool = False  # keep what enters a block only, and compute the rest again: for very long sequences
    shard: bool = False  # spread weights and optimizer over the processes (FSDP2), for models too large for one

    def __post_init__(self):
        one_of("precision", self.precision, PRECISIONS)
        if self.steps < 0 or self.epochs < 0 or not (self.steps or self.epochs):
            raise ValueError(f"steps is {self.steps} and epochs {self.epochs:g}; expected one of them above 0.")
        for name in ("batch", "accumulate", "keep", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema is {self.ema:g}; expected it in [0, 1).")

    def to_json(self) -> dict[str, Any]:
        plain = configs.to_json(self)
        plain["task"]["kind"] = task_kind(self.task)
        return plain

    @staticmethod
    def from_json(plain: dict[str, Any], source: str = "a file") -> "Run":
        """What `to_json` made. `source` is the file that it is from, for errors."""
        task = read_from_file(plain["task"], source)
        kind = task_of_kind(task.pop("kind"))
        optim = configs.from_json(Optim, plain.get("optim", {}), "optim")
        rest = {name: x for name, x in plain.items() if name not in ("task", "optim")}
        return Run(configs.from_json(kind, task, "task"), optim, **rest)

    def changed(self, path: str, text: str) -> "Run":
        """A copy with one field set: of the run, "optim.lr", or of its task, "model.dim"."""
        own = path.split(".")[0] in Run.__dataclass_fields__
        changed = configs.changed(self, path if own else f"task.{path}", text, path)
        # Steps go before epochs; whoever sets epochs means those.
        return replace(changed, steps=0) if path == "epochs" and changed.epochs else changed

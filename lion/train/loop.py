"""The training loop. One for every task."""

import contextlib
import dataclasses
import functools
import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lion import amx, files
from lion.data.sequences import processors
from lion.models.saving import save_model
from lion.train.allocation import keep_memory
from lion.train.checkpoint import Checkpoint, whole
from lion.train.config import Run
from lion.train.optim import Average, learning_rate, make_optimizer
from lion.train.report import Report, environment
from lion.train.stream import Stream, mixed
from lion.train.task import Batch, Examples, means, summed

CONFIG = "run.json"
SHUFFLE, NOISE, DATA, MODEL = range(4)  # what seeds are for


class Diverged(ValueError):
    """A loss or a gradient is not a number any more."""


class Stopped(Exception):
    """By a signal; everything is saved."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


def train(run: Run, folder: Path, *, resume: bool = False, recipe: str | None = None) -> dict[str, float]:
    """Train, and leave in `folder` the config, checkpoints, metrics, curves and the model. Returns the last metrics."""
    trainer = Trainer(run, folder, resume=resume, recipe=recipe)
    with trainer.closing():
        return trainer.run()


class Trainer:
    def __init__(self, run: Run, folder: Path, *, resume: bool = False, recipe: str | None = None):
        from accelerate import Accelerator

        self.accelerator = Accelerator(
            gradient_accumulation_steps=run.accumulate,
            cpu=not torch.cuda.is_available(),
            step_scheduler_with_optimizer=False,
        )
        if self.accelerator.device.type == "cpu":
            keep_memory()
        if run.precision == "bfloat16" and self.accelerator.device.type == "cpu":
            amx.refuse()
        self.folder = folder
        if (folder / CONFIG).exists() and not resume:
            raise ValueError(f"{folder} has a run already: --resume continues it, --out names another folder.")
        run = dataclasses.replace(run, task=run.task.resolved())
        self.config = run
        self.task = run.task
        self.train_set = self.task.train_set(mixed(run.seed, DATA))
        self.eval_set = self.task.eval_set()
        self.steps = run.steps or max(1, round(run.epochs * len(self.train_set) / run.batch))
        self.eval_every = run.eval_every or -(-self.steps // 10)
        self.save_every = run.save_every or self.eval_every

        torch.manual_seed(mixed(run.seed, MODEL))
        model = self.task.make_model()
        if run.recompute:
            _recompute(model)
        self.fingerprint = _fingerprint(model)
        self.model, self.optimizer = self._prepared(model)
        self.bare: nn.Module = self.accelerator.unwrap_model(self.model)
        self.average = Average(self.bare, run.ema) if run.ema else None
        self.checkpoint = Checkpoint(folder, self.fingerprint, keep=run.keep, main=self.accelerator.is_main_process)
        self.begin = self.checkpoint.load(self.model, self.optimizer.optimizer, self.average) if resume else 0
        self._begin_folder(run, resume, recipe)  # only now, when nothing is wrong with the data and the model
        self.report = Report(
            folder,
            steps=self.steps,
            unit=self.task.unit,
            metric=self.task.metric,
            main=self.accelerator.is_main_process,
            resumed_at=self.begin,
        )
        if resume:
            self.report.say(f"going on from step {self.begin:,} of {self.steps:,}" if self.begin else "beginning anew")
        on_cpu = self.accelerator.device.type == "cpu"
        if on_cpu and run.precision == "bfloat16" and torch.backends.cpu.get_cpu_capability() == "AVX2":
            self.report.say("this CPU has no instructions for bfloat16: --precision float32 is several times as fast")

    def run(self) -> dict[str, float]:
        saved, evaluated, metrics = self.begin, -1, {}
        batches = iter(self._loader())
        with caught_signals() as signals:
            for step in range(self.begin, self.steps):
                shown = self._step(step, batches)
                done = step + 1
                log = done % self.config.log_every == 0 or done == self.steps
                self.report.step(done, self.config.batch, shown if log else None)
                if done % self.eval_every == 0 or done == self.steps:
                    metrics, evaluated = self.evaluate(), done
                    self.report.evaluated(done, metrics)
                stop = self._agreed(signals)
                if done % self.save_every == 0 or done == self.steps or stop:
                    self._save(done)
                    saved = done
                if stop:
                    raise Stopped(f"stopped after step {done:,}, which is saved: continue with --resume", stop)
        if evaluated < 0:  # there was nothing left to do
            metrics = self.evaluate()
        if saved == self.steps:
            self._save_model(metrics)
        return metrics

    def evaluate(self) -> dict[str, float]:
        """Of all of the held-out data."""
        from accelerate.utils import gather_object

        sums: dict[str, Tensor] = {}
        with self._evaluating():
            for batch in self._eval_loader():
                with self._autocast():
                    sums = summed(sums, self.task.measure(self.model, self._on_device(batch)))
        parts = gather_object([{name: x.cpu() for name, x in sums.items()}])  # of each process; some may have none
        totals: dict[str, Tensor] = functools.reduce(summed, parts)
        return self.task.concluded(means(totals))

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.report.close()
            self.accelerator.end_training()

    def _step(self, step: int, batches: Iterator[Batch]) -> dict[str, float]:
        """One step of the optimizer."""
        rate = learning_rate(self.config.optim, step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        totals: dict[str, Tensor] = {}
        norm = torch.zeros(())
        for part in range(self.config.accumulate):
            # Dropout and the like are the same however often the run was stopped before.
            torch.manual_seed(mixed(self.config.seed, NOISE, step, part, self.accelerator.process_index))
            batch = self._on_device(next(batches))
            with self.accelerator.accumulate(self.model):
                loss, others = self._loss(step, batch)
                self.accelerator.backward(loss)
                for name, x in {"loss": loss.detach(), **others}.items():
                    totals[name] = totals.get(name, torch.zeros_like(x)) + x.detach() / self.config.accumulate
                if self.accelerator.sync_gradients:
                    norm = self._clip()
                    self._check_finite(step, totals["loss"], norm, batch)
                self.optimizer.step()
                self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update(self.bare, step)
        if (step + 1) % self.config.log_every and step + 1 != self.steps:
            return {}
        shown = {name: float(self.accelerator.reduce(x, "mean")) for name, x in totals.items()}
        return shown | {"gradient": float(norm), "lr": rate}

    def _loss(self, step: int, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        try:
            with self._autocast():
                return self.task.loss(self.model, batch, seed=self.config.seed, step=step)
        except ValueError as problem:  # which lion.attention may raise before a loss could tell
            if "NaN" not in str(problem):
                raise
            raise self._diverged(step, f"{problem} That was", batch) from problem

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def _clip(self) -> Tensor:
        limit = self.config.optim.clip or float("inf")
        return whole(nn.utils.clip_grad_norm_(self.model.parameters(), limit))

    def _check_finite(self, step: int, loss: Tensor, norm: Tensor, batch: Batch) -> None:
        if torch.isfinite(loss) and torch.isfinite(norm):
            return
        what, found = ("a gradient", norm) if torch.isfinite(loss) else ("the loss", loss)
        raise self._diverged(step, f"{what} is {float(found):g}", batch)

    def _diverged(self, step: int, what: str, batch: Batch) -> Diverged:
        last = self.checkpoint.last()
        kept = f"The last good checkpoint is {last}." if last else "There is no checkpoint yet."
        return Diverged(f"{what} at step {step + 1:,}. {self._cause(step, batch)} {kept}")

    def _cause(self, step: int, batch: Batch) -> str:
        """The most likely one."""
        for name, x in batch.items():
            if x.is_floating_point() and not torch.isfinite(x).all():
                return f"The data are the cause: {name} has values that are not finite."
        rate = learning_rate(self.config.optim, step, self.steps)
        if self.config.precision != "float32":
            return f"Try --precision float32, or a smaller --optim.lr (it is {rate:g} now)."
        clip = "" if self.config.optim.clip else ", or --optim.clip 1"
        return f"The learning rate, {rate:g} now, is probably too high: try a smaller --optim.lr{clip}."

    def _prepared(self, model: nn.Module) -> tuple[nn.Module, Any]:
        if not self.config.shard:
            optimizer = make_optimizer(model, self.config.optim)
            return self.accelerator.prepare(model, optimizer)
        # Accelerate shards on GPUs only; torch itself does on any device.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if self.accelerator.num_processes == 1:
            raise ValueError("shard is set, but there is one process; start several: torchrun --nproc-per-node 2 ...")
        model.to(self.accelerator.device)
        mesh = init_device_mesh(self.accelerator.device.type, (self.accelerator.num_processes,))
        for block in _blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True)  # or its weights stay whole after an evaluation
        return model, self.accelerator.prepare(make_optimizer(model, self.config.optim))

    def _loader(self) -> DataLoader:
        run, accelerator = self.config, self.accelerator
        stream = Stream(
            len(self.train_set),
            run.batch,
            mixed(run.seed, SHUFFLE),
            range(self.begin, self.steps),
            rank=accelerator.process_index,
            world=accelerator.num_processes,
            accumulate=run.accumulate,
        )
        return _loader(self.train_set, stream, run.workers)

    def _eval_loader(self) -> DataLoader:
        """Each process its part of the held-out data."""
        mine = range(self.accelerator.process_index, len(self.eval_set), self.accelerator.num_processes)
        size = max(1, self.config.batch // (self.accelerator.num_processes * self.config.accumulate))
        keys = [[(0, i) for i in mine[first : first + size]] for first in range(0, len(mine), size)]
        return _loader(self.eval_set, keys, self.config.workers)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """With the average of the weights, if there is one."""
        if self.average is not None:
            self.average.swap(self.bare)
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            if self.average is not None:
                self.average.swap(self.bare)

    def _save(self, step: int) -> None:
        self.checkpoint.save(step, self.model, self.optimizer.optimizer, self.average)
        self.accelerator.wait_for_everyone()

    def _save_model(self, metrics: dict[str, float]) -> None:
        with self._evaluating():
            weights = {name: whole(x) for name, x in self.bare.state_dict().items()}
            if self.accelerator.is_main_process:
                save_model(self.bare, self.folder / "model", weights=weights)
                self.task.save_beside(self.folder / "model")
        if self.accelerator.is_main_process:
            files.write_json(self.folder / "result.json", {"step": self.steps, **metrics})
        # A process that ends while gloo's threads still hold tensors of the last exchange may abort (pytorch#179291).
        self.accelerator.wait_for_everyone()

    def _begin_folder(self, run: Run, resume: bool, recipe: str | None) -> None:
        content = {"recipe": recipe, "run": run.to_json(), "to_predict": run.task.to_predict()}
        self.accelerator.wait_for_everyone()  # to have looked whether there is a run in it already
        if self.accelerator.is_main_process:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.write_json(self.folder / CONFIG, content)
            self._note_environment(resume)
        self.accelerator.wait_for_everyone()

    def _note_environment(self, resume: bool) -> None:
        path, now = self.folder / "environment.json", environment()
        before = files.read_json(path) if resume and path.exists() else now
        other = [f"{name} is {now[name]}, was {x}" for name, x in before.items() if name in now and now[name] != x]
        if other:
            print(f"not the environment that the run began in, results may differ a little: {'; '.join(other)}")
        files.write_json(path, now)

    def _on_device(self, batch: Batch) -> Batch:
        return {name: x.to(self.accelerator.device, non_blocking=True) for name, x in batch.items()}

    def _agreed(self, signals: list[int]) -> int:
        """The signal to stop by, if any process has got one: all must stop after the same step."""
        if self.accelerator.num_processes == 1:
            return signals[0] if signals else 0
        mine = torch.tensor(float(signals[0] if signals else 0), device=self.accelerator.device)
        gathered = self.accelerator.gather(mine)
        return int(gathered.max())


def _blocks(model: nn.Module) -> nn.ModuleList:
    """Of a model, the list of what it repeats."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def saved_run(folder: Path, recipe: str | None = None) -> Run | None:
    """The run in a folder, if there is one; it must be of that recipe."""
    path = folder / CONFIG
    if not path.exists():
        return None
    content = files.read_json(path)
    if recipe is not None and content["recipe"] != recipe:
        raise ValueError(f"the run in {folder} is of the recipe {content['recipe']!r}; expected {recipe!r}.")
    return Run.from_json(content["run"], str(path))


def _loader(examples: Examples, keys: Any, workers: int) -> DataLoader:
    workers = min(workers, processors())  # torch warns of more
    return DataLoader(examples, batch_sampler=keys, collate_fn=_as_it_is, num_workers=workers)  # type: ignore[arg-type]


def _as_it_is(batch: Batch) -> Batch:
    return batch


@contextlib.contextmanager
def caught_signals() -> Iterator[list[int]]:
    """SIGTERM and SIGINT are noted down, to be looked at between two steps. A second one works as ever."""
    found: list[int] = []
    before: dict[int, Any] = {}

    def note(signum: int, frame: object) -> None:
        found.append(signum)
        signal.signal(signum, before[signum])

    with contextlib.suppress(ValueError):  # only the main thread can
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note)
    try:
        yield found
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _recompute(model: nn.Module) -> None:
    # timm's name; transformers', and the one it had before version 5.23
    for name in ("set_grad_checkpointing", "activation_checkpointing_enable", "gradient_checkpointing_enable"):
        enable = getattr(model, name, None)
        if enable is not None:
            enable()
            return
    raise ValueError(f"recompute is set, but a {type(model).__name__} has no gradient checkpointing; expected false.")


def _fingerprint(model: nn.Module) -> str:
    """Of what a model's parameters are called, and their shapes."""
    text = "\n".join(f"{name} {tuple(x.shape)}" for name, x in model.state_dict().items())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

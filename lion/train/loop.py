"""The training loop. One for every task."""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lion import amx, configs, files
from lion.devices import chosen
from lion.models.saving import save_model
from lion.nn.layers import set_form
from lion.ops.checks import Form
from lion.progress import working
from lion.tasks import Batch
from lion.terminal import facts
from lion.train import changes
from lion.train.allocation import keep_memory
from lion.train.announcement import announcement
from lion.train.beside import conclude, fit_simple
from lion.train.checkpoint import Checkpoint, State, whole
from lion.train.clock import Clock
from lion.train.config import Run
from lion.train.ending import Diverged, Stopped, caught_signals, cause, together
from lion.train.evaluate import Examined, answers, autocast, means, measure_all, on_device, summed
from lion.train.folder import CONFIG, RunFolder, saved_run
from lion.train.loading import batches
from lion.train.optim import Average, learning_rate, make_optimizer
from lion.train.report import EVALUATING, Report, note_environment
from lion.train.sampler import Sampler, check_batch, eval_parts, mixed

SHUFFLE, NOISE, DATA, MODEL = range(4)  # uses of seeds


def train(
    run: Run,
    folder: Path | str,
    *,
    resume: bool = False,
    accept: Sequence[str] = (),
    recipe: str | None = None,
    device: str = "",
    command: str = "",
) -> dict[str, float]:
    """Train, and leave in `folder` the config, checkpoints, metrics, curves, the model and, where examples have labels,
    a page about it. Returns the last metrics.

    Args:
        resume: go on where the run in that folder stopped. A run that has become another one is refused.
        accept: changes that are accepted nevertheless, as "data", "seed" or "model.dropout".
        recipe: the name of the recipe, for run.json.
        device: "cpu", "cuda" or "cuda:1"; by default the GPU, if there is one.
        command: what began the run, for run.json.
    """
    with together():
        trainer = Trainer(run, Path(folder), resume, accept, {"recipe": recipe, "command": command}, device)
        with trainer.closing():
            return trainer.run()


class Trainer:
    def __init__(self, run: Run, folder: Path, resume: bool, accept: Sequence[str], names: dict[str, Any], device: str):
        from accelerate import Accelerator

        wanted = chosen(device)
        if wanted.index is not None and wanted.type == "cuda":
            torch.cuda.set_device(wanted)
        on_cpu = wanted.type == "cpu"
        self.accelerator = Accelerator(
            gradient_accumulation_steps=run.accumulate, cpu=on_cpu, step_scheduler_with_optimizer=False
        )
        self.device: torch.device = self.accelerator.device
        if on_cpu:
            keep_memory()
            if run.precision == "bfloat16":
                amx.refuse()
        self.folder, self.alone, self.started = RunFolder(folder), False, False
        self.main = self.accelerator.is_main_process
        try:
            self._prepare(run, resume, accept, names)
        except BaseException:
            self.folder.unlock()
            self.folder.withdraw()
            raise

    def _prepare(self, run: Run, resume: bool, accept: Sequence[str], names: dict[str, Any]) -> None:
        """All checks come first, then all writes: a run that is refused stays as it was."""
        if not resume and self.folder.has_run:
            raise ValueError(
                f"{self.folder.path} has a run already: --resume continues it, --out names another folder."
            )
        if resume and self.folder.path.exists():
            self._lock()
        self.checkpoint = Checkpoint(self.folder.path, keep=run.keep, main=self.main)
        state = self.checkpoint.state() if resume else None
        self.begin = state.step if state is not None else 0
        self.config = run = self._resolved(run, state, accept)
        # A resumed run reads its own tokenizer, instead of making it again.
        own = self.begin and self.folder.tokenizer.exists() and "tokenizer" not in accept
        self.task = run.task.using(self.folder.tokenizer) if own else run.task
        with working("reading the data"):
            self.train_set = self.task.train_set(mixed(run.seed, DATA))
            check_batch(run.batch, len(self.train_set))
            self.eval_set = self.task.eval_set()
        with working("looking for changes of the data"):
            self.contents = changes.contents(self.task, self.train_set, self.eval_set)
        if state is not None:
            changes.refuse(changes.of_contents(self.contents, state.contents), accept, self.folder.path)
        self.steps = run.steps_for(len(self.train_set))
        if self.steps < self.begin:
            raise ValueError(
                f"the run in {self.folder.path} is at step {self.begin:,} already, and has {self.steps:,} in all; "
                f"expected --steps {self.begin} or more."
            )
        self.eval_every = run.eval_every_for(self.steps, len(self.eval_set))
        self.save_every = run.save_every or self.eval_every
        with working("making the model"):
            self._make_model(state)
            self._begin_folder(run, resume, names)
        with working("loading TensorBoard"):
            self.report = Report(self.folder, self.task, self.steps, main=self.main, resumed_at=self.begin)
        self.report.clock = Clock(self.begin, self.steps, self.eval_every, len(self.eval_set) / run.batch)
        if resume:
            self._tell_changes(state)
        slow = self.device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX2"
        if slow and run.precision == "bfloat16":
            self.report.say("this CPU has no instructions for bfloat16: --precision float32 is several times as fast")

    def _make_model(self, state: State | None) -> None:
        torch.manual_seed(mixed(self.config.seed, MODEL))
        model = self.task.make_model()
        if self.config.form != "auto":
            set_form(model, cast(Form, self.config.form))
        if self.config.recompute:
            _recompute(model)
        self.fingerprint = _fingerprint(model)
        from lion.parallel.training import Sharing

        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        dims, kind = self.task.cut, self.task.kind
        self.sharing = Sharing(self.config.sequence_parallel, world, rank, self.device.type, dims, kind)
        self.model, self.optimizer = self._prepared(self.sharing.of(model))
        self.bare: nn.Module = self.accelerator.unwrap_model(self.model)
        self.average = Average(self.bare, self.config.ema) if self.config.ema else None
        if state is None:
            return
        if state.fingerprint != self.fingerprint:
            raise ValueError(
                f"the checkpoint {state.folder} is of another model than this run's: give the options of the run "
                "it belongs to, or another folder with --out."
            )
        self.checkpoint.load(state, self.model, self.optimizer.optimizer, self.average)

    def _tell_changes(self, state: State | None) -> None:
        if state is not None and not state.run:
            self.report.say("the checkpoint is of an older lion, and does not tell whether its data is the same")
        for change in changes.of_fields(self.config, state.run) if state is not None else ():
            self.report.say(f"changed: {change.words}")
        self.report.say(f"going on from step {self.begin:,} of {self.steps:,}" if self.begin else "beginning anew")

    def _lock(self) -> None:
        """Lock the folder, by the main process, for all."""
        from accelerate.utils import gather_object

        problem: Exception | None = None
        if self.main:
            try:
                self.folder.lock()
            except (ValueError, OSError) as refused:
                problem = refused
        if words := [x for x in gather_object([None if problem is None else str(problem)]) if x]:
            raise ValueError(words[0])
        self.alone = True

    def _resolved(self, run: Run, state: State | None, accept: Sequence[str]) -> Run:
        """The run with the fields that its data decides; a resumed one must be the same run."""
        if state is None or not state.run:
            with working("reading the data"):
                return dataclasses.replace(run, task=run.task.resolved())
        if changes.of_fields(run, state.run):
            task: Any = run.task
            made = task.makes_tokenizer and not task.tokenizer and self.folder.tokenizer.exists()
            if made:
                task = dataclasses.replace(task, tokenizer=str(self.folder.tokenizer))
            task = task.resolved()
            run = dataclasses.replace(run, task=dataclasses.replace(task, tokenizer="") if made else task)
        changes.check_accepted(accept, run)
        another = [x for x in changes.of_fields(run, state.run) if changes.makes_another_run(x, run.task)]
        changes.refuse(another, accept, self.folder.path)
        return run

    def run(self) -> dict[str, float]:
        self._tell()
        saved, evaluated, metrics = self.begin, -1, {}
        examples = self._batches()
        self.report.begin()
        with caught_signals() as signals:
            for step in range(self.begin, self.steps):
                shown = self._step(step, examples)
                self.started, done = True, step + 1
                log = done % self.config.log_every == 0 or done == self.steps
                self.report.step(done, self.config.batch, shown if log else None)
                if done % self.eval_every == 0 or done == self.steps:
                    metrics, evaluated = self.evaluate(), done
                    self.report.evaluated(done, metrics)
                stop = self._agreed(signals)
                if done % self.save_every == 0 or done == self.steps or stop:
                    with self.report.working("saving"):
                        self._save(done)
                    saved = done
                if stop:
                    words = f"stopped after step {done:,}, which is saved; go on: lion train --resume --out"
                    raise Stopped(f"{words} {self.folder.path}", stop)
        if evaluated < 0:  # there was nothing left to do
            metrics = self.evaluate()
        self.sharing.end(self.bare)
        if saved == self.steps:
            with self.report.working("saving the model"):
                self._save_model(metrics)
            if self.main:
                classes = self.config.task.to_predict().classes
                known = (self.folder.path, self.task, classes, self.bare, metrics, self.eval_set, self.answers)
                conclude(Examined(*known), self.report, compared=self.config.baseline)
        return metrics

    def evaluate(self) -> dict[str, float]:
        """The metrics of the whole eval set."""
        from accelerate.utils import gather_object

        with self._averaged(), self.report.working(EVALUATING) as tell:
            batches = self._eval_batches(tell)
            sums = measure_all(self.task, self.model, batches, self.device, self.config.precision)
        sums = self.sharing.counted(sums)
        parts = gather_object([{name: x.cpu() for name, x in sums.items()}])  # one per process; some may be empty
        totals: dict[str, Tensor] = functools.reduce(summed, parts)
        measured = means(totals)
        self.answers = answers(measured, self._eval_parts())
        return self.task.concluded(measured)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        failed = True
        try:
            yield
            failed = False
        finally:
            self.report.close()
            self.accelerator.end_training()
            self.folder.unlock()
            if failed and not self.started:
                self.folder.withdraw()

    def _step(self, step: int, examples: Iterator[Batch]) -> dict[str, float]:
        """One step of the optimizer."""
        rate = learning_rate(self.config.optim, step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.model.train()
        totals: dict[str, Tensor] = {}
        norm = torch.zeros(())
        for micro in range(self.config.accumulate):
            # Dropout depends on the step alone, not on how often the run was stopped before.
            torch.manual_seed(mixed(self.config.seed, NOISE, step, micro, self.accelerator.process_index))
            batch = on_device(self.sharing.cut(next(examples)), self.device)
            with self.accelerator.accumulate(self.model):
                loss, others = self._loss(step, batch)
                self.accelerator.backward(loss)
                for name, x in {"loss": loss.detach(), **others}.items():
                    totals[name] = totals.get(name, torch.zeros_like(x)) + x.detach() / self.config.accumulate
                if self.accelerator.sync_gradients:
                    limit = self.config.optim.clip or float("inf")
                    norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
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
            with autocast(self.device, self.config.precision):
                return self.task.loss(self.model, batch, seed=self.config.seed, step=step)
        except ValueError as problem:  # lion.attention refuses NaN, before there is a loss
            if "NaN" not in str(problem):
                raise
            raise self._diverged(step, f"{problem} That was", batch) from problem

    def _check_finite(self, step: int, loss: Tensor, norm: Tensor, batch: Batch) -> None:
        if torch.isfinite(loss) and torch.isfinite(norm):
            return
        what, found = ("a gradient", norm) if torch.isfinite(loss) else ("the loss", loss)
        raise self._diverged(step, f"{what} is {float(found):g}", batch)

    def _diverged(self, step: int, what: str, batch: Batch) -> Diverged:
        last, rate = self.checkpoint.last(), learning_rate(self.config.optim, step, self.steps)
        kept = f"The last good checkpoint is {last}." if last else "There is no checkpoint yet."
        return Diverged(f"{what} at step {step + 1:,}. {cause(batch, rate, self.config)} {kept}")

    def _prepared(self, model: nn.Module) -> tuple[nn.Module, Any]:
        if not self.config.shard:
            return self.accelerator.prepare(model, make_optimizer(model, self.config.optim))
        # Accelerate shards on GPUs only; torch itself does on any device.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if self.accelerator.num_processes == 1:
            raise ValueError("shard is set, but there is one process; start several: torchrun --nproc-per-node 2 ...")
        model.to(self.device)
        mesh = init_device_mesh(self.device.type, (self.accelerator.num_processes,))
        for block in _blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True)  # or its weights stay whole after an evaluation
        return model, self.accelerator.prepare(make_optimizer(model, self.config.optim))

    def _batches(self) -> Iterator[Batch]:
        run = self.config
        sampler = Sampler(
            len(self.train_set),
            run.batch,
            mixed(run.seed, SHUFFLE),
            range(self.begin, self.steps),
            rank=self.sharing.group,
            world=self.sharing.groups,
            accumulate=run.accumulate,
            lengths=getattr(self.train_set, "row_lengths", None) if run.group_by_length else None,
            repeats=run.repeats,
        )
        return batches(self.train_set, sampler, run.workers)

    def _eval_parts(self) -> list[np.ndarray]:
        lengths = getattr(self.eval_set, "row_lengths", None)
        return eval_parts(len(self.eval_set), self.sharing.groups, lengths)

    def _eval_batches(self, tell: Callable[[float], None]) -> Iterator[Batch]:
        """This process's part of the eval set; `tell` gets the share that is done."""
        mine = self._eval_parts()[self.sharing.group].tolist()
        size = max(1, self.config.batch // (self.sharing.groups * self.config.accumulate))
        keys = [[(0, i) for i in mine[first : first + size]] for first in range(0, len(mine), size)]
        for done, batch in enumerate(batches(self.eval_set, keys, self.config.workers), 1):
            yield self.sharing.cut(batch)
            tell(done / len(keys))

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model in evaluation mode, with the average of the weights, if there is one."""
        self.model.eval()
        if self.average is None:
            yield
            return
        self.average.swap(self.bare)
        try:
            yield
        finally:
            self.average.swap(self.bare)

    def _save(self, step: int) -> None:
        about = {"fingerprint": self.fingerprint, "run": self.config.to_json(), "contents": self.contents}
        self.checkpoint.save(step, self.model, self.optimizer.optimizer, self.average, about)
        self.accelerator.wait_for_everyone()

    def _save_model(self, metrics: dict[str, float]) -> None:
        with self._averaged():
            weights = {name: whole(x) for name, x in self.bare.state_dict().items()}
            if self.main:
                with self.folder.writing("the model"):
                    save_model(self.bare, self.folder.path / "model", weights=weights, about=self._about(metrics))
                    self.task.save_beside(self.folder.path / "model")
        if self.main:
            self.folder.write_json("result.json", {"step": self.steps, **metrics})
        # A process that ends while gloo's threads still hold tensors of the last exchange may abort (pytorch#179291).
        self.accelerator.wait_for_everyone()

    def _about(self, metrics: dict[str, float]) -> dict[str, str]:
        """The model card's rows on training."""
        rows = self.task.facts(self.train_set, self.eval_set) | dict(self._announcement())
        del rows["model"]  # the card has its own
        return rows | {"eval set": ", ".join(f"{name} {x:.4g}" for name, x in metrics.items())}

    def _announcement(self) -> Iterator[tuple[str, str]]:
        world, count = self.accelerator.num_processes, len(self.train_set)
        return announcement(self.config, self.bare, self.steps, count, self.device, world)

    def _tell(self) -> None:
        """Say what was read, and what will be trained."""
        self.report.read(self.task.facts(self.train_set, self.eval_set))
        self.report.say(facts(self._announcement()))
        if self.main and self.config.baseline:
            fit_simple(self.task, self.folder, self.report)

    def _begin_folder(self, run: Run, resume: bool, names: dict[str, Any]) -> None:
        saved = saved_run(self.folder.path) if resume else None
        known = configs.to_json(run.task.to_predict())
        before = {name: getattr(saved, name, None) or given for name, given in names.items()}
        content = {**before, "run": run.to_json(), "to_predict": known}
        self.accelerator.wait_for_everyone()  # all have looked whether there is a run in it already
        if not self.alone:
            self._lock()
            if self.folder.has_run:
                raise ValueError(f"another process has just begun a run in {self.folder.path}: --resume continues it.")
        if self.main:
            if not self.begin and hasattr(self.task, "text_tokenizer"):
                with self.folder.writing("the tokenizer"):
                    files.replace_folder(self.folder.tokenizer, self.task.save_beside)
            note_environment(self.folder, resume)
            self.folder.write_json(CONFIG, content)
        self.accelerator.wait_for_everyone()

    def _agreed(self, signals: list[int]) -> int:
        """The signal to stop by, if any process has received one: all must stop after the same step."""
        if self.accelerator.num_processes == 1:
            return signals[0] if signals else 0
        mine = torch.tensor(float(signals[0] if signals else 0), device=self.device)
        return int(self.accelerator.gather(mine).max())


def _blocks(model: nn.Module) -> nn.ModuleList:
    """The model's longest ModuleList: its blocks."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def _recompute(model: nn.Module) -> None:
    # timm's name; transformers', and the one it had before version 5.23
    for name in ("set_grad_checkpointing", "activation_checkpointing_enable", "gradient_checkpointing_enable"):
        enable = getattr(model, name, None)
        if enable is not None:
            enable()
            return
    raise ValueError(f"recompute is set, but a {type(model).__name__} has no gradient checkpointing; expected false.")


def _fingerprint(model: nn.Module) -> str:
    """A digest of the names and shapes of a model's parameters."""
    text = "\n".join(f"{name} {tuple(x.shape)}" for name, x in model.state_dict().items())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

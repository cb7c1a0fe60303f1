"""`lion bench lengths`: masked language models on texts of many times their training length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lion.bench import results
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import save_with_plot, setting
from lion.progress import progress
from lion.tasks.mlm import MlmTask
from lion.train.evaluate import means, summed
from lion.train.folder import load_run

TIMES = (1, 2, 4, 8, 16, 32)
TOKENS = 65_536  # of the evaluation set, at every length
BATCH_TOKENS = 8192
AT_ONCE = 1 << 22  # tokens counted at a time


class Part(NamedTuple):
    """The measurement of a run at one length."""

    times: int
    length: int
    texts: int
    left_out: str  # the reason, if it is left out

    @property
    def batch(self) -> int:
        return max(1, BATCH_TOKENS // self.length)


def plan(task: MlmTask, times: Sequence[int], tokens: int | None = None) -> list[Part]:
    """The same text at every length, or nearly so: the beginning of the evaluation set, cut into blocks."""
    packed = task.packed("validation")
    starts = len(packed.start)  # tokens of a block that are not from the text
    strides = {n: n * task.length - starts for n in sorted(set(times))}
    longest = max(strides.values()) + starts
    if tokens is not None and tokens < longest:
        raise ValueError(f"tokens is {tokens:,}; expected at least {longest:,}, for one text of the greatest length.")
    there = packed.token_count
    fitting = [stride for stride in strides.values() if stride <= there]
    used = min(tokens or max(TOKENS, longest), there)
    used -= used % max(fitting, default=1)
    parts = []
    for n, stride in strides.items():
        length, limit = stride + starts, task.model.max_tokens
        reason = ""
        if task.model.positions == "learned" and length > limit:
            reason = f"it has learned positions for {limit:,} tokens only"
        elif stride not in fitting:
            reason = f"the held-out text has {there:,} tokens only"
        parts.append(Part(n, length, 0 if reason else used // stride, reason))
    return parts


def measure(
    model: nn.Module, task: MlmTask, part: Part, usual: int, advance: Callable[[int], object] = lambda texts: None
) -> dict[str, float]:
    """Loss and accuracy on the masked tokens, their number, and the share of them that are the usual token."""
    task = replace(task, length=part.length)
    examples = task.eval_set()
    sums: dict[str, Tensor] = {}
    with torch.no_grad():
        for first in range(0, part.texts, part.batch):
            keys = [(0, i) for i in range(first, min(first + part.batch, part.texts))]
            batch = examples.__getitems__(keys)
            sums = summed(sums, {**task.measure(model, batch), "commonest": (batch["labels"] == usual).sum()})
            advance(len(keys) * part.length)
    return {**{name: float(x) for name, x in means(sums).items()}, "targets": float(sums["examples"])}


def commonest(task: MlmTask) -> int:
    """The most frequent token of the training text, without special ones."""
    packed = task.packed("train")
    pieces = (packed.tokens[i : i + AT_ONCE] for i in range(0, packed.token_count, AT_ONCE))
    counts = sum(np.bincount(piece, minlength=packed.tokenizer.vocab_size) for piece in pieces)
    assert isinstance(counts, np.ndarray)
    counts[list(packed.tokenizer.special_ids)] = 0
    return int(counts.argmax())


def run(
    folders: Sequence[Path], *, times: Sequence[int] = TIMES, tokens: int | None = None, json_path: Path | None = None
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it. None: 65,536 tokens, or one text."""
    if not folders:
        raise ValueError("there is no run; expected folders of finished runs of `lion train mlm`.")
    if not times or min(times) < 1:
        raise ValueError(f"times is {list(times)}; expected multiples of the training length, as in 1 2 4.")
    tasks = {folder: _task(folder) for folder in dict.fromkeys(folders)}
    plans = {folder: plan(task, times, tokens) for folder, task in tasks.items()}
    records: list[dict] = []
    every = sum(part.texts * part.length for parts in plans.values() for part in parts)
    with progress(total=every, unit="token") as bar:
        for folder, task in tasks.items():
            model, usual = load_run(folder).model, commonest(task)
            for part in plans[folder]:
                bar.describe(f"{folder}, {part.length:,} tokens")
                found = {} if part.left_out else measure(model, task, part, usual, bar.advance)
                records.append(_record(folder, task, part, found))
    about = setting()
    print(report(records, about))
    save_with_plot(json_path, {"setting": about, "results": records}, draw)
    return records


def _task(folder: Path) -> MlmTask:
    task = load_run(folder).task
    if not isinstance(task, MlmTask):
        raise ValueError(f"the run in {folder} is no masked language model; expected one of `lion train mlm`.")
    return task.using(folder / "model")


def _record(folder: Path, task: MlmTask, part: Part, found: dict[str, float]) -> dict:
    return {
        "run": str(folder),
        "variant": task.model.variant,
        "data": task.data,
        "mask": task.eval_mask,
        "trained_length": task.length,
        "untrained_positions": not part.left_out and task.model.positions == "learned" and part.times > 1,
        "times": part.times,
        "length": part.length,
        "texts": part.texts,
        "targets": int(found["targets"]) if found else None,
        "accuracy": found.get("accuracy"),
        "commonest": found.get("commonest"),
        "loss": found.get("loss"),
        "left_out": part.left_out or None,
    }


def report(records: Sequence[dict], about: dict) -> str:
    rows = []
    for x in records:
        cells: tuple[str, ...] = ("-",) * 5
        if x["accuracy"] is not None:
            spread = math.sqrt(x["accuracy"] * (1 - x["accuracy"]) / x["targets"])
            shares = (f"{share:.2%}" for share in (x["accuracy"], spread, x["commonest"]))
            cells = (f"{x['targets']:,}", *shares, f"{x['loss']:.4f}")
        sizes = (f"{x['times']}x", f"{x['length']:,}", x["texts"] or "-")
        rows.append(((x["run"], x["variant"]), (*sizes, *cells)))
    header = ("run", "model", "of training", "tokens", "texts", "masked", "accuracy", "+-", "commonest", "loss")
    rates = sorted({f"{x['mask']:.0%}" for x in records})
    notes = [
        f"accuracy: on masked tokens ({' or '.join(rates)}) of the evaluation set, the same text at every length; "
        "+-: its standard error",
        "commonest: the accuracy of always predicting the most frequent token of the training text",
        "at 1x: also the result for longer texts that are cut into pieces of the training length",
    ]
    untrained = {x["run"]: x["trained_length"] for x in records if x["untrained_positions"]}
    notes += [f"{name}: positions beyond {length:,} were never trained" for name, length in untrained.items()]
    reasons = dict.fromkeys((x["run"], x["left_out"]) for x in records if x["left_out"])
    notes += [f"-: {name}: {reason}" for name, reason in reasons]
    return results.report(f"{about['dtype']}, {about['threads']} threads", header, rows, notes)


def draw(records: Sequence[dict], path: Path) -> None:
    """Accuracy against length."""
    runs = {x["run"]: x["variant"] for x in records}
    unique = len({Path(name).name for name in runs}) == len(runs)
    labels = {name: f"{variant}, {Path(name).name if unique else name}" for name, variant in runs.items()}
    y = lambda x: None if x["accuracy"] is None else 100 * x["accuracy"]  # noqa: E731
    lines = lines_of(records, lambda x: labels[x["run"]], "length", y)
    marks = sorted({x["trained_length"] for x in records})
    panel = Panel("masked tokens (dotted: training length)", "tokens of a text", "accuracy, %", lines, False, marks)
    draw_lines([[panel]], path)

"""`lion bench lengths`: language models, masked or causal, on texts of many times their training length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lion.bench import results
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import save_with_plot, setting
from lion.devices import chosen
from lion.progress import progress
from lion.tasks import Trained
from lion.train.evaluate import means, on_device, summed
from lion.train.folder import load_run
from lion.train.metrics import perplexity

TIMES = (1, 2, 4, 8, 16, 32)
TOKENS = 65_536  # of the evaluation set, at every length
BATCH_TOKENS = 8192
AT_ONCE = 1 << 22  # tokens counted at a time
COMMANDS = "`lion train mlm` or `lion train causal`"


class Kind(NamedTuple):
    """What differs between the kinds of runs."""

    targets: str  # the tokens that are predicted
    about: str  # where they are; {rates}: their share of the text
    columns: tuple[str, ...]  # of the table: keys of COLUMNS
    metric: str  # what the picture shows, of a record
    axis: tuple[str, float]  # its label, and a factor
    positions: Callable[[Any], int]  # how many learned positions are used, by the task


USUAL = ("accuracy", "+-", "commonest", "loss")
KINDS = {  # by the kind of a run's task
    "mlm": Kind(
        "masked",
        "on masked tokens ({rates}) of the evaluation set",
        USUAL,
        "accuracy",
        ("accuracy, %", 100.0),
        lambda task: task.model.max_tokens,  # untrained ones, too: the table says so
    ),
    "causal": Kind(
        "next",
        "on the next tokens in the evaluation set",
        (*USUAL, "perplexity"),
        "perplexity",
        ("perplexity", 1.0),
        lambda task: task.length,
    ),
}
COLUMNS: dict[str, Callable[[dict], str]] = {
    "accuracy": lambda x: f"{x['accuracy']:.2%}",
    "+-": lambda x: f"{math.sqrt(x['accuracy'] * (1 - x['accuracy']) / x['targets']):.2%}",
    "commonest": lambda x: f"{x['commonest']:.2%}",
    "loss": lambda x: f"{x['loss']:.4f}",
    "perplexity": lambda x: f"{x['perplexity']:,.2f}",
}


class Part(NamedTuple):
    """The measurement of a run at one length."""

    times: int
    length: int
    texts: int
    left_out: str  # the reason, if it is left out

    @property
    def batch(self) -> int:
        return max(1, BATCH_TOKENS // self.length)


def plan(task: Any, times: Sequence[int], tokens: int | None = None) -> list[Part]:
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
        length, limit = stride + starts, KINDS[task.kind].positions(task)
        reason = ""
        if task.model.positions == "learned" and length > limit:
            reason = f"it has learned positions for {limit:,} tokens only"
            if limit < task.model.max_tokens:
                reason = f"its learned positions beyond {limit:,} tokens were never trained"
        elif stride not in fitting:
            reason = f"the held-out text has {there:,} tokens only"
        parts.append(Part(n, length, 0 if reason else used // stride, reason))
    return parts


def measure(
    trained: Trained, task: Any, part: Part, usual: int, advance: Callable[[int], object] = lambda texts: None
) -> dict[str, float]:
    """Loss and accuracy on the targets, their number, and the share of them that are the usual token."""
    task = replace(task, length=part.length)
    examples = task.eval_set()
    sums: dict[str, Tensor] = {}
    with torch.no_grad():
        for first in range(0, part.texts, part.batch):
            keys = [(0, i) for i in range(first, min(first + part.batch, part.texts))]
            batch = on_device(examples.__getitems__(keys), trained.device)
            sums = summed(sums, {**task.measure(trained.model, batch), "commonest": (batch["labels"] == usual).sum()})
            advance(len(keys) * part.length)
    return {**{name: float(x) for name, x in means(sums).items()}, "targets": float(sums["examples"])}


def commonest(task: Any) -> int:
    """The most frequent token of the training text, without special ones."""
    packed = task.packed("train")
    pieces = (packed.tokens[i : i + AT_ONCE] for i in range(0, packed.token_count, AT_ONCE))
    counts = sum(np.bincount(piece, minlength=packed.tokenizer.vocab_size) for piece in pieces)
    assert isinstance(counts, np.ndarray)
    counts[list(packed.tokenizer.special_ids)] = 0
    return int(counts.argmax())


def run(
    folders: Sequence[Path],
    *,
    times: Sequence[int] = TIMES,
    tokens: int | None = None,
    device: str = "",
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it. None: 65,536 tokens, or one text."""
    if not folders:
        raise ValueError(f"there is no run; expected folders of finished runs of {COMMANDS}.")
    if not times or min(times) < 1:
        raise ValueError(f"times is {list(times)}; expected multiples of the training length, as in 1 2 4.")
    there = chosen(device)
    tasks = {folder: _task(folder) for folder in dict.fromkeys(folders)}
    plans = {folder: plan(task, times, tokens) for folder, task in tasks.items()}
    records: list[dict] = []
    every = sum(part.texts * part.length for parts in plans.values() for part in parts)
    with progress(total=every, unit="token") as bar:
        for folder, task in tasks.items():
            trained, usual = load_run(folder, device=f"{there}"), commonest(task)
            for part in plans[folder]:
                bar.describe(f"{folder}, {part.length:,} tokens")
                found = {} if part.left_out else measure(trained, task, part, usual, bar.advance)
                records.append(_record(folder, task, part, found))
    about = setting(device=f"{there}")
    print("\n\n".join(report(some, about) for some in by_kind(records).values()))
    save_with_plot(json_path, {"setting": about, "results": records}, draw)
    return records


def _task(folder: Path) -> Any:
    task = load_run(folder).task
    if task.kind not in KINDS:
        raise ValueError(f"the run in {folder} is no language model; expected one of {COMMANDS}.")
    return task.using(folder / "model")


def _record(folder: Path, task: Any, part: Part, found: dict[str, float]) -> dict:
    return {
        "run": str(folder),
        "kind": task.kind,
        "variant": task.model.variant,
        "data": task.data,
        "mask": getattr(task, "eval_mask", None),
        "trained_length": task.length,
        "untrained_positions": not part.left_out and task.model.positions == "learned" and part.times > 1,
        "times": part.times,
        "length": part.length,
        "texts": part.texts,
        "targets": int(found["targets"]) if found else None,
        "accuracy": found.get("accuracy"),
        "commonest": found.get("commonest"),
        "loss": found.get("loss"),
        "perplexity": perplexity(found["loss"]) if found else None,
        "left_out": part.left_out or None,
    }


def by_kind(records: Sequence[dict]) -> dict[str, list[dict]]:
    """The records of each kind that there is."""
    found = {kind: [x for x in records if x["kind"] == kind] for kind in KINDS}
    return {kind: some for kind, some in found.items() if some}


def report(records: Sequence[dict], about: dict) -> str:
    """A table of the records of one kind, with its notes."""
    kind = KINDS[records[0]["kind"]]
    rows = []
    for x in records:
        cells = ["-"] * (1 + len(kind.columns))
        if x["accuracy"] is not None:
            cells = [f"{x['targets']:,}", *(COLUMNS[name](x) for name in kind.columns)]
        sizes = (f"{x['times']}x", f"{x['length']:,}", x["texts"] or "-")
        rows.append(((x["run"], x["variant"]), (*sizes, *cells)))
    header = ("run", "model", "of training", "tokens", "texts", kind.targets, *kind.columns)
    rates = " or ".join(sorted({f"{x['mask']:.0%}" for x in records if x["mask"] is not None}))
    notes = [
        f"accuracy: {kind.about.format(rates=rates)}, the same text at every length; +-: its standard error",
        "commonest: the accuracy of always predicting the most frequent token of the training text",
        "at 1x: also the result for longer texts that are cut into pieces of the training length",
    ]
    untrained = {x["run"]: x["trained_length"] for x in records if x["untrained_positions"]}
    notes += [f"{name}: positions beyond {length:,} were never trained" for name, length in untrained.items()]
    reasons = dict.fromkeys((x["run"], x["left_out"]) for x in records if x["left_out"])
    notes += [f"-: {name}: {reason}" for name, reason in reasons]
    return results.report(f"{about['dtype']}, {about['threads']} threads", header, rows, notes)


def draw(records: Sequence[dict], path: Path) -> None:
    """Accuracy or perplexity against length, a panel for each kind of run."""
    runs = {x["run"]: x["variant"] for x in records}
    unique = len({Path(name).name for name in runs}) == len(runs)
    labels = {name: f"{variant}, {Path(name).name if unique else name}" for name, variant in runs.items()}
    if len({*runs.values()}) == len(runs):
        labels = runs
    draw_lines([[panel(KINDS[x], some, lambda x: labels[x["run"]]) for x, some in by_kind(records).items()]], path)


def panel(kind: Kind, records: Sequence[dict], label: Callable[[dict], str]) -> Panel:
    text, factor = kind.axis
    y = lambda x: None if x[kind.metric] is None else factor * x[kind.metric]  # noqa: E731
    marks = sorted({x["trained_length"] for x in records})
    title = f"{kind.targets} tokens (dotted: training length)"
    return Panel(title, "tokens of a text", text, lines_of(records, label, "length", y), False, marks)

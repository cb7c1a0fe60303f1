"""Whole models against the length of what they read, beside their peers: `lion bench text` and `lion bench long`."""

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import lion
from lion.bench.op import machine
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines, picture_beside
from lion.bench.results import save
from lion.bench.timing import interleaved
from lion.bench.vision import per_second
from lion.machine import available_memory
from lion.progress import progress
from lion.terminal import mebibytes, ratio, table

SHARE = 0.6  # of the memory there is
PROBE = 2048  # tokens that anything can be tried with


class Case(NamedTuple):
    size: str
    length: int
    batch: int
    training: bool
    recomputed: bool = False  # with gradient checkpointing


class Contest(NamedTuple):
    """What is measured, beside what."""

    names: Sequence[str]  # of models, the one that the others are compared with first
    make: Callable[[str, Case], nn.Module]
    vocab_size: Callable[[str], int]  # of a size
    quadratic: Collection[str]  # models whose time grows with the square of the length
    patience: float  # seconds that a run may be expected to take
    notes: Sequence[str]
    least: int = 3  # rounds of what is slow
    materialised: Collection[str] = ()  # models with T x T matrices in memory, which is all that is measured of them

    @property
    def peer(self) -> str:
        return self.names[0]


def run(
    contest: Contest, cases: Sequence[Case], rounds: int, json_path: Path | None, *, memory_only: bool = False
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it."""
    if not cases or min(case.length for case in cases) < 1 or rounds < 1:
        raise ValueError(
            f"there are {len(cases)} cases to measure, in {rounds} rounds; expected lengths and rounds of 1 or more, "
            "and training or inference at one of them."
        )
    records: list[dict] = []
    setting = current_setting()
    with progress(total=len(cases) * len(contest.names) * (rounds + 1), unit="run") as bar:
        for case in cases:
            bar.describe(f"{case.size}, {case.length} tokens, {'training' if case.training else 'inference'}")
            records += measure(contest, case, records, rounds, bar.advance, memory_only=memory_only)
            save(json_path, {"setting": setting, "results": records}, unfinished=True)
    print(report(contest, records, setting))
    save(json_path, {"setting": setting, "results": records})
    picture_beside(json_path, functools.partial(draw, records))
    return records


def measure(
    contest: Contest,
    case: Case,
    known: Sequence[dict],
    rounds: int,
    tick: Callable[[int], object] = lambda steps: None,
    *,
    memory_only: bool = False,
) -> list[dict]:
    first = min(1000, contest.vocab_size(case.size) // 2)  # behind what may be special
    ids = torch.randint(first, contest.vocab_size(case.size), (case.batch, case.length))
    known = [*known, *probes(contest, case, known)]
    left_out = {name: reason for name in contest.names if (reason := too_much(contest, name, case, known))}
    works = {name: work(contest.make(name, case), ids, case.training) for name in contest.names if name not in left_out}
    timed = {name: x for name, x in works.items() if not (memory_only or name in contest.materialised)}
    times, tries = interleaved(timed, rounds=rounds, least=contest.least, tick=lambda: tick(1))
    tick((rounds + 1) * (len(contest.names) - len(timed)))
    return [
        {
            **case._asdict(),
            "name": name,
            "best_of": tries if name in times else None,
            "seconds": times.get(name),
            "tokens_per_second": case.batch * case.length / times[name] if name in times else None,
            "times_faster": times[contest.peer] / times[name] if contest.peer in times and name in times else None,
            "peak_bytes": peak_memory(works[name]) if name in works else None,
            "left_out": left_out.get(name),
        }
        for name in contest.names
    ]


def probes(contest: Contest, case: Case, known: Sequence[dict]) -> list[dict]:
    """Where nothing is known yet of long sequences, what shorter ones take."""
    if any(comparable(x, case) for x in known) or case.batch * case.length <= PROBE:
        return []
    short = case._replace(length=PROBE, batch=1)
    return measure(contest, short, [], rounds=1)


def work(model: nn.Module, ids: Tensor, training: bool) -> Callable[[], object]:
    """Forward and backward without an optimizer, or forward."""
    parameters = [p for p in model.train(training).parameters() if p.requires_grad]

    def result() -> Tensor:
        output = model(ids)
        return output if isinstance(output, Tensor) else output.last_hidden_state

    def train() -> object:
        return torch.autograd.grad(result().sum(), parameters, allow_unused=True)

    def infer() -> object:
        with torch.no_grad():
            return result()

    return train if training else infer


def too_much(contest: Contest, name: str, case: Case, known: Sequence[dict]) -> str:
    """Why something is left out: told from what it took at the length before."""
    of_same = [x for x in known if x["name"] == name and comparable(x, case)]
    if not of_same or of_same[-1]["left_out"]:
        return of_same[-1]["left_out"] if of_same else ""
    before = of_same[-1]
    longer = case.length / before["length"]
    tokens = case.batch * case.length / (before["batch"] * before["length"])
    if (before["seconds"] or 0) * tokens * (longer if name in contest.quadratic else 1) > contest.patience:
        return "expected to take too long"
    if before["peak_bytes"] * tokens * (longer if name in contest.materialised else 1) > SHARE * available_memory():
        return "would not fit into memory"
    return ""


def comparable(record: dict, case: Case) -> bool:
    """Whether they differ in nothing but the length and the batch."""
    return all(record[key] == getattr(case, key) for key in ("size", "training", "recomputed"))


def current_setting() -> dict:
    return {
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "lion": lion.__version__,
        "machine": machine(),
    }


def report(contest: Contest, records: Sequence[dict], setting: dict) -> str:
    rows, last = [], None
    for x in records:
        place = (x["size"], "training" if x["training"] else "inference", f"{x['length']:,}", x["batch"])
        cells = (
            per_second(x["tokens_per_second"]),
            "-" if x["times_faster"] is None else f"{1 / x['times_faster']:.2f}",
            ratio(x["times_faster"]),
            mebibytes(x["peak_bytes"]),
        )
        rows.append([*(place if place != last else [""] * 4), x["name"], *cells])
        last = place
    header = ("size", "pass", "tokens", "batch", "model", "tokens/s", f"of {contest.peer}'s time", "faster", "MiB")
    tries = sorted({x["best_of"] for x in records if x["best_of"]})
    words = f"{setting['dtype']}, {setting['threads']} threads"
    words += f", best of {' to '.join(map(str, tries))}" if tries else ", memory only"
    notes = [*contest.notes, "MiB: peak memory of a batch, beside that of the weights; in training with the gradients"]
    reasons = dict.fromkeys(x["left_out"] for x in records if x["left_out"])
    notes += [f"-: left out, {reason}" for reason in reasons]
    return "\n".join([words, "", table(header, rows), "", *notes])


def draw(records: Sequence[dict], path: Path) -> None:
    """Peak memory and time of a sequence against its length, a row of panels for every size and pass."""
    axes = (("peak_bytes", 2**-20, "peak memory, MiB"), ("seconds", 1, "seconds"))
    measured = [axis for axis in axes if any(x[axis[0]] for x in records)] or axes[:1]
    rows = []
    for size, training in dict.fromkeys((x["size"], x["training"]) for x in records):
        panels = []
        for key, factor, label in measured:
            lines: dict[str, list[tuple[float, float]]] = {}
            for x in records:
                if (x["size"], x["training"]) == (size, training) and x[key]:
                    lines.setdefault(x["name"], []).append((x["length"], x[key] * factor / x["batch"]))
            title = f"{size}, {'training' if training else 'inference'}"
            panels.append(Panel(title, "tokens", f"{label} per sequence", lines))
        rows.append(panels)
    draw_lines(rows, path)

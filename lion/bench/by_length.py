"""Whole models by sequence length, beside their peers: the harness of `lion bench text` and `lion bench long`."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lion.bench import results
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import LARGE, MIB, SLOW, best_of, left_out, save, save_with_plot, setting
from lion.bench.timing import Work, inference, interleaved, training
from lion.devices import CPU
from lion.machine import available_memory
from lion.progress import progress
from lion.terminal import mebibytes, per_second, ratio

SHARE = 0.6  # of the available memory, which a run may be expected to take
PROBE = 2048  # tokens that any model can be tried with


class Case(NamedTuple):
    size: str
    length: int
    batch: int
    training: bool
    recomputed: bool = False  # with gradient checkpointing

    @property
    def which(self) -> str:
        return "training" if self.training else "inference"


def cases_of(
    sizes: Sequence[str],
    lengths: Sequence[int],
    *,
    training: bool,
    inference: bool,
    trained_to: int,
    batch: Callable[[int], int],
    checkpointed: float = float("inf"),
) -> list[Case]:
    """All cases: training up to a length, with gradient checkpointing beyond another one; and inference."""
    return [
        Case(size, length, batch(length), way, recomputed=way and length > checkpointed)
        for size in sizes
        for way in (True, False)
        for length in sorted(set(lengths))
        if (training if way else inference) and not (way and length > trained_to)
    ]


class Contest(NamedTuple):
    """The models that are measured beside each other."""

    names: Sequence[str]  # the first is the peer that the others are compared with
    make: Callable[[str, Case], nn.Module]
    vocab_size: Callable[[str], int]  # by size
    quadratic: Collection[str]  # models whose time grows with the square of the length
    patience: float  # seconds that a run may be expected to take
    notes: Sequence[str]
    least: int = 3  # rounds of slow models
    materialised: Collection[str] = ()  # models with T x T matrices in memory, whose memory alone is measured
    device: torch.device = CPU

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
    about = setting(device=str(contest.device))
    found = {"setting": about, "results": records}
    with progress(total=len(cases) * len(contest.names) * (rounds + 1), unit="run") as bar:
        for case in cases:
            bar.describe(f"{case.size}, {case.length} tokens, {case.which}")
            records += measure(contest, case, records, rounds, bar.advance, memory_only=memory_only)
            save(json_path, found, unfinished=True)
    print(report(contest, records, about))
    save_with_plot(json_path, found, draw)
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
    first = min(1000, contest.vocab_size(case.size) // 2)  # beyond special tokens
    ids = torch.randint(first, contest.vocab_size(case.size), (case.batch, case.length)).to(contest.device)
    known = [*known, *probes(contest, case, known)]
    reasons = {name: reason for name in contest.names if (reason := too_much(contest, name, case, known))}
    models = {name: contest.make(name, case) for name in contest.names if name not in reasons}
    works = {name: work(model.to(contest.device), ids, case.training) for name, model in models.items()}
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
            "peak_bytes": peak_memory(works[name], contest.device) if name in works else None,
            "left_out": reasons.get(name),
        }
        for name in contest.names
    ]


def probes(contest: Contest, case: Case, known: Sequence[dict]) -> list[dict]:
    """Measurements of a short sequence, where nothing is known yet about long ones."""
    if any(comparable(x, case) for x in known) or case.batch * case.length <= PROBE:
        return []
    return measure(contest, case._replace(length=PROBE, batch=1), [], rounds=1)


def work(model: nn.Module, inputs: Tensor, train: bool) -> Work:
    """Forward and backward without an optimizer, or forward."""
    parameters = list(model.train(train).parameters())

    def run() -> Tensor:
        output = model(inputs)
        return output if isinstance(output, Tensor) else output.last_hidden_state

    return training(lambda: run().sum(), parameters) if train else inference(run)


def too_much(contest: Contest, name: str, case: Case, known: Sequence[dict]) -> str:
    """The reason to leave a model out, from its time and memory at the length before; or ""."""
    of_same = [x for x in known if x["name"] == name and comparable(x, case)]
    if not of_same or of_same[-1]["left_out"]:
        return of_same[-1]["left_out"] if of_same else ""
    before = of_same[-1]
    longer = case.length / before["length"]
    tokens = case.batch * case.length / (before["batch"] * before["length"])
    if (before["seconds"] or 0) * tokens * (longer if name in contest.quadratic else 1) > contest.patience:
        return SLOW
    if before["peak_bytes"] * tokens * (longer if name in contest.materialised else 1) > SHARE * available_memory(
        contest.device
    ):
        return LARGE
    return ""


def comparable(record: dict, case: Case) -> bool:
    """Whether a record and a case differ in the length and the batch alone."""
    return all(record[key] == getattr(case, key) for key in ("size", "training", "recomputed"))


def report(contest: Contest, records: Sequence[dict], about: dict) -> str:
    rows = []
    for x in records:
        place = (x["size"], "training" if x["training"] else "inference", f"{x['length']:,}", x["batch"])
        share = "-" if x["times_faster"] is None else f"{1 / x['times_faster']:.2f}"
        cells = (per_second(x["tokens_per_second"]), share, ratio(x["times_faster"]), mebibytes(x["peak_bytes"]))
        rows.append((place, (x["name"], *cells)))
    header = ("size", "pass", "tokens", "batch", "model", "tokens/s", f"of {contest.peer}'s time", "faster", "MiB")
    heading = f"{about['dtype']}, {about['threads']} threads{best_of(records)}"
    return results.report(heading, header, rows, [*contest.notes, MIB, *left_out(records)])


def draw(records: Sequence[dict], path: Path) -> None:
    """Peak memory and time of a sequence against its length, a row of panels for every size and pass."""

    def panel(size: str, way: bool, key: str, factor: float, label: str) -> Panel:
        some = [x for x in records if (x["size"], x["training"]) == (size, way)]
        y = lambda x: x[key] * factor / x["batch"] if x[key] else None  # noqa: E731
        lines = lines_of(some, lambda x: x["name"], "length", y)
        return Panel(f"{size}, {'training' if way else 'inference'}", "tokens", f"{label} per sequence", lines)

    axes = (("peak_bytes", 2**-20, "peak memory, MiB"), ("seconds", 1, "seconds"))
    measured = [axis for axis in axes if any(x[axis[0]] for x in records)] or axes[:1]
    groups = dict.fromkeys((x["size"], x["training"]) for x in records)
    draw_lines([[panel(*group, *axis) for axis in measured] for group in groups], path)

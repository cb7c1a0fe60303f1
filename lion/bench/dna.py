"""`lion bench dna`: runs of `lion train dna` beside Markov models, on the same masked nucleotides."""

from collections.abc import Sequence
from pathlib import Path

from lion.bench.results import save
from lion.data.markov import MOST, SIDES, markov_accuracy
from lion.progress import progress
from lion.tasks.dna import DnaTask
from lion.terminal import table
from lion.train.evaluate import examine
from lion.train.folder import load_run

AT_ONCE = 1 << 17  # nucleotides of a batch


def run(
    folders: Sequence[Path], *, orders: Sequence[int] = (5,), device: str = "", json_path: Path | None = None
) -> list[dict]:
    """Print the accuracy of each run and of tables of so many neighbours."""
    for order in orders:
        if not 0 <= order <= min(MOST.values()):
            raise ValueError(f"orders has {order}; expected from 0 to {min(MOST.values())} neighbours.")
    tasks = {folder: _task(folder) for folder in dict.fromkeys(folders)}
    records: list[dict] = []
    done = []
    for folder, task in tasks.items():
        about = {name: getattr(task, name) for name in ("data", "length", "mask", "holdout", "block")}
        found = examine(folder, batch=max(1, AT_ONCE // task.length), device=device).metrics
        records.append({"name": str(folder), **about, "accuracy": found["accuracy"]})
        if about in done:
            continue  # its tables have been measured
        done.append(about)
        kinds = [(order, sides, peek) for order in orders for sides in SIDES for peek in (True, False)]
        with progress(total=len(kinds), unit="table") as bar:
            for order, sides, peek in kinds:
                share = markov_accuracy(
                    task.windows("train").stretches(), task.eval_set(), order, sides=sides, peek=peek
                )
                where = "before it" if sides == "left" else "on both sides"
                seen = "as they are" if peek else "as far as they are not masked"
                records.append({"name": f"{order} neighbours {where}, {seen}", **about, "accuracy": share})
                bar.advance(1)
    rows = [(x["name"], x["data"], f"{x['length']:,}", f"{x['mask']:.0%}", f"{x['accuracy']:.2%}") for x in records]
    print(table(("what", "data", "window", "masked", "accuracy"), rows))
    print("\naccuracy: on masked nucleotides of the evaluation set. A table predicts the most frequent base.")
    save(json_path, {"results": records})
    return records


def _task(folder: Path) -> DnaTask:
    task = load_run(folder).task
    if not isinstance(task, DnaTask):
        raise ValueError(f"the run in {folder} is not of `lion train dna`; expected one that is.")
    return task

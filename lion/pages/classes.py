"""The sections of a run's page on classes: a table, the confusion matrix, and the most confident mistakes."""

from collections.abc import Sequence

import numpy as np

from lion.pages.charts import matrix
from lion.pages.examples import MOST, gallery, words_of
from lion.pages.figures import Html, key, picture, tag
from lion.pages.outcome import Baseline, Outcome, metric_name, score
from lion.pages.parts import card, named, panel, table
from lion.terminal import brief
from lion.train.evaluate import Examined
from lion.train.metrics import counts_of

NUMBERED = 30  # the most classes of a matrix with numbers
DRAWN = 1000  # the most classes of a matrix
LISTED = 500  # the most classes of the table
PAIRS = 15


def of_classes(run: Examined, baseline: Baseline | None, units: str) -> Outcome:
    predicted, right = run.answers["predicted"], run.answers["right"]
    total = len(right)
    found = int((predicted == right).sum())
    title = f"{found / total:.1%} of {total:,} {units} are classified correctly"
    if baseline is not None and baseline.metric == "accuracy":
        points = f"{100 * (found / total - baseline.score):+.1f}"
        words = f"{points[1:]} points {'below' if points[0] == '-' else 'above'}"
        title += f", {'as many as by' if float(points) == 0 else words} {baseline.name}"
    often = int(right.bincount().argmax())
    share = float((right == often).double().mean())
    cards = [card(f"{found / total:.1%}", "accuracy on the eval set", f"{found:,} of {total:,} right")]
    if baseline is None:
        name = brief(run.classes[often], 30)
        cards.append(card(f"{share:.1%}", "by always saying the same", f"{name!r}, the most frequent class"))
    names = [brief(name, 60) for name in run.classes]
    sections = {"Classes": _classes(run, names), "Mistakes": _mistakes(run, names, units)}
    return Outcome(f"{title}.", cards, sections)


def _classes(run: Examined, names: Sequence[str]) -> list[Html]:
    predicted, right = run.answers["predicted"], run.answers["right"]
    found, taken, true = (x.tolist() for x in counts_of(predicted, right, len(names)))
    rows = []
    for name, hits, said, there in zip(names, found, taken, true, strict=True):
        f1 = 2 * hits / (said + there) if said + there else 0.0
        cells = [_share(hits, said), _share(hits, there), f"{f1:.1%}" if said + there else "-"]
        rows.append((f1, [name, f"{there:,.0f}", *cells]))
    many = len(names) > NUMBERED
    if many:
        rows.sort(key=lambda row: row[0])
    others = {name: x for name, x in run.metrics.items() if name not in ("loss", "accuracy")}
    words = "Precision: of those predicted as this class, the share that are. Recall: of this class, the share found."
    extra = "".join(f" The {metric_name(name)} over all is {score(name, x)}." for name, x in others.items())
    note = f"The {LISTED} worst of {len(names):,} classes, worst first." if len(names) > LISTED else "Worst first."
    header = ["class", "examples", "precision", "recall", "F1"]
    listed = tag("div", table(header, [row for _, row in rows[:LISTED]]), class_="long" if many else "whole")
    return [tag("p", words + extra), panel(listed, note if many else ""), *_confusion(run, names)]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _confusion(run: Examined, names: Sequence[str]) -> list[Html]:
    """The matrix; of many classes without numbers, and beside it the pairs that are confused most."""
    count = len(names)
    pairs = run.answers["right"] * count + run.answers["predicted"]
    if count <= NUMBERED:
        counts = pairs.bincount(minlength=count * count).reshape(count, count).numpy()
        note = "A row is a true class, a column a predicted one. Blue is right, orange is wrong."
        return [panel(matrix(counts, names), note)]
    which, often = pairs.unique(return_counts=True)
    wrong = which // count != which % count
    order = often[wrong].argsort(descending=True)[:PAIRS]
    rows = [
        [named(names[pair // count], f"predicted as {names[pair % count]}"), f"{times:,}"]
        for pair, times in zip(which[wrong][order].tolist(), often[wrong][order].tolist(), strict=True)
    ]
    parts = [panel(table(["class", "times"], rows), "The pairs that are confused most.")]
    if count > DRAWN:
        return parts
    counts = pairs.bincount(minlength=count * count).reshape(count, count).numpy()
    shares = np.sqrt(counts / counts.sum(1, keepdims=True).clip(min=1))
    drawn = tag("div", picture("lion_s", shares, "confusion matrix"), class_="square")
    note = f"The confusion matrix of all {count} classes: a row is a true class, a column a predicted one."
    legend = tag("div", key("lion_s", "none", "all of a row"), class_="title")
    return [*parts, tag("div", drawn, tag("p", note, class_="note"), legend, class_="panel")]


def _mistakes(run: Examined, names: Sequence[str], units: str) -> list[Html]:
    predicted, right, sure = (run.answers[name].numpy() for name in ("predicted", "right", "probability"))
    wrong = np.flatnonzero(predicted != right)
    if not len(wrong):
        return [tag("p", f"There are none: all {len(right):,} {units} of the eval set are classified correctly.")]
    worst = wrong[np.argsort(-sure[wrong], kind="stable")][:MOST].tolist()
    examples = {i: words_of(names[predicted[i]], names[right[i]], f" ({sure[i]:.1%})") for i in worst}
    words = (
        f"{len(wrong):,} of {len(right):,} {units} are misclassified. Here are the most confident mistakes: look "
        "for wrong labels among them, and for what they have in common."
    )
    return [tag("p", words), gallery(run, examples)]

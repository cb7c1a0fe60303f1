"""The page of a run on labelled data: its score and what that is worth, curves, classes or numbers, mistakes."""

import contextlib
import datetime
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lion.files import read_json
from lion.pages.classes import of_classes
from lion.pages.figures import Html, Line, legend, tag
from lion.pages.numbers import of_numbers
from lion.pages.outcome import Baseline, Outcome, metric_name
from lion.pages.parts import apart, card, opening, over_steps, panel, smooth, write
from lion.terminal import duration, several
from lion.train.config import Saved, read_run
from lion.train.evaluate import Examined
from lion.train.folder import CONFIG
from lion.train.metrics import SHARES
from lion.train.report import ENVIRONMENT, METRICS, SECONDS, Row, environment, read_metrics

PAGE, DATA, RESULT = "report.html", "data.json", "result.json"
KINDS = {"training": "train", "eval": "eval"}  # of rows, by the names of their lines
SIZES = ("depth", "dim", "heads")  # fields of models
REGULARISERS = ("dropout", "drop_path")  # fields of models
FLAT, RISEN = 0.85, 1.05  # a loss is lowest this early in a run, and rises by this much, when a model learns by heart


def answered(answers: Mapping[str, Any]) -> bool:
    """Whether a task keeps what the page is about: a prediction and the right answer for each example."""
    return {"predicted", "right"} <= answers.keys()


def write_page(run: Examined, path: Path | None = None) -> Path:
    """Write the page of a finished run, by default as report.html into its folder. Beside what the run itself leaves
    there, it shows `baseline.json` and `data.json`, if they are there."""
    if not answered(run.answers):
        raise ValueError(f"the run in {run.folder} has no labels to compare with; expected a run on labelled data.")
    path = path or run.folder / PAGE
    saved, rows = read_run(run.folder / CONFIG), read_metrics(run.folder / METRICS)
    unit = run.task.unit
    units = several(unit)
    # The baseline is of the run's own eval set.
    baseline = None if run.test else Baseline.read(run.folder)
    if baseline is not None and baseline.metric not in run.metrics:
        baseline = None
    of = of_classes if "probability" in run.answers else of_numbers
    outcome: Outcome = of(run, baseline, units)
    place = _environment(run.folder)
    about = _about(run, saved, place)
    sections: dict[str, Sequence[Html]] = {}
    if (run.folder / DATA).exists():
        sections["What was read"] = [panel(_facts(read_json(run.folder / DATA)))]
    sections["Training"] = [panel(_facts(_training(run, saved, rows, units))), *_curves(run, rows)]
    sections |= outcome.sections
    sections["What next"] = _next(run, saved, rows)
    cards = [*outcome.cards, *([baseline.beside()] if baseline else []), *_costs(run, saved, rows, units)]
    verdict = baseline.verdict(run.metrics, len(run.answers["right"])) if baseline else ""
    header = opening(outcome.title, [verdict, about] if verdict else [about], cards)
    write(path, f"lion: {saved.recipe or run.task.kind}", header, sections, place)
    return path


def _about(run: Examined, saved: Saved, place: Mapping[str, Any]) -> str:
    """What, on what data, when and where."""
    result = run.folder / RESULT
    when = datetime.datetime.fromtimestamp(result.stat().st_mtime) if result.exists() else datetime.datetime.now()
    data = getattr(run.task, "data", "") or getattr(run.task, "dataset", "")
    words = [f"The recipe {saved.recipe!r}" if saved.recipe else f"A run of the kind {run.task.kind!r}"]
    words += [f"on {data}"] if data else []
    words += [f"tested on {run.test}"] if run.test else []
    where = place.get("processor") if place.get("device") == "cpu" else place.get("device")
    return f"{', '.join(words)}. Trained on {when.day} {when:%B %Y}{f' on {where}' if where else ''}."


def _environment(folder: Path) -> dict[str, Any]:
    """Where the run was trained."""
    with contextlib.suppress(OSError, ValueError):
        found = read_json(folder / ENVIRONMENT)
        if isinstance(found, dict):
            return found
    return environment()


def _costs(run: Examined, saved: Saved, rows: Sequence[Row], units: str) -> list[Html]:
    cards = []
    seconds = _seconds(rows)
    if seconds is not None:
        figure, unit = duration(max(1, seconds)).split(" ", 1)
        cards.append(card(figure, "training time", f"{_steps(rows):,} steps of {saved.run.batch} {units}", unit=unit))
    count = _parameters(run)
    figure, unit = (f"{count / 1e6:.1f}", "million") if count >= 1e6 else (f"{count:,}", "")
    return [*cards, card(figure, "parameters", _model(run), unit=unit)]


def _parameters(run: Examined) -> int:
    return sum(x.numel() for x in run.model.parameters())


def _model(run: Examined) -> str:
    model = getattr(run.task, "model", None)
    sizes = [f"{name} {getattr(model, name)}" for name in SIZES if hasattr(model, name)]
    return ", ".join([str(getattr(model, "variant", type(run.model).__name__)), *sizes])


def _steps(rows: Sequence[Row]) -> int:
    return max((row["step"] for row in rows), default=0)


def _seconds(rows: Sequence[Row]) -> float | None:
    """The training time; None if no row has it."""
    return max((row.get(SECONDS, 0.0) for row in rows), default=0.0) or None


def _training(run: Examined, saved: Saved, rows: Sequence[Row], units: str) -> dict[str, str]:
    optim = saved.run.optim
    facts = {
        "model": f"{type(run.model).__name__}: {_model(run)}",
        "parameters": f"{_parameters(run):,}",
        "steps": f"{_steps(rows):,}, of {saved.run.batch} {units} each",
        "learning rate": f"{optim.lr:g}, {optim.schedule}, weight decay {optim.weight_decay:g}",
    }
    seconds = _seconds(rows)
    if seconds is not None:
        facts["time"] = (
            f"{duration(max(1, seconds))}, {_steps(rows) * saved.run.batch / seconds:,.0f} {units} per second"
        )
    return facts


def _facts(facts: Mapping[str, Any]) -> Html:
    """A table of names and texts."""
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", text)) for name, text in facts.items()]
    return tag("table", tag("tbody", *rows), class_="facts")


def _points(rows: Sequence[Row], kind: str, name: str) -> list[tuple[float, float]]:
    return [(row["step"], row[name]) for row in rows if row["kind"] == kind and math.isfinite(row.get(name, math.nan))]


def _curves(run: Examined, rows: Sequence[Row]) -> list[Html]:
    figures = []
    for name in dict.fromkeys(("loss", run.task.metric)):
        percent = name in SHARES
        lines = []
        for look, kind in KINDS.items():
            points = _points(rows, kind, name)
            if points and kind == "eval":
                points = apart(points)
                shown = [f"{y:.1%}" if percent else f"{y:.4g}" for _, y in points]
                lines.append(Line(look, points, [f"step {x:,}: {y}" for (x, _), y in zip(points, shown, strict=True)]))
            elif len(points) > 1:
                lines.append(Line(look, smooth(points)))
        if lines:
            figures.append(tag("figure", over_steps(lines, metric_name(name), percent=percent)))
    if not figures:
        return []
    names = legend([("training", "training"), ("eval", "eval set")])
    return [tag("div", names, tag("div", *figures, class_="pair"), class_="panel")]


def _next(run: Examined, saved: Saved, rows: Sequence[Row]) -> list[Html]:
    commands = {run.task.usage.format(run=run.folder): "use the model"}
    if hasattr(run.task, "test"):
        commands[f"lion eval {run.folder} --test FILE"] = "test it on other data"
        commands[f"lion report {run.folder} --test FILE --out FILE.html"] = "a page like this one on other data"
    if saved.command:
        commands = {saved.command: "made this run"} | commands
    lines = [tag("tr", tag("td", tag("code", command)), tag("td", about)) for command, about in commands.items()]
    hints = [tag("li", hint) for hint in _hints(run, saved, rows)]
    return [
        panel(tag("table", tag("tbody", *lines), class_="facts commands")),
        tag("p", "If the number is not good enough:", class_="hints"),
        tag("ul", *hints),
    ]


def _hints(run: Examined, saved: Saved, rows: Sequence[Row]) -> list[str]:
    """What the curves and counts suggest."""
    hints = []
    losses = _points(rows, "eval", "loss")
    model = getattr(run.task, "model", None)
    if losses:
        best, lowest = min(losses, key=lambda point: point[1])
        last, final = losses[-1]
        knobs = [
            f"--model.{name} {min(0.5, getattr(model, name) + 0.1):g}" for name in REGULARISERS if hasattr(model, name)
        ]
        if best < FLAT * last and final > RISEN * lowest:
            hints.append(
                f"The loss on the eval set was lowest at step {best:,} of {last:,} and has risen since: the model "
                f"learns its examples by heart. More examples help most; then {' or '.join([*knobs, 'fewer epochs'])}."
            )
        elif best == last:
            longer = f"--epochs {2 * saved.run.epochs:g}" if saved.run.epochs else f"--steps {2 * last}"
            hints.append(f"The loss on the eval set was still falling at the end: train longer, {longer}.")
    if "probability" in run.answers:
        counts = run.answers["right"].bincount(minlength=len(run.classes))
        few = int((counts < 10).sum())
        if few:
            hints.append(
                f"{few} of {len(run.classes)} classes have fewer than 10 examples in the eval set: their numbers are "
                "rough, and more examples of them are worth the most."
            )
    hints.append("Look at the mistakes above: wrong labels and examples that no one could tell cost every model.")
    hints.append("docs/start.md of the project says more: what to do when the number is bad.")
    return hints

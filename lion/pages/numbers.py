"""The sections of a run's page on predicted numbers: predicted over true ones, residuals, and the worst misses."""

from lion.pages.charts import histogram, scatter
from lion.pages.examples import MOST, gallery, words_of
from lion.pages.figures import tag
from lion.pages.outcome import Baseline, Outcome, metric_name, score
from lion.pages.parts import card, panel, table
from lion.train.evaluate import Examined
from lion.train.metrics import pearson, spearman


def of_numbers(run: Examined, baseline: Baseline | None, units: str) -> Outcome:
    predicted, right = (run.answers[name].double() for name in ("predicted", "right"))
    missed = predicted - right
    error, constant = float(missed.abs().mean()), float((right - right.mean()).abs().mean())
    squares, spread = float(missed.square().sum()), float((right - right.mean()).square().sum())
    metric = run.task.metric
    title = f"{metric_name(metric).capitalize()} {score(metric, run.metrics[metric])} on {len(right):,} {units}"
    if baseline is not None and baseline.metric == metric:
        title += f", against {score(metric, baseline.score)} of {baseline.name}"
    cards = [card(score(metric, run.metrics[metric]), metric_name(metric), f"on {len(right):,} {units}, held out")]
    if baseline is None:
        cards.append(card(f"{error:.3g}", "mean absolute error", f"by always saying the mean: {constant:.3g}"))
    rows = [
        ("rank correlation (Spearman's)", f"{spearman(predicted, right):.3f}"),
        ("correlation (Pearson's)", f"{pearson(predicted, right):.3f}"),
        ("R\N{SUPERSCRIPT TWO}, explained share of the variance", f"{1 - squares / spread:.3f}" if spread else "-"),
        ("mean absolute error", f"{error:.4g}"),
        ("mean absolute error of always saying the mean", f"{constant:.4g}"),
    ]
    figures = [
        tag("figure", scatter(right.numpy(), predicted.numpy())),
        tag("figure", histogram(missed.numpy(), "predicted minus true")),
    ]
    words = tag("p", "On the dashed line, predictions are right; above it they are too high, below it too low.")
    drawn = [words, tag("div", tag("div", *figures, class_="pair"), class_="panel")]
    worst = missed.abs().argsort(descending=True, stable=True)[:MOST].tolist()
    examples = {i: words_of(f"{predicted[i]:.4g}", f"{right[i]:.4g}") for i in worst}
    about = "The predictions that are furthest off: look for wrong labels among them, and for what they have in common."
    sections = {
        "Predictions": [*drawn, panel(table(["measure", "on the eval set"], rows))],
        "Worst misses": [tag("p", about), gallery(run, examples)],
    }
    return Outcome(f"{title}.", cards, sections)

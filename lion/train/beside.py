"""What a run on labelled data leaves beside its model: a simple model's score, and a page. Neither can make it fail."""

import contextlib
import textwrap
from collections.abc import Iterator

from lion.pages.outcome import BASELINE, Baseline
from lion.pages.run import PAGE, answered, write_page
from lion.progress import working
from lion.tasks import Task
from lion.tasks._labelled import LabelledTask
from lion.terminal import facts, short, width
from lion.train.baseline import baseline
from lion.train.evaluate import Examined
from lion.train.folder import RunFolder
from lion.train.report import Report


def fit_simple(task: Task, folder: RunFolder, report: Report) -> None:
    """Fit the simple model that the run is compared with, once in its life."""
    with _told(report, "the simple model could not be fitted"):
        if not isinstance(task, LabelledTask) or Baseline.read(folder.path) is not None:
            return
        with working("fitting a simple model to compare with"):
            found = baseline(task)
        if found is not None:
            folder.write_json(BASELINE, found._asdict())
            report.say(facts([("baseline", Baseline(found.name, found.metric, found.score, found.seconds).words())]))


def conclude(run: Examined, report: Report, *, compared: bool) -> None:
    """Write the page of a finished run, and say whether it was worth it."""
    if not answered(run.answers):
        return
    with _told(report, f"{PAGE} could not be written; once more: lion report {run.folder}"):
        (run.folder / PAGE).unlink(missing_ok=True)  # of an earlier end of the run
        write_page(run)
    with _told(report, f"{BASELINE} cannot be read"):
        simple = Baseline.read(run.folder) if compared else None
        if simple is not None and simple.metric in run.metrics:
            said = simple.verdict(run.metrics, len(run.examples), f"{run.folder / PAGE}")
            report.say(textwrap.fill(said, width(), break_long_words=False, break_on_hyphens=False))


@contextlib.contextmanager
def _told(report: Report, words: str) -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # the run goes on, or is finished all the same
        report.say(f"{words} ({short(repr(problem))})")

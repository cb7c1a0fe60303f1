"""Classes of series, numbers over time, or a number for each."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lion.data.alignment import aligned as are_aligned
from lion.data.distortion import Distortion
from lion.data.findings import Findings, Problems
from lion.data.labelled import as_labels
from lion.data.labelled_series import LabelledSeries, Scale, SeriesExamples, in_order, labelled_series, split_series
from lion.data.series import read_series
from lion.data.series_fields import Columns, Series
from lion.data.series_tables import ENDS
from lion.data.tables import place
from lion.limits import CountOrAll, Positive, Share, TokensOrAll
from lion.machine import to_train
from lion.models.long_range import LongConfig, LongModel, fitted
from lion.models.random_convolutions import RandomConvolutions
from lion.progress import working
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Input, Known, Prediction, Shown, Trained, cached, register_task
from lion.tasks._labelled import LabelledTask, Plain, read_notes, spread_of_lengths
from lion.tasks._random_convolutions import fit, kernels_for
from lion.terminal import brief, plural
from lion.train.config import Optim, Run

MANY = 1000  # series: enough to learn what a place means, where they are aligned
# Fields that the data decides.
OF_SERIES = dict.fromkeys(("model.vocab_size", "model.channels", "model.classes", "model.answer"), "the data") | {
    "model.max_tokens": "the longest series, or --max_length",
    "model.summaries": "--aligned",
    "model.random_kernels": "--random_convolutions and the data",
    "model.random_reach": "the longest series",
}


@dataclass(frozen=True)
class KnownSeries(Known):
    max_length: TokensOrAll = 0
    length: TokensOrAll = 0  # steps of every series; 0: they differ
    columns: tuple[str, str, str] = ("", "", "")  # of the label, the id and the time, in the training data
    channels: tuple[str, ...] = ()  # their names, if they have some
    mean: tuple[float, ...] = (0.0,)  # of each channel
    std: tuple[Positive, ...] = (1.0,)
    missing: bool = False  # the model is told where values are missing

    def read(self, path: str, findings: Findings) -> tuple[Series, list[Tensor]]:
        """The series of a file, which need no labels; and [T, channels] of each for the model. `findings` gets the
        bad ones."""
        found = read_series(path, Columns(*self.columns), labelled=False, length=self.length, findings=findings)
        if not found.values:
            return found, []
        label = found.columns.label
        if label in ENDS and found.labels and self.classes:  # or a value would be taken for a label
            as_labels(Path(path), found.labels, found.rows, f"its {label} column", self.classes, False)
        scale = Scale(np.array(self.mean), np.array(self.std), self.missing)
        values = in_order(found, self.channels, len(self.mean), path)
        return found, [torch.from_numpy(scale.apply(x[: self.max_length or None])) for x in values]


@register_task("series")
@dataclass(frozen=True)
class SeriesTask(LabelledTask):
    data: str = ""  # the file: .ts, .tsv, .npz, or a table with a row for each series, or for each step of one
    test: str = ""  # a file for the eval set; "": X_test of an .npz file, or else a fifth is held out
    label_column: str = ""  # of a table; "": the one with a usual name; without a header: "first" or "last"
    id_column: str = ""  # of a table with a row for each step: which series it belongs to
    time_column: str = ""  # of such a table: its rows are sorted by it
    skip_bad: bool = False  # leave out rows that cannot be used, and the series that they are steps of
    classes: tuple[str, ...] = ()  # found in the data
    numbers: bool = False  # labels are numbers, not classes
    label_scale: tuple[float, Positive] | None = (0.0, 1.0)  # mean and deviation of numbers; none: found in the data
    smoothing: Share = 0.0  # of classes in training: so much of each goes to all alike
    max_length: TokensOrAll = 0  # steps; 0: all of a series
    distortion: Distortion = field(default_factory=Distortion)  # of classes in training; no warp of many aligned series
    random_convolutions: bool = False  # a linear model of these is fitted, too, and answers together with the network
    aligned: bool | None = None  # a place means the same in all series, and is learned; none: found in the data
    tokens: CountOrAll = 0  # the most that are made of the longest, by model.stride; 0: as that is
    model: LongConfig = field(default_factory=LongConfig)

    unit = "series"
    share = "a fifth"
    reads = "file"
    tunable = ("smoothing", "distortion")
    decided = OF_SERIES
    known = KnownSeries
    usage = "lion predict {run} FILE"

    def resolved(self) -> "SeriesTask":
        if not self.data:
            raise ValueError(
                "there is no data; expected a table with a row for each series and a column `label`, or a .ts, .tsv or "
                ".npz file: lion train series --data x.csv"
            )
        train = self._series("train")
        classes = tuple(train.classes or ())
        lengths = {len(x) for split in ("train", "test") for x in self._series(split).values}
        aligned = self.aligned
        if aligned is None:
            aligned = len(lengths) == 1 and are_aligned(train.values, train.labels)
        model = replace(self.model, vocab_size=0, channels=self._scale().channels, classes=len(classes) or 1)
        model = replace(model, answer="sequence")
        longest = self.max_length or max(lengths)
        model = fitted(model, longest, self.tokens, aligned=aligned)
        if self.random_convolutions:
            steps = sum(min(len(x), longest) for x in train.values)
            model = replace(model, random_kernels=kernels_for(steps), random_reach=longest)
        scale = self.scale_of(train)
        found = replace(self, classes=classes, numbers=train.classes is None, label_scale=scale)
        return replace(found, aligned=aligned, model=model)

    def make_model(self) -> nn.Module:
        model = to_train(lambda: LongModel(self.model))
        if model.random_convolutions is not None:
            model.random_convolutions.load_state_dict(self._random_convolutions()[0].state_dict())
        return model

    def train_set(self, seed: int) -> Examples:
        """Numbers often depend on the very values: those are not distorted. Of many aligned series, the times are kept:
        enough to learn what each place means."""
        many = self.aligned and len(self._series("train").values) >= MANY
        distortion = replace(self.distortion, warp=0.0) if many else self.distortion
        return self._examples("train", distortion=None if self.numbers else distortion, seed=seed)

    def _random_convolutions(self) -> tuple[RandomConvolutions, float]:
        """Fitted to the training set, and how good they are."""
        return cached(_random_convolutions, self)

    def eval_set(self) -> Examples:
        return self._examples("test")

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return _answers(model, batch["values"], batch["mask"])

    def to_predict(self) -> Known:
        train, scale = self._series("train"), self._scale()
        lengths = {len(x) for x in train.values}
        return KnownSeries(
            self.classes,
            self.max_length,
            length=lengths.pop() if len(lengths) == 1 else 0,
            columns=train.columns,
            channels=train.channels,
            mean=tuple(scale.mean.tolist()),
            std=tuple(scale.std.tolist()),
            missing=scale.missing,
        )

    def inputs(self, trained: Trained, given: str) -> Iterable[Input]:
        """All series of a file, and the errors of bad ones in their places."""
        problems = Problems(given)
        found, series = trained.known.read(given, problems)
        every = {**dict(problems.before()), **dict(zip(found.rows, series, strict=True))}  # by row
        names = {row: place(Path(given), row) if len(every) > 1 else given for row in every}
        names |= {row: f"{given}, {name}" for row, name in zip(found.rows, found.ids, strict=False)}
        return [Input(names[row], every[row]) for row in sorted(every)]

    def predict_batch(self, trained: Trained, examples: list[Tensor]) -> list[Prediction]:
        """examples: [T, channels] each."""
        values = nn.utils.rnn.pad_sequence(examples, batch_first=True).to(trained.device)
        lengths = torch.tensor([len(x) for x in examples], device=trained.device)
        mask = torch.arange(values.shape[1], device=trained.device) < lengths[:, None]
        return [Prediction(x) for x in _answers(trained.model, values, mask)]

    def plain(self) -> Plain:
        train, test = self._series("train"), self._series("test")
        return Plain("series", (train.values, train.labels), (test.values, test.labels))

    def notes(self) -> Mapping[str, str]:
        return read_notes(*(self._series(split).notes for split in ("train", "test")))

    def facts(self, train_set: Any, eval_set: Any) -> dict[str, str]:
        sets = [self._series(split) for split in ("train", "test")]
        values = [x for found in sets for x in found.values]
        lengths = np.array([len(x) for x in values])
        one = lengths.min() == lengths.max()
        steps = f"{lengths[0]:,} steps each" if one else f"steps: {spread_of_lengths(lengths)}"
        count, names = values[0].shape[1], sets[0].channels
        channels = plural(count, "channel") + (f" ({brief(', '.join(names), 60)})" if names else "")
        gaps = sum(int(np.isnan(x).sum()) for x in values)
        missing = f"; {gaps / sum(x.size for x in values):.1%} of the values are missing" if gaps else ""
        found = super().facts(train_set, eval_set) | {"values": f"{channels}, {steps}{missing}"}
        if one:
            means = "means the same in all series, and is learned" if self.aligned else "means nothing by its place"
            found["places"] = f"a step {means} (--aligned {str(not self.aligned).lower()}: the other way)"
        if self.random_convolutions:
            found["beside"] = (
                f"a linear model of {self.model.random_kernels} random convolutions, fitted to the same series"
                f"{self.reached(self._random_convolutions()[1])}: both answer together"
            )
        return found

    def shown(self, index: int, examples: Any) -> Shown:
        return Shown("series", self._series("test").values[index])

    def _series(self, split: str) -> LabelledSeries:
        columns = (self.id_column, self.time_column)
        if split == "test" and self.test:
            train = functools.partial(self._series, "train")
            found = self.read_file(labelled_series, self.test, columns, train)
            return split_series(found)[1] if found.held else found
        found = self.read_file(labelled_series, self.data, columns)
        return found if self.test and not found.held else split_series(found)[split == "test"]

    def _scale(self) -> Scale:
        return Scale.of([x[: self.max_length or None] for x in self._series("train").values])

    def _examples(self, split: str, **distorted: Any) -> SeriesExamples:
        train, found, scale = self._series("train"), self._series(split), self._scale()
        path = self.test if split == "test" and self.test else self.data
        values = in_order(found, train.channels, len(scale.mean), path)
        return SeriesExamples(values, found.labels, scale, self.max_length, **distorted)


def _answers(model: nn.Module, values: Tensor, mask: Tensor) -> Tensor:
    """[B, T, channels] -> [B, classes]. Of a single channel, the model takes [B, T]."""
    return model(values[..., 0] if values.shape[-1] == 1 else values, mask)


def _random_convolutions(task: SeriesTask) -> tuple[RandomConvolutions, float]:
    series, model = task._examples("train"), task.model
    labels, (mean, std) = series.labels.numpy(), task.label_scale or (0.0, 1.0)
    if task.numbers:
        labels = (labels - mean) / std
    module = RandomConvolutions(model.random_kernels, model.random_reach, model.channels, model.classes)
    with working("fitting a linear model of random convolutions"):
        return module, fit(module, series, labels, len(task.classes))


@register_recipe("series")
def series(variant: str = "lion_s") -> Run:
    """Classes of series, numbers over time, or numbers, in a table, .ts or .npz: `lion train series --data x.csv`."""
    model = LongConfig(variant=variant, dim=128, depth=2, heads=4, stem=9, stem_depth=3, dropout=0.2)
    distortion = Distortion(warp=0.03, jitter=0.05, scale=0.1)
    parts: dict[str, Any] = {"tokens": 160, "smoothing": 0.1, "distortion": distortion, "random_convolutions": True}
    task = SeriesTask(label_scale=None, model=model, **parts)
    optim = Optim(lr=2e-3, weight_decay=0.05, warmup=0.1)
    return Run(task, optim, epochs=15, min_steps=1000, batch=32, group_by_length=True)

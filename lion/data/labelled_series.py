"""Labelled series: split, standardised, and as batches of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lion.configs import checked
from lion.data import digests
from lion.data.augment import scatter
from lion.data.batches import Batch, LabelledRows, padded_width, split_keys
from lion.data.distortion import Distortion
from lion.data.findings import Findings
from lion.data.labelled import as_labels
from lion.data.series import read_series
from lion.data.series_fields import Columns, Series
from lion.data.splits import stratified
from lion.limits import Holdout


class LabelledSeries(NamedTuple):
    values: list[np.ndarray]  # float64 [T, C] of each; NaN where one is missing
    labels: np.ndarray  # int64, by class; or float32, for regression
    classes: list[str] | None  # names, by label; None for regression
    columns: Columns = Columns()  # of the file, as found
    channels: tuple[str, ...] = ()  # their names, where the file has some
    held: int = 0  # so many, the last ones, are for evaluation
    notes: Mapping[str, str] = {}  # how the file was read, and what was skipped: `Findings.notes`

    def part(self, indices: np.ndarray) -> "LabelledSeries":
        return self._replace(values=[self.values[i] for i in indices], labels=self.labels[indices], held=0)


def labelled_series(
    path: Path | str,
    id_and_time: tuple[str, str] | None = None,
    label_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    numbers: bool | None = None,
    skip_bad: bool = False,
) -> LabelledSeries:
    """Series and their labels from a file, as `lion.data.series.read_series` reads it. All bad rows are listed in one
    error.

    Args:
        id_and_time, label_column: columns of a table; by default found by their usual names.
        classes, numbers: as for `lion.data.labelled.labelled`; a .ts file says itself which of both its labels are.
        skip_bad: leave bad rows out, and the series that they are steps of; `LabelledSeries.notes` has their number.
    """
    path = Path(path).expanduser()
    findings = Findings(path, others="series", skip=skip_bad)
    found = read_series(path, Columns(label_column or "", *(id_and_time or ())), findings=findings)
    if not found.values:
        findings.usable(found.rows)  # says what is wrong with all of them
    numbers = found.numbers if numbers is None and classes is None else numbers
    column = found.columns.label or "its label"
    labels, names = as_labels(path, found.labels, found.rows, column, classes, numbers, findings)
    good = findings.usable(found.rows)
    found, labels = found.part(good), labels[good]
    return LabelledSeries(found.values, labels, names, found.columns, found.channels, found.held, findings.notes)


def in_order(found: Series | LabelledSeries, channels: Sequence[str], count: int, path: Path | str) -> list[np.ndarray]:
    """The values with as many channels as the training data, in the same order where both files name them."""
    width = found.values[0].shape[1]
    if width != count:
        raise ValueError(f"{path} has {width} channels; expected {count}, as the training data.")
    if not channels or not found.channels or found.channels == tuple(channels):
        return found.values
    if {*found.channels} != {*channels}:
        names = [", ".join(map(repr, x)) for x in (found.channels, channels)]
        raise ValueError(f"{path} has the channels {names[0]}; expected {names[1]}, as the training data.")
    order = [found.channels.index(name) for name in channels]
    return [x[:, order] for x in found.values]


def split_series(found: LabelledSeries, holdout: float = 0.2, seed: int = 0) -> tuple[LabelledSeries, LabelledSeries]:
    """Two parts: as the file has them, or else the second with about this share of every class. The part of a series
    depends on its content: copies are in the same part, and other series hardly matter."""
    count = len(found.values)
    if found.held:
        return found.part(np.arange(count - found.held)), found.part(np.arange(count - found.held, count))
    checked(Holdout, holdout, "holdout")
    strata = found.labels if found.classes is not None else np.zeros(count, np.int64)
    kept, held = stratified(strata, holdout, seed, [x.tobytes() for x in found.values])
    if not len(held):
        raise ValueError(
            f"there are {count} series, too few to hold any out; expected two of a class, at least: add some, or give "
            "others with --test FILE."
        )
    return found.part(kept), found.part(held)


class Scale(NamedTuple):
    """What series are standardised by, for each channel."""

    mean: np.ndarray  # float64 [C]
    std: np.ndarray  # [C]
    missing: bool  # the model is told where values are missing

    @staticmethod
    def of(values: Sequence[np.ndarray]) -> "Scale":
        every = np.concatenate(values)  # [steps of all, C]
        there = ~np.isnan(every)
        counts = there.sum(0).clip(1)
        mean = np.where(there, every, 0).sum(0) / counts
        std = np.sqrt((np.where(there, every - mean, 0) ** 2).sum(0) / counts)
        return Scale(mean, np.where(std > 0, std, 1.0), not bool(there.all()))

    @property
    def channels(self) -> int:
        """Those of the model's input."""
        return len(self.mean) * (1 + self.missing)

    def apply(self, values: np.ndarray) -> np.ndarray:
        """[T, C] -> float32 [T, channels]: missing values are 0, and 1 in channels of their own behind the others."""
        gaps = np.isnan(values)
        found = np.where(gaps, 0, (values - self.mean) / self.std)
        return np.concatenate([found, gaps], 1, dtype=np.float32) if self.missing else found.astype(np.float32)


class SeriesExamples(LabelledRows):
    """Series with labels as batches of standardised numbers.

    Args:
        max_length: steps of a series; longer ones are cut. 0: all of them.
        distortion: for training; what it does depends on seed, epoch and index.
    """

    def __init__(
        self,
        values: Sequence[np.ndarray],
        labels: np.ndarray,
        scale: Scale,
        max_length: int = 0,
        *,
        distortion: Distortion | None = None,
        seed: int = 0,
    ):
        if len(values) != len(labels) or not len(values):
            raise ValueError(f"there are {len(values)} series and {len(labels)} labels; expected one label each.")
        self.longest = min(max(map(len, values)), max_length or 1 << 30)
        self.distortion, self.seed, self.channels = distortion, seed, len(scale.mean)
        super().__init__([scale.apply(x[: self.longest]) for x in values], labels)

    def digest(self) -> str:
        return digests.digest(self.ids, self.ends, self.labels)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Batch:
        """`values` [B, T, channels], padded with 0 to a multiple of 8, or to the longest series if that is less; `mask`
        [B, T], True for steps; `label` [B]."""
        epochs, indices = split_keys(keys)
        starts = np.where(indices > 0, self.ends[indices - 1], 0)
        lengths = self.ends[indices] - starts
        seeds = scatter(self.seed, epochs, indices)
        mask = np.arange(padded_width(int(lengths.max()), self.longest)) < lengths[:, None]  # [B, T]
        values = np.zeros((*mask.shape, self.ids.shape[1]), np.float32)
        for row, start, length, seed in zip(values, starts, lengths, seeds, strict=True):
            found = self.ids[start : start + length]
            if self.distortion:
                found = self.distortion(found, self.channels, np.random.default_rng(seed))
            row[:length] = found
        return {
            "values": torch.from_numpy(values),
            "mask": torch.from_numpy(mask),
            "label": self.labels[torch.from_numpy(indices)],
        }

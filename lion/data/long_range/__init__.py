"""The Long Range Arena's six tasks: `long_range("listops", "train")`."""

from lion.data.long_range.loaders import LONG_RANGE, long_range

__all__ = ["LONG_RANGE", "long_range"]

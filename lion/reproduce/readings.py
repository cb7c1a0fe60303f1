"""Numbers as exhibits read them from the results of steps."""

from collections.abc import Callable
from typing import Any

Reading = Callable[[Any], float | None]  # of a step's result
SEEDS = 2  # of an accuracy at laptop scale


def accuracy(result: Any) -> float:
    """Of a training, in percent."""
    return 100 * result["accuracy"]


def recorded(key: str, show: Callable[[dict], float | None] | None = None, **where: Any) -> Reading:
    """A number of a measurement's record, of the one with these values: the field `key`, or what `show` makes of the
    record. None, if it was left out."""

    def read(found: Any) -> float | None:
        for x in found["results"]:
            if all(x[name] == value for name, value in where.items()) and x[key] is not None:
                return show(x) if show else x[key]
        return None

    return read


def time_of(name: str, size: str, times: str) -> Reading:
    """The training time of a model, as a multiple of that model's which the field `times` compares it with."""
    return recorded(times, lambda x: 1 / x[times], name=name, size=size, training=True)

"""Progress bars, drawn by tqdm where it is installed and the output is a terminal."""

import contextlib
from typing import Any


class Bar(contextlib.AbstractContextManager["Bar"]):
    """A progress bar, or nothing."""

    def __init__(self, total: int, unit: str):
        self._bar: Any = None
        with contextlib.suppress(ImportError):
            from tqdm import tqdm

            # disable=None: only on a terminal
            self._bar = tqdm(total=total, unit=unit, leave=False, disable=None, dynamic_ncols=True)

    @property
    def visible(self) -> bool:
        return self._bar is not None and not self._bar.disable

    def advance(self, steps: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(steps)

    def describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description(text)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


progress = Bar

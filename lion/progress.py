"""What is shown of work that takes a while, on a terminal or in a notebook: a line that says what, or a bar.

Where neither is (a log file), nothing is shown. Bars are drawn by tqdm, if it is installed. There is one line of either
at a time: it is drawn over the one before. A line counts its seconds: one that stands still looks as if it hangs. A
command that a notebook runs by `!` has lines only, one below the other: a notebook that is saved keeps every state of a
bar.
"""

import contextlib
import contextvars
import functools
import io
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

# In a notebook without ipywidgets, libraries that we import look for them; our bars need none.
warnings.filterwarnings("ignore", message="IProgress not found")

CLEAR = "\x1b[K"  # the rest of the line
WIDTH = 80  # columns of a notebook
TICK = 1.0  # seconds from one state of a line to the next
_doing: list[tuple[str, float]] = []  # lines, and when they began
_bars: list["Bar"] = []  # drawn in the place of lines
_told: set[str] = set()  # lines of a command that a notebook runs


def in_kernel() -> bool:
    """Whether this is a notebook's process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def visible() -> bool:
    """Whether anybody sees bars. Of several processes, the first shows them."""
    return _first() and (in_kernel() or (sys.stderr.isatty() and not _below_kernel()))


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _below_kernel() -> bool:
    """Whether a notebook has started this process: its terminal is one in name only."""
    return "JPY_PARENT_PID" in os.environ and not in_kernel()


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show what is being done, until it is done; meanwhile bars take its place, and come back to it."""
    if _below_kernel() and _first() and text not in _told:
        _told.add(text)
        print(f"{text} ...", file=sys.stderr, flush=True)
    _doing.append((text, time.perf_counter()))
    _show()
    try:
        with _ticking() if len(_doing) == 1 else contextlib.nullcontext():
            yield
    finally:
        _doing.pop()
        _show()


@contextlib.contextmanager
def _ticking() -> Iterator[None]:
    """Show the line again and again: a thread, for most of what takes long is one call."""
    done = threading.Event()

    def tick() -> None:
        while not done.wait(TICK):
            _show()

    # The context of this thread: a notebook puts what a thread displays into the cell that its context names.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(tick,), daemon=True)
    if visible():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()


def _show() -> None:
    if not visible() or _bars:
        return
    text = _line(*_doing[-1]) if _doing else ""
    if in_kernel():
        _write_cell(text)
        return
    with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
        # The cursor stays in front: what others print takes the line's place.
        sys.stderr.write(f"\r{text}{CLEAR}\r")
        sys.stderr.flush()


def _line(text: str, since: float) -> str:
    seconds = int(time.perf_counter() - since)
    return f"{text} ... {seconds} s" if seconds else f"{text} ..."


def make_bar(total: int, unit: str, **options: Any) -> Any:
    """tqdm's bar, which goes when it is closed; None if nobody would see it."""
    if not visible():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    options |= {"total": total, "unit": unit, "leave": False}
    return _cell_bar()(**options) if in_kernel() else tqdm(**options, dynamic_ncols=True)


@functools.cache
def _cell_bar() -> Any:
    """A bar as text in a cell's output, which is replaced: it needs no widgets, and stays one line when it is saved."""
    from tqdm import tqdm

    class CellBar(tqdm):
        def __init__(self, **options: Any):
            super().__init__(**options, file=io.StringIO(), ncols=WIDTH, mininterval=0.5, ascii=False)

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            _write_cell(str(self) if msg is None else msg)
            return True

    return CellBar


def _write_cell(text: str) -> None:
    """Replace the line of the running cell."""
    from IPython import get_ipython
    from IPython.display import display, update_display

    place, content = f"lion-{get_ipython().execution_count}", {"text/plain": text}
    if place in _cells:
        update_display(content, display_id=place, raw=True)
    elif text:
        _cells.add(place)
        display(content, display_id=place, raw=True)


_cells: set[str] = set()  # whose line is there


class Bar(contextlib.AbstractContextManager["Bar"]):
    """A progress bar, or nothing."""

    def __init__(self, total: int, unit: str):
        self._bar = make_bar(total, unit)
        if self.visible:
            _bars.append(self)

    @property
    def visible(self) -> bool:
        return self._bar is not None

    def advance(self, steps: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(steps)

    def describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description(text)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            _bars.remove(self)
            self._bar.close()
            self._bar = None
            _show()


progress = Bar

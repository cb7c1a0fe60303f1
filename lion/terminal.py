"""Text for the terminal: tables, and numbers with their units."""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence

LONGEST = 600  # characters of a message about a file
SHOWN = 20  # names listed in a message
WIDEST = 100  # columns of text for people


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as text. Columns of numbers (and of "-" for none) are right-aligned."""
    line = columns(header, rows)
    return "\n".join([line(header), line(None), *map(line, rows)])


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Callable[[Sequence[object] | None], str]:
    """A function that makes lines of rows, as wide as these rows need; of None, the line below the header."""
    cells = [[str(x) for x in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in cells[1:]) for i in range(len(header))]

    def line(row: Sequence[object] | None) -> str:
        if row is None:
            return "  ".join("-" * w for w in widths)
        words = zip(map(str, row), widths, numeric, strict=True)
        return "  ".join(x.rjust(w) if right else x.ljust(w) for x, w, right in words).rstrip()

    return line


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Lines `name  text`, one below the other; a long text goes on below itself."""
    pairs = [(name.ljust(10) + "  ", text) for name, text in rows]
    indent = " " * max(len(name) for name, _ in pairs)
    lines = (
        textwrap.wrap(text, width(), initial_indent=name, subsequent_indent=indent, break_on_hyphens=False)
        for name, text in pairs
    )
    return "\n".join(line for some in lines for line in some)


def width() -> int:
    """The columns of the terminal, but no more than are easy to read; 80 where there is none."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-")[:1].isdigit() or text[:1] == "<"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def mebibytes(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 2**20:,.0f}" if count >= 2**20 else "<1"


def per_second(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def ratio(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}x"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"


def short(text: str) -> str:
    """A text in one line of at most `LONGEST` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def listed(names: Iterable[object]) -> str:
    """The first names, shortened, for a message."""
    every = list(names)
    shown = ", ".join(repr(brief(name, 40)) for name in every[:SHOWN])
    return shown if len(every) <= SHOWN else f"{shown} and {len(every) - SHOWN:,} more"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else several(noun)}"


def several(noun: str) -> str:
    return noun if noun.endswith("s") else f"{noun}s"


def brief(value: object, most: int = 200) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"

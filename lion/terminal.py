"""Plain text for the terminal."""

from collections.abc import Sequence

LONGEST = 600  # characters of what is wrong with a file


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they need to be; numbers (and dashes for none) to the right."""
    cells = [[str(x) for x in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in cells[1:]) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (x.rjust(w) if right else x.ljust(w) for x, w, right in zip(row, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * w for w in widths), *map(line, cells[1:])])


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or text[:1] == "<"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def mebibytes(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 2**20:,.0f}" if count >= 2**20 else "<1"


def ratio(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}x"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"


def short(text: str) -> str:
    """In one line, and not a long one."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"

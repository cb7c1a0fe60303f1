"""What README.md and docs tell a reader to type: blocks of Python, and commands."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb"))
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in FILES)
SHELL = ("", "sh", "indented")  # languages of blocks that may have commands
PROGRAMS = ("lion", "make", "pip", "pytest", "python")
TYPED = re.compile(rf" *(?:[A-Z_]+=\S+ )*((?:{'|'.join(PROGRAMS)})(?: .*)?)$")
SAID = re.compile(r"lion \w+:")  # by a command, not to it


def blocks(page: str) -> Iterator[tuple[str, int, str]]:
    """Language, number of the first line, and text of every block; "text" is what stands between them."""
    language, lines, first = "text", list[str](), 1
    for number, line in enumerate(_text(ROOT / page).splitlines(), 1):
        fence = re.match(r" *```(\w*)$", line)
        if fence:
            now = "text" if language not in ("text", "indented") else fence[1]
        elif language in ("text", "indented"):
            now = "indented" if re.match(r" {4,}\S", line) else "text"
        else:
            now = language
        if fence or now != language:
            yield language, first, dedent("\n".join(lines))
            language, lines, first = now, [], number + bool(fence)
        if not fence:
            lines.append(line)
    yield language, first, dedent("\n".join(lines))


def _text(path: Path) -> str:
    """Of a notebook, what is not code: test_notebooks.py has that."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return "\n\n".join("".join(x["source"]) for x in json.loads(text)["cells"] if x["cell_type"] == "markdown")


def python_blocks(page: str) -> list[tuple[int, str]]:
    return [(line, text) for language, line, text in blocks(page) if language == "python"]


def commands(page: str) -> list[list[str]]:
    """Words of the lines that begin with a program's name; `a && b` are two commands."""
    found = []
    for text in (text for language, _, text in blocks(page) if language in SHELL):
        for line in text.replace("\\\n", " ").splitlines():
            typed = TYPED.match(line)
            if typed and not SAID.match(typed[1]):
                words = "\0".join(shlex.split(typed[1], comments=True))
                found += [part.split("\0") for part in words.split("\0&&\0")]
    return [words for words in found if words[0] in PROGRAMS]


def mentions(page: str) -> list[list[str]]:
    """Commands in running text, as `lion list models`."""
    running = "\n".join(text for language, _, text in blocks(page) if language == "text")
    return [shlex.split(x) for x in re.findall(r"`(lion [^`]+)`", running) if "..." not in x]

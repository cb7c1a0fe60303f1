"""Where measured numbers go."""

import json
from pathlib import Path

from lion.files import replace


def save(path: Path | None, found: dict, *, unfinished: bool = False) -> None:
    """As JSON, if a path is given; says so, unless more is to come."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    replace(path, lambda temporary: temporary.write_text(text))
    if not unfinished:
        print(f"\nwritten to {path}")

"""Where measured numbers go."""

import json
from pathlib import Path


def save(path: Path | None, found: dict) -> None:
    """As JSON, if a path is given; says so."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nwritten to {path}")

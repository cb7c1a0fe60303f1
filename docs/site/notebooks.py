"""Notebooks as pages: their text, their code, and the outputs that are saved with them."""

import base64
import itertools
import json
from pathlib import Path

from mkdocs.structure.files import File


def pages(folder: Path, config) -> list[File]:
    """A page for each notebook of the folder, and its pictures."""
    found = []
    for path in sorted(folder.glob("*.ipynb")):
        text, pictures = _page(path)
        found.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        found += [File.generated(config, f"notebooks/{name}", content=data) for name, data in pictures.items()]
    return found


def _page(path: Path) -> tuple[str, dict[str, bytes]]:
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{text}\n```")
        for kind, outputs in itertools.groupby(map(_shown, cell["outputs"]), type):
            if kind is bytes:
                for picture in outputs:
                    name = f"{path.stem}-{len(pictures) + 1}.png"
                    pictures[name] = picture
                    parts.append(f"![What the cell shows]({name})")
            elif printed := "".join(outputs).strip("\n"):
                parts.append(f"``` {{ .text .no-copy }}\n{printed}\n```")
    return "\n\n".join([*parts, f"[This page as a notebook]({path.name})"]), pictures


def _shown(output) -> str | bytes:
    data = output.get("data", {"text/plain": output.get("text", "")})
    return base64.b64decode("".join(data["image/png"])) if "image/png" in data else "".join(data["text/plain"])

"""Model cards: README.md beside the weights, in the form that Hugging Face's hub reads."""

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from lion import files
from lion._version import __version__
from lion.nn.variants import VARIANTS

CARD = "README.md"
SIZES = (  # names of a config's fields, here and in transformers
    ("variant",),
    ("dim", "hidden_size"),
    ("depth", "num_hidden_layers"),
    ("heads", "num_attention_heads"),
)
MORE_SIZES = {  # rows of the card, where the config has the field
    "vocabulary": "vocab_size",
    "image size": "image_size",
    "patch size": "patch_size",
    "positions": "positions",
    "direction": "direction",
}
# By class: the hub's name of the task, the Auto class that loads the model, and what the model is.
KINDS: dict[str, tuple[str, str, str]] = {
    "VisionModel": ("image-classification", "", "An image model"),
    "LongModel": ("", "", "A model of long sequences"),
    "LionModel": ("feature-extraction", "AutoModel", "A text encoder"),
    "LionForMaskedLM": ("fill-mask", "AutoModelForMaskedLM", "A masked language model"),
    "LionForSequenceClassification": (
        "text-classification",
        "AutoModelForSequenceClassification",
        "A classifier of texts",
    ),
    "LionForTokenClassification": ("token-classification", "AutoModelForTokenClassification", "A classifier of tokens"),
    "LionForCausalLM": ("text-generation", "AutoModelForCausalLM", "A causal language model"),
}
OURS = '```python\nimport lion\n\nmodel = lion.load_model("{folder}")\n```\n\n    pip install lion-attention'
THEIRS = (
    "```python\nimport lion.integrations.hf  # or trust_remote_code=True below\nfrom transformers import {auto}\n\n"
    "model = {auto}.from_pretrained(\"{folder}\")\n```\n\n    pip install 'lion-attention[hf]'"
)
FOLDER = "path/to/this/folder"
MARK = re.compile(r"\n<!-- Saving the model again replaces this text, unless it was edited \((\d+)\)\. -->\n\Z")


def write_card(model: nn.Module, folder: Path, about: Mapping[str, str] | None = None) -> None:
    """Write the card of a model into its folder. One that somebody has written or edited stays as it is.

    about: rows on training: data, metrics.
    """
    path = folder / CARD
    if not path.exists() or _untouched(path):
        text = card(model, about or {})
        mark = f"\n<!-- Saving the model again replaces this text, unless it was edited ({_digest(text)}). -->\n"
        files.replace(path, lambda temporary: temporary.write_text(text + mark, encoding="utf-8"))


def card(model: nn.Module, about: Mapping[str, str]) -> str:
    """The card's text: a header in YAML, and Markdown."""
    config: Any = getattr(model, "config", None)
    name = type(model).__name__
    task, auto, kind = KINDS.get(name, ("", "", "A model"))
    if task == "image-classification" and not config.num_classes:
        task = "image-feature-extraction"
    variant, *_ = sizes(config)
    known = VARIANTS.get(str(variant))
    softmax = known is not None and known.softmax
    tags = ["lion", "pytorch", *([] if softmax else ["linear-attention"]), *([str(variant)] if variant else [])]
    header = [
        "library_name: " + ("transformers" if auto else "lion-attention"),
        *([f"pipeline_tag: {task}"] if task else []),
        "tags:",
        *(f"- {tag}" for tag in tags),
        "# license: whoever publishes the weights chooses one, for instance apache-2.0",
    ]
    attention = (
        "softmax attention" if softmax else "linear attention: its time and memory grow linearly with the length"
    )
    use = (THEIRS if auto else OURS).format(auto=auto, folder=FOLDER)
    parts = [
        "---\n" + "\n".join(header) + "\n---",
        f"# {name}" + (f", {variant}" if variant else ""),
        f"{kind} with {attention}. Written by lion-attention {__version__}.",
        _table(_rows(model, config, known.about if known else "")),
        *(["## Training", _table(about)] if about else []),
        "## Use",
        use,
    ]
    return "\n\n".join(parts) + "\n"


def sizes(config: Any) -> list[Any]:
    """Variant, dim, depth and heads of a config; None for those it has not."""
    return [next((getattr(config, name) for name in names if hasattr(config, name)), None) for names in SIZES]


def _rows(model: nn.Module, config: Any, about: str) -> dict[str, str]:
    variant, dim, depth, heads = sizes(config)
    labels = getattr(config, "num_classes", getattr(config, "classes", None))
    classes = getattr(config, "num_labels", None) if "Classification" in type(model).__name__ else labels
    parameters = list(model.parameters())
    rows = {
        "variant": f"`{variant}`: {about}" if about else variant,
        "parameters": f"{sum(x.numel() for x in parameters):,}",
        "blocks": depth,
        "channels": dim,
        "heads": heads,
        "classes": classes if isinstance(classes, int) else None,
        **{row: getattr(config, name, None) for row, name in MORE_SIZES.items()},
        "precision": ", ".join(sorted({str(x.dtype).removeprefix("torch.") for x in parameters})),
    }
    return {name: _words(x) for name, x in rows.items() if x not in (None, "", 0)}


def _words(x: Any) -> str:
    return " x ".join(map(str, x)) if isinstance(x, tuple) else f"{x:,}" if isinstance(x, int) else str(x)


def _table(rows: Mapping[str, str]) -> str:
    cells = ((name, " ".join(str(text).split()).replace("|", "\\|")) for name, text in rows.items())
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in cells)])


def _digest(text: str) -> int:
    return zlib.crc32(text.encode())


def _untouched(path: Path) -> bool:
    """Whether a card is as `write_card` has left it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    mark = MARK.search(text)
    return mark is not None and int(mark[1]) == _digest(text[: mark.start()])

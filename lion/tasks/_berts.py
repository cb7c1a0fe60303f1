"""Trained BERTs that text models are made from: MiniLM, which is fetched, or one in a folder."""

import functools
from pathlib import Path
from typing import Any

from lion.data import fetch
from lion.files import read_json
from lion.models.saving import load_pretrained

FETCHED = "minilm"


def bert_folder(name: str) -> Path:
    return fetch(FETCHED) if name == FETCHED else Path(name).expanduser()


def is_bert(name: str) -> bool:
    """Whether it is MiniLM, or the folder of a BERT that transformers wrote."""
    if name == FETCHED:
        return True
    file = Path(name).expanduser() / "config.json"
    plain = read_json(file) if file.is_file() else None
    return isinstance(plain, dict) and plain.get("model_type") in _kinds()


@functools.lru_cache(maxsize=1)
def trained_bert(name: str, field: str) -> Any:
    """The model of a name that `field` has, for errors; it is not to be changed."""
    folder = bert_folder(name)
    if not (folder / "config.json").exists():
        raise ValueError(f"{field} is {name!r}; expected {FETCHED!r} or the folder of a BERT that transformers wrote.")
    kinds, kind = _kinds(), read_json(folder / "config.json").get("model_type")
    if kind not in kinds:
        known = ", ".join(map(repr, kinds))
        raise ValueError(f"{field} is {name!r}, which has a model of the kind {kind!r}; expected one of {known}.")
    model, found = load_pretrained(kinds[kind], folder)
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ValueError(f"{field} is {name!r}, whose weights lack {missing[0]} and {len(missing) - 1} more.")
    return model.eval().requires_grad_(False)


def _kinds() -> dict[str, Any]:
    from lion.integrations.hf.conversion import BASES

    return BASES

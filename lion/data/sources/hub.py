"""Datasets of the Hugging Face hub, streamed row by row: hf://owner/name."""

from collections.abc import Iterator
from typing import Any

from lion.optional import need

HUB = "hf://"


def on_hub(source: object) -> bool:
    return isinstance(source, str) and source.startswith(HUB)


def hub_rows(source: str, split: str, configuration: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place of each row, for messages, and its fields.

    Args:
        source: hf://owner/name or hf://owner/name/configuration.
        configuration: the dataset's configuration, if the source does not name one.
    """
    parts = source.removeprefix(HUB).split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError(f"source is {source!r}; expected {HUB}owner/name or {HUB}owner/name/configuration.")
    try:
        load = need("datasets", "datasets", "hub").load_dataset
    except ImportError as missing:
        raise ImportError(
            f"{source} is on the Hugging Face hub; {missing}; or give files of your own as data (--data)."
        ) from None
    which = parts[2:] or ([configuration] if configuration else [])

    def read() -> Iterator[tuple[str, dict[str, Any]]]:
        try:
            rows = load("/".join(parts[:2]), *which, split=split, streaming=True)
        except OSError as problem:
            raise ConnectionError(
                f"{source} cannot be read ({problem}); expected the Hugging Face hub, or files of your own as data "
                "(--data)."
            ) from problem
        for number, fields in enumerate(rows, 1):
            yield f"{source}, row {number}", fields

    return read()

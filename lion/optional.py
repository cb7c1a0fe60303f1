"""Packages that not everything needs: imported where something does."""

import importlib
from typing import Any


def need(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(f"{package} is needed for this: pip install 'lion-attention[{extra}]'") from missing

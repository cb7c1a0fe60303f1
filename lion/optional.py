"""Packages that not everything needs: imported where something does."""

import importlib
import logging
import sys
from typing import Any

log = logging.getLogger("lion")


def need(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(f"{package} is needed for this: pip install 'lion-attention[{extra}]'") from missing


def need_transformers() -> None:
    """transformers looks for a torchvision, and fails with it if that was built for another torch. Such a one is of no
    use to anybody: it is made to look as if it were not there."""
    if "transformers" not in sys.modules and sys.modules.get("torchvision", ...) is not None:
        try:
            importlib.import_module("torchvision")
        except ImportError:
            pass
        except Exception as problem:
            log.info("torchvision does not load, and is left out: %s", problem)
            sys.modules["torchvision"] = None  # type: ignore[assignment]
    need("transformers", "transformers", "hf")

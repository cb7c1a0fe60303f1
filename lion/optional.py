"""Packages that not everything needs: imported where something does."""

import importlib
import importlib.metadata
import logging
import sys
from typing import Any

log = logging.getLogger("lion")

declared: list[Any] = []  # operators live as long as the library that declares them


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


def need_timm(module: str = "timm") -> Any:
    """A module of timm. timm imports torchvision, and of that it needs the Python code alone: a torchvision that was
    built for another torch serves as well, once torch has heard the names of its operators."""
    if sys.modules.get("torchvision", ...) is None:  # left out by need_transformers
        del sys.modules["torchvision"]
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass  # for timm to say
    except RuntimeError as problem:
        log.info("torchvision runs without its compiled operators: %s", problem)
        _declare_torchvision_operators()
    try:
        return need(module, "timm", "timm")
    except RuntimeError as problem:
        raise ImportError(f"timm does not load ({problem}); {torchvision_remedy()}.") from problem


def torchvision_remedy() -> str:
    """What to install where torchvision does not load."""
    version = importlib.metadata.version("torch")
    return f"install the torchvision that is built for torch {version}, from where that torch came (pytorch.org)"


def _declare_torchvision_operators() -> None:
    """nms and qnms, as torchvision declares them in C++: its Python code describes them to torch's compilers as it is
    imported. Calling one is refused by torchvision itself."""
    import torch  # not before it is needed: this module is the command line's, too

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declared.append(library)

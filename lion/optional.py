"""Packages that not everything needs: imported where something does."""

import importlib
import importlib.metadata
import logging
from typing import Any

log = logging.getLogger("lion")

declared: list[Any] = []  # operators live as long as the library that declares them


def need(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(f"{package} is needed for this: pip install 'lion-attention[{extra}]'") from missing


def need_transformers() -> None:
    _mend_torchvision()  # which transformers looks for, and fails with if that does
    need("transformers", "transformers", "hf")


def need_timm(module: str = "timm") -> Any:
    """A module of timm, which imports torchvision."""
    _mend_torchvision()
    try:
        return need(module, "timm", "timm")
    except RuntimeError as problem:
        raise ImportError(f"timm does not load ({problem}); {torchvision_remedy()}.") from problem


def _mend_torchvision() -> None:
    """timm and transformers need torchvision's Python code alone: one that was built for another torch serves as well,
    once torch has heard the names of its operators."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass  # whoever needs it says so
    except RuntimeError as problem:
        log.info("torchvision runs without its compiled operators: %s", problem)
        _declare_torchvision_operators()


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

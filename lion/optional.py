"""Imports of optional packages, with the command that installs them as the error."""

import importlib
import importlib.metadata
import logging
from typing import Any

log = logging.getLogger("lion")

declared: list[Any] = []  # libraries of declared operators, which must stay alive


def need(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(f"{package} is needed for this: pip install 'lion-attention[{extra}]'") from missing


def need_transformers() -> None:
    _mend_torchvision()  # transformers imports it, if it is there
    need("transformers", "transformers", "hf")


def need_timm(module: str = "timm") -> Any:
    """A module of timm, which imports torchvision."""
    _mend_torchvision()
    try:
        return need(module, "timm", "timm")
    except RuntimeError as problem:
        raise ImportError(f"timm does not load ({problem}); {torchvision_remedy()}.") from problem


def _mend_torchvision() -> None:
    """timm and transformers need torchvision's Python code only, so a torchvision that was built for another torch will
    do, once its operators are declared."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass  # an error where it is needed
    except RuntimeError as problem:
        log.info("torchvision runs without its compiled operators: %s", problem)
        _declare_torchvision_operators()


def torchvision_remedy() -> str:
    """The remedy where torchvision does not load."""
    version = importlib.metadata.version("torch")
    return f"install the torchvision that is built for torch {version}, from where that torch came (pytorch.org)"


def _declare_torchvision_operators() -> None:
    """Declare nms and qnms as torchvision does in C++: its Python code registers fake versions on import. torchvision
    itself refuses calls of them."""
    import torch  # only here: the command line imports this module, too

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declared.append(library)

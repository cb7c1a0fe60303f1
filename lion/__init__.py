"""Bidirectional linear attention: train like a Transformer, run like an RNN, with the same outputs."""

import importlib
from typing import TYPE_CHECKING

from lion._version import __version__ as __version__

if TYPE_CHECKING:
    from lion.models.registry import MODELS as MODELS
    from lion.models.registry import create_model as create_model
    from lion.models.saving import load_model as load_model
    from lion.models.saving import save_model as save_model
    from lion.nn.layers import LionAttention as LionAttention
    from lion.nn.layers import set_form as set_form
    from lion.nn.variants import VARIANTS as VARIANTS
    from lion.ops.attention import attention as attention
    from lion.ops.attention import attention_states as attention_states
    from lion.ops.attention import explain as explain
    from lion.ops.state import State as State
    from lion.ops.state import States as States
    from lion.ops.step import attention_step as attention_step

HOME = {  # of every name
    "attention": "lion.ops.attention",
    "attention_states": "lion.ops.attention",
    "attention_step": "lion.ops.step",
    "explain": "lion.ops.attention",
    "create_model": "lion.models.registry",
    "load_model": "lion.models.saving",
    "save_model": "lion.models.saving",
    "LionAttention": "lion.nn.layers",
    "MODELS": "lion.models.registry",
    "set_form": "lion.nn.layers",
    "State": "lion.ops.state",
    "States": "lion.ops.state",
    "VARIANTS": "lion.nn.variants",
}
__all__ = [*HOME, "__version__"]


def _attribute(name: str):
    """Import torch only when something of it is used: `lion --help` need not wait for it."""
    if name in HOME:
        globals()[name] = getattr(importlib.import_module(HOME[name]), name)  # from now on without this detour
        return globals()[name]
    raise AttributeError(f"module 'lion' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker would take it that there is every name
    __getattr__ = _attribute


def __dir__() -> list[str]:
    return __all__

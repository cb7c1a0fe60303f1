"""Bidirectional linear attention: train like a Transformer, run like an RNN, with the same outputs."""

from typing import TYPE_CHECKING

from lion._version import __version__ as __version__

if TYPE_CHECKING:
    from lion.ops.attention import attention as attention
    from lion.ops.attention import explain as explain

__all__ = ["__version__", "attention", "explain"]


def __getattr__(name: str):
    """Import torch only when something of it is used: `lion --help` need not wait for it."""
    if name in ("attention", "explain"):
        from lion.ops import attention as module

        globals()[name] = getattr(module, name)  # from now on without this detour
        return globals()[name]
    raise AttributeError(f"module 'lion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

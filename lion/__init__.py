"""Bidirectional linear attention: train like a Transformer, run like an RNN, with the same outputs."""

from lion._version import __version__ as __version__
from lion.ops.attention import attention as attention
from lion.ops.attention import explain as explain

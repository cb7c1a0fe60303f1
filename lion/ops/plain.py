"""Calls that have to consist of torch's own operators.

Fused kernels are operators of their own. An exported graph is to run where lion is not installed; and forward-mode
differentiation, the transforms of torch.func and derivatives of derivatives look into every operator, and know torch's.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

_asked: ContextVar[bool] = ContextVar("lion_plain", default=False)
_to_onnx = False  # no ContextVar: the tracer of torch.compile cannot read one


def transformed() -> bool:
    """Whether torch.func (grad, vjp, jvp, vmap, ...) or forward-mode differentiation is under way. The tracer of
    torch.compile sees neither."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def plain() -> bool:
    """Whether only torch's own operators will do."""
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return _asked.get() or transformed()


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


def to_onnx() -> bool:
    """Whether operators of ours stay in an exported graph: lion.export has an ONNX function for each."""
    return _to_onnx


@contextlib.contextmanager
def for_onnx() -> Iterator[None]:
    global _to_onnx
    _to_onnx = True
    try:
        yield
    finally:
        _to_onnx = False


def differentiable_gradients(
    function: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of a function of tensors, as results that can be differentiated once more.

    A fused backward pass cannot. So with create_graph=True the function is computed again, by torch's own operators.
    """
    with torch.enable_grad(), plainly():
        # Aliases: an input that is the function of another one's is not to count for that one, too.
        own = [None if x is None else x.view_as(x) for x in inputs]
        outputs = zip(function(*own), grads, strict=True)
        given = [(y, dy) for y, dy in outputs if y is not None and dy is not None and y.requires_grad]
        wanted = [x for x in own if x is not None and x.requires_grad]
        if not (given and wanted):
            return [None] * len(own)
        of, along = zip(*given, strict=True)
        found = iter(torch.autograd.grad(of, wanted, along, create_graph=True, allow_unused=True))
        return [next(found) if x is not None and x.requires_grad else None for x in own]

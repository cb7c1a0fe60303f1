"""What the kernels read, write and multiply, counted while they are interpreted."""

import contextlib
from collections.abc import Iterator

import pytest
from triton.runtime import interpreter


class Counts:
    def __init__(self) -> None:
        self.bytes = 0
        self.flops = 0
        self.launches: list[str] = []


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    counts = Counts()
    builder = interpreter.InterpreterBuilder
    load, store, dot, run = (
        builder.create_masked_load,
        builder.create_masked_store,
        builder.create_dot,
        interpreter.InterpretedFunction.run,
    )

    def moved(pointers, mask) -> None:
        counts.bytes += int(mask.data.sum()) * pointers.get_element_ty().primitive_bitwidth // 8

    def counting_load(self, pointers, mask, *rest):
        moved(pointers, mask)
        return load(self, pointers, mask, *rest)

    def counting_store(self, pointers, value, mask, *rest):
        moved(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def counting_dot(self, a, b, *rest):
        counts.flops += 2 * a.data.shape[0] * a.data.shape[1] * b.data.shape[1]
        return dot(self, a, b, *rest)

    def counting_run(self, *args, **kwargs):
        counts.launches.append(self.fn.__name__)
        return run(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "create_masked_load", counting_load)
        patch.setattr(builder, "create_masked_store", counting_store)
        patch.setattr(builder, "create_dot", counting_dot)
        patch.setattr(interpreter.InterpretedFunction, "run", counting_run)
        yield counts

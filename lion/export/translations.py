"""Our operators in the graphs that torch.onnx makes."""

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript import values

from lion.export.diagonal import diagonal_scan
from lion.export.operators import Scanned, scan


class Translations:
    """Each becomes a call of a function, of which the file has one."""

    def __init__(self, opset: int):
        self.opset = opset
        self.functions: dict[str, ir.Function] = {}
        self._domain = values.Opset("lion", 1)

    def table(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """By operator; torch.onnx wants plain functions."""

        def scanned(q, k, v, f, b, direction, include_self, with_den, chunk_size):
            asked = Scanned(direction, include_self, with_den, chunk_size, f.dtype, f.shape[3] != 1)
            make = diagonal_scan if asked.diagonal else scan
            return self._call(asked.name, lambda: make(asked, self.opset), ["num", "den"], q, k, v, f, b)

        return {torch.ops.lion.scan.default: scanned}

    def add_to(self, model: ir.Model) -> None:
        for function in self.functions.values():
            model.functions[function.identifier()] = function
            model.opset_imports["lion"] = 1

    def _call(self, name: str, make: Callable[[], ir.Function], outputs: list[str], *inputs: Any) -> Any:
        if name not in self.functions:
            self.functions[name] = make()
        formal = onnx.defs.OpSchema.FormalParameter
        schema = onnx.defs.OpSchema(
            name,
            "lion",
            1,
            inputs=[formal(f"x{i}", "T") for i in range(len(inputs))],
            outputs=[formal(x, "T") for x in outputs],
            type_constraints=[("T", ["tensor(float)", "tensor(double)"], "")],
        )
        return values.Op(self._domain, name, schema)(*inputs)

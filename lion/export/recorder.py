"""Graphs of ONNX, written as Python expressions: `g.Add(g.Exp(x), 1.0)` adds two nodes and a constant."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape


class Recorder:
    """The nodes of one graph, function or body of a loop. A body may use what the graph around it has computed.

    Numbers become constants: floats of the recorder's dtype, integers and lists of them int64.
    """

    def __init__(self, dtype: ir.DataType, names: "itertools.count[int] | None" = None):
        self.dtype = dtype
        self.names = itertools.count() if names is None else names
        self._tape = Tape()
        self._inputs: list[ir.Value] = []

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        if operator.startswith("_"):
            raise AttributeError(operator)
        return functools.partial(self.node, operator)

    def node(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        values = [x if x is None or isinstance(x, ir.Value) else self.constant(x) for x in inputs]
        made = self._tape.op_multi_out(operator, values, attributes=attributes, num_outputs=outputs)
        for x in made:
            x.name = f"v{next(self.names)}"
        return made[0] if outputs == 1 else made

    def constant(self, number: Any) -> ir.Value:
        dtype = self.dtype.numpy() if isinstance(number, float) else np.int64
        return self.node("Constant", value=ir.tensor(np.array(number, dtype)))

    def input(self, dtype: ir.DataType | None = None) -> ir.Value:
        x = ir.Value(name=f"v{next(self.names)}", type=ir.TensorType(dtype or self.dtype))
        self._inputs.append(x)
        return x

    def sizes(self, x: ir.Value, rank: int) -> list[ir.Value]:
        """The size of each dimension, [1] each."""
        return [self.Shape(x, start=i, end=i + 1) for i in range(rank)]

    def join(self, *parts: Any, axis: int = 0) -> ir.Value:
        return self.Concat(*parts, axis=axis)

    def body(self) -> "Recorder":
        """A recorder for the body of a loop of this graph."""
        return Recorder(self.dtype, self.names)

    def scan(
        self,
        body: "Recorder",
        results: Sequence[ir.Value],
        initial: Sequence[ir.Value],
        over: Sequence[ir.Value],
        *,
        reverse: bool = False,
    ) -> list[ir.Value]:
        """ONNX's Scan: states and what it goes over are the body's inputs, in this order; its results are the states
        and one thing of each turn. Returns those, of all turns."""
        graph = ir.Graph(body._inputs, results, nodes=body._tape.nodes, name=f"body{next(self.names)}")
        ways = {
            f"scan_{x}_directions": [int(reverse)] * n
            for x, n in (("input", len(over)), ("output", len(results) - len(initial)))
        }
        made: Any = self.node(
            "Scan", *initial, *over, outputs=len(results), body=graph, num_scan_inputs=len(over), **ways
        )
        return (made if len(results) > 1 else [made])[len(initial) :]

    def function(self, domain: str, name: str, results: Sequence[ir.Value], opset: int) -> ir.Function:
        graph = ir.Graph(self._inputs, results, nodes=self._tape.nodes, opset_imports={"": opset}, name=name)
        return ir.Function(domain, name, graph=graph, attributes=[])

"""TorchScript: `torch.jit.script(model)` for the image models.

TorchScript compiles a small part of Python. A layer of attention is more than that. But torch.export turns it into a
graph of torch's own operators, for any number of images and tokens, which TorchScript compiles.
"""

import copy
import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim

KEPT = 32  # graphs; layers that differ in their weights only share one
SIZES = {"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "height": Dim.DYNAMIC, "width": Dim.DYNAMIC}

_graphs: dict[str, tuple[fx.Graph, dict[str, Tensor]]] = {}  # with their constants, by `likeness`


class Scriptable(nn.Module):
    """A layer, forward(x, grid), in whose place torch.jit.script compiles a graph with the same parameters."""

    def to_export(self) -> nn.Module:
        """The module that is exported: this one, or a twin that computes the same."""
        return self

    def __prepare_scriptable__(self) -> nn.Module:
        layer = self.to_export()
        key = likeness(layer)
        if key not in _graphs:
            if len(_graphs) == KEPT:
                _graphs.clear()
            _graphs[key] = _graph_of(layer)
        graph, constants = _graphs[key]
        tensors = {**constants, **dict(self.named_parameters()), **dict(self.named_buffers())}
        module = fx.GraphModule(tensors, copy.copy(graph)).train(self.training)
        # torch.jit.script knows modules by their address: none must be freed and its address used again before it ends.
        module.__dict__["in_place_of"] = (self,)
        return module


class WithScriptable(nn.Module):
    """A model with such layers. torch.jit.script replaces them in place: so it gets a copy with the same parameters."""

    def __prepare_scriptable__(self) -> nn.Module:
        return copy.deepcopy(self, {id(x): x for x in (*self.parameters(), *self.buffers())})


def likeness(module: nn.Module) -> str:
    """A text that is the same for modules with the same graph."""
    parts = []
    for name, part in module.named_modules():
        options = {key: value for key, value in vars(part).items() if not key.startswith("_")}
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        shapes = [(key, tuple(x.shape), x.dtype, x.device) for key, x in tensors]
        parts.append((name, type(part), options, shapes))
    return repr(parts)


class _ByTokens(nn.Module):
    """A layer that takes height and width apart: torch.export cannot make the numbers of a tuple dynamic."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        return self.layer(x, grid=(height, width))


def _graph_of(layer: Any) -> tuple[fx.Graph, dict[str, Tensor]]:
    """forward(x, grid) as a graph that TorchScript compiles, and the tensors in it that are not the layer's own."""
    height, width, like = 5, 7, next(layer.parameters())
    x = torch.zeros(2, 1 + height * width, layer.dim, dtype=like.dtype, device=like.device)
    exported = torch.export.export(_ByTokens(layer), (x, height, width), dynamic_shapes=SIZES).module()
    graph, new = fx.Graph(), {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            if node.name == "x":
                new[node] = graph.create_node("placeholder", "x", type_expr=Tensor)
                grid = graph.create_node("placeholder", "grid", type_expr=tuple[int, int])
            else:
                new[node] = graph.call_function(operator.getitem, (grid, ("height", "width").index(node.name)))
        elif node.op == "output":
            [[out]] = node.args
            graph.output(new[out])
        elif not _only_checks(node):
            new[node] = graph.node_copy(node, new.__getitem__)
            new[node].target = _scriptable_target(node)
    graph.eliminate_dead_code()
    graph.lint()
    own = {name for name, _ in (*layer.named_parameters(), *layer.named_buffers())}
    attributes = [node.target for node in graph.nodes if node.op == "get_attr"]
    return graph, {name: operator.attrgetter(name)(exported) for name in attributes if name not in own}


def _only_checks(node: fx.Node) -> bool:
    """Whether a node of an exported graph only checks inputs."""
    return node.op == "call_module" or "_assert" in str(node.target)


def _scriptable_target(node: fx.Node) -> Any:
    if node.op == "get_attr":
        return str(node.target).removeprefix("layer.")
    # TorchScript finds overloads by their arguments.
    return node.target.overloadpacket if isinstance(node.target, torch._ops.OpOverload) else node.target

"""Weights as whole numbers of 8 bits, by ONNX Runtime's own quantizer, and what that costs in accuracy."""

import collections
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lion import files
from lion.data.batches import Batch
from lion.export.onnx_files import quietly, session
from lion.export.subjects import Subject
from lion.models.heads import IGNORED
from lion.progress import progress, working
from lion.tasks import Trained

PRODUCTS = ("MatMul", "Gemm")
MOST = 512  # examples of the eval set, evenly spaced over it


def quantize(file: Path, subject: Subject, trained: Trained) -> dict[str, dict[str, float]]:
    """Replace a file by one with such weights; metrics of the eval set, of both."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    before = measured(file, subject, trained, "measuring float32")

    def write(unfinished: Path) -> None:
        with working("quantizing"), quietly():
            model = onnx.load(file)
            del model.graph.value_info[:]  # shapes of weights, which the quantizer transposes
            _give_each_its_own(model.graph)
            linear = {x.name for x in model.graph.initializer if len(x.dims) == 2}
            others = [x.name for x in model.graph.node if x.op_type in PRODUCTS and x.input[1] not in linear]
            options = {"weight_type": QuantType.QInt8, "per_channel": True, "nodes_to_exclude": others}
            quantize_dynamic(model, unfinished, op_types_to_quantize=list(PRODUCTS), **options)

    files.replace(file, write)
    return {"float32": before, "int8": measured(file, subject, trained, "measuring int8")}


def _give_each_its_own(graph: Any) -> None:
    """A weight of its own for every product: the quantizer transposes them in place, embeddings that share one, too."""
    uses = collections.Counter(name for node in graph.node for name in node.input)
    weights = {x.name: x for x in graph.initializer}
    for node in graph.node:
        if node.op_type in PRODUCTS and node.input[1] in weights and uses[node.input[1]] > 1:
            own = graph.initializer.add()
            own.CopyFrom(weights[node.input[1]])
            own.name = node.input[1] = f"{node.input[1]}_of_{node.name}"


def measured(file: Path, subject: Subject, trained: Trained, doing: str) -> dict[str, float]:
    """Metrics of the run's eval set, with the file in the place of the model."""
    from lion.train.evaluate import means, measure_all

    task = trained.task.using(trained.beside)
    examples = task.eval_set()
    keys = [(0, int(i)) for i in np.linspace(0, len(examples) - 1, min(MOST, len(examples)))]
    with working(doing), progress(len(keys), task.unit) as bar:

        def batches() -> Iterator[Batch]:
            for first in range(0, len(keys), trained.batch):
                part = keys[first : first + trained.batch]
                yield examples.__getitems__(part)
                bar.advance(len(part))

        sums = measure_all(task, InRuntime(file, subject, trained.model), batches(), torch.device("cpu"))
    found = task.concluded(means(sums))
    return {name: float(x) for name, x in found.items() if not isinstance(x, Tensor) or not x.dim()}


class InRuntime(nn.Module):
    """A file that is called as its model is, by a task that measures it."""

    def __init__(self, file: Path, subject: Subject, model: nn.Module):
        super().__init__()
        self.running, self.subject = session(file), subject
        self.config: Any = model.config
        self.head = (model,)  # for its loss; in a tuple, as it is no part of this

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *_: Any,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **options: Any,
    ) -> Any:
        """Logits; of models for transformers in an object, as they have it."""
        names = [port.name for port in self.subject.inputs]
        given: dict[str, Tensor] = {names[0]: x}
        if "attention_mask" in names:
            mask = torch.ones(x.shape[: len(self.subject.inputs[1].shape)]) if mask is None else mask
            given["attention_mask"] = mask.long()
        if "token_type_ids" in names:
            given["token_type_ids"] = torch.zeros_like(x) if token_type_ids is None else token_type_ids
        logits = self._by_token(given) if "past.0.sums" in names else self._run(given)["logits"]
        if not hasattr(self.config, "model_type"):
            return logits
        if labels is None:
            return SimpleNamespace(logits=logits)
        logits, labels = logits[labels != IGNORED], labels[labels != IGNORED]  # as with sparse_logits
        head: Any = self.head[0]
        return SimpleNamespace(logits=logits, loss=head.loss(logits, labels, num_items_in_batch))

    def _run(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs = self.running.run(None, {name: x.numpy() for name, x in given.items()})
        names = (port.name for port in self.subject.outputs)
        return {name: torch.from_numpy(x) for name, x in zip(names, outputs, strict=True)}

    def _by_token(self, given: dict[str, Tensor]) -> Tensor:
        """[B, T, vocabulary], of a causal model: each token with the state behind the one before."""
        ids, mask = given["input_ids"], given["attention_mask"]
        first = dict(zip(given, (ids, mask), strict=True))
        ports = self.subject.inputs
        states = dict(zip((x.name for x in ports), self.subject.some({"batch": len(ids), "length": 1}), strict=True))
        logits = []
        for t in range(ids.shape[1]):
            found = self._run(states | {name: x[:, t : t + 1] for name, x in first.items()})
            logits.append(found.pop("logits"))
            states |= {name.replace("present.", "past."): x for name, x in found.items()}
        return torch.stack(logits, 1)

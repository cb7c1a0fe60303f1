"""ONNX files of models, in operators of ONNX itself, which every runtime has."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lion import files
from lion._version import __version__
from lion.export import trials
from lion.export.subjects import Subject, subject_of
from lion.ops.plain import for_onnx
from lion.optional import need
from lion.progress import working

OPSET = 20  # of ONNX; runtimes since 2024 have it


def onnx(model: nn.Module, path: Path | str, *, check: bool = True) -> trials.Checked | None:
    """Write a model as an ONNX file, for any batch size and length, with memory that is linear in the length.

    Args:
        model: one of lion's; a copy of it in float32 is exported.
        path: of the file. One that is there is replaced when the new one is complete.
        check: run the file in ONNX Runtime at several sizes, and compare it with the model. A file that differs is not
            written.
    """
    path = Path(path)
    found: list[trials.Checked | None] = []
    with files.writing(path.name, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, lambda unfinished: found.append(write(subject_of(model), unfinished, check=check)))
    return found[0]


def write(subject: Subject, path: Path, *, check: bool = True) -> trials.Checked | None:
    subject = in_float32(subject)
    graph = graph_of(subject)
    with working("writing the file"):
        graph.save(path)
    return compare(path, subject) if check else None


def in_float32(subject: Subject) -> Subject:
    """With a copy of the model, on the CPU, ready for use."""
    return subject._replace(module=copy.deepcopy(subject.module).cpu().float().eval())


def graph_of(subject: Subject) -> Any:
    """The model as torch.onnx's ONNXProgram."""
    for module in ("onnx", "onnxscript"):
        need(module, module, "onnx")
    from lion.export.translations import Translations

    own = Translations(OPSET)
    sizes = [{i: n for i, n in enumerate(port.shape) if isinstance(n, str)} for port in subject.inputs]
    with working("tracing the model"), quietly(), for_onnx(), torch.no_grad():
        program = torch.onnx.export(
            subject.module,
            tuple(subject.some(subject.example)),
            dynamo=True,
            opset_version=OPSET,
            input_names=[port.name for port in subject.inputs],
            output_names=[port.name for port in subject.outputs],
            dynamic_shapes=(tuple(sizes),),
            custom_translation_table=own.table(),
            verbose=False,
        )
    assert program is not None
    own.add_to(program.model)
    program.model.producer_name, program.model.producer_version = "lion", __version__
    return program


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the exporter's notes, which are for its authors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def session(path: Path | str, *, threads: int = 0) -> Any:
    """A file in ONNX Runtime; threads: 0 is one for each core."""
    runtime = need("onnxruntime", "onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare(path: Path, subject: Subject) -> trials.Checked:
    """Run a file at the subject's sizes, and raise if it differs from torch."""
    running = session(path)

    def run(inputs: list[Tensor]) -> list[Tensor]:
        given = {port.name: x.numpy() for port, x in zip(subject.inputs, inputs, strict=True)}
        return [torch.from_numpy(x) for x in running.run(None, given)]

    return trials.check(run, subject, "the file in ONNX Runtime")

"""The README.md beside an exported model: what it is, its inputs and outputs, and how to run it."""

from typing import TYPE_CHECKING, Any

from lion._version import __version__
from lion.configs import to_json
from lion.export.subjects import Port, Subject
from lion.tasks import Trained

if TYPE_CHECKING:
    from lion.export.runs import Exported

STARTS = {  # by format
    "onnx": """\
import numpy as np, onnxruntime

model = onnxruntime.InferenceSession("{file}")
outputs = model.run(None, {{{inputs}}})  # arrays by these names""",
    "pt2": """\
import torch

model = torch.export.load("{file}").module()
with torch.no_grad():
    outputs = model({inputs})  # tensors, in this order""",
    "aoti": """\
import torch

model = torch._inductor.aoti_load_package("{file}")
outputs = model({inputs})  # tensors, in this order""",
}


def text(trained: Trained, subject: Subject, to: str, found: "Exported") -> str:
    config: Any = trained.model.config
    task = trained.task
    names = [port.name for port in subject.inputs]
    given = ", ".join(f'"{x}": {x.replace(".", "_")}' for x in names) if to == "onnx" else ", ".join(names)
    kind = getattr(config, "variant", "")
    parts = [
        f"# {type(trained.model).__name__}, {kind}",
        f"Trained by lion (task `{task.kind}`), and exported by lion {__version__}, which it does not need to run.",
        f"```python\n{STARTS[to].format(file=found.file.name, inputs=given)}\n```",
        "## Inputs",
        _table(subject.inputs),
        "## Outputs",
        _table(subject.outputs),
    ]
    if any(port.first is not None for port in subject.inputs):
        parts.append(
            "`length` is any number of tokens: a prompt, or one. In the first call every `past` is filled with its "
            "first value; after that it is the `present` of the same name. States do not grow."
        )
    if any("height" in port.shape for port in subject.inputs):
        parts.append(
            f"Images have any size; those of training were {config.image_size[0]} x {config.image_size[1]}. Their "
            "pixels, 0 to 1, are scaled by (pixel - mean) / std, with the numbers below."
        )
    if hasattr(task, "text_tokenizer"):
        parts.append("The tokenizer is beside this file (`tokenizer.json`, for the package `tokenizers`).")
    known = {name: x for name, x in to_json(trained.known).items() if x not in ("", (), [])}
    if known:
        parts += ["## Data", "\n".join(f"- {name}: {_line(x)}" for name, x in known.items())]
    parts += ["## Checked", f"{found.checked}."]
    if found.metrics:
        rows = [
            f"| {precision} | {' | '.join(f'{x:.4g}' for x in row.values())} |"
            for precision, row in found.metrics.items()
        ]
        header = list(next(iter(found.metrics.values())))
        parts.append("\n".join([f"| weights | {' | '.join(header)} |", "|---" * (len(header) + 1) + "|", *rows]))
        parts.append("Measured on the run's eval set.")
    return "\n\n".join(parts) + "\n"


def _table(ports: list[Port]) -> str:
    first = any(port.first is not None for port in ports)
    header = ["name", "shape", "type", "what it is", *(["first value"] if first else [])]
    rows = []
    for port in ports:
        about = f"{port.about}, 0 to {port.below - 1:,}" if port.below else port.about
        value = [] if not first else ["" if port.first is None else f"{port.first:g}"]
        rows.append([f"`{port.name}`", f"[{', '.join(map(str, port.shape))}]", port.kind, about, *value])
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def _line(x: object) -> str:
    return ", ".join(map(str, x)) if isinstance(x, list | tuple) else str(x)

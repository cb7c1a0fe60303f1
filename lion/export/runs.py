"""`lion export`: a finished run's model, and what is needed to use it without lion, in a folder of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lion import files
from lion._version import __version__
from lion.configs import to_json
from lion.export import card, onnx_files, programs, trials
from lion.export.subjects import Port, Subject, subject_of
from lion.ops.checks import one_of
from lion.optional import need
from lion.progress import working
from lion.tasks import Trained
from lion.train.folder import load_run


class Target(NamedTuple):
    about: str
    file: str
    write: Callable[[Subject, Path], Any]  # returns trials.Checked
    packages: tuple[str, ...] = ()  # of the extra "onnx"


TARGETS = {
    "onnx": Target("ONNX, for ONNX Runtime", "model.onnx", onnx_files.write, ("onnx", "onnxscript", "onnxruntime")),
    "aoti": Target("compiled for this processor, by AOTInductor", "model.pt2", programs.aoti),
    "pt2": Target("a program of torch.export", "model.pt2", programs.pt2),
}


@dataclass(frozen=True)
class Exported:
    """A folder that has been written."""

    folder: Path
    file: Path
    checked: trials.Checked
    metrics: dict[str, dict[str, float]]  # of the eval set, by precision; empty without int8


def export_run(run: Path, to: str = "onnx", *, out: Path | None = None, int8: bool = False) -> Exported:
    """Write a finished run's model into a new folder, with a model card and the tokenizer or the preprocessing.

    The file is run at several sizes and compared with torch before the folder appears.

    Args:
        to: a key of TARGETS.
        out: the folder; by default RUN/onnx, and the like.
        int8: whole numbers of 8 bits as weights of the matrix products. Metrics of the eval set are measured with them
            and without.
    """
    one_of("to", to, TARGETS)
    target = TARGETS[to]
    if int8 and to != "onnx":
        raise ValueError(f"int8 is asked for, and to is {to!r}; expected 'onnx', whose runtime quantizes.")
    for package in target.packages:
        need(package, package, "onnx")
    out = run / to if out is None else out
    if out.exists():
        raise ValueError(f"{out} exists; expected a new folder: remove it, or choose another one with --out.")
    trained = _finished(run)
    subject = subject_of(trained.model)
    if getattr(trained.known, "pairs", False):
        subject = subject.with_pairs()
    done: list[Exported] = []

    def write(folder: Path) -> None:
        file = folder / target.file
        checked, metrics = target.write(subject, file), {}
        if int8:
            from lion.export import quantized

            metrics = quantized.quantize(file, subject, trained)
        if hasattr(trained.task, "text_tokenizer"):
            trained.task.using(trained.beside).save_beside(folder)
        found = Exported(out, out / target.file, checked, metrics)
        files.write_json(folder / "model.json", _description(trained, subject, to, found))
        (folder / "README.md").write_text(card.text(trained, subject, to, found), encoding="utf-8")
        done.append(found)

    with files.writing(f"the exported model of {run}", out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        files.replace_folder(out, write)
    return done[0]


def _finished(run: Path) -> Trained:
    if (run / "run.json").exists() and not (run / "model").exists():
        raise ValueError(f"the run in {run} is not finished; expected a finished one: lion train --resume --out {run}")
    with working("loading the model"):
        return load_run(run, device="cpu")


def _description(trained: Trained, subject: Subject, to: str, found: Exported) -> dict[str, Any]:
    """model.json: for programs."""
    return {
        "format": to,
        "file": found.file.name,
        "task": trained.task.kind,
        "inputs": [_port(x) for x in subject.inputs],
        "outputs": [_port(x) for x in subject.outputs],
        "data": to_json(trained.known),
        "metrics": found.metrics,
        "lion": __version__,
    }


def _port(port: Port) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": port.name, "shape": list(port.shape), "dtype": port.kind, "about": port.about}
    return plain if port.first is None else plain | {"first": str(port.first) if port.first else 0}

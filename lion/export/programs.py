"""Models without Python code of lion's: torch.export's files (.pt2), and packages that AOTInductor has compiled."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from lion.export import trials
from lion.export.onnx_files import in_float32, quietly
from lion.export.subjects import Subject
from lion.progress import working

# Run by a new process, which has torch and not lion.
APART = """
import sys, torch
kind, path, folder = sys.argv[1:]
run = torch.export.load(path).module() if kind == "pt2" else torch._inductor.aoti_load_package(path)
found = []
with torch.no_grad():
    for inputs in torch.load(f"{folder}/inputs.pt"):
        outputs = run(*inputs)
        found.append([outputs] if isinstance(outputs, torch.Tensor) else list(outputs))
torch.save(found, f"{folder}/outputs.pt")
assert not any(name.partition(".")[0] == "lion" for name in sys.modules)
"""


def pt2(subject: Subject, path: Path) -> trials.Checked:
    """Write a program of torch.export, to be loaded by `torch.export.load(path).module()`."""
    subject = in_float32(subject)
    program = program_of(subject)
    with working("writing the file"), quietly():
        torch.export.save(program, path)
    return compare_apart("pt2", path, subject)


def aoti(subject: Subject, path: Path) -> trials.Checked:
    """Write a package of compiled code for this kind of processor, for `torch._inductor.aoti_load_package(path)`."""
    from torch._inductor import aoti_compile_and_package

    subject = in_float32(subject)
    program = program_of(subject)
    with working("compiling the model"), quietly():
        aoti_compile_and_package(program, package_path=str(path))
    return compare_apart("aoti", path, subject)


def program_of(subject: Subject) -> Any:
    free = [{i: Dim.DYNAMIC for i, n in enumerate(port.shape) if isinstance(n, str)} for port in subject.inputs]
    with working("tracing the model"), quietly(), torch.no_grad():
        return torch.export.export(subject.module, tuple(subject.some(subject.example)), dynamic_shapes=(tuple(free),))


def compare_apart(kind: str, path: Path, subject: Subject) -> trials.Checked:
    """Run a file at the subject's sizes in a process without lion, and raise if it differs from torch."""
    asked = list(trials.trials(subject, subject.least))
    with working("comparing with torch, in a new process"), tempfile.TemporaryDirectory() as folder:
        torch.save([x.inputs for x in asked], f"{folder}/inputs.pt")
        command = [sys.executable, "-c", APART, kind, str(path.resolve()), folder]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise ValueError(f"{path.name} does not run without lion: {done.stderr.strip().splitlines()[-1]}")
        outputs = torch.load(f"{folder}/outputs.pt")
    return trials.judged(zip(asked, outputs, strict=True), subject, f"the {kind} file in a new process")

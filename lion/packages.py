"""The optional packages, for `lion doctor`: which are installed, and whether they can be imported."""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

from lion.optional import torchvision_remedy


class Package(NamedTuple):
    extra: str  # the extra of lion-attention that installs it
    module: str = ""  # to import, where its name differs
    python: tuple[int, int] = (3, 10)  # the extra installs it from this version on


EXTRAS = {  # what they are for
    "cli": "pictures and progress bars: lion demo, lion bench, lion list --draw",
    "train": "lion train, eval and predict: images, DNA, series, the Long Range Arena",
    "text": "lion train text, mlm and causal, lion distill and generate; it has train and hf",
    "hf": "Hugging Face's transformers: lion.integrations.hf",
    "timm": "timm: lion.integrations.timm, its augmentations",
    "triton": "kernels for GPUs; torch for CUDA on Linux brings it along",
    "tables": ".parquet and .arrow files",
    "onnx": "ONNX files and ONNX Runtime: lion.export",
    "hub": "data sets of Hugging Face's hub, hf://owner/name",
}
INCLUDED = {"train": ("cli",), "text": ("train", "hf")}  # extras that an extra brings along
OPTIONAL = {
    "matplotlib": Package("cli"),
    "tqdm": Package("cli"),
    "accelerate": Package("train"),
    "pillow": Package("train", "PIL.Image"),
    "scikit-learn": Package("train", "sklearn"),
    "tensorboard": Package("train"),
    "zarr": Package("train", python=(3, 11)),
    "torchvision": Package("timm"),
    "timm": Package("timm"),
    "transformers": Package("hf"),
    "tokenizers": Package("text"),
    "pyarrow": Package("tables"),
    "datasets": Package("hub"),
    "triton": Package("triton"),
    "onnx": Package("onnx"),
    "onnxscript": Package("onnx"),
    "onnxruntime": Package("onnx"),
}
SECONDS = 300  # to import all of them

# Run in another process: a package that was built for other libraries can crash the process that imports it.
PROBE = """
import importlib, json, sys
for name, module in json.loads(sys.argv[1]).items():
    try:
        importlib.import_module(module)
        problem = ""
    except BaseException as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    print("LION", json.dumps([name, problem]), flush=True)
"""


def extras() -> list[tuple[str, str, str]]:
    """Every extra: what it is for, and whether it is installed, or what is missing and the command."""
    missing = {name for name, x in OPTIONAL.items() if sys.version_info >= x.python and _version(name) is None}
    rows = []
    for extra, purpose in EXTRAS.items():
        lacking = [name for name in OPTIONAL if name in missing and OPTIONAL[name].extra in _with_included(extra)]
        command = f"pip install 'lion-attention[{extra}]'"
        rows.append((extra, purpose, f"without {', '.join(lacking)}: {command}" if lacking else "installed"))
    return rows


def _with_included(extra: str) -> set[str]:
    return {extra}.union(*map(_with_included, INCLUDED.get(extra, ())))


def packages() -> list[tuple[str, str]]:
    """Every optional package with its version, or with the problem and the remedy."""
    versions = {name: _version(name) for name in OPTIONAL}
    problems = problems_of(name for name, version in versions.items() if version)
    rows = []
    for name, version in versions.items():
        if not version:
            rows.append((name, f"not installed: pip install 'lion-attention[{OPTIONAL[name].extra}]'"))
        elif problem := problems[name]:
            rows.append((name, f"{version}, does not load: {problem}; {_remedy(name)}"))
        else:
            rows.append((name, version))
    return rows


def problems_of(names: Iterable[str]) -> dict[str, str]:
    """The errors of importing packages, "" for none."""
    rest = {name: OPTIONAL[name].module or name for name in names}
    found: dict[str, str] = {}
    while rest:
        lines, end = _probe(rest)
        said = dict(json.loads(line.removeprefix("LION ")) for line in lines if line.startswith("LION "))
        if len(said) < len(rest):  # it crashed at the next one
            said[next(name for name in rest if name not in said)] = end
        found |= said
        rest = {name: module for name, module in rest.items() if name not in found}
    return found


def _probe(modules: dict[str, str]) -> tuple[list[str], str]:
    """The output of a process that imports modules, and how it ended."""
    command = [sys.executable, "-c", PROBE, json.dumps(modules)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode().splitlines(), f"it takes longer than {SECONDS} seconds"
    return done.stdout.decode().splitlines(), f"the process that loads it ends with code {done.returncode}"


def _remedy(name: str) -> str:
    remedies = {
        "torchvision": torchvision_remedy(),
        "timm": f"import lion.integrations.timm before timm, or {torchvision_remedy()}",
    }
    return remedies.get(name, f"pip install --force-reinstall {name}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

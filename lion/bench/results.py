"""Results of benchmarks: their setting, the report that is printed, and the JSON with a plot beside it."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import lion
from lion.devices import described
from lion.files import replace
from lion.machine import description
from lion.ops.checks import one_of
from lion.terminal import table

LARGE, SLOW = "would not fit into memory", "expected to take too long"  # reasons to leave something out
MIB = "MiB: peak memory of a batch, beside that of the weights; in training with the gradients"


def setting(**more: Any) -> dict[str, Any]:
    """The circumstances of a measurement; of one on a GPU also the GPU's, and Triton's."""
    gpu = described(torch.device(more.get("device", "cpu")))
    if gpu:
        more = more | {"gpu": gpu, "triton": _triton()}
    return {
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "lion": lion.__version__,
        "machine": description(),
        **more,
    }


def _triton() -> dict[str, Any] | None:
    """The version, and the configurations of the kernels."""
    if not importlib.util.find_spec("triton"):
        return None
    from lion.ops.triton.configurations import TABLE

    return {"version": importlib.metadata.version("triton"), "configurations": [row._asdict() for row in TABLE]}


def check_choices(**choices: tuple[Sequence[str], Sequence[str] | Mapping[str, object]]) -> None:
    """That arguments, given as name=(values, known values), are lists of known names."""
    for name, (given, known) in choices.items():
        if isinstance(given, str) or not given:
            raise ValueError(f"{name} is {given!r}; expected a list of some of {', '.join(map(repr, known))}.")
        for x in given:
            one_of(name, x, known)


def best_of(records: Sequence[dict]) -> str:
    """The numbers of tries, in words."""
    tries = sorted({x["best_of"] for x in records if x["best_of"]})
    return f", best of {' to '.join(map(str, tries))}" if tries else ", memory only"


def left_out(records: Sequence[dict]) -> list[str]:
    """A note for each reason to leave something out."""
    return [f"-: left out, {reason}" for reason in dict.fromkeys(x["left_out"] for x in records) if reason]


def report(
    about: str, header: Sequence[str], rows: Sequence[tuple[Sequence[object], Sequence[object]]], notes: Sequence[str]
) -> str:
    """A table between its setting and its notes. A row is its place, shown where it changes, and its cells."""
    lines = []
    last: Sequence[object] | None = None
    for place, cells in rows:
        lines.append([*(place if place != last else [""] * len(place)), *cells])
        last = place
    return "\n".join([about, "", table(header, lines), "", *notes])


def save(path: Path | None, found: dict, *, unfinished: bool = False) -> None:
    """Write JSON, if a path is given, and print so, unless more is to come."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    replace(path, lambda temporary: temporary.write_text(text))
    if not unfinished:
        print(f"\nwritten to {path}")


def save_with_plot(path: Path | None, found: dict, draw: Callable[[Sequence[dict], Path], None]) -> None:
    """Write JSON, and its "results" as a PNG of the same name, if a path is given; print so."""
    save(path, found)
    if path is None:
        return
    if not importlib.util.find_spec("matplotlib"):
        print("no picture: matplotlib is not installed (pip install 'lion-attention[cli]')")
        return
    draw(found["results"], path.with_suffix(".png"))
    print(f"picture saved to {path.with_suffix('.png')}")

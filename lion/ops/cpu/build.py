"""Compiles the CPU kernels. `pip install` runs this; so does `python -m lion.ops.cpu.build`, after a change.

Needs a C++20 compiler, GCC 10 or Clang 10 or later, and nothing else: no headers of torch or of Python.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SOURCES = HERE / "src"
NAME = "liblion_cpu.so"
FAILURE = "build_failed.txt"  # why there is no library; `lion doctor` shows it

FLAGS = ["-std=c++2a", "-O2", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"]


class InstructionSet(NamedTuple):
    vector_bytes: int
    flags: Sequence[str] = ()


BASELINE = {"baseline": InstructionSet(16)}  # SSE2 on x86, NEON on ARM
X86 = BASELINE | {
    "avx2": InstructionSet(32, ("-mavx2", "-mfma")),
    "avx512": InstructionSet(64, ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mfma")),
}
ARM = BASELINE | {"sve256": InstructionSet(32, ("-march=armv8.2-a+sve", "-msve-vector-bits=256"))}
INSTRUCTION_SETS = {"x86_64": X86, "AMD64": X86, "aarch64": ARM}


class BuildError(Exception):
    """Why the kernels could not be compiled, in words for the person at the terminal."""


def build(target: Path, *, extra_flags: Sequence[str] = (), instruction_sets: dict[str, InstructionSet] | None = None):
    """Write the shared library to `target`, or raise a BuildError."""
    if not SOURCES.exists():
        raise BuildError(
            "wheels have no C++ sources: pip install --force-reinstall --no-deps --no-binary :all: lion-attention"
        )
    compiler = find_compiler()
    wanted = instruction_sets or INSTRUCTION_SETS.get(platform.machine(), BASELINE)
    flags = [*FLAGS, *extra_flags]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def kernels(name: str) -> Path | None:
            width, special = wanted[name]
            object_ = Path(folder, f"{name}.o")
            defines = [f"-DLION_VECTOR_BYTES={width}", f"-DLION_KERNELS={name}", f'-DLION_NAME="{name}"']
            try:
                run([compiler, *flags, *special, *defines, "-c", str(SOURCES / "kernels.cpp"), "-o", str(object_)])
            except BuildError:
                if name == "baseline":
                    raise
                return None  # an older compiler may not know the newest instructions
            return object_

        # The baseline comes first: where objects share an inlined function of the standard library, the linker
        # keeps the first one's, which runs everywhere.
        objects = {name: object_ for name, object_ in zip(wanted, pool.map(kernels, wanted), strict=True) if object_}
        has = [f"-DLION_HAS_{name.upper()}" for name in objects]
        library = Path(folder, "library.o")
        run([compiler, *flags, *has, "-c", str(SOURCES / "library.cpp"), "-o", str(library)])
        linked = Path(folder, NAME)
        inputs = [*map(str, objects.values()), str(library)]
        run(
            [
                compiler,
                "-shared",
                *extra_flags,
                *inputs,
                "-o",
                str(linked),
                *(["-ldl"] if sys.platform == "linux" else []),
            ]
        )
        # In one step, so that a process that has the old library loaded keeps it whole.
        fresh = target.with_suffix(".new")
        shutil.copyfile(linked, fresh)
        os.replace(fresh, target)


def find_compiler() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        if shutil.which(name.split()[0]):
            return name
    looked_for = ", ".join(names)
    raise BuildError(
        f"no C++ compiler was found (looked for {looked_for}): install g++ or clang++, then reinstall lion"
    )


def run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run([*command[0].split(), *command[1:]], capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"{command[0]} could not be run: {error}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        first = errors[0] if errors else done.stderr.strip()[-300:]
        raise BuildError(f"{command[0]} failed to compile the kernels: {first}")


def build_into(folder: Path) -> str | None:
    """Build into a folder of the package; a failure is left there as a note, and returned."""
    folder.mkdir(parents=True, exist_ok=True)
    target, note = folder / NAME, folder / FAILURE
    try:
        build(target)
    except BuildError as error:
        target.unlink(missing_ok=True)
        note.write_text(f"{error}\n")
        return str(error)
    note.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    failure = build_into(HERE)
    sys.exit(f"not built: {failure}." if failure else None)

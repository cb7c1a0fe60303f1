"""Builds of the kernels that check themselves: addresses and undefined behaviour, and threads.

Vectors are as wide as AVX-512's, so that its code runs here too, whatever the processor.
"""

import os
import subprocess
import sys
from pathlib import Path

from lion.ops.cpu import build

HERE = Path(__file__).parent
WIDE = {"baseline": build.InstructionSet(64)}
QUICK = ["-O1", "-g1"]


class Missing(Exception):
    """Why there are no sanitizers, in words for a skipped test."""


def checks_addresses(folder: Path) -> dict[str, str]:
    """Builds the library into the folder. The environment in which Python runs with it."""
    environment = preloaded()
    target = folder / build.NAME
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *QUICK]
    build.build(target, extra_flags=flags, instruction_sets=WIDE)
    return environment | {"LION_CPU_LIBRARY": str(target)}


def preloaded() -> dict[str, str]:
    """The sanitizer has to be there before all else. It looks for the function that throws exceptions at once, so that
    the library that has it comes next: without, the first exception of a kernel would end the process."""
    libraries = [_library(name) for name in ("libasan.so", "libstdc++.so")]
    options = "detect_leaks=0:verify_asan_link_order=0"  # Python does not free all it has
    return {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}


def _library(name: str) -> str:
    compiler = compiler_of_sanitizers()
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        raise Missing(f"{compiler} has no {name} to preload")
    return os.path.realpath(found)


def compiler_of_sanitizers() -> str:
    if sys.platform != "linux":
        raise Missing("sanitizers are preloaded on Linux alone")
    try:
        return build.find_compiler()
    except build.BuildError as error:
        raise Missing(str(error)) from None


def checks_threads(folder: Path) -> Path:
    """Builds threads.cpp and the kernels into one program, which reads problems from its input."""
    compiler, program = compiler_of_sanitizers(), folder / "threads"
    flags = [x for x in build.FLAGS if x not in ("-O2", "-fPIC")] + ["-fsanitize=thread", "-fPIE", *QUICK]
    (name, kernels) = next(iter(WIDE.items()))
    defines = [f"-DLION_VECTOR_BYTES={kernels.vector_bytes}", f"-DLION_KERNELS={name}", f'-DLION_NAME="{name}"']
    sources = [build.SOURCES / "kernels.cpp", build.SOURCES / "library.cpp", HERE / "threads.cpp"]
    try:
        build.run([compiler, *flags, *defines, *map(str, sources), "-o", str(program), "-rdynamic", "-ldl"])
        tried = subprocess.run([program], input="", capture_output=True, text=True)
    except build.BuildError as error:
        raise Missing(f"the thread sanitizer does not build: {error}") from None
    if tried.returncode:
        raise Missing(f"the thread sanitizer does not run here: {(tried.stdout + tried.stderr).strip()[-300:]}")
    return program

"""The tests of packages that lion works with: they are in the source distributions, not in what pip installs.

    python tests/neighbours.py timm

unpacks those of the installed version into the environment. Tests that want them are skipped where they are not there.
"""

import importlib.metadata
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lion.data.sources.archives import unpack
from lion.data.sources.downloading import from_pip


def folder(package: str) -> Path:
    """Where the tests of the installed version are; LION_TIMM_TESTS and the like name another place."""
    elsewhere = os.environ.get(f"LION_{package.upper()}_TESTS")
    if elsewhere:
        return Path(elsewhere)
    return Path(sys.prefix, "neighbours", f"{package}-{importlib.metadata.version(package)}", "tests")


def fetch(package: str) -> str:
    """Download and unpack, and say how it went: a registry may have no sources, or be out of reach."""
    target = folder(package)
    if target.is_dir():
        return f"{target} is there already"
    name = f"{package}-{importlib.metadata.version(package)}"
    with tempfile.TemporaryDirectory() as downloads:
        try:
            from_pip(package, f"{name}.tar.gz", Path(downloads))
        except OSError as problem:
            return f"no sources: {problem}"
        target.parents[1].mkdir(parents=True, exist_ok=True)
        try:
            unpack(Path(downloads) / f"{name}.tar.gz", f"{name}/tests", target.parents[1])
        except ValueError as problem:
            shutil.rmtree(target.parent, ignore_errors=True)
            return f"no tests in the sources: {problem}"
    return str(target)


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        for name, said in zip(sys.argv[1:], pool.map(fetch, sys.argv[1:]), strict=True):
            print(f"tests of {name}: {said}")

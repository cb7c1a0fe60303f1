"""The tests of packages that lion works with: they are in the source distributions, not in what pip installs.

    python tests/neighbours.py timm

unpacks those of the installed version into the environment. Tests that want them are skipped where they are not there.
"""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


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
    wanted = f"{package}=={importlib.metadata.version(package)}"
    options = ["--quiet", "--no-deps", "--no-binary", package]
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", downloads, wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"no sources of {wanted}: {done.stderr.strip().splitlines()[-1]}"
        [archive] = Path(downloads).iterdir()
        with tarfile.open(archive) as sources:
            inside = [x for x in sources.getmembers() if x.name.split("/")[1:2] == ["tests"]]
            sources.extractall(target.parents[1], inside, filter="data")
    return str(target) if target.is_dir() else f"the sources of {wanted} have no tests"


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        for name, said in zip(sys.argv[1:], pool.map(fetch, sys.argv[1:]), strict=True):
            print(f"tests of {name}: {said}")

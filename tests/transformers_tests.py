"""transformers' own tests of models, which wheels lack: from its source distribution, put into the environment by

    python -m tests.transformers_tests

as `make` does. $LION_TRANSFORMERS_TESTS is looked at first: the folder `tests` of a checkout, which has those of
generation and of exports too. (The source distribution does not; test_hf_generation.py and test_hf_export.py are ours.)
"""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import types
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMMON = "test_modeling_common"
# What the tests of models import of files that the source distribution may lack: classes to inherit from.
BESIDE = {"exporters.test_export": "ExportTesterMixin", "generation.test_utils": "GenerationTesterMixin"}


def folder() -> Path:
    given = os.environ.get("LION_TRANSFORMERS_TESTS")
    return Path(given) if given else Path(sys.prefix, "share", f"transformers-tests-{version('transformers')}")


def why_not() -> str | None:
    """What is missing, if they cannot run."""
    try:
        if not (folder() / f"{COMMON}.py").exists():
            return f"there is no {COMMON}.py in {folder()}; `python -m tests.transformers_tests` fetches it."
        version("parameterized")
    except PackageNotFoundError as missing:
        return f"{missing.name} is not installed."
    return None


def marks() -> set[str]:
    """Names of pytest's marks in them, and in what they import of the package."""
    if why_not():
        return set()
    package = importlib.util.find_spec("transformers")
    files = [*folder().rglob("test_*.py"), Path(package.origin).with_name("testing_utils.py")]
    return {name for path in files for name in re.findall(r"\bmark\.(\w+)", path.read_text())} - {"parametrize"}


def load() -> tuple[types.ModuleType, type]:
    """The module with ModelTesterMixin, and GenerationTesterMixin."""
    tests = importlib.import_module("tests")  # they import each other by that name, as parts of this package
    if str(folder()) not in tests.__path__:
        tests.__path__.append(str(folder()))
    for name, mixin in BESIDE.items():
        package, _, module = name.partition(".")
        if not (folder() / package / f"{module}.py").exists():
            sys.modules[f"tests.{package}"] = types.ModuleType(f"tests.{package}")
            sys.modules[f"tests.{name}"] = made = types.ModuleType(f"tests.{name}")
            setattr(made, mixin, type(mixin, (), {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that transformers looks for
        common = importlib.import_module(f"tests.{COMMON}")
        generation = importlib.import_module("tests.generation.test_utils")
    return common, generation.GenerationTesterMixin


def fetch() -> None:
    place = folder()
    if (place / f"{COMMON}.py").exists():
        return
    wanted = f"transformers=={version('transformers')}"
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "transformers"]
        subprocess.run([*pip, "--dest", temporary, wanted], check=True)
        [archive] = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            for member in files:
                _, _, path = member.name.partition("/")
                content = files.extractfile(member) if path.startswith("tests/") and path.endswith(".py") else None
                if content is not None:
                    target = place / Path(path).relative_to("tests")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
    print(f"transformers' tests of models are in {place}")


if __name__ == "__main__":
    fetch()

"""transformers' own tests of models, where neighbours.py has put them.

$LION_TRANSFORMERS_TESTS may name the folder `tests` of a checkout, which has those of generation and of exports too.
(The source distribution does not; test_hf_generation.py and test_hf_export.py are ours.)
"""

import importlib.util
import re
import sys
import types
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests import neighbours

COMMON = "test_modeling_common"
# What the tests of models import of files that the source distribution may lack: classes to inherit from.
BESIDE = {"exporters.test_export": "ExportTesterMixin", "generation.test_utils": "GenerationTesterMixin"}


def why_not() -> str | None:
    """What is missing, if they cannot run."""
    try:
        path = neighbours.folder("transformers") / f"{COMMON}.py"
        if not path.exists():
            return f"there is no {path}; `python tests/neighbours.py transformers` fetches it."
        version("parameterized")
    except PackageNotFoundError as missing:
        return f"{missing.name} is not installed."
    return None


def marks() -> set[str]:
    """Names of pytest's marks in them, and in what they import of the package."""
    if why_not():
        return set()
    package = importlib.util.find_spec("transformers")
    files = [*neighbours.folder("transformers").rglob("test_*.py"), Path(package.origin).with_name("testing_utils.py")]
    return {name for path in files for name in re.findall(r"\bmark\.(\w+)", path.read_text())} - {"parametrize"}


def load() -> tuple[types.ModuleType, type]:
    """The module with ModelTesterMixin, and GenerationTesterMixin."""
    tests = importlib.import_module("tests")  # they import each other by that name, as parts of this package
    if str(neighbours.folder("transformers")) not in tests.__path__:
        tests.__path__.append(str(neighbours.folder("transformers")))
    for name, mixin in BESIDE.items():
        package, _, module = name.partition(".")
        if not (neighbours.folder("transformers") / package / f"{module}.py").exists():
            sys.modules[f"tests.{package}"] = types.ModuleType(f"tests.{package}")
            sys.modules[f"tests.{name}"] = made = types.ModuleType(f"tests.{name}")
            setattr(made, mixin, type(mixin, (), {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that transformers looks for
        common = importlib.import_module(f"tests.{COMMON}")
        generation = importlib.import_module("tests.generation.test_utils")
    return common, generation.GenerationTesterMixin

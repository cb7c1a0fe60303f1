"""Optional packages: what `lion doctor` says of them, and what timm needs of a torchvision that does not load.

In processes of their own: what a package does when it is first imported shows only there.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lion import optional, packages

ROOT = Path(__file__).parents[1]
OF_A_CLONE = ("dev", "docs")  # extras for its tests and its documentation
with_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")


def run(code, *folders, check=True):
    """What a fresh process prints; the folders come first on its path."""
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


@pytest.fixture
def broken(tmp_path):
    """Folders to import a timm and a torchvision from that do not load."""
    for name in ("timm", "torchvision"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    return tmp_path


@with_timm
def test_the_page_with_timm():
    """The page's own lines, in an environment where torchvision may have been built for another torch."""
    block = next(
        block for block in (ROOT / "docs/vision.md").read_text().split("```") if "lion.integrations.timm" in block
    )
    lines = [line for line in block.splitlines() if "timm" in line]
    assert run("\n".join([*lines, "print(type(vit.blocks[0].attn).__name__)"])) == "BlockAttention\n"


@with_timm
@pytest.mark.parametrize("first", ["import lion.integrations.hf", "try:\n  import timm\nexcept RuntimeError: pass"])
def test_timm_whatever_was_imported_before(first):
    if "hf" in first:
        pytest.importorskip("transformers")
    code = f"{first}\nimport lion.integrations.timm, timm\nprint(timm.is_model('lion_s_tiny_patch16_224'))"
    assert run(code) == "True\n"


def test_timm_that_is_not_there(tmp_path):
    (tmp_path / "timm.py").write_text("raise ModuleNotFoundError(\"No module named 'timm'\")")
    said = run("import lion.integrations.timm", tmp_path, check=False)
    assert "ImportError: timm is needed for this: pip install 'lion-attention[timm]'" in said


def test_timm_that_does_not_load(broken):
    said = run("import lion.integrations.timm", broken, check=False)
    assert f"timm does not load (operator torchvision::nms does not exist); {optional.torchvision_remedy()}." in said
    assert f"the torchvision that is built for torch {torch.__version__}" in optional.torchvision_remedy()


def test_doctor_says_what_does_not_load(broken, monkeypatch):
    """One that raises, one that ends the process, one that is not there; and those after them."""
    (broken / "zarr.py").write_text("import os; os._exit(7)")
    (broken / "tqdm.py").write_text("print('loaded')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    rows = ("torchvision", "timm", "zarr", "no-such-package", "tqdm")
    monkeypatch.setattr(packages, "OPTIONAL", {name: packages.Package("some") for name in rows})
    monkeypatch.setattr(packages, "_version", lambda name: None if name == "no-such-package" else "1.2")
    problem = "1.2, does not load: RuntimeError: operator torchvision::nms does not exist"
    remedy = optional.torchvision_remedy()
    assert dict(packages.packages()) == {
        "torchvision": f"{problem}; {remedy}",
        "timm": f"{problem}; import lion.integrations.timm before timm, or {remedy}",
        "zarr": "1.2, does not load: the process that loads it ends with code 7; pip install --force-reinstall zarr",
        "no-such-package": "not installed: pip install 'lion-attention[some]'",
        "tqdm": "1.2",
    }


def test_a_package_that_never_loads(tmp_path, monkeypatch):
    (tmp_path / "zarr.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(packages, "SECONDS", 1)
    assert packages.problems_of(["zarr"]) == {"zarr": "it takes longer than 1 seconds"}


def extras_of_the_project():
    text = (ROOT / "pyproject.toml").read_text()
    text = text[text.index("[project.optional-dependencies]") : text.index("[project.scripts]")]
    return dict(re.findall(r"^(\w+) = \[(.*?)\](?:  #.*)?$", text, flags=re.MULTILINE))


def test_every_extra_names_its_packages():
    """The table has what pyproject.toml asks for, under the extra that brings it."""
    extras = extras_of_the_project()
    for name, package in packages.OPTIONAL.items():
        wanted = "timm" if name == "torchvision" else name  # which timm brings
        assert f'"{wanted}' in extras[package.extra], name


def test_doctor_has_every_extra(monkeypatch):
    extras = extras_of_the_project()
    assert {*packages.EXTRAS, *OF_A_CLONE} == {*extras}
    for extra, wanted in extras.items():
        if extra not in OF_A_CLONE:
            inside = re.findall(r"lion-attention\[([\w,]+)\]", wanted)
            assert packages.INCLUDED.get(extra, ()) == tuple(",".join(inside).split(",") if inside else ())
    there = {"matplotlib", "tqdm", "accelerate", "pillow", "scikit-learn", "tensorboard"}
    monkeypatch.setattr(packages, "_version", lambda name: "1.2" if name in there else None)
    rows = {extra: state for extra, _, state in packages.extras()}
    assert rows["cli"] == "installed"
    assert rows["train"] == "without zarr: pip install 'lion-attention[train]'"
    assert rows["text"] == "without zarr, transformers, tokenizers: pip install 'lion-attention[text]'"
    assert rows["tables"] == "without pyarrow: pip install 'lion-attention[tables]'"


CORE = """
import importlib.abc, sys
hidden = {missing!r}
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
from lion.cli import main
for command in {commands!r}:
    print(">", main(command.split()), flush=True)
"""


def test_commands_without_extras_name_the_one_they_need(tmp_path):
    """In one process that sees the core's packages only, and Triton, which torch looks for itself."""
    optional = packages.OPTIONAL.items()
    missing = [package.module.split(".")[0] or name for name, package in optional if name != "triton"]
    needs = {"demo": "train", "train digits.lion_s": "train", "train mlm": "text", "list backends --draw x.png": "cli"}
    code = CORE.format(missing=missing, commands=list(needs))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if "is needed for this" in line]
    extras = [re.search(r"pip install 'lion-attention\[(\w+)\]'", line)[1] for line in said]
    assert extras == list(needs.values()), done.stderr
    assert done.stdout.count("> 1") == len(needs)
    assert not any(tmp_path.iterdir())

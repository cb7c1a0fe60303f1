"""The documentation's site builds without a warning, and has everything."""

import importlib.util
import inspect
import pydoc
import re
import subprocess
import sys

import pytest

import lion
from tests.docs.pages import ROOT

API = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md")))


def absent(*names):
    return any(importlib.util.find_spec(name) is None for name in names)


def test_api_has_every_public_name():
    tables = {"MODELS", "VARIANTS", "__version__"}  # which `lion list` prints
    assert {*re.findall(r"^::: lion\.(\w+)$", API, re.M)} == {*lion.__all__} - tables


def documented(subject):
    """The names in the part `Args:` of a docstring; "q, k: ..." is two."""
    part = re.search(r"^Args:\n((?:    .*\n|\n)+)", f"{inspect.getdoc(subject)}\n", re.M)
    return (
        [name for names in re.findall(r"^    (\w[\w, ]*):", part[1], re.M) for name in names.split(", ")]
        if part
        else []
    )


def test_documented_arguments_are_there():
    """mkdocstrings' own warning is off: it takes "q, k" for one name. (The integrations take seconds to import.)"""
    names = [name for name in re.findall(r"^::: (\S+)$", API, re.M) if ".integrations." not in name]
    found = {name: documented(pydoc.locate(name)) for name in names}
    assert sum(map(len, found.values())) > 50
    for name, arguments in found.items():
        assert {*arguments} <= {*inspect.signature(pydoc.locate(name)).parameters}, name


@pytest.mark.skipif(absent("mkdocs", "material", "mkdocstrings"), reason="without mkdocs: pip install -e '.[docs]'")
def test_site(tmp_path):
    """Warnings are errors: pages that nothing leads to, links and anchors that lead nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train with matrix products like a Transformer" in (tmp_path / "index.html").read_text()
    assert "lion.attention" in (tmp_path / "api/operator.html").read_text()
    assert "passes over the training set" in (tmp_path / "api/training.html").read_text()  # the comment behind a field
    assert "Unreleased" in (tmp_path / "changelog.html").read_text()
    assert "a bidirectional RNN" in (tmp_path / "paper/table1/index.html").read_text()
    assert not [*tmp_path.rglob("*.py*")]  # the site's own code
    fetched = [
        (path.name, url)
        for path in tmp_path.rglob("*.html")
        for url in re.findall(r"<(?:link|script|img)[^>]+(?:href|src)=\"?(https?:[^\" >]+)", path.read_text())
    ]
    assert not fetched

"""The notebooks of docs: `make docs` runs them in Jupyter; here their code runs where there is time for it."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests import THOROUGH
from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@each
def test_what_is_saved(path):
    """Code that Python reads, and the outputs of a whole run: no errors, no times, no places of a machine."""
    assert path.stat().st_size < 200_000
    ast.parse("\n".join("".join(cell["source"]) for cell in cells(path)))
    for cell in cells(path):
        assert not any(output["output_type"] == "error" for output in cell["outputs"])
        assert not ("times" in cell["metadata"].get("tags", ()) and cell["outputs"])
        assert "/tmp" not in json.dumps(cell["outputs"])
    assert [cell["execution_count"] for cell in cells(path)] == [n + 1 for n in range(len(cells(path)))]


@pytest.mark.skipif(not THOROUGH, reason="LION_THOROUGH=1 runs them: half a minute each")
@each
def test_cells_run(path, tmp_path):
    code = "\n".join("".join(cell["source"]) for cell in cells(path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr

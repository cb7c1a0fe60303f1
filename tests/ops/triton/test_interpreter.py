"""The tests of `interpreted`, in processes of their own: Triton has to be told to interpret before it is imported, and
whoever compiles in this process must not find it interpreting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lion.ops.triton import available

HERE = Path(__file__).parent


@pytest.mark.skipif(not available.INSTALLED, reason="Triton is not installed: pip install 'lion-attention[triton]'")
@pytest.mark.parametrize("module", sorted(path.stem for path in (HERE / "interpreted").glob("test_*.py")))
def test_in_the_interpreter(module):
    environment = {name: x for name, x in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    path = HERE / "interpreted" / f"{module}.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[2])
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]

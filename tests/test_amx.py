"""Processors that advertise AMX and trap on it: such a one is played by a child process that kills itself."""

import os
import subprocess
import sys

import pytest

from lion import amx

KILLED = """
import os, signal
if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_BF16":
    os.kill(os.getpid(), signal.SIGILL)
"""
# Python runs a file of this name before all else.
SITE = f"""
import lion.amx
lion.amx.advertised = lambda: True
lion.amx.PRODUCT = {KILLED!r}
"""


@pytest.fixture
def trapping(monkeypatch):
    for name in amx.REMEDY:
        monkeypatch.setenv(name, "")  # so that it is as it was afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(amx, "advertised", lambda: True)
    monkeypatch.setattr(amx, "PRODUCT", KILLED)
    amx.traps.cache_clear()
    yield
    amx.traps.cache_clear()


def test_it_is_found_and_avoided(trapping):
    assert amx.traps()
    assert amx.state().startswith("not usable: this processor advertises AMX and traps on it")
    with pytest.raises(ValueError, match="Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or use"):
        amx.refuse()
    assert amx.avoid()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"
    assert not amx.traps()
    amx.refuse()
    assert amx.state() == "usable, as ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 has it"


def test_where_nothing_traps(trapping, monkeypatch):
    monkeypatch.setattr(amx, "PRODUCT", "")
    assert not amx.avoid()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    assert amx.state() == "usable"


def test_nothing_is_tried_where_there_is_no_amx(trapping, monkeypatch):
    monkeypatch.setattr(amx, "advertised", lambda: False)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a child process was started"))
    assert not amx.traps()


def test_the_product_runs_here():
    """With the tests' own settings, which are safe."""
    subprocess.run([sys.executable, "-c", amx.PRODUCT], check=True)


def lion(tmp_path, *command, **environment):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    here = {name: value for name, value in os.environ.items() if name not in amx.REMEDY}
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    return subprocess.run(
        [sys.executable, "-m", "lion.cli", *command],
        env={**here, "PYTHONPATH": path, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )


def test_doctor_names_it(tmp_path):
    done = lion(tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    assert "not usable: this processor advertises AMX and traps on it" in done.stdout
    assert amx.SETTING in done.stdout


def test_training_sets_the_remedy(tmp_path):
    """And trains, in bfloat16."""
    fields = "--precision bfloat16 --steps 1 --batch 8 --model.depth 1 --out run"
    done = lion(tmp_path, "train", "digits.lion_s", *fields.split())
    assert done.returncode == 0, done.stderr
    assert f"{amx.SETTING} is set for this run" in done.stderr


def test_training_from_python_is_refused(trapping, tmp_path):
    """There torch has started already."""
    pytest.importorskip("accelerate")
    from lion import recipes
    from lion.train.loop import train

    run = recipes.recipe("digits.lion_s").changed({"precision": "bfloat16", "steps": "1"})
    with pytest.raises(ValueError, match="advertises AMX and traps on it"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""Building the kernels: for other instruction sets, under the sanitizers, and where it fails."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lion
from lion.ops.cpu import build, library
from tests import THOROUGH
from tests.ops.problems import forget_choices
from tests.test_cli import main

try:
    build.find_compiler()
except build.BuildError:
    pytest.skip("no compiler", allow_module_level=True)

ODD_SHAPES = """
import itertools, torch, lion
from lion.ops import reference
from lion.ops.cpu import library
from tests import SEED
from tests.ops.problems import assert_same, output_and_gradients, problem
print(library.loaded().instruction_set)
torch.manual_seed(SEED)
flags = (False, True)
sizes = [(1, 1, 1, 1), (9, 3, 1, 5), (50, 17, 9, None), (90, 16, 16, None), (33, 5, 16, 7), (40, 64, 33, 16)]
for (T, D, V, chunk), decay, gain in itertools.product(sizes, ("none", "per token", "diagonal"), flags):
    if gain and decay == "diagonal":
        continue
    direction = "backward" if gain else "both"
    for mask, orders, packed, norm in ((False, 0, False, "sum"), (True, 2, False, "max"), (True, 1, True, "none")):
        given = {"gain": gain, "self_weight": mask, "mask": mask, "packed": packed, "orders": orders}
        kwargs = problem(decay, B=2, T=T, H=2, D=D, V=V, **given)
        options = {"norm": norm, "direction": direction}
        want = output_and_gradients(reference.attention, kwargs, **options)
        options |= {"backend": "cpu", "chunk_size": chunk}
        assert_same(output_and_gradients(lion.attention, kwargs, **options), want, 1e-10)
        for dtype in (torch.float32, torch.bfloat16):
            single = {n: x.detach().to(dtype) if n in "qkv" else x for n, x in kwargs.items()}
            output_and_gradients(lion.attention, single, **options)
print("fine")
"""


def run_odd_shapes(**environment: str) -> str:
    command = [sys.executable, "-c", ODD_SHAPES]
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.endswith("fine\n")
    return run.stdout.split()[0]


def test_the_baseline_runs_everywhere():
    assert run_odd_shapes(LION_CPU_ISA="baseline") == "baseline"


@pytest.mark.skipif(not THOROUGH, reason="it compiles for half a minute: make torture")
@pytest.mark.skipif(sys.platform != "linux", reason="preloads a sanitizer")
def test_odd_shapes_under_the_sanitizers(tmp_path):
    """With vectors as wide as AVX-512's, so that its code runs here too, whatever the processor."""
    target = tmp_path / build.NAME
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g1"]
    build.build(target, extra_flags=flags, instruction_sets={"baseline": build.InstructionSet(64)})
    compiler = build.find_compiler()
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"{compiler} has no address sanitizer to preload")
    options = "detect_leaks=0:verify_asan_link_order=0"  # Python does not free all it has
    run_odd_shapes(LION_CPU_LIBRARY=str(target), LD_PRELOAD=os.path.realpath(found), ASAN_OPTIONS=options)


def test_without_a_compiler_the_reason_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (tmp_path / build.NAME).write_bytes(b"of an earlier build")
    reason = build.build_into(tmp_path)
    assert reason == (
        "no C++ compiler was found (looked for no-such-compiler): install g++ or clang++, then reinstall lion"
    )
    assert not (tmp_path / build.NAME).exists()
    assert (tmp_path / build.FAILURE).read_text().strip() == reason
    monkeypatch.setattr(library, "HERE", tmp_path)
    assert library.load() == reason
    monkeypatch.delenv("CXX")
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\necho 'kernels.cpp:1: error: out of luck' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert build.build_into(tmp_path) == "c++ failed to compile the kernels: kernels.cpp:1: error: out of luck"


def test_a_broken_library_is_a_reason_too(tmp_path, monkeypatch):
    broken = tmp_path / build.NAME
    broken.write_bytes(b"nothing of the kind")
    monkeypatch.setenv("LION_CPU_LIBRARY", str(broken))
    assert str(library.load()).startswith(f"{build.NAME} does not load: ")
    monkeypatch.delenv("LION_CPU_LIBRARY")
    monkeypatch.setenv("LION_CPU_ISA", "mmx")
    assert library.load() == "LION_CPU_ISA asks for 'mmx', which this processor or build does not have"


def test_without_kernels_all_runs_on_torch_and_says_so_once(monkeypatch, caplog, capsys):
    monkeypatch.setattr(library, "LIBRARY", "there was no compiler")
    forget_choices()
    q = torch.rand(1, 7, 2, 4)
    with caplog.at_level(logging.WARNING, logger="lion"):
        for _ in range(2):
            lion.attention(q, q, q)
    forget_choices()
    assert [record.message for record in caplog.records] == [
        "lion runs on plain torch, without its compiled CPU kernels: there was no compiler"
    ]
    assert lion.explain(q, q, q).backend == "torch"
    with pytest.raises(
        ValueError, match=r"backend 'cpu' cannot run this: there was no compiler\. What works here: 'torch'"
    ):
        lion.attention(q, q, q, backend="cpu")
    assert main(["doctor"]) == 0
    assert "there was no compiler" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm")
def test_the_library_needs_neither_torch_nor_a_second_openmp():
    if isinstance(library.LIBRARY, str):
        pytest.skip(library.LIBRARY)
    path = str(build.HERE / build.NAME)
    exported = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in exported.splitlines() if " T " in line} == {
        "lion_run",
        "lion_instruction_set",
        "lion_has_thread_pool",
        "lion_peak",
        "lion_chunk_tokens",
        "lion_features",
    }
    wanted = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True).stdout
    assert "torch" not in wanted
    assert "GOMP" not in wanted
    assert "omp_" not in wanted
    assert library.loaded().has_thread_pool

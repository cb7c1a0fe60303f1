"""Building the kernels: for other instruction sets, under the sanitizers, and where it fails."""

import logging
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch

import lion
from lion.ops.cpu import build, library
from tests import SEED, THOROUGH
from tests.cli.test_commands import main
from tests.ops.cpu import sanitizers as _sanitizers
from tests.ops.problems import forget_choices
from tests.torture.sanitizers import threads

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
    direction = "reverse" if gain else "both"
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
"""

ERRORS = """
import pytest
from lion.ops.cpu.library import DIRECTIONS
def refused(said, *, T=50, D=8, V=8, decay=(), **wrong):
    q, v = torch.rand(1, T, 3, D), torch.rand(1, T, 3, V)
    log_decay = -torch.rand(decay) if decay else None
    if "at" in wrong:
        log_decay.view(-1)[wrong.pop("at")] = 1
    others = [wrong.get(name) for name in ("log_gain", "self_weight", "mask", "cu_seqlens", "orders")]
    for threads, direction in itertools.product((1, 3), DIRECTIONS.values()):
        torch.set_num_threads(threads)
        with pytest.raises(ValueError, match=said):
            torch.ops.lion.cpu_scan(q, q, v, log_decay, None, *others, 1, direction, 0, *[False] * 3, [], False)
for decay, V in (((3,), 8), ((1, 50, 3), 8), ((3, 8), 16), ((1, 50, 3, 8), 16), ((1, 50, 3, 8), 1)):
    refused("log_decay is 1 at", decay=decay, V=V, at=-1)
for decay in ((), (1, 50, 3)):
    refused("log_gain is inf at", decay=decay, log_gain=torch.full((1, 50, 3), torch.inf))
    for far in (-1, 50, 2**63 - 1, -2**63):
        refused("orders are no permutations", decay=decay, orders=torch.full((1, 50), far))
        refused("cu_seqlens do not run", decay=decay, cu_seqlens=torch.tensor([0, far, 9, 50]))
"""


def run_odd_shapes(**environment: str) -> str:
    command = [sys.executable, "-c", ODD_SHAPES + ERRORS + 'print("fine")']
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.endswith("fine\n")
    return run.stdout.split()[0]


def test_the_baseline_runs_everywhere():
    assert run_odd_shapes(LION_CPU_ISA="baseline") == "baseline"


slow = pytest.mark.skipif(not THOROUGH, reason="it compiles for half a minute: make thorough")


@pytest.fixture
def sanitizers():
    """Skips where there are none."""
    try:
        _sanitizers.preloaded()
    except _sanitizers.Missing as missing:
        pytest.skip(str(missing))
    return _sanitizers


@slow
def test_odd_shapes_and_errors_under_the_sanitizers(tmp_path, sanitizers):
    run_odd_shapes(**sanitizers.checks_addresses(tmp_path))


@slow
def test_threads_under_the_sanitizer(tmp_path, sanitizers):
    for campaign in threads(sanitizers.checks_threads(tmp_path), 20, SEED):
        assert not campaign.lost, "\n".join(campaign.lost)


THROWS = """
#include <stdexcept>
extern "C" int caught() {
  try {
    throw std::domain_error("values");
  } catch (const std::exception&) {
    return 7;
  }
}
"""


def test_exceptions_are_caught_under_the_sanitizer(tmp_path, sanitizers):
    """As the kernels throw them; by a library that compiles in a second."""
    (tmp_path / "throws.cpp").write_text(THROWS)
    library = str(tmp_path / "libthrows.so")
    build.run(
        [build.find_compiler(), "-shared", "-fPIC", "-fsanitize=address", str(tmp_path / "throws.cpp"), "-o", library]
    )
    command = [sys.executable, "-c", f"import ctypes; print(ctypes.CDLL({library!r}).caught())"]
    run = subprocess.run(command, env=os.environ | sanitizers.preloaded(), capture_output=True, text=True)
    assert run.stdout == "7\n", run.stderr[-3000:]


EXPONENTS = """
#include <cstdio>
#include "{header}"
int main() {{
  using namespace lion;
  for (float log : {{0.f, -86.f, -88.f, -1e30f, -INFINITY, 88.f, 145.f, 1e30f, INFINITY}}) {{
    Vec<float> grow, same;
    exp_parts(splat(log), grow, same);
    std::printf("%g\\n", double(same[0]));
  }}
}}
"""


def test_exponents_of_any_size_are_defined(tmp_path, sanitizers):
    """Where gates differ by e^145 a walk that is not gone has such costs; nobody uses what they become."""
    source, program = tmp_path / "exponents.cpp", str(tmp_path / "exponents")
    source.write_text(EXPONENTS.format(header=build.SOURCES / "decay.h"))
    flags = ["-std=c++2a", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    build.run([build.find_compiler(), *flags, str(source), "-o", program])
    run = subprocess.run([program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["1", f"{math.exp(-86):g}", "0", "0", "0", "1", "1", "1", "1"]


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


def test_without_the_sources_the_reason_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SOURCES", tmp_path / "src")
    assert build.build_into(tmp_path) == (
        "wheels have no C++ sources: pip install --force-reinstall --no-deps --no-binary :all: lion-attention"
    )


def test_a_broken_library_is_a_reason_too(tmp_path, monkeypatch):
    broken = tmp_path / build.NAME
    broken.write_bytes(b"nothing of the kind")
    monkeypatch.setenv("LION_CPU_LIBRARY", str(broken))
    assert str(library.load()).startswith(f"{build.NAME} does not load: ")
    monkeypatch.delenv("LION_CPU_LIBRARY")
    monkeypatch.setenv("LION_CPU_ISA", "mmx")
    assert library.load() == "LION_CPU_ISA asks for 'mmx', which this processor or build does not have"


def test_a_library_of_another_version_is_not_used(monkeypatch):
    """Fields that do not match would be wrong numbers."""
    monkeypatch.setattr(library, "layout", lambda: "Problem.B 0 8\n")
    reason = f"{build.NAME} was built for another version of lion: build it again, python -m lion.ops.cpu.build"
    assert library.load() == reason


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
        "lion_delta",
        "lion_layout",
    }
    wanted = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True).stdout
    assert "torch" not in wanted
    assert "GOMP" not in wanted
    assert "omp_" not in wanted
    assert library.loaded().has_thread_pool

"""When the backend `triton` is chosen, and why not otherwise. Nothing is launched."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from lion.ops.kernels import SHORT, SHORT_ELSEWHERE, Wanted, choose
from lion.ops.triton import available

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU and Triton, as far as one asks; its compute capability can be set."""
    found = SimpleNamespace(major=8, minor=0)
    monkeypatch.setattr(available, "INSTALLED", True)
    monkeypatch.setattr(available, "VERSION", (3, 9))
    monkeypatch.delenv("LION_TRITON", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    return found


def wanted(dtype=torch.bfloat16, decay="scalar", needs=(), **changes):
    return Wanted("auto", "auto", GPU, dtype, decay, 1000, None, needs)._replace(**changes)


def test_auto_takes_it_on_a_gpu(gpu):
    for decay in ("none", "scalar", "diagonal", "gated diagonal"):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            choice = choose(wanted(dtype, decay))
            assert (choice.backend, choice.form) == ("triton", "scan")
    assert choose(wanted(needs=("states", "two-sided decays"))).backend == "triton"


def test_auto_takes_torch_for_what_it_lacks(gpu):
    assert choose(wanted(torch.float64)).backend == "torch"
    assert choose(wanted(decay="delta")).backend == "torch"
    assert choose(wanted(needs=("wide heads",))).backend == "torch"
    assert choose(wanted(form="full")).backend == "torch"
    gpu.major, gpu.minor = 7, 5
    assert choose(wanted()).backend == "torch"


def test_explain_says_why_not(gpu):
    assert (
        str(choose(wanted()))
        == "scan on triton (one decay per head, fixed or per token): linear in the number of tokens"
    )
    assert choose(wanted(torch.float64)).why.endswith("; not on triton: it has no float64 on GPUs")
    assert choose(wanted(decay="delta")).why.endswith(
        "; not on triton: it has no kernel for the delta rule, with one decay per head or none"
    )
    assert choose(wanted(form="full")).why == "the form was asked for; not on triton: it has no form 'full'"


def test_the_dense_form_of_torch_reaches_further_on_a_gpu(gpu):
    for length, form in ((SHORT + 1, "full"), (SHORT_ELSEWHERE, "full"), (SHORT_ELSEWHERE + 1, "scan")):
        assert choose(wanted(torch.float64, length=length)).form == form


def test_why_it_cannot_run(gpu, monkeypatch):
    assert available.missing(GPU, torch.bfloat16) is None
    assert available.missing(GPU, torch.float64) == "it has no float64 on GPUs"
    assert available.missing(CPU, torch.float32).startswith("it is for NVIDIA's and AMD's GPUs")
    gpu.major, gpu.minor = 7, 5
    assert available.missing(GPU, torch.float32) == "the GPU has compute capability 7.5, and 8.0 is needed"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert available.missing(GPU, torch.float32) is None  # AMD counts otherwise
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert available.missing(CPU, torch.float64) is None
    assert available.missing(GPU, torch.float32) == "TRITON_INTERPRET=1 is for tensors in the CPU's memory"
    monkeypatch.setenv("LION_TRITON", "0")
    assert available.missing(CPU, torch.float32) == "LION_TRITON=0 switches it off"
    monkeypatch.delenv("LION_TRITON")
    monkeypatch.setattr(available, "VERSION", (3, 3))
    assert available.missing(GPU, torch.float32) == "Triton 3.3 is installed, and 3.5 is needed"
    monkeypatch.setattr(available, "INSTALLED", False)
    assert available.missing(GPU, torch.float32) == "Triton is not installed (pip install 'lion-attention[triton]')"


def test_asked_for_where_it_cannot_run(gpu):
    with pytest.raises(ValueError, match=r"backend 'triton' cannot run this: it has no float64 on GPUs. What works"):
        choose(wanted(torch.float64, backend="triton"))


def test_nothing_imports_triton_unless_it_runs():
    """Torch may, for its counter of FLOPs."""
    code = """
import sys, torch, lion
assert "triton" not in sys.modules
x = torch.rand(1, 9, 1, 4)
lion.attention(x, x, x)
print("lion.ops.triton.launch" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

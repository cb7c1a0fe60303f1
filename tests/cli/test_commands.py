"""The commands, as a person would call them."""

import json
import subprocess
import sys

import pytest
import torch

import lion
from lion.bench.command import COMMANDS, DEVICE
from lion.cli import doctor, main
from lion.ops.cpu import library
from lion.packages import OPTIONAL


@pytest.fixture(autouse=True)
def threads():
    """`--threads` is for a process of its own; here others follow."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_doctor_names_versions_devices_packages_and_kernels(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    assert lion.__version__ in out
    for kind, why in doctor.devices().items():
        assert f"torch    {kind}" in out
        assert why is None or why in out
    assert all(name in out for name in OPTIONAL)


def test_list(capsys):
    assert main(["list"]) == 0
    everything = capsys.readouterr().out
    for what in doctor.LISTS:
        assert main(["list", what]) == 0
        assert capsys.readouterr().out.strip() in everything


def test_bench_op_prints_and_writes(capsys, tmp_path):
    path = tmp_path / "new" / "op.json"
    command = "bench op --shapes 1,2,32,8 1,2,128,8 --forms scan --rounds 2 --threads 1 --dtype bfloat16"
    assert main([*command.split(), "--decay", "diagonal", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "bfloat16, diagonal decay, 1 threads, best of 2" in out
    assert "scan, forward: time grows as T^" in out
    found = json.loads(path.read_text())
    assert found["setting"]["threads"] == 1
    assert len(found["results"]) == 2 * 2 * 2  # shapes, passes, softmax and the form
    for record in found["results"]:
        assert record["seconds"] > 0
        assert record["times_faster_than_softmax"] > 0
        assert record["peak_bytes"] >= 0


def test_bench_op_without_peers_and_memory(capsys, tmp_path):
    command = "bench op --shapes 1,2,64,8 --forms scan --rounds 1 --no-softmax --no-memory --json"
    assert main([*command.split(), str(tmp_path / "op.json")]) == 0
    out = capsys.readouterr().out
    assert "softmax" not in out
    assert "MiB" not in out


@pytest.mark.skipif(isinstance(library.LIBRARY, str), reason="no compiled kernels")
def test_bench_of_the_compiled_kernels(capsys, tmp_path):
    path = tmp_path / "op.json"
    command = "bench op --backend cpu --shapes 1,2,300,16 --rounds 1 --no-memory --json"
    assert main([*command.split(), str(path)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("softmax", "torch scan", "cpu scan", "GFLOP/s of multiply-adds"))
    found = json.loads(path.read_text())
    assert found["setting"]["peak_flops"] > 1e9
    assert [x["name"] for x in found["results"] if "share_of_peak" in x] == ["cpu scan", "cpu scan"]
    assert main(["bench", "op", "--backend", "cpu", "--forms", "rnn"]) == 1
    assert "backend 'cpu' has no form 'rnn'" in capsys.readouterr().err


def test_list_variants(capsys):
    assert main(["list", "variants"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in lion.VARIANTS)
    assert "per token and channel" in out


def test_bench_leaves_out_what_would_not_fit(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("lion.bench.op.available_memory", lambda device=None: 1 << 16)
    command = "bench op --shapes 1,2,64,8 --forms full scan --rounds 1 --no-memory --json"
    assert main([*command.split(), str(tmp_path / "op.json")]) == 0
    assert "-: left out, it would not fit into memory" in capsys.readouterr().out


def test_demo(capsys, tmp_path):
    (tmp_path / "lion_s").mkdir()
    (tmp_path / "lion_s" / "run.json").write_text("of a demo before this one")
    assert main(["demo", "--out", str(tmp_path), "--max-length", "256", "--epochs", "0.1"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("LION-LIT", "LION-D", "LION-S", "softmax", "lion_lit", "256"))
    last = out.strip().splitlines()[-1]
    assert last == f"report: {tmp_path / 'report.html'}"
    assert (tmp_path / "forms.png").stat().st_size > 10_000
    assert (tmp_path / "report.html").stat().st_size > 50_000


def test_list_models(capsys):
    assert main(["list", "models", "--flops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (softmax,) = (line for line in lines if line.startswith("softmax_tiny"))
    assert {"5.7", "197", "2.5"} <= set(softmax.split())  # GFLOPs: DeiT-Ti's 1.26 billion multiply-adds


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench op --shapes 1,2", "shape is '1,2'; expected four sizes B,H,T,D, as in 1,8,1024,64."),
        ("bench op --dtype int8", "dtype is 'int8'; expected one of 'float32'"),
        (
            "bench op --forms scam",
            "form is 'scam'; expected one of 'full', 'rnn', 'chunk', 'scan'. Did you mean 'scan'?",
        ),
        ("bench op --decay some", "decay is 'some'; expected one of 'none', 'fixed', 'per-token', 'diagonal'."),
        *(
            (f"bench {name} --device moon", "--device moon cannot be used: torch knows no such device.")
            for name, (_, options) in COMMANDS.items()
            if DEVICE in options
        ),
        ("bench op --rounds 0", "lion bench op: --rounds is '0'; expected a whole number from 1 to 1,000,000."),
        ("demo --max-length 3", "--max-length is 3; expected at least 256."),
    ],
)
def test_mistakes_are_answered_in_one_line(capsys, command, message):
    assert main(command.split()) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lion {lion.__version__}\n"
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_the_command_line_starts_without_torch():
    """Which takes seconds to import, and reads variables that commands set as it does."""
    code = "import sys; from lion.cli import main; main([]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")

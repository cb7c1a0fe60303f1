"""What a person sees of a run: on a terminal, in a notebook, in a log."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import types

import pytest

from lion import progress
from lion.terminal import facts
from lion.train import clock
from lion.train.clock import Clock
from lion.train.loop import train
from tests.train.runs import as_options, small


def on_terminal(command, columns):
    """The output of a command on a terminal of so many columns, by the lines that were ever drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: x for name, x in os.environ.items() if name not in ("COLUMNS", "LINES", "JPY_PARENT_PID")}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux's end of a terminal
            break
        if not part:
            break
        found += part
    os.close(ours)
    assert process.wait() == 0, found.decode()
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", found.decode())
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def test_a_terminal_of_80_columns(tmp_path):
    options = as_options(steps="30", eval_every="10", batch="64")
    command = [sys.executable, "-m", "lion.cli", "train", "digits.lion_s", "--out", str(tmp_path / "run"), *options]
    lines = on_terminal(command, 80)
    assert lines[0] == "loading PyTorch ..."
    for text in ("reading the data ...", "making the model ..."):
        assert text in lines
    assert max(len(x) for x in lines if str(tmp_path) not in x) <= 80
    assert any(re.fullmatch(r"model       lion_s, dim 16, depth 1, heads 2: [\d,]+ parameters", x) for x in lines)
    assert "steps       30 of 64 images: 1.34 epochs" in lines
    bars = [x for x in lines if "%|" in x]
    assert any(re.search(r"\| \d+/30, .*loss \d[\d.]*, eval accuracy \d+\.\d%\s*$", x) for x in bars), bars[-5:]
    assert any("/30, evaluating" in x for x in bars)
    assert any("/30, saving" in x for x in bars)
    assert all(x.count("|") == 2 for x in bars)
    assert sum("eval loss" in x for x in lines) == 3


def test_a_log_has_no_bars(tmp_path, capsys):
    train(small(), tmp_path / "run")
    out, err = capsys.readouterr()
    assert "\r" not in out + err
    assert "%|" not in out + err
    lines = out.splitlines()
    told = [x.split()[0] for x in lines if not x.startswith(" ")]
    assert told[:6] == ["examples", "classes", "split", "model", "steps", "device"]
    assert sum(x.startswith("step ") for x in lines) <= 1 + 3  # one, and the evaluations


def test_the_time_is_told_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(clock, "SECONDS", 0.0)
    train(small(), tmp_path / "run")
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("time")]
    assert re.fullmatch(r"time        about \d+ s \([\d.]+ ms a step\)", line)


def test_an_estimate_leaves_out_what_is_slow_once(monkeypatch):
    now = 100.0
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now)
    found = Clock(10, 110, 20, 30.0)
    for n in range(8):
        now += 50.0 if n < clock.WARM_UP else 2.0
        found.step()
        assert found.known == (n == 7)
    now += 7.0
    found.pause(7.0, evaluation=False)
    assert found.each == pytest.approx(2.0)
    # 92 steps, and the evaluations after steps 20, 40, 60, 80, 100 and 110, each as long as 10 steps
    assert found.left == pytest.approx(92 * 2 + 6 * 10 * 2)
    now += 5.0
    found.pause(5.0, evaluation=True)
    assert found.left == pytest.approx(92 * 2 + 6 * 5)


def test_facts_are_aligned_and_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = facts([("model", "small"), ("classes", "one two three four five six seven")]).splitlines()
    assert lines == ["model       small", "classes     one two three four five six", "            seven"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_comes_back_after_a_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with progress.working("reading"):
        with progress.working("counting"), progress.progress(3, "files") as bar:
            bar.advance(3)
        assert screen.getvalue().endswith(f"\rreading ...{progress.CLEAR}\r")
    assert screen.getvalue().endswith(f"\r{progress.CLEAR}\r")
    assert "counting ..." in screen.getvalue()


def test_a_line_counts_its_seconds(monkeypatch):
    """Nothing stands still for two seconds, in one long call too; a bar is left alone."""
    screen, now = Terminal(), iter(range(100))
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "TICK", 0.01)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with progress.working("reading"):
        deadline = time.monotonic() + 10
        while "reading ... 3 s" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "reading ... 3 s" in screen.getvalue()
        with progress.progress(3, "files"):
            before = screen.getvalue().count("reading")
            time.sleep(0.05)
            assert screen.getvalue().count("reading") == before
    told = screen.getvalue()
    time.sleep(0.05)
    assert screen.getvalue() == told
    assert progress.TICK <= 1
    monkeypatch.setenv("RANK", "1")
    before = screen.getvalue()
    with progress.working("reading"), progress.progress(3, "files") as bar:
        assert not bar.visible
    assert screen.getvalue() == before


def test_a_command_of_a_notebook_has_lines(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setattr(progress, "_told", set())
    for text in ("reading", "counting", "reading"):
        with progress.working(text), progress.progress(3, "files") as bar:
            bar.advance(3)
    assert screen.getvalue() == "reading ...\ncounting ...\n"


def test_a_backend_that_is_not_installed_loses_the_curves_only(tmp_path, monkeypatch):
    from lion.train import report

    def refused(*_):
        raise ValueError("Key backend: 'module://a.notebooks' is not a valid value for backend")

    monkeypatch.setattr(report, "draw_curves", refused)
    assert "accuracy" in train(small(), tmp_path / "run")
    assert not (tmp_path / "run" / "curves.png").exists()


@pytest.fixture
def notebook(monkeypatch):
    """IPython as a kernel has it; what cells show, in order."""
    shown = []
    display = types.ModuleType("IPython.display")
    display.display = lambda x, **how: shown.append(("new", x, how.get("display_id")))
    display.update_display = lambda x, **how: shown.append(("again", x, how["display_id"]))
    display.Image = lambda filename, width: ("image", filename)
    python = types.ModuleType("IPython")
    python.display = display
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object(), execution_count=7)
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "_cells", set())
    return shown


def test_a_notebook_has_one_line_and_the_curves(notebook, tmp_path, capsys):
    train(small(), f"{tmp_path}/run")
    *lines, curves = notebook
    assert curves == ("new", ("image", tmp_path / "run" / "curves.png"), None)
    assert [kind for kind, _, _ in lines] == ["new"] + ["again"] * (len(lines) - 1)
    assert {place for _, _, place in lines} == {"lion-7"}
    texts = [x["text/plain"] for _, x, _ in lines]
    assert texts[0] == "reading the data ..."
    assert texts[-1] == ""
    assert any("%|" in x for x in texts)
    assert max(map(len, texts)) <= 80
    out, err = capsys.readouterr()
    assert "model       lion_s" in out
    assert "\r" not in out + err


def test_curves_leave_the_backend_of_a_notebook_alone(tmp_path, monkeypatch):
    import matplotlib

    monkeypatch.setattr(matplotlib, "use", lambda *_: pytest.fail("the backend is the user's"))
    train(small(), tmp_path / "run")
    assert (tmp_path / "run" / "curves.png").stat().st_size > 1000

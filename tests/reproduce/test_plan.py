"""Plans: steps are carried out once, in order, and go on where they stopped."""

import json
import shutil
import signal
import sys
import time

import pytest

from lion.cli import main
from lion.files import DamagedFile
from lion.machine import description
from lion.reproduce.exhibits import CLOSE, DOES_NOT, NOT_RUN, SHOWS, Cell, Claim, Exhibit, Numbers, Table, Value
from lion.reproduce.plan import Plan
from lion.reproduce.steps import Step, Workplace, in_order, measuring, seeds, training

SMALL = "--dataset digits --model.dim 8 --model.depth 1 --steps 2 --batch 8 --ema 0"


def small(seed=0, extra=""):
    return training("digits.lion_s", f"{SMALL} {extra}", seed=seed, minutes=1)


def test_what_is_needed_goes_first_and_measurements_last():
    first, bench = small(), measuring("op")
    then = training("text", "--start", first)
    assert in_order([bench, then, first]) == [first, then, bench]
    assert len({x.name for x in [*seeds(3, "digits.lion_s"), then, first, bench]}) == 6


def test_a_step_has_a_name_of_its_own():
    a, b = training("text", "--start", small(0)), training("text", "--start", small(1))
    assert a.name != b.name
    long = training("digits.lion_s", "--data " + "x" * 200), training("digits.lion_s", "--data " + "x" * 201)
    assert long[0].name != long[1].name
    assert all(len(x.name) < 130 for x in long)


def test_runs_once_and_writes_what_it_found(tmp_path, capsys):
    place = Workplace(tmp_path)
    steps = [small(0), small(1)]
    plan = Plan(steps, place, at_once=2)
    assert [*plan.states().values()] == ["to do", "to do"]
    plan.run()
    assert not plan.failed
    assert {*plan.states().values()} == {"finished"}
    assert place.result(steps[0])["accuracy"] >= 0
    assert f"lion train digits.lion_s {SMALL} --seed 0" in capsys.readouterr().out
    before = place.record.path.stat().st_mtime_ns
    again = Plan(steps, place)
    again.run()
    assert place.record.path.stat().st_mtime_ns == before
    assert "All is finished" in again.words()


def test_results_are_taken_to_another_machine(tmp_path):
    first, then = small(), training("digits.lion_s", f"{SMALL} --distill.teacher", small())
    here, results = Workplace(tmp_path / "here"), tmp_path / "results.jsonl"
    Plan([first], here).run()
    shutil.copy(here.record.path, results)
    there = Workplace(tmp_path / "there", results=results)
    assert there.result(first) == here.result(first)
    assert Plan([first], there).left == []
    assert Plan([then], there).left == [then]  # a plan has all that its steps need
    plan = Plan(in_order([then]), there)
    assert [*plan.states().values()] == ["to do", "to do"]  # the teacher itself is not there
    plan.run()
    assert not plan.failed
    assert {json.loads(line)["step"] for line in results.read_text().splitlines()} == {first.name, then.name}


def test_plans_that_run_at_the_same_time_keep_each_others_results(tmp_path):
    one, other = Workplace(tmp_path), Workplace(tmp_path)
    assert not one.finished(small(0))
    assert not other.finished(small(1))
    Plan([small(0)], one).run()
    Plan([small(1)], other).run()
    assert all(Workplace(tmp_path).finished(small(seed)) for seed in (0, 1))


def test_a_damaged_record_is_told_by_its_line(tmp_path):
    Plan([small()], Workplace(tmp_path)).run()
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"step": "x"}\n')
    with pytest.raises(DamagedFile, match=r"results\.jsonl, line 2 is no finished step"):
        Workplace(tmp_path).finished(small())


def test_an_interrupted_training_goes_on(tmp_path):
    place, step = Workplace(tmp_path), small(extra="--steps 4 --save_every 2 --log_every 1")
    assert main([*place.command(step)]) == 0
    (place.folder(step) / "result.json").unlink()  # as if it had been killed before its end
    plan = Plan([step], place)
    assert plan.states()[step] == "interrupted"
    plan.run()
    assert plan.states()[step] == "finished"
    assert "--resume" in place.log(step).read_text().splitlines()[0]


def test_a_failure_keeps_back_what_needs_it_alone(tmp_path, capfd):
    bad = training("digits.lion_s", "--model.dim 7")
    after, good = training("text", "--start", bad), small()
    plan = Plan([bad, after, good], Workplace(tmp_path))
    plan.run()
    assert plan.failed[after.name] == f"it needs {bad.name}"
    assert "heads" in plan.failed[bad.name]
    assert plan.states()[good] == "finished"
    assert "failed: lion train digits.lion_s --model.dim 7" in capfd.readouterr().err


def test_interrupting_the_plan_ends_its_processes(tmp_path, monkeypatch, processes):
    place, step = Workplace(tmp_path), small(extra="--steps 100000 --log_every 1")
    plan, sleep = Plan([step], place), time.sleep

    def sleep_or_interrupt(seconds):
        metrics = place.folder(step) / "metrics.jsonl"
        if metrics.exists() and metrics.stat().st_size:  # it trains
            monkeypatch.setattr(time, "sleep", sleep)
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        plan.run()
    assert plan.states()[step] == "interrupted"
    assert any((place.folder(step) / "checkpoints").iterdir())  # it was ended in good order


def test_options_behind_the_dashes_are_another_run(tmp_path):
    step = small()
    plain, more = Workplace(tmp_path), Workplace(tmp_path, ("--data", "x y"))
    assert plain.folder(step) != more.folder(step)
    assert "--data 'x y'" in more.shown(step)


def test_verdicts():
    def verdict(*values):
        numbers = Numbers({("a", "x"): values[0], ("b", "x"): values[1]} if values else {})
        return Claim("a is above b", lambda n: [n("a", "x").minus(n("b", "x"))]).verdict(numbers)

    assert verdict(Value.of([3.0, 3.2]), Value.of([2.0, 2.2])) == SHOWS
    assert verdict(Value.of([1.0, 1.2]), Value.of([2.0, 2.2])) == DOES_NOT
    assert verdict(Value.of([1.0, 3.0]), Value.of([1.1, 2.7])) == CLOSE
    assert verdict() == NOT_RUN
    assert Value.of([1.0, 3.0]) == Value(2.0, 1.0)


def test_rows_can_be_chosen():
    a, b = small(0), small(1)
    table = Table(("x",), {"a": [Cell(1.0, (a,))], "b": [Cell(2.0, (b,))]})
    assert Exhibit("", (table,)).only(["b"]).steps == [b]


def test_measurements_are_not_launched_as_trainings_are(tmp_path):
    step = Step("bench", ("bench", "op", "--shapes", "1,1,4,4", "--rounds", "1"), "found.json", alone=True)
    plan = Plan([step], Workplace(tmp_path), launch=("not-for-measurements",))
    plan.run()
    assert plan.states()[step] == "finished"
    log = plan.place.log(step).read_text()
    assert log.startswith(sys.executable)
    assert plan.place.of(step).machine == description()


def test_a_hangup_that_is_ignored_stays_so(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Plan, "_start", lambda *given: seen.append(signal.getsignal(signal.SIGHUP)) or 1 / 0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    try:
        with pytest.raises(ZeroDivisionError):
            Plan([small()], Workplace(tmp_path)).run()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(ZeroDivisionError):
            Plan([small()], Workplace(tmp_path)).run()
        assert seen == [signal.SIG_IGN, signal.default_int_handler]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)

"""The studies of two-sided decays and of first decays, the costs of plans, and the command itself."""

import re
from pathlib import Path

import pytest

from lion import files, recipes
from lion.cli import main
from lion.reproduce.beyond import OWN
from lion.reproduce.cost import gpu_hours
from lion.reproduce.exhibits import exhibits
from lion.reproduce.plan import Plan
from lion.reproduce.record import Record
from lion.reproduce.steps import Workplace, training


def fields_of(step):
    words = [x for x in step.words[2:] if isinstance(x, str)]
    return {a.removeprefix("--"): b for a, b in zip(words[::2], words[1::2], strict=True) if a != "--seed"}


def test_the_study_changes_one_thing():
    exhibit = exhibits()["twosided"].make("laptop")
    for cells in exhibit.tables[0].rows.values():
        for symmetric, two_sided in (cells[0:2], cells[2:4]):
            for a, b in zip(symmetric.steps, two_sided.steps, strict=True):
                assert a.words[1] == b.words[1]
                assert fields_of(b) == {**fields_of(a), "model.two_sided": "true"}
    for step in exhibit.steps:
        run = recipes.recipe(step.words[1]).changed(fields_of(step))
        assert run.task.model.two_sided == ("model.two_sided" in fields_of(step))


def test_first_decays_are_all_that_half_lives_change():
    first, changes = exhibits()["halflives"].make("laptop").tables
    for cells in first.rows.values():
        for own, length in (cells[0:2], cells[2:4]):
            for a, b in zip(own.steps, length.steps, strict=True):
                assert a.words[1] == b.words[1]
                assert fields_of(b) == {**fields_of(a), "model.half_lives": "1,0"}
    rows = {row: [fields_of(cell.steps[0]) for cell in cells] for row, cells in changes.rows.items()}
    plain = rows.pop(OWN)
    for name, row in rows.items():
        assert all(fields.items() >= own.items() for fields, own in zip(row, plain, strict=True)), name
    exhibit = exhibits()["halflives"].make("laptop")
    assert Plan(exhibit.steps, Workplace(Path("nowhere")), at_once=2).seconds_left() <= 40 * 60
    steps = {row: cells[0].steps for row, cells in first.rows.items()}
    shared = {row: cells[0].steps for row, cells in exhibits()["twosided"].make("laptop").tables[0].rows.items()}
    assert steps.items() <= shared.items()


def test_studies_without_positions_have_none():
    for name in ("twosided", "halflives"):
        for step in exhibits()[name].make("laptop").steps:
            fields = fields_of(step)
            if fields.get("model.positions") == "none":  # DNA that is aligned would have learned ones all the same
                assert fields.get("aligned") == "false"


def test_hours_of_a_gpu():
    # A published figure to be in the region of: DeiT's small model took about three days on four V100s.
    assert 10 < gpu_hours(training("imagenet.softmax_small")) < 100
    assert gpu_hours(training("imagenet.softmax_base")) > 2 * gpu_hours(training("imagenet.softmax_small"))
    assert gpu_hours(training("mlm.c4_lion_s_large")) > 2 * gpu_hours(training("mlm.c4_lion_s_base")) > 0
    assert gpu_hours(training("lra.pathx.lion_s")) > gpu_hours(training("lra.image.lion_s")) > 0
    assert gpu_hours(training("glue.m2_base_mnli")) > gpu_hours(training("glue.m2_base_rte")) > 0


def test_the_listing_has_every_exhibit(capsys, tmp_path):
    assert main(["reproduce", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{name} " in said for name in exhibits())
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_a_dry_run_runs_nothing(scale, capsys, tmp_path):
    assert main(["reproduce", "all", "--scale", scale, "--dry-run", "--out", str(tmp_path / "x")]) == 0
    said = capsys.readouterr().out
    assert "to do  lion train" in said
    assert "steps to do, about" in said
    assert not (tmp_path / "x").exists()


def test_wrong_names(capsys):
    assert main(["reproduce", "table99"]) == 1
    assert "name is 'table99'; did you mean 'table9'? `lion reproduce` lists them" in capsys.readouterr().err
    assert main(["reproduce", "Table2", "--dry-run"]) == 1
    assert "did you mean 'table2'?" in capsys.readouterr().err
    assert main(["reproduce", "table2", "--rows", "LION-X", "--dry-run"]) == 1
    assert "it has" not in (said := capsys.readouterr().err)
    assert "table2 has the rows 'ViT', 'DeiT'," in said
    assert said.count("'DeiT'") == 1
    assert main(["reproduce", "table2", "--scale", "desk"]) == 1


def test_the_page_of_what_is_finished(tmp_path, capsys):
    assert main(["reproduce", "table2", "--page-only", "--out", str(tmp_path)]) == 0
    assert "not run" in capsys.readouterr().out
    page = (tmp_path / "laptop" / "table2" / "README.md").read_text()
    assert "| DeiT | 22 | 22.1 | 79.8 |" in page
    assert "**not run**" in page


def test_the_index_has_all_exhibits_and_says_what_was_not_run(tmp_path, capsys):
    known = exhibits()
    place = Workplace(tmp_path / "laptop")
    step = known["table4"].make("laptop").steps[0]
    place.folder(step).mkdir(parents=True)
    files.write_json(place.folder(step) / step.result, {"accuracy": 0.5})
    place.finish(step, minutes=1)
    assert main(["reproduce", "table4", "table8", "--page-only", "--out", str(tmp_path)]) == 0
    assert str(tmp_path / "laptop" / "index.html") in capsys.readouterr().out
    rows = [line for line in (tmp_path / "laptop" / "README.md").read_text().splitlines()[6:] if line.startswith("| ")]
    assert len(rows) == len(known)
    by_name = {line.split("|")[1].strip().split("]")[0].strip("["): line for line in rows}
    assert set(by_name) == set(known)
    assert "](table4/README.md)" in by_name["table4"]
    assert f"1 of {len(known['table4'].make('laptop').steps)}" in by_name["table4"]
    assert "2 of 2 show" in by_name["table8"]
    assert by_name["figure3"].endswith("| not run | - |")
    page = (tmp_path / "laptop" / "index.html").read_text()
    assert 'href="table8/index.html"' in page
    assert 'href="figure3/index.html"' not in page


def test_a_record_can_be_given(tmp_path, capsys):
    results = tmp_path / "known.jsonl"
    step = exhibits()["table1"].make("laptop").steps[0]
    Record(results).add(step.name, "lion bench agreement", 1.0, {})
    given = ["reproduce", "table1", "--dry-run", "--out", str(tmp_path), "--results", str(results)]
    assert main(given) == 0
    assert "All is finished" in capsys.readouterr().out
    pages = tmp_path / "pages"  # which have it beside them, unless another is given
    Record(pages / "results.jsonl").add(step.name, "lion bench agreement", 1.0, {})
    assert main(["reproduce", "table1", "--dry-run", "--out", str(tmp_path), "--pages", str(pages)]) == 0
    assert "All is finished" in capsys.readouterr().out
    assert main(["reproduce", "--out", str(tmp_path), "--pages", str(pages)]) == 0
    assert re.search(r"^table1 +done ", capsys.readouterr().out, re.MULTILINE)

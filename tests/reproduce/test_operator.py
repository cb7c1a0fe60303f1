"""The forms are one function, and the cost of chunks: the measurements in miniature, and what is claimed of them."""

import importlib.util
import json
import math
from dataclasses import replace

import pytest
import torch

from lion.bench import agreement, chunk, vision
from lion.bench.agreement import OPERATORS, USUAL, Difference, kernels_for, padding, relative, with_gradients
from lion.nn.variants import VARIANTS
from lion.ops import kernels
from lion.ops.kernels import DECAYS, KERNELS
from lion.ops.kernels import FORMS as ALL_FORMS
from lion.reproduce.exhibits import DOES_NOT, NOT_RUN, SHOWS
from lion.reproduce.page import judged
from lion.reproduce.paper import operator
from lion.reproduce.paper.operator import KERNELS as COLUMNS
from lion.reproduce.steps import Workplace
from tests.reproduce.test_page import finish

SMALL = {"tokens": 5, "dim": 8, "heads": 2}
real_config_for = vision.config_for
pytestmark = pytest.mark.usefixtures("little_garbage")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("agreement") / "found.json"
    agreement.run(**SMALL, json_path=path)
    return json.loads(path.read_text())


def verdicts(exhibit, folder, result):
    """The verdicts of an exhibit of one step, which has found this."""
    (step,) = exhibit.steps
    place = Workplace(folder)
    finish(place, step, result)
    return {x.words: x.ours for x in judged(exhibit, place)}


def test_all_forms_of_all_variants_are_compared(found):
    assert set(USUAL) == {name for name in VARIANTS if not VARIANTS[name].softmax}
    layers = {(x["variant"], x["form"], x["backend"]) for x in found["layers"]}
    for variant in USUAL:
        forms = {form for name, form, _ in layers if name == variant}
        assert forms == (set(ALL_FORMS) - {"full"} - ({"chunk"} if VARIANTS[variant].delta else set()))
    assert ("lion_s", "scan", "cpu") in layers
    operators = {(x["form"], x["backend"]) for x in found["operators"]}
    assert operators >= {("full", "torch"), ("rnn", "torch"), ("scan", "cpu")}
    assert {x["decay"] for x in found["operators"]} == set(OPERATORS)
    for x in [*found["layers"], *found["operators"]]:
        most = 1e-12 if x["dtype"] == "float64" else 1e-4
        assert 0 <= x["output"] < most, x
        assert 0 <= x["gradients"] < most, x
    assert {x["direction"] for x in found["layers"]} == {"both", "forward"}


def test_every_kind_of_decay_is_among_the_operators():
    kinds = set()
    for name in OPERATORS:
        inputs, options = agreement.problem(name, agreement.Shape(2, 2, 5, 4), torch.float64)
        kinds.add(agreement.Call(*inputs, log_gain=options.get("log_gain"), beta=options.get("beta")).decay)
    assert kinds == set(DECAYS)


def test_it_prints_tables(capsys, monkeypatch):
    monkeypatch.setattr(agreement, "OPERATORS", {"no decay": OPERATORS["no decay"]})
    agreement.run(variants=["lion_s", "deltanet"], **SMALL)
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["lion_s", "scan", "cpu"] in [row[:3] for row in rows]
    assert ["deltanet", "scan", "cpu"] in [row[:3] for row in rows]
    assert ["no", "decay", "full", "torch"] in [row[:4] for row in rows]
    assert "float64 output" in printed
    assert "tokens 5, dim 8, heads 2" in printed
    with pytest.raises(ValueError, match="variants is 'softmax'; expected one of"):
        agreement.run(variants=["softmax"])


def test_differences():
    a, b = torch.tensor([1.0, -4.0]), torch.tensor([1.0, -5.0])
    assert relative(a, b) == pytest.approx(0.2)
    assert relative(a, torch.zeros(2)) == 4.0  # of nothing, as it is
    assert Difference.of([a, b, a], [a, b, b]) == (0.0, pytest.approx(0.2))
    x, unused = torch.tensor([2.0, 3.0], requires_grad=True), torch.zeros(1, requires_grad=True)
    out, dx, none = with_gradients(x**2, [x, unused])
    assert torch.equal(out, torch.tensor([4.0, 9.0]))
    assert torch.equal(dx, torch.tensor([-4.0, 6.0]))
    assert torch.equal(none, torch.zeros(1))
    assert padding(2, 4).tolist() == [[True] * 4, [True, True, False, False]]


def test_full_comes_first_and_missing_backends_are_left_out(monkeypatch):
    assert kernels_for("scalar", torch.float64)[0] == ("torch", "full")
    assert ("cpu", "scan") in kernels_for("scalar", torch.float32)
    monkeypatch.setattr(kernels.cpu, "LIBRARY", "not here")
    assert all(backend == "torch" for backend, _ in kernels_for("scalar", torch.float32))


def test_a_wrong_form_is_found_out(found, monkeypatch, tmp_path):
    exact = KERNELS["torch", "rnn", "scalar"]
    monkeypatch.setitem(KERNELS, ("torch", "rnn", "scalar"), lambda call: exact(call) * (1 + 1e-8))
    broken = list(agreement.layer_differences("lion_s", "both", "float64", batch=2, **SMALL))
    wrong = {x["form"] for x in broken if x["output"] > 1e-10}
    assert wrong == {"rnn"}
    layers = [x for x in found["layers"] if x["variant"] != "lion_s"] + broken
    claims = verdicts(operator.table1("laptop"), tmp_path, found | {"layers": layers})
    assert [words for words, verdict in claims.items() if verdict != SHOWS] == [
        "LION-S: full attention and the RNN are the same, to 1e-10 in float64"
    ]
    assert claims["LION-S: full attention and the RNN are the same, to 1e-10 in float64"] == DOES_NOT


def test_table1(found, tmp_path):
    exhibit = operator.table1("laptop")
    rows = list(exhibit.tables[0].rows)
    paper = ["LinAtt", "RetNet", "Gated RFA", "Mamba-2", "RWKV-6", "Mamba", "GLA", "HGRN-2", "xLSTM", "DeltaNet"]
    assert [row for row in rows if "Scaling" not in row and "LION" not in row] == paper
    assert set(operator.VARIANTS.values()) <= set(VARIANTS)
    claims = verdicts(exhibit, tmp_path, found)
    assert len(claims) == len(rows) + 1
    assert set(claims.values()) == {SHOWS}
    assert {x.words: x.ours for x in judged(exhibit, Workplace(tmp_path / "none"))} == dict.fromkeys(claims, NOT_RUN)
    read = exhibit.tables[0].rows["LION-D"][0].read
    here = [x for x in found["layers"] if (x["variant"], x["form"], x["dtype"]) == ("lion_d", "rnn", "float64")]
    assert len(here) == 2  # directions
    assert read(found) == max(x["output"] for x in here)


def test_columns_are_kernels():
    here = {(backend, form) for backend, form, _ in KERNELS if backend != "triton"}  # for GPUs
    assert here == {*COLUMNS.values(), agreement.FULL}


# Chunks.


@pytest.fixture
def small(monkeypatch):
    def config_for(model, size, pixels):
        return replace(real_config_for(model, size, pixels), dim=24, heads=3, depth=1, num_classes=5, patch_size=8)

    monkeypatch.setattr(vision, "config_for", config_for)


def test_bench_chunk(small, capsys, tmp_path):
    path = tmp_path / "chunk.json"
    records = chunk.run(pixels=40, chunk_sizes=(4, 8, 100, 200), rounds=1, json_path=path)
    content = json.loads(path.read_text())
    assert content["results"] == records
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert [(x["chunk"], x["chunks"]) for x in records[::3]] == [(4, 7), (8, 4), (26, 1)]  # all of 26 tokens
    assert {x["name"] for x in records} == set(chunk.kinds_of("lion_d"))
    assert all(x["seconds"] > 0 and x["peak_bytes"] >= 0 and x["left_out"] is None for x in records)
    printed = capsys.readouterr().out
    assert "lion_d, tiny, 40 pixels, 26 tokens, batch 1" in printed
    assert ["26", "1"] in [line.split()[:2] for line in printed.splitlines()]


def test_chunks_of_every_size_give_the_same(small, monkeypatch):
    asked = []
    real = chunk.set_form

    def watched(model, form, **options):
        asked.append((form, options["backend"], options["chunk_size"]))
        return real(model, form, **options)

    monkeypatch.setattr(chunk, "set_form", watched)
    model = chunk.VisionModel(vision.config_for("lion_d", "tiny", 40)).eval()
    images = torch.randn(1, 3, 40, 40)
    want = model(images)
    kinds = chunk.kinds_of("lion_d")
    assert kinds == ["chunk", "scan", chunk.COMPILED]
    for kind in kinds:
        for size in (3, 26):
            torch.testing.assert_close(chunk.work(model, images, kind, size)(), want, rtol=1e-4, atol=1e-5)
    assert asked == [(*kind, size) for kind in map(chunk.KINDS.get, kinds) for size in (3, 26)]


def test_too_large_a_chunk_is_left_out(small, monkeypatch, capsys):
    monkeypatch.setattr(chunk, "available_memory", lambda device: chunk.expected_bytes(3, 10, 26, 1) / vision.SHARE)
    records = chunk.run(pixels=40, chunk_sizes=(8, 16), rounds=1)
    assert [x["left_out"] is None for x in records] == [True] * 3 + [False] * 3
    assert "-: left out, would not fit into memory" in capsys.readouterr().out


REFUSED = {
    "model is 'softmax'; expected one of": {"model": "softmax"},
    "model is 'deltanet_'; expected one of": {"model": "deltanet_"},
    "size is 'huge'; expected one of": {"size": "huge"},
    r"chunk_sizes are \[0\], of 768 pixels": {"chunk_sizes": (0,)},
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    with pytest.raises(ValueError, match=text):
        chunk.run(**REFUSED[text])


def test_without_matplotlib(small, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    chunk.run(pixels=16, chunk_sizes=(4,), rounds=1, json_path=tmp_path / "a.json")
    assert "no picture: matplotlib is not installed" in capsys.readouterr().out


def measured(tokens, seconds, mebibytes):
    """Results of `lion bench chunk`, with time and memory by functions of the chunk."""
    sizes = sorted({min(x, tokens) for x in chunk.CHUNKS})
    records = [
        {
            "name": kind,
            "chunk": size,
            "chunks": math.ceil(tokens / size),
            "seconds": seconds(size),
            "peak_bytes": int(mebibytes(size) * 2**20),
            "batch": 1,
        }
        for size in sizes
        for kind in chunk.KINDS
    ]
    return {"results": records}


def test_figure4_claims(tmp_path):
    exhibit = operator.figure4("laptop")
    as_paper = verdicts(exhibit, tmp_path / "a", measured(2305, lambda c: 1 + 9 / c, lambda c: 10 + c))
    assert set(as_paper.values()) == {SHOWS}
    fixed = verdicts(exhibit, tmp_path / "b", measured(2305, lambda c: 1 + abs(c - 256), lambda c: 10 + c))
    assert list(fixed.values()) == [DOES_NOT, SHOWS, DOES_NOT, SHOWS, SHOWS]
    reversed_ = verdicts(exhibit, tmp_path / "c", measured(2305, lambda c: 1 + c, lambda c: 3000 - c))
    assert set(reversed_.values()) == {DOES_NOT}


def test_figure4_draws(tmp_path):
    (figure,) = operator.figure4("laptop").figures
    assert not figure.draw([None], tmp_path / "a.png")
    assert figure.draw([measured(2305, lambda c: 1 + 9 / c, lambda c: c)], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_figure4_rows_are_the_chunks_that_are_measured(scale):
    exhibit = operator.figure4(scale)
    size, pixels = ("tiny", 768) if scale == "laptop" else ("base", 1248)
    tokens = vision.tokens_of(vision.config_for("lion_d", size, pixels))
    found = measured(tokens, lambda c: c / 1e3, lambda c: c)
    (table,) = exhibit.tables
    assert [cells[0].read(found) for cells in table.rows.values()] == sorted({min(c, tokens) for c in chunk.CHUNKS})
    printed = {row: cells[1].printed for row, cells in table.rows.items() if cells[1].printed}
    assert all(int(row.split()[0]) > 1024 for row in printed)
    assert bool(printed) == (scale == "paper")
    assert f"--pixels {pixels}" in Workplace(vision.Path("runs")).shown(exhibit.steps[0])

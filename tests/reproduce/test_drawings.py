"""Drawings: what they show is what the operator computes."""

import math

import numpy as np
import pytest
import torch

import lion
from lion.nn.orders import ORDERS
from lion.ops import reference
from lion.ops.torch import dense
from lion.reproduce.drawing import block, chunks, memory, paths, scatter
from lion.reproduce.drawing.canvas import ramp, tint
from lion.reproduce.exhibits import exhibits
from lion.reproduce.page import write_pages
from lion.reproduce.steps import Workplace

DRAWN = ("figure2", "figure7", "figure8", "figure11")


def pixels(path):
    from matplotlib.image import imread

    return imread(path)[..., :3]


@pytest.mark.parametrize("name", DRAWN)
def test_it_is_drawn_without_results(name, tmp_path):
    named = exhibits()[name]
    for scale in ("laptop", "paper"):
        assert named.make(scale).steps == []
    write_pages(named, named.make("laptop"), "laptop", Workplace(tmp_path), tmp_path / "page")
    pictures = list((tmp_path / "page").glob("*.png"))
    assert len(pictures) == len(named.make("laptop").figures)
    for path in pictures:
        picture = pixels(path)
        height, width, _ = picture.shape
        assert 700 < height < width < 1800
        edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
        assert (edge > 0.98).all()  # white, and nothing is cut off
        assert (picture.min(-1) < 0.9).mean() > 0.05  # there is something on it


# Scan paths.


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("shape", [(6, 6), (3, 5), (5, 2)])
def test_a_path_visits_every_patch_once(name, shape):
    found = paths.places(name, *shape)
    assert sorted(found) == [(row, column) for row in range(shape[0]) for column in range(shape[1])]
    longest = max(paths.strides(name, *shape))
    assert longest == 1 if "snake" in name else longest > 1


def test_weights_are_those_of_the_walks():
    side, decay = 5, 0.8
    middle = side * side // 2
    for name in paths.TITLES:
        shown = paths.weights([name], side, side, decay).flatten()
        order = ORDERS[name](side, side).tolist()
        way = {token: abs(i - order.index(middle)) for i, token in enumerate(order)}
        want = torch.tensor([decay ** way[token] for token in range(side * side)], dtype=torch.float64)
        torch.testing.assert_close(shown, want / want.sum(), rtol=1e-10, atol=1e-12)
    both = paths.weights(paths.SNAKES, side, side, decay)
    each = [paths.weights([name], side, side, decay) for name in paths.SNAKES]
    torch.testing.assert_close(both, (each[0] + each[1]) / 2)
    torch.testing.assert_close(each[0], each[1].T)  # one is the other's transpose


# Chunks.


@pytest.mark.parametrize("column", chunks.columns(), ids=lambda column: column.title)
def test_blocks_are_those_of_the_whole_matrix(column):
    parts = chunks.blocks(column.q, column.k, column.log_decay, chunks.CHUNK)
    T = chunks.TOKENS
    assert len(parts) == (T // chunks.CHUNK) ** 2
    cost = None if column.log_decay is None else column.log_decay[None, :, None]
    tokens = (column.q[None, :, None], column.k[None, :, None], torch.eye(T).double()[None, :, None])
    want = reference.attention(*tokens, cost, norm="none")[0, :, 0]
    torch.testing.assert_close(chunks.assembled(parts, chunks.CHUNK), want, rtol=1e-12, atol=1e-13)
    for x in parts:
        assert (x.rows is None) == (x.columns is None) == (x.i == x.j)
        if x.rows is not None:
            torch.testing.assert_close(x.rows @ x.columns, x.whole)
            assert max(x.rows.max(), x.columns.max()) <= 1  # decays from the border, and no inverse of any


def test_masks():
    lion_d, lion_s = chunks.decays("lion_d"), chunks.decays("lion_s")
    assert chunks.decays("lion_lit") is None
    distance = (torch.arange(chunks.TOKENS)[:, None] - torch.arange(chunks.TOKENS)).abs()
    torch.testing.assert_close(chunks.mask(lion_d), chunks.FIXED ** distance.double(), rtol=1e-12, atol=0)
    assert (lion_s < 0).all()
    own = torch.eye(chunks.TOKENS).double()
    for log_decay in (lion_d, lion_s):
        ahead, back = chunks.mask(log_decay, "forward"), chunks.mask(log_decay, "reverse")
        assert torch.equal(ahead, ahead.tril())
        assert torch.equal(back, back.triu())
        torch.testing.assert_close(ahead + back - own, chunks.mask(log_decay), rtol=1e-12, atol=1e-14)


def test_a_colour_for_each_walk():
    assert len({chunks.colour(1, 0), chunks.colour(0, 1), chunks.colour(1, 1)}) == 3


# Memory.


def test_walks_that_share_their_memory_are_the_operator():
    inputs = memory.Inputs.random(memory.Shape(1, 1, 7, 3), torch.float64, "per-token", torch.device("cpu"))
    out, steps = memory.walk(*(x[0, :, 0] for x in inputs))
    torch.testing.assert_close(out, lion.attention(*inputs, form="full")[0, :, 0], rtol=1e-12, atol=1e-13)
    assert [x.token for x in steps] == [*range(7), *reversed(range(7))]
    assert [x.vectors for x in steps] == [3 + n for n in range(1, 8)] + [3 + 7] * 7
    assert steps[-1].places == (memory.DONE,) * 7
    assert steps[6].places == (memory.FIRST,) * 7
    assert all(step.places[step.token] == (memory.DONE if step.reverse else memory.FIRST) for step in steps)


def peak(form, tokens):
    return max(sum(x.values()) for x in memory.traced(form, tokens, 8))


def test_the_trace_of_the_forms():
    short, long = peak(dense.rnn, 24), peak(dense.rnn, 48)
    assert 4 * 48 < long < 5 * 48  # about four vectors for each token, as the page says
    assert long < 2.05 * short
    assert peak(dense.full, 48) > 3 * peak(dense.full, 24)
    states = [x["states"] for x in memory.traced(dense.rnn, 48, 8)]
    assert 8 <= max(states) <= 3 * 8  # one, and the next that is computed from it
    tokens = [x["sums of a walk, token by token"] for x in memory.traced(dense.rnn, 48, 8)]
    assert max(tokens) == 48
    assert all(x["other"] == 0 for x in memory.traced(dense.rnn, 48, 8))


def test_the_trace_forgets_what_is_freed():
    with memory.Live(()) as live:
        a = torch.ones(3)
        b = a + 1
        del a
        c = b.view(3, 1)  # the same storage
        del b
        torch.zeros(5)
    assert live.counts[1] == {3: 6}
    assert live.counts[-1] == {3: 3, 5: 5}
    assert c.shape == (3, 1)


# The block, and colours.


def test_matrices_of_the_block():
    found = block.matrices()
    assert all(x.shape == (block.TOKENS, block.TOKENS) for x in found.values())
    for name in ("softmax", "weights"):
        torch.testing.assert_close(found[name].sum(-1), torch.ones(block.TOKENS).double())
    product = found["scores"] * found["mask"]
    torch.testing.assert_close(found["weights"], product / product.sum(-1, keepdim=True))


def test_colours():
    assert tint("#000000", 0.0) == (1.0, 1.0, 1.0)
    assert tint("#ff0000", 1.0) == (1.0, 0.0, 0.0)
    assert ramp("#0067a6")(0.0)[:3] == (1.0, 1.0, 1.0)


# The scatter plot.


def test_labels_of_a_scatter_plot_do_not_cover_each_other(tmp_path, monkeypatch):
    points = [("LION-D", 1.0, 80.0), ("LION-D 2 scans", 0.97, 80.05), ("DeiT", 1.02, 79.95), ("Vim", 0.07, 70.0)]
    boxes = []
    real = scatter._labels

    def labels(figure, axis, points):
        real(figure, axis, points)
        boxes.extend(text.get_window_extent() for text in axis.texts)

    monkeypatch.setattr(scatter, "_labels", labels)
    assert scatter.draw(points, tmp_path / "a.png", "speed", "accuracy")
    assert len(boxes) == len(points)  # the places that were tried are gone
    assert not any(scatter._overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert not scatter.draw([], tmp_path / "b.png", "speed", "accuracy")
    assert not (tmp_path / "b.png").exists()


def test_ticks_have_room(tmp_path):
    from lion.bench.plots import _apart

    assert _apart({16, 32, 2048, 2305}) == [16, 32, 2305]
    assert _apart({224, 512, 768, 1024, 1248}) == [224, 512, 768, 1024, 1248]
    assert _apart({64}) == [64]
    assert _apart(set()) == []
    assert math.isclose(sum(_apart({1, 2})), 3)

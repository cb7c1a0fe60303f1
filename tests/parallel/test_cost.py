"""The model of cost: its bytes are those that are sent; what it says of more processes than there are here."""

import pytest

from lion.parallel import cost, scale
from tests.parallel import cases

MACHINE = cost.Machine(flops=1e12, bandwidth=1e9, latency=1e-5)


def test_bytes_are_those_that_are_sent(processes):
    layer = cost.Layer(dim=32, heads=2)
    for rank in processes.run(cases.collectives, "lion_s", (8, 64), {}, ranks=2):
        for forward, backward in rank:
            sent = sum(forward[1:]) + sum(backward)
            assert sent == 3 * cost.lion(layer, MACHINE, 1000, 2).sent  # a batch of 3


def test_what_grows_with_the_length():
    layer = cost.Layer()
    short, long = (cost.lion(layer, MACHINE, tokens, 8) for tokens in (1 << 16, 1 << 20))
    assert long.sent == short.sent
    assert long.compute == pytest.approx(16 * short.compute)
    for way in (cost.ring, cost.all_to_all):
        short, long = (way(layer, MACHINE, tokens, 8) for tokens in (1 << 16, 1 << 20))
        assert long.sent == 16 * short.sent
        assert long.compute > 100 * short.compute
    assert cost.all_to_all(layer, MACHINE, 1 << 20, 64) is None
    assert cost.lion(layer, MACHINE, 1 << 16, 1).communication == 0


def test_the_tables_are_printed(capsys):
    scale.main()
    assert capsys.readouterr().out.count("64M") == len(scale.PROCESSES)

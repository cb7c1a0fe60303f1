"""The order of the data."""

import itertools

import pytest

from lion.train.sampler import Sampler, mixed


def keys(examples, batch, steps, **share):
    return list(itertools.chain(*Sampler(examples, batch, 5, steps, **share)))


def test_every_epoch_has_every_example_once_in_an_order_of_its_own():
    met = keys(10, 4, range(10))
    epochs = [[index for epoch, index in met if epoch == n] for n in range(4)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_it_goes_on_anywhere():
    assert keys(10, 4, range(3, 7)) == keys(10, 4, range(7))[12:]


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 2), (2, 3)])
def test_processes_and_parts_share_the_same_batches(world, accumulate):
    alone = list(Sampler(50, 12, 5, range(9)))
    shared = [list(Sampler(50, 12, 5, range(9), rank=r, world=world, accumulate=accumulate)) for r in range(world)]
    for step, batch in enumerate(alone):
        parts = [shared[r][step * accumulate + n] for n in range(accumulate) for r in range(world)]
        assert list(itertools.chain(*parts)) == batch


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(
        ValueError, match="batch is 10; expected a multiple of 4: 2 processes with 2 micro-batches each"
    ):
        Sampler(50, 10, 5, range(9), world=2, accumulate=2)


def test_seeds_are_mixed():
    assert len({mixed(a, b) for a in range(20) for b in range(20)}) == 400
    assert mixed(1, 2) == mixed(1, 2)

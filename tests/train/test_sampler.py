"""The order of the data."""

import itertools

import numpy as np
import pytest

from lion.train.sampler import WINDOW, Sampler, eval_parts, mixed


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


LENGTHS = np.random.default_rng(0).integers(1, 500, 1000)


@pytest.mark.parametrize("batch", [8, 12])  # the second one goes on from epoch to epoch in the middle of a batch
def test_batches_of_about_the_same_length(batch):
    steps = range(4 * 1000 // batch)
    grouped, plain = (list(Sampler(1000, batch, 5, steps, lengths=lengths)) for lengths in (LENGTHS, None))
    epochs = [[index for epoch, index in itertools.chain(*grouped) if epoch == n] for n in range(3)]
    assert all(sorted(epoch) == list(range(1000)) for epoch in epochs)

    def padding(batches):
        lengths = [LENGTHS[[index for _, index in keys]] for keys in batches]
        return sum(len(x) * x.max() for x in lengths) / sum(x.sum() for x in lengths) - 1

    assert padding(grouped) < 0.25 * padding(plain)
    widest = [LENGTHS[[index for _, index in keys]].max() for keys in grouped[:WINDOW]]
    assert widest not in (sorted(widest), sorted(widest, reverse=True))  # batches are shuffled
    assert keys(1000, batch, range(7, 90), lengths=LENGTHS) == list(itertools.chain(*grouped[7:90]))


def test_fewer_examples_than_a_batch_can_be_grouped():
    met = keys(10, 16, range(5), lengths=LENGTHS[:10])
    assert sorted(index for epoch, index in met if epoch == 2) == list(range(10))


def test_an_eval_set_is_shared_and_sorted_by_length():
    for lengths in (None, LENGTHS):
        parts = eval_parts(1000, 3, lengths)
        assert sorted(np.concatenate(parts)) == list(range(1000))
    assert all((np.diff(LENGTHS[part]) >= 0).all() for part in parts)


def test_repeated_augmentation():
    """Copies of an example are in one batch, under keys that differ, and an epoch takes a third of all examples."""
    keys = [key for batch in Sampler(12, 6, 0, range(6), repeats=3) for key in batch]
    assert len(set(keys)) == len(keys)
    for first in range(0, len(keys), 3):
        epochs, indices = zip(*keys[first : first + 3], strict=True)
        assert len(set(indices)) == 1
        assert [epoch % 3 for epoch in epochs] == [0, 1, 2]
    for epoch in range(3):
        assert len({index for _, index in keys[12 * epoch : 12 * epoch + 12]}) == 4
    assert len({index for _, index in keys}) > 4  # others in the next epochs

"""Augmentation: each change against the plain way to write it, and that randomness depends on the key alone."""

import random
import re
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from lion.data.augment import Augment, Mixup, draws, scatter, seeded, timm_transform
from lion.data.images import load_images
from tests import SEED
from tests.data import write_cifar

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POLICY = Augment(timm="rand-m9-mstd0.5-inc1", erase=0.25)


def random_images(*shape):
    return torch.randint(1, 256, shape, dtype=torch.uint8)


def keys(count, epoch=0):
    return np.full(count, epoch), np.arange(count)


def test_splitmix64_is_the_published_one():
    from lion.data.augment import _mix

    # the first outputs of the reference implementation from state 1234567: the state grows by GOLDEN every time
    states = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert _mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_draws_are_uniform_and_unrelated():
    epochs, indices = (x.ravel() for x in np.meshgrid(np.arange(20), np.arange(1000)))
    numbers = draws(5, epochs, indices)
    assert numbers.shape == (20000, 10)
    assert 0 <= numbers.min() < 1e-3
    assert 0.999 < numbers.max() < 1
    np.testing.assert_allclose(numbers.mean(0), 0.5, atol=0.01)  # five standard errors
    np.testing.assert_allclose(numbers.var(0), 1 / 12, atol=0.005)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(10)).max() < 0.035
    grid = numbers[:, 0].reshape(1000, 20)
    for left, right in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])):  # the next index, the next epoch
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.035
    assert len(set(scatter(5, epochs, indices).tolist())) == 20000
    assert not np.intersect1d(scatter(5, epochs, indices), scatter(6, epochs, indices)).size
    np.testing.assert_array_equal(draws(-1, *keys(3)), draws(2**64 - 1, *keys(3)))


def offsets(numbers, most):
    return np.floor(numbers * (2 * most + 1)).astype(int) - most


@pytest.mark.parametrize("padding", ["zero", "reflect"])
def test_pad_crop_flip_and_shift_against_the_plain_way(padding):
    images = random_images(200, 3, 7, 9)
    numbers = draws(0, *keys(200))
    found = Augment(pad_crop=3, padding=padding, flip=True, shift=2).move(images, numbers)
    crop, shift = offsets(numbers[:, :2], 3), offsets(numbers[:, 3:5], 2)
    assert {*crop.ravel()} == {*range(-3, 4)}
    assert {*shift.ravel()} == {*range(-2, 3)}
    for i in range(200):
        mode = {"zero": "constant", "reflect": "reflect"}[padding]
        padded = F.pad(images[i : i + 1].float(), (3, 3, 3, 3), mode=mode)[0]
        want = padded[:, 3 + crop[i, 0] :, 3 + crop[i, 1] :][:, :7, :9]
        want = want.flip(-1) if numbers[i, 2] < 0.5 else want
        want = F.pad(want, (2, 2, 2, 2))[:, 2 - shift[i, 0] :, 2 - shift[i, 1] :][:, :7, :9]
        assert torch.equal(found[i].float(), want)


def test_each_change_by_itself():
    images = random_images(64, 1, 8, 8)
    numbers = draws(0, *keys(64))
    assert Augment().move(images, numbers) is images
    flipped = Augment(flip=True).move(images, numbers)
    for image, result, number in zip(images, flipped, numbers[:, 2], strict=True):
        assert torch.equal(result, image.flip(-1) if number < 0.5 else image)
    # a change draws numbers of its own: others stay as they were when it is turned on
    crops = Augment(pad_crop=2).move(images, numbers)
    both = Augment(pad_crop=2, flip=True).move(images, numbers)
    assert torch.equal(both[numbers[:, 2] >= 0.5], crops[numbers[:, 2] >= 0.5])


def test_erasing_covers_one_rectangle_with_the_mean():
    images = torch.full((4000, 2, 16, 12), 7.0)
    found = Augment(erase=0.3).cover(images, draws(0, *keys(4000)))
    erased = (found == 0)[:, 0]
    assert torch.equal(erased, (found == 0)[:, 1])
    hit = erased.any(-1).any(-1)
    assert abs(hit.float().mean() - 0.3) < 0.03
    rows, columns = erased[hit].any(-1), erased[hit].any(-2)
    assert torch.equal(erased[hit], rows[:, :, None] & columns[:, None, :])  # a rectangle
    for side in (rows, columns):
        assert ((side.int().diff(dim=-1) == 1).sum(-1) + side[:, 0].int() == 1).all()  # in one piece
    share = erased[hit].float().mean((1, 2))
    assert share.min() > 0.005
    assert share.max() < 0.4
    assert abs(share.mean() - 0.17) < 0.02
    assert torch.equal(Augment().cover(images, draws(0, *keys(4000))), images)


def test_a_batch_of_cifar_size_takes_milliseconds():
    found = load_images("digits", "train", size=None)
    found.images, found.mean, found.std = random_images(1000, 3, 32, 32), MEAN, STD
    found = found.with_augmentation(Augment(pad_crop=4, flip=True, shift=1, erase=0.25), seed=0)
    times = []
    for epoch in range(10):
        start = time.process_time()
        found.__getitems__([(epoch, i) for i in range(128)])
        times.append(time.process_time() - start)
    assert min(times) < 0.01  # of one core; 2.5 ms on a quiet machine


def test_timm_is_seeded_by_the_key_and_leaves_the_callers_generators_alone():
    transform = timm_transform(POLICY, 24, MEAN, STD)
    image = Image.fromarray(np.random.default_rng(SEED).integers(0, 256, (40, 30, 3), dtype=np.uint8))

    def changed(seed):
        with seeded(seed):
            return transform(image)

    random.seed(SEED + 1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(SEED + 1)

    def callers():
        return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002

    want = [callers(), callers()]
    random.seed(SEED + 1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(SEED + 1)
    found = [callers()]
    first = changed(5)
    found.append(callers())
    assert found == want
    assert first.shape == (3, 24, 24)
    assert first.dtype == torch.float32
    assert torch.equal(changed(5), first)
    assert not torch.equal(changed(6), first)
    with pytest.raises(KeyError), seeded(2**64 - 1):
        raise KeyError
    random.seed(SEED + 1)
    assert random.random() == want[0][0]


def test_a_policy_for_images_in_memory(tmp_path):
    """Images of CIFAR, as DeiT changes them: enlarged, in another way in every epoch, the same for the same key."""
    write_cifar("cifar10", tmp_path)
    train = load_images("cifar10", "train", data=tmp_path, size=48).with_augmentation(POLICY, SEED)
    one, again, other = (train.__getitems__([(epoch, 0), (epoch, 1)])["image"] for epoch in (0, 0, 1))
    assert one.shape == (2, 3, 48, 48)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("augment", [POLICY, Augment(pad_crop=6, flip=True)])
def test_the_same_picture_twice_is_changed_twice(tmp_path, augment):
    picture = Image.fromarray(np.random.default_rng(SEED).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(6):
            picture.save(tmp_path / name / f"{i}.png")
    images = load_images("folder", "train", data=tmp_path, size=16, by_content=False)
    found = images.with_augmentation(augment, seed=0)
    images = found.__getitems__([(0, i) for i in range(4)])["image"]
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_timm_erases_as_often_as_asked():
    assert "RandomErasing(p=0.25" in str(timm_transform(POLICY, 24, MEAN, STD))
    assert "RandomErasing" not in str(timm_transform(Augment(timm=POLICY.timm), 24, MEAN, STD))


def batch(count=6, classes=4, side=8):
    return {
        "image": torch.randn(count, 3, side, side),
        "label": torch.arange(count) % classes,
        "index": torch.arange(count),
    }


def test_mixup_adds_an_image_and_its_mirror():
    before = batch()
    image = before["image"].clone()
    after = Mixup(mixup=0.8)(before, seed=0, step=3, num_classes=4)
    assert torch.equal(before["image"], image)
    hard = F.one_hot(before["label"], 4).float()
    weight = after["target"][0, 0].item()  # the first label is 0, the last 1
    assert 0 < weight < 1
    torch.testing.assert_close(after["target"], weight * hard + (1 - weight) * hard.flip(0))
    torch.testing.assert_close(after["image"], weight * image + (1 - weight) * image.flip(0))
    assert torch.equal(after["index"], before["index"])


def test_cutmix_weighs_by_what_is_left():
    mix = Mixup(cutmix=1.0)
    for step in range(20):
        before = batch()
        after = mix(before, 0, step, 4)
        mirrored = before["image"].flip(0)
        other = after["image"] != before["image"]
        assert torch.equal(after["image"][other], mirrored[other])
        assert (other == other[:1, :1]).all()  # the same rectangle everywhere
        left = 1 - other[0, 0].float().mean().item()
        hard = F.one_hot(before["label"], 4).float()
        torch.testing.assert_close(after["target"], left * hard + (1 - left) * hard.flip(0))


def test_mixing_is_a_function_of_seed_and_step():
    mix = Mixup(mixup=0.8, cutmix=1.0)
    before = batch()
    first = mix(before, 1, 2, num_classes=4)
    torch.rand(3)
    again = mix(before, 1, 2, num_classes=4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    for seed, step in ((2, 2), (1, 3)):
        assert not torch.equal(mix(before, seed, step, num_classes=4)["target"], first["target"])
    torch.testing.assert_close(first["target"].sum(-1), torch.ones(6))


def test_how_often_it_mixes_and_which_way():
    before = batch(2, 2)
    steps = range(600)
    mixed = [not torch.equal(Mixup(1.0, 1.0, 0.3)(before, 0, i, 2)["image"], before["image"]) for i in steps]
    assert abs(np.mean(mixed) - 0.3) < 0.08
    kept = [(Mixup(1.0, 1.0, 1.0, 0.2)(before, 0, i, 2)["image"] == before["image"]).any().item() for i in steps]
    assert abs(np.mean(kept) - 0.2) < 0.07  # cutmix leaves some pixels as they were


def test_nothing_at_all():
    before = batch()
    assert Mixup()(before, 0, 0, 4) is before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Augment(padding="mirror"), "padding is 'mirror'; expected one of 'zero', 'reflect'."),
        (lambda: Augment(pad_crop=-1), "pad_crop is -1; expected a whole number from 0 to 16,384."),
        (lambda: Augment(shift=0.5), "shift is 0.5; expected a whole number from 0 to 16,384."),
        (lambda: Augment(erase=2), "erase is 2; expected a number from 0 to 1."),
        (
            lambda: Augment(timm="rand-m9", flip=True),
            "timm is 'rand-m9', with pad_crop, flip or shift; expected none of them: timm crops and flips.",
        ),
        (
            lambda: load_images("digits", "test").with_augmentation(POLICY, 0),
            "timm is 'rand-m9-mstd0.5-inc1', and the images are grey; expected None: there are pad_crop, flip, shift "
            "and erase.",
        ),
        (
            lambda: load_images("digits", "test", size=32).with_augmentation(Augment(pad_crop=8), 0),
            "pad_crop is 8; expected less than the images, 8 x 8.",
        ),
        (
            lambda: timm_transform(Augment(timm="rnd-m9"), 24, MEAN, STD),
            "timm is 'rnd-m9'; expected a policy that timm knows, such as 'rand-m9-mstd0.5-inc1' "
            "(Unknown AutoAugment config section).",
        ),
        (lambda: Mixup(mixup=-1), "mixup is -1; expected a number, 0 or more."),
        (lambda: Mixup(probability=-0.1), "probability is -0.1; expected a number from 0 to 1."),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.data", None)
    with pytest.raises(ImportError, match=r"^timm is needed for this: pip install 'lion-attention\[timm\]'$"):
        timm_transform(POLICY, 24, MEAN, STD)

"""Heads of text models, and their losses."""

import pytest
import torch
import torch.nn.functional as F

from lion.models.heads import IGNORED, LOSSES, MaskedLMHead, first_tokens, label_loss, mean_tokens


def test_losses_are_means_over_what_is_labelled():
    logits, labels = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    labels[0, :3] = IGNORED
    real = labels != IGNORED
    want = F.cross_entropy(logits[real], labels[real])
    torch.testing.assert_close(label_loss(logits, labels), want)
    torch.testing.assert_close(label_loss(logits[real], labels[real]), want)


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_of_parts_add_up(kind):
    logits = torch.randn(6, 4)
    labels = torch.randint(0, 4, (6,)) if kind == "single_label_classification" else torch.rand(6, 4)
    items = len(labels) if kind == "single_label_classification" else labels.numel()
    whole = label_loss(logits, labels, kind=kind)
    for count in (items, torch.tensor(items)):
        parts = [label_loss(logits[part], labels[part], count, kind) for part in (slice(2), slice(2, 6))]
        torch.testing.assert_close(sum(parts), whole)


def test_losses_in_half_precision_are_summed_in_float32():
    assert label_loss(torch.randn(3, 4).bfloat16(), torch.tensor([0, 1, 2])).dtype == torch.float32
    assert label_loss(torch.randn(3, 4).double(), torch.tensor([0, 1, 2])).dtype == torch.float64


def test_one_vector_for_a_sequence():
    x, mask = torch.randn(2, 4, 3), torch.tensor([[False, True, True, False], [True, False, True, True]])
    assert torch.equal(first_tokens(x, None, None), x[:, 0])
    assert torch.equal(first_tokens(x, mask, None), torch.stack([x[0, 1], x[1, 0]]))
    assert torch.equal(first_tokens(x[:1], None, torch.tensor([0, 3, 4])), x[0, [0, 3]])
    torch.testing.assert_close(mean_tokens(x, mask), torch.stack([x[0, 1:3].mean(0), x[1, [0, 2, 3]].mean(0)]))
    torch.testing.assert_close(mean_tokens(x, None), x.mean(1))
    packed = mean_tokens(x[:1], None, torch.tensor([0, 3, 4]))
    torch.testing.assert_close(packed, torch.stack([x[0, :3].mean(0), x[0, 3]]))
    assert torch.equal(mean_tokens(x, torch.zeros_like(mask)), torch.zeros(2, 3))


def test_logits_of_words():
    assert MaskedLMHead(8, 11, 1e-12)(torch.randn(2, 5, 8)).shape == (2, 5, 11)

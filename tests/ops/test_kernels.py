"""Which kernel runs, and how one learns of it."""

import logging

import pytest
import torch

import lion
from lion.ops import attention as module
from lion.ops.kernels import FORMS, SHORT


def inputs(T, **changes):
    q, k, v = (torch.rand(1, T, 2, 4) for _ in range(3))
    return {"q": q, "k": k, "v": v} | changes


def test_auto_takes_the_fastest_exact_form():
    decay = {"log_decay": -torch.rand(2)}
    assert lion.explain(**inputs(SHORT, **decay)).form == "full"
    assert lion.explain(**inputs(SHORT + 1, **decay)).form == "scan"
    assert lion.explain(**inputs(5)).form == "scan"  # without decay one state is all there is
    assert lion.explain(**inputs(5, chunk_size=2, **decay)).form == "scan"


@pytest.mark.parametrize("form", FORMS)
def test_a_form_asked_for_is_used(form):
    choice = lion.explain(**inputs(5, form=form, backend="torch"))
    assert (choice.form, choice.backend, choice.why) == (form, "torch", "the form was asked for")


def test_explain_says_it_in_a_sentence():
    choice = lion.explain(**inputs(3000, log_decay=-torch.rand(1, 3000, 2)))
    assert str(choice) == "scan on torch (one decay per head, fixed or per token): linear in the number of tokens"
    assert lion.explain(**inputs(9, log_decay=-torch.rand(2, 4))).decay == "diagonal"
    assert lion.explain(**inputs(9)).decay == "none"
    assert lion.explain(**inputs(9, cu_seqlens=torch.tensor([0, 4, 9]))).decay == "scalar"


def test_a_choice_is_logged_once(caplog):
    module._log_choice.cache_clear()
    with caplog.at_level(logging.INFO, logger="lion"):
        for _ in range(3):
            lion.attention(**inputs(7))
    assert [record.message for record in caplog.records] == ["scan on torch (no decay)"]

"""Which kernel runs, and how one learns of it."""

import logging

import pytest
import torch

import lion
from lion.ops.kernels import FORMS, SHORT
from tests.ops.problems import forget_choices


def inputs(T, **changes):
    q, k, v = (torch.rand(1, T, 2, 4) for _ in range(3))
    return {"q": q, "k": k, "v": v} | changes


def test_auto_takes_the_fastest_exact_form():
    decay = {"log_decay": -torch.rand(2)}
    for T in (5, SHORT, SHORT + 1):
        choice = lion.explain(**inputs(T, **decay))
        assert (choice.form, choice.backend) == ("scan", "cpu")
    torch_only = decay | {"backend": "torch"}
    assert lion.explain(**inputs(SHORT, **torch_only)).form == "full"
    assert lion.explain(**inputs(SHORT + 1, **torch_only)).form == "scan"
    assert lion.explain(**inputs(5, backend="torch")).form == "scan"  # without decay one state is all there is
    assert lion.explain(**inputs(5, chunk_size=2, **torch_only)).form == "scan"


def test_auto_falls_back_where_the_compiled_kernel_cannot_run():
    """float16, and forms that it does not have; it has every kind of decay."""
    assert lion.explain(**inputs(500, log_decay=-torch.rand(2, 4))).backend == "cpu"
    gate = torch.rand(1, 500, 2)
    assert lion.explain(**inputs(500, log_decay=-torch.rand(2, 4), log_gain=gate)).backend == "cpu"
    assert lion.explain(**inputs(500, beta=gate, norm="none")).backend == "cpu"
    assert lion.explain(**inputs(500, form="rnn")).backend == "torch"
    half = {name: x.half() for name, x in inputs(500).items()}
    assert lion.explain(**half).backend == "torch"
    with pytest.raises(ValueError, match=r"backend 'cpu' cannot run this: it has no float16. What works here: 'torch'"):
        lion.explain(**half, backend="cpu")


@pytest.mark.parametrize("form", FORMS)
def test_a_form_asked_for_is_used(form):
    choice = lion.explain(**inputs(5, form=form, backend="torch"))
    assert (choice.form, choice.backend, choice.why) == (form, "torch", "the form was asked for")


def test_explain_says_it_in_a_sentence():
    choice = lion.explain(**inputs(3000, log_decay=-torch.rand(1, 3000, 2)))
    assert str(choice) == "scan on cpu (one decay per head, fixed or per token): linear in the number of tokens"
    assert lion.explain(**inputs(9, log_decay=-torch.rand(2, 4))).decay == "diagonal"
    assert lion.explain(**inputs(9)).decay == "none"
    assert lion.explain(**inputs(9, cu_seqlens=torch.tensor([0, 4, 9]))).decay == "none"


def test_a_choice_is_logged_once(caplog):
    forget_choices()
    with caplog.at_level(logging.INFO, logger="lion"):
        for _ in range(3):
            lion.attention(**inputs(7))
    assert [record.message for record in caplog.records] == ["scan on cpu (no decay)"]

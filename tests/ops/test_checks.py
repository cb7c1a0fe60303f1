"""Every refusal, text included: what was got, what was wanted, the remedy."""

from typing import get_args

import numpy as np
import pytest
import torch

import lion
from lion.ops import checks, kernels

B, T, H, D, V = 2, 6, 3, 4, 5


def inputs(**changes):
    kwargs = {"q": torch.rand(B, T, H, D), "k": torch.rand(B, T, H, D), "v": torch.randn(B, T, H, V)}
    return kwargs | changes


def rand(*shape):
    return torch.rand(*shape)


NAN = torch.full((B, T, H), -1.0)
NAN[1, 2, 0] = torch.nan
POSITIVE = torch.full((B, T, H), -1.0)
POSITIVE[0, 3, 1] = 0.25
INFINITE = torch.zeros(B, T, H)
INFINITE[1, 5, 2] = torch.inf
ONE = {"q": rand(1, T, H, D), "k": rand(1, T, H, D), "v": rand(1, T, H, V)}

CASES = {
    "q is no tensor": (
        {"q": [1.0]},
        TypeError,
        "q is a list; expected a tensor [B, T, H, D].",
    ),
    "v is no tensor": (
        {"v": None},
        TypeError,
        "v is a NoneType; expected a tensor [B, T, H, V].",
    ),
    "three dimensions": (
        {"q": rand(B, T, D)},
        ValueError,
        "q has shape (2, 6, 4); expected 4 dimensions [B, T, H, D]: for a single head, q.unsqueeze(2).",
    ),
    "two dimensions": (
        {"v": rand(B, T)},
        ValueError,
        "v has shape (2, 6); expected 4 dimensions [B, T, H, V].",
    ),
    "integers": (
        {"q": torch.ones(B, T, H, D, dtype=torch.int64)},
        TypeError,
        "q has dtype int64; expected one of float64, float32, bfloat16, float16: q.float().",
    ),
    "no channels": (
        {"q": rand(B, T, H, 0), "k": rand(B, T, H, 0)},
        ValueError,
        "q has shape (2, 6, 3, 0); expected at least one channel, D >= 1.",
    ),
    "k head-first": (
        {"k": rand(B, H, T, D)},
        ValueError,
        "k has shape (2, 3, 6, 4); expected (2, 6, 3, 4) = [B, T, H, D], the shape of q: transpose it.",
    ),
    "k of other width": (
        {"k": rand(B, T, H, D + 1)},
        ValueError,
        "k has shape (2, 6, 3, 5); expected (2, 6, 3, 4) = [B, T, H, D], the shape of q.",
    ),
    "v of other length": (
        {"v": rand(B, T + 1, H, V)},
        ValueError,
        "v has shape (2, 7, 3, 5); expected (2, 6, 3, 5) = [B, T, H, V].",
    ),
    "mixed dtypes": (
        {"k": rand(B, T, H, D).double()},
        TypeError,
        "k has dtype float64; expected float32, the dtype of q: k.to(q.dtype).",
    ),
    "mixed devices": (
        {"v": torch.empty(B, T, H, V, device="meta")},
        ValueError,
        "v is on meta; expected cpu, the device of q: v.to(q.device).",
    ),
    "norm": (
        {"norm": "summ"},
        ValueError,
        "norm is 'summ'; expected one of 'sum', 'max', 'none', 'unmasked'. Did you mean 'sum'?",
    ),
    "direction": (
        {"direction": "causal"},
        ValueError,
        "direction is 'causal'; expected one of 'both', 'forward', 'reverse'.",
    ),
    "form": (
        {"form": "scam"},
        ValueError,
        "form is 'scam'; expected one of 'auto', 'full', 'rnn', 'chunk', 'scan'. Did you mean 'scan'?",
    ),
    "backend": (
        {"backend": "tensorflow"},
        ValueError,
        f"backend is 'tensorflow'; expected one of {', '.join(map(repr, ('auto', *kernels.BACKENDS)))}.",
    ),
    "beta of other shape": (
        {"beta": rand(B, H, T), "norm": "none"},
        ValueError,
        "beta has shape (2, 3, 6); expected (2, 6, 3) = [B, T, H]: transpose it.",
    ),
    "beta and a norm": (
        {"beta": rand(B, T, H)},
        ValueError,
        "norm is 'sum'; expected 'none' with beta: what the delta rule takes back has no row sum.",
    ),
    "beta and channels": (
        {"beta": rand(B, T, H), "norm": "none", "log_decay": -rand(H, D)},
        ValueError,
        "log_decay has shape (3, 4), one per channel; expected [H] or [B, T, H] with beta.",
    ),
    "beta and a gate": (
        {"beta": rand(B, T, H), "norm": "none", "log_gain": rand(B, T, H)},
        ValueError,
        "log_gain and beta are both given; expected one of them: beta is the delta rule's own gate.",
    ),
    "beta too large": (
        {"beta": torch.full((B, T, H), 2.5), "norm": "none"},
        ValueError,
        "beta is 2.5 at [0, 0, 0]; expected values from 0 to 2: take a sigmoid of it.",
    ),
    "beta negative": (
        {"beta": torch.full((B, T, H), -0.5), "norm": "none"},
        ValueError,
        "beta is -0.5 at [0, 0, 0]; expected values from 0 to 2: take a sigmoid of it.",
    ),
    "beta in chunks": (
        {"beta": rand(B, T, H), "norm": "none", "form": "chunk"},
        ValueError,
        "no kernel for form 'chunk' on backend 'auto' with the delta rule, with one decay per head or none. "
        "What works: cpu scan, torch full, torch rnn, torch scan.",
    ),
    "log_decay is no tensor": (
        {"log_decay": -0.5},
        TypeError,
        "log_decay is a float; expected a floating point tensor.",
    ),
    "log_decay transposed": (
        {"log_decay": -rand(B, H, T)},
        ValueError,
        "log_decay has shape (2, 3, 6); expected (2, 6, 3) = [B, T, H]: transpose it.",
    ),
    "log_decay fixed and transposed": (
        {"log_decay": -rand(D, H)},
        ValueError,
        "log_decay has shape (4, 3); expected (3, 4) = [H, D]: transpose it.",
    ),
    "log_decay of other heads": (
        {"log_decay": -rand(H + 1)},
        ValueError,
        "log_decay has shape (4,); expected (3,) = [H].",
    ),
    "log_decay of five dimensions": (
        {"log_decay": -rand(B, T, H, D, 1)},
        ValueError,
        "log_decay has shape (2, 6, 3, 4, 1); expected one of [H], [H, D], [B, T, H], [B, T, H, D].",
    ),
    "log_decay with a last dimension of 1": (
        {"log_decay": -rand(B, T, H, 1)},
        ValueError,
        "log_decay has shape (2, 6, 3, 1); expected (2, 6, 3, 4) = [B, T, H, D], or (2, 6, 3) = [B, T, H] "
        "for one number per head: log_decay.squeeze(-1).",
    ),
    "log_decay of integers": (
        {"log_decay": torch.zeros(H, dtype=torch.int32)},
        TypeError,
        "log_decay has dtype int32; expected floating point: log_decay.float().",
    ),
    "log_decay elsewhere": (
        {"log_decay": torch.empty(H, device="meta")},
        ValueError,
        "log_decay is on meta; expected cpu, the device of q: log_decay.to(q.device).",
    ),
    "log_decay positive": (
        {"log_decay": POSITIVE},
        ValueError,
        "log_decay is 0.25 at [0, 3, 1]; expected values <= 0, the log of a decay: take its log, or logsigmoid.",
    ),
    "log_decay NaN": (
        {"log_decay": NAN},
        ValueError,
        "log_decay is NaN at [1, 2, 0]; expected numbers: look for what made it, a log of 0 or below?",
    ),
    "log_gain of integers": (
        {"log_gain": torch.zeros(B, T, H).long()},
        TypeError,
        "log_gain has dtype int64; expected floating point: log_gain.float().",
    ),
    "log_gain of other shape": (
        {"log_gain": rand(B, H, T)},
        ValueError,
        "log_gain has shape (2, 3, 6); expected (2, 6, 3) = [B, T, H]: transpose it.",
    ),
    "log_gain infinite": (
        {"log_gain": INFINITE},
        ValueError,
        "log_gain is inf at [1, 5, 2]; expected values below +inf: clamp it.",
    ),
    "log_gain NaN": (
        {"log_gain": NAN},
        ValueError,
        "log_gain is NaN at [1, 2, 0]; expected numbers: look for what made it, a log of 0 or below?",
    ),
    "self_weight of other shape": (
        {"self_weight": rand(D, H)},
        ValueError,
        "self_weight has shape (4, 3); expected (3, 4) = [H, D]: transpose it.",
    ),
    "self_weight is no number": (
        {"self_weight": "one"},
        TypeError,
        "self_weight is a str; expected a floating point tensor.",
    ),
    "mask of integers": (
        {"mask": torch.ones(B, T, dtype=torch.int64)},
        TypeError,
        "mask has dtype int64; expected bool: True marks a real token: mask.bool().",
    ),
    "mask transposed": (
        {"mask": torch.ones(T, B).bool()},
        ValueError,
        "mask has shape (6, 2); expected (2, 6) = [B, T]: transpose it.",
    ),
    "cu_seqlens is a list": (
        {"cu_seqlens": [0, 6]},
        TypeError,
        "cu_seqlens is a list; expected an int32 or int64 tensor.",
    ),
    "cu_seqlens of floats": (
        {"cu_seqlens": torch.tensor([0.0, 6.0])},
        TypeError,
        "cu_seqlens has dtype float32; expected int32 or int64: cu_seqlens.long().",
    ),
    "cu_seqlens of two dimensions": (
        {"cu_seqlens": torch.zeros(2, 2).long()},
        ValueError,
        "cu_seqlens has shape (2, 2); expected one dimension, [sequences + 1]: "
        "the starts of the packed sequences, and the end of the last.",
    ),
    "cu_seqlens of a batch": (
        {"cu_seqlens": torch.tensor([0, 6])},
        ValueError,
        "cu_seqlens packs sequences into one row, but q has batch size 2; expected 1: "
        "lay the sequences end to end, [1, total tokens, H, D].",
    ),
    "cu_seqlens too short": (
        ONE | {"cu_seqlens": torch.tensor([0, 5])},
        ValueError,
        "cu_seqlens runs from 0 to 5; expected 0 to 6, the number of tokens: "
        "it is the cumulative sum of the lengths with a 0 in front.",
    ),
    "cu_seqlens falling": (
        ONE | {"cu_seqlens": torch.tensor([0, 4, 2, 6])},
        ValueError,
        "cu_seqlens falls from 4 to 2; expected it never to fall: "
        "it is the cumulative sum of the lengths with a 0 in front.",
    ),
    "orders of other length": (
        {"orders": torch.arange(T + 1)},
        ValueError,
        "orders has shape (7,); expected (6,) = [T] for one order or (N, 6) = [N, T] for several.",
    ),
    "no orders": (
        {"orders": torch.zeros(0, T).long()},
        ValueError,
        "orders has no order in it; expected at least one: leave it out for the tokens as they come.",
    ),
    "orders of floats": (
        {"orders": torch.rand(T)},
        TypeError,
        "orders has dtype float32; expected int32 or int64: orders.long().",
    ),
    "no permutation": (
        {"orders": torch.stack([torch.arange(T), torch.zeros(T).long()])},
        ValueError,
        "orders[1] is not a permutation; expected every token 0 to 5 exactly once.",
    ),
    "an order across packed sequences": (
        ONE | {"cu_seqlens": torch.tensor([0, 3, 6]), "orders": torch.arange(T).flip(0)},
        ValueError,
        "orders[0] puts token 5 at place 0, in another packed sequence; "
        "expected an order to permute the tokens of each sequence among themselves.",
    ),
    "chunk_size 0": (
        {"chunk_size": 0},
        ValueError,
        "chunk_size is 0; expected a whole number of tokens from 1 to 2147483647, or None.",
    ),
    "chunk_size of a half": (
        {"chunk_size": 0.5},
        ValueError,
        "chunk_size is 0.5; expected a whole number of tokens from 1 to 2147483647, or None.",
    ),
    "chunk_size beyond all numbers": (
        {"chunk_size": 2**70},
        ValueError,
        "chunk_size is 1180591620717411303424; expected a whole number of tokens from 1 to 2147483647, or None.",
    ),
    "a sparse q": (
        {"q": rand(B, T, H, D).to_sparse()},
        TypeError,
        "q is a sparse tensor (sparse_coo); expected a dense one: q.to_dense().",
    ),
    "a sparse log_decay": (
        {"log_decay": -rand(B, T, H).to_sparse()},
        TypeError,
        "log_decay is a sparse tensor (sparse_coo); expected a dense one: log_decay.to_dense().",
    ),
    "a sparse mask": (
        {"mask": torch.ones(B, T, dtype=torch.bool).to_sparse()},
        TypeError,
        "mask is a sparse tensor (sparse_coo); expected a dense one: mask.to_dense().",
    ),
    "nested v": (
        {"v": torch.nested.nested_tensor([rand(T, H, V), rand(T - 1, H, V)], layout=torch.jagged)},
        TypeError,
        "v is a nested tensor; expected a dense one: v.to_padded_tensor(0.0) with a mask, or sequences packed into one "
        "row with cu_seqlens.",
    ),
    "chunk_size without chunks": (
        {"chunk_size": 8, "form": "full"},
        ValueError,
        "chunk_size is for the forms 'chunk' and 'scan', and form is 'full': leave one of the two out.",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("function", [lion.attention, lion.explain])
def test_refusals(case, function):
    changes, error, message = CASES[case]
    with pytest.raises(error) as refused:
        function(**inputs(**changes))
    assert str(refused.value) == message


def test_a_backend_that_cannot_run_says_why_and_what_would(monkeypatch):
    absent = kernels.Backend("a backend for this test", lambda device, dtype: "there is no such chip")
    monkeypatch.setitem(kernels.BACKENDS, "chip", absent)
    able = ", ".join(map(repr, kernels.usable_backends(torch.device("cpu"))))
    with pytest.raises(
        ValueError, match=rf"backend 'chip' cannot run this: there is no such chip\. What works here: {able}\."
    ):
        lion.attention(**inputs(backend="chip"))
    assert lion.explain(**inputs()).backend == "cpu"


def test_types_name_what_there_is():
    assert get_args(checks.Form) == ("auto", *kernels.FORMS)
    assert get_args(checks.BackendName) == ("auto", *kernels.BACKENDS)


@pytest.mark.parametrize(
    "x", [rand(2, 5, 8).to_sparse(), torch.nested.nested_tensor([rand(4, 8), rand(5, 8)], layout=torch.jagged)]
)
def test_layers_refuse_what_is_not_dense(x):
    with pytest.raises(TypeError, match=r"x is a (sparse|nested) tensor.*; expected a dense one"):
        lion.LionAttention(8, 2)(x)


def test_a_missing_kernel_lists_what_works(monkeypatch):
    empty = kernels.Backend("a backend without kernels", lambda device, dtype: None)
    monkeypatch.setitem(kernels.BACKENDS, "empty", empty)
    with pytest.raises(
        ValueError,
        match=r"no kernel for form 'rnn' on backend 'empty' with no decay\. What works: cpu scan, torch full",
    ):
        lion.attention(**inputs(backend="empty", form="rnn"))


def test_what_is_fine():
    """Edge cases that are no mistakes."""
    lion.attention(**inputs(log_decay=torch.full((H,), -torch.inf)))
    lion.attention(**inputs(log_gain=torch.full((B, T, H), -torch.inf), norm="max"))
    lion.attention(**inputs(log_decay=-rand(H).double()))  # decays may be wider than q
    lion.attention(**ONE, cu_seqlens=torch.tensor([0, 3, 3, 6], dtype=torch.int32))
    lion.attention(**inputs(orders=torch.arange(T, dtype=torch.int32)))
    lion.attention(**inputs(self_weight=2))
    same = inputs()
    for number in (np.float32(2), np.float64(2), np.int64(2)):
        assert torch.equal(lion.attention(**same, self_weight=number), lion.attention(**same, self_weight=2.0))
    for number in (np.int64(3), np.int32(3)):
        assert torch.equal(lion.attention(**same, chunk_size=number), lion.attention(**same, chunk_size=3))
        assert lion.explain(**same, chunk_size=number).form == "scan"
    mask = torch.ones(B, T).bool()
    mask[1, 2] = mask[0, 3] = False  # where the bad values are
    for bad in (NAN, POSITIVE):
        assert lion.attention(**inputs(log_decay=bad, mask=mask)).isfinite().all()
    assert lion.attention(**inputs(log_gain=NAN, mask=mask)).isfinite().all()


def test_autocast_does_not_hide_a_wrong_dtype():
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(TypeError, match="q has dtype int64"):
        lion.attention(**inputs(q=torch.ones(B, T, H, D, dtype=torch.int64)))


def test_meta_tensors_have_an_explanation_and_a_shape():
    q, k, v = (torch.empty(B, T, H, D, device="meta") for _ in range(3))
    assert lion.explain(q, k, v).form == "scan"
    assert lion.attention(q, k, v).shape == (B, T, H, D)


def test_the_old_word_for_a_direction():
    q = torch.rand(1, 4, 2, 3)
    with pytest.warns(FutureWarning, match="direction='backward' is called direction='reverse' now"):
        out = lion.attention(q, q, q, direction="backward")
    assert torch.equal(out, lion.attention(q, q, q, direction="reverse"))
    with pytest.warns(FutureWarning, match="direction='backward' is called direction='reverse' now"):
        assert lion.LionAttention(8, 2, direction="backward").direction == "reverse"


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((-rand(H), None), r"log_decay is \(Tensor, NoneType\); expected one tensor, or a pair of them"),
        ((-rand(H),), r"log_decay is \(Tensor\); expected one tensor, or a pair"),
        ((-rand(H), -rand(H, D)), "expected both to have one number per head, or both one per channel"),
        ((-rand(H), -rand(B, T)), r"log_decay\[1\] has shape"),
        ((-rand(H), rand(B, T, H) + 1), r"log_decay\[1\] is .* at \[0, 0, 0\]; expected values <= 0"),
    ],
)
def test_pairs_of_decays(pair, message):
    with pytest.raises(ValueError, match=message):
        lion.attention(**inputs(log_decay=pair), backend="torch")

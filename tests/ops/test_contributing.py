"""The kernel backend of docs/contributing.md, done as it says: a folder and a few rows."""

import itertools
import re
import types
from pathlib import Path

import pytest
import torch

import lion
from lion.ops import kernels, reference
from tests.ops.problems import assert_same, forget_choices, output_and_gradients, problem
from tests.ops.problems import kernels as all_kernels

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"


@pytest.fixture
def einsum(monkeypatch):
    """The page's kernel, and its rows in the tables."""
    section = PAGE.read_text().split("## Add a kernel backend")[1].split("\n## ")[0]
    kernel, rows = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    dense = types.ModuleType("lion.ops.einsum.dense")
    exec(kernel, vars(dense))
    monkeypatch.setattr(kernels, "BACKENDS", dict(kernels.BACKENDS))
    monkeypatch.setattr(kernels, "KERNELS", dict(kernels.KERNELS))
    for module in (lion.ops.attention, __import__("tests.ops.problems", fromlist=["_"])):
        monkeypatch.setattr(module, "BACKENDS", kernels.BACKENDS)
        monkeypatch.setattr(module, "KERNELS", kernels.KERNELS)
    exec(rows, vars(kernels) | {"dense": dense})
    forget_choices()
    yield
    forget_choices()


def test_the_page(einsum):
    assert {"backend": "einsum", "form": "full"} in all_kernels("per token")
    for decay, gain, direction in itertools.product(("none", "fixed", "per token"), (False, True), ("both", "reverse")):
        kwargs = problem(decay, gain=gain, self_weight=True, mask=True, orders=2, two_sided=True)
        want = output_and_gradients(reference.attention, kwargs, direction=direction)
        got = output_and_gradients(lion.attention, kwargs, direction=direction, backend="einsum")
        assert_same(got, want, 1e-10, (decay, gain, direction))
    q = torch.rand(1, 5, 2, 3)
    _, states = lion.attention(q, q, q, backend="einsum", return_states=True)
    assert states.forward.sums.shape == (1, 2, 3, 3)
    assert lion.explain(q, q, q, backend="einsum").form == "full"
    assert lion.explain(q, q, q).backend != "einsum"  # it is the last
    with pytest.raises(
        ValueError, match="no kernel for form 'auto' on backend 'einsum' with one decay per key channel"
    ):
        lion.attention(q, q, q, -torch.rand(2, 3), backend="einsum")

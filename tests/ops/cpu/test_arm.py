"""The kernels on emulated ARM processors, from the same source: NEON and SVE. Numbers are compared, not times."""

import functools
import itertools

import pytest
import torch

from lion.ops import reference
from lion.ops.cpu.selective import Selective, plainly_computed
from tests import THOROUGH
from tests.ops.cpu import arm

pytestmark = [
    pytest.mark.skipif(not THOROUGH, reason="it compiles for minutes: LION_THOROUGH=1"),
    pytest.mark.skipif(bool(arm.missing()), reason=f"no emulated ARM: {arm.missing()}"),
]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-5}
SIZES = ((2, 17, 3, 16, 16), (1, 100, 2, 24, 8), (1, 260, 1, 32, 40))  # B, T, H, D, V


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return arm.program(tmp_path_factory.mktemp("arm"))


@pytest.fixture(params=arm.PROCESSORS)
def command(request, program):
    return arm.emulated(request.param, program)


def rand(*size: int) -> torch.Tensor:
    return torch.rand(size, dtype=torch.float64)


def compare(command, given: dict, expected, **how) -> None:
    """`expected` computes the output in float64, of the tensors by name."""
    names = [name for name in given if name != "dout"]
    for dtype, tolerance in TOLERANCES.items():
        rounded = {name: x.to(dtype) for name, x in given.items()}
        inputs = {name: rounded[name].double().clone().requires_grad_() for name in names}
        out = expected(inputs)
        grads = torch.autograd.grad(out, list(inputs.values()), rounded["dout"].double())
        found, _ = arm.run(command, rounded, **how)
        for name, want in ({"out": out} | dict(zip(names, grads, strict=True))).items():
            error = (found[name] - want.view_as(found[name])).abs().max() / want.abs().max().clamp(min=1)
            assert error <= tolerance, (name, dtype, how, error)


@pytest.mark.parametrize("decay", ["none", "per token", "diagonal"])
def test_the_scan(command, decay):
    torch.manual_seed(0)
    for (B, T, H, D, V), norm, direction in itertools.product(SIZES, ("none", "sum"), ("both", "forward", "reverse")):
        given = {"q": rand(B, T, H, D) + 0.1, "k": rand(B, T, H, D) + 0.1, "v": rand(B, T, H, V)}
        given["dout"] = torch.randn_like(given["v"])
        if decay != "none":
            given["log_decay"] = -0.3 * (rand(B, T, H) if decay == "per token" else rand(B, T, H, D))
        run = functools.partial(reference.attention, norm=norm, direction=direction)
        compare(command, given, lambda x, run=run: run(**x), norm=norm, direction=direction)


@pytest.mark.parametrize("direction", ["both", "forward"])
def test_the_selective_scan(command, direction):
    torch.manual_seed(0)
    B, T, H, D = 2, 70, 70, 5
    given = {"q": rand(B, T, 1, D), "k": rand(B, T, 1, D), "v": rand(B, T, H, 1), "dout": rand(B, T, H, 1)}
    given |= {"log_decay": rand(B, T, H), "rate": rand(H, D)}
    code = {"both": 3, "forward": 1}[direction]

    def expected(x):
        q, k, v = x["q"].squeeze(2), x["k"].squeeze(2), x["v"].squeeze(3)
        return plainly_computed(
            Selective(q, k, v, x["log_decay"], None, x["rate"], None, None, None, None, code)
        ).unsqueeze(3)

    compare(command, given, expected, direction=direction)


@pytest.mark.parametrize("name", arm.PROCESSORS)
def test_the_kernels_are_those_of_the_processor(program, name):
    x = rand(1, 4, 1, 4)
    _, kernels = arm.run(arm.emulated(name, program), {"q": x, "k": x, "v": x, "dout": x})
    assert kernels == arm.PROCESSORS[name][1]

"""Nonsense for every operator of `torch.ops.lion`, in processes of its own: no crash, and no result of invalid calls.

An attempt takes a valid call and changes up to three of its arguments. It survives if the call raises an exception of
Python where the arguments are invalid, or returns what the reference says where they are valid all the same
(tests/ops/operators.py decides which).
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from lion.ops.cpu import library
from tests.ops.operators import OPERATORS, Arguments, assert_as_reference, call
from tests.torture import Campaign
from tests.torture.children import Children

REFUSALS = (RuntimeError, ValueError, TypeError, NotImplementedError)  # torch's own are RuntimeErrors
NAMES = [name for name in OPERATORS if not (name.startswith("cpu_") and isinstance(library.LIBRARY, str))]


def run(numbers: range, seed: int) -> list[Campaign]:
    """By turns of all operators."""
    found = {name: Campaign(f"torch.ops.lion.{name}, nonsense") for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        for number, problem in Children(Path(folder)).attempts(f"{__name__}:attempts", seed, numbers):
            found[_name(number)].all([(number, problem)])
    return list(found.values())


def _name(number: int) -> str:
    return NAMES[number % len(NAMES)]


def attempts(seed: int) -> Callable[[int], None]:
    def one(number: int) -> None:
        attempt(_name(number), seeded(seed, number))

    return one


def seeded(seed: int, number: int) -> Random:
    """For Python and for torch."""
    random = Random(f"{seed} {number}")
    torch.manual_seed(random.getrandbits(32))
    torch.set_num_threads(2)
    return random


def attempt(name: str, random: Random) -> None:
    operator = OPERATORS[name]
    arguments = operator.valid(random)
    changed = []
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        argument = random.choice(list(arguments))
        arguments[argument] = nonsense(arguments[argument], random)
        changed.append(argument)
    fits = _is_of_the_schema(name, arguments) and operator.fits(arguments)
    what = ", ".join(f"{key}={_shown(x)}" for key, x in arguments.items())
    try:
        results = call(name, arguments)
    except REFUSALS as error:
        if fits:
            raise AssertionError(f"refused, and is valid: {error} ({what})") from error
        return
    assert fits, f"accepted, and is not valid: changed {changed} ({what})"
    on_trust = "out" in arguments and not set(changed) <= GRADIENTS  # the results of another forward pass
    if not on_trust and not any(x.is_meta for x in results):
        assert_as_reference(results, operator.reference(arguments), arguments)


GRADIENTS = {"dout", "dden", "wanted"}


# By how a schema has it.
TYPES = {
    "Tensor": Tensor,
    "Optional[Tensor]": Tensor | None,
    "int": int,
    "Optional[int]": int | None,
    "bool": bool,
    "str": str,
    "List[bool]": list,
    "List[Tensor]": list,
    "List[Optional[Tensor]]": list,
}


def _is_of_the_schema(name: str, arguments: Arguments) -> bool:
    """As torch checks it before the operator sees anything."""
    schema = getattr(torch.ops.lion, name).default._schema
    return all(isinstance(arguments[x.name], TYPES[str(x.type)]) for x in schema.arguments)


def _shown(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)} {x.device}" if isinstance(x, Tensor) else repr(x)


def nonsense(x: Any, random: Random) -> Any:
    """Something like x, which may be invalid in its place, or not."""
    if x is None or isinstance(x, float):
        return torch.rand([random.choice((0, 1, 2, 3, 7)) for _ in range(random.randrange(5))])
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return random.choice((-(2**62), -(2**31), -2, -1, 0, 1, 2, 3, 4, 5, 7, 100, 2**31, 2**40, 2**62))
    if isinstance(x, str):
        return random.choice(("both", "forward", "reverse", "", "BOTH", "sideways"))
    if isinstance(x, list) and any(isinstance(y, Tensor) for y in x):
        where = random.randrange(len(x))
        return [*x[:where], nonsense(x[where], random), *x[where + 1 :]]
    if isinstance(x, list):
        return random.choice((x[:-1], [*x, True], [True] * len(x), [False] * len(x), []))
    if x.is_sparse or x.is_meta or x.is_complex():
        return None
    return random.choice(OF_TENSORS)(x, random)


def _resized(x: Tensor, random: Random) -> Tensor:
    shape = list(x.shape) or [1]
    where = random.randrange(len(shape))
    shape[where] = max(0, random.choice((shape[where] - 1, shape[where] + 1, 2 * shape[where], 0, 1)))
    return _like(x, shape)


def _like(x: Tensor, shape: list[int]) -> Tensor:
    return torch.zeros(shape, dtype=x.dtype) if not x.is_floating_point() else -torch.rand(shape).to(x.dtype)


def _transposed(x: Tensor, random: Random) -> Tensor:
    return x.transpose(*random.sample(range(x.dim()), 2)) if x.dim() > 1 else x


def _in_steps(x: Tensor, random: Random) -> Tensor:
    """The same values, but not side by side."""
    if not x.dim():
        return x
    where = random.randrange(x.dim())
    return torch.stack([x, x], where + 1).select(where + 1, 0)


def _expanded(x: Tensor, random: Random) -> Tensor:
    if not x.dim():
        return x
    where = random.randrange(x.dim())
    return x.narrow(where, 0, 1).expand(x.shape) if x.shape[where] else x


def _other_values(x: Tensor, random: Random) -> Tensor:
    if x.dtype == torch.bool:
        return ~x
    if not x.is_floating_point():
        bits = torch.iinfo(x.dtype)
        wild = [0, 1, 2, min(x.numel(), bits.max), bits.min, bits.max]
        return torch.tensor([random.choice(wild) for _ in range(x.numel())], dtype=x.dtype).reshape(x.shape)
    return torch.full_like(x, random.choice((0.5, -0.5, 2.0, -100.0, -1e4)))


OF_TENSORS: list[Callable[[Tensor, Random], Any]] = [
    _resized,
    _resized,
    _transposed,
    _in_steps,
    _expanded,
    _other_values,
    lambda x, random: x.to(random.choice((torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32))),
    lambda x, random: x.to(random.choice((torch.bool, torch.uint8, torch.complex64, torch.float32))),
    lambda x, random: x.unsqueeze(random.randrange(x.dim() + 1)),
    lambda x, random: x.flatten(),
    lambda x, random: x[0] if x.dim() and len(x) else x,
    lambda x, random: x.to("meta"),
    lambda x, random: x.to_sparse(),
    lambda x, random: _like(x, []),
    lambda x, random: _like(x, [0]),
    lambda x, random: None,
    lambda x, random: random.choice((0, 1.5, "q", [x])),
]

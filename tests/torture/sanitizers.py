"""Kernels that check themselves: random problems under the sanitizers of addresses, undefined behaviour and threads.

Under the first two run calls of `lion.attention`, of ordinary and of absurd numbers, calls with something wrong in them
that the kernel finds as it reads, and nonsense for the raw operators. Under the third run problems with many heads and
few, on several threads and on one.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
import torch

import lion
from lion.ops import reference
from tests.ops.cpu import sanitizers
from tests.ops.problems import DECAYS, assert_same, output_and_gradients, problem
from tests.torture import Campaign, raw_operators
from tests.torture.children import Children

OPERATORS = [name for name in raw_operators.OPERATORS if name.startswith("cpu_")]
RACE = 66  # how a program ends in which the thread sanitizer found something


def run(numbers: range, seed: int) -> list[Campaign]:
    """And a quarter as many for the threads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            environment, program = sanitizers.checks_addresses(folder), sanitizers.checks_threads(folder)
        except sanitizers.Missing as missing:
            print(f"no sanitizers: {missing}", file=sys.stderr)
            return []
        found = {kind: Campaign(f"sanitizers, {kind}") for kind in KINDS}
        children = Children(folder / "work", imports=[__name__], environment=environment)
        for number, problem in children.attempts(f"{__name__}:attempts", seed, numbers, seconds=120):
            found[_kind(number)].all([(number, problem)])
        return [*found.values(), *threads(program, numbers[::4], seed)]


# Addresses and undefined behaviour


KINDS = ("problems", "absurd numbers", "errors", "nonsense")


def _kind(number: int) -> str:
    return KINDS[number % len(KINDS)]


def attempts(seed: int) -> Callable[[int], None]:
    def one(number: int) -> None:
        attempt(_kind(number), raw_operators.seeded(seed, number))

    return one


def attempt(kind: str, random: Random) -> None:
    if kind == "nonsense":
        raw_operators.attempt(random.choice(OPERATORS), random)
        return
    kwargs, options = _problem(random)
    if kind == "problems":
        want = output_and_gradients(reference.attention, kwargs, **options)
        options |= {"backend": "cpu", "chunk_size": random.choice((None, 1, 7, 64))}
        assert_same(output_and_gradients(lion.attention, kwargs, **options), want, 1e-9)
        return
    options |= {"backend": "cpu", "chunk_size": random.choice((None, 1, 7, 64))}
    dtype = random.choice((torch.float64, torch.float32, torch.bfloat16))
    kwargs = {n: x.detach().to(dtype) if x is not None and x.is_floating_point() else x for n, x in kwargs.items()}
    if kind == "absurd numbers":  # whatever comes out
        for name in random.sample([n for n, x in kwargs.items() if x is not None and x.is_floating_point()], 2):
            most = 0 if name == "log_decay" else 1
            kwargs[name] = torch.where(torch.rand(kwargs[name].shape) < 0.3, _absurd(random, most), kwargs[name]).to(
                dtype
            )
        output_and_gradients(lion.attention, kwargs, **options)
        return
    _assert_refused(kwargs, options, random)


def _problem(random: Random) -> tuple[dict, dict]:
    decay, maybe = random.choice(DECAYS), lambda: random.random() < 0.4
    sizes = {"B": random.choice((1, 2)), "T": random.choice((1, 2, 9, 33, 130, 300)), "H": random.choice((1, 2, 5))}
    sizes |= {"D": random.choice((1, 3, 8, 16, 17, 64)), "V": random.choice((1, 2, 8, 16, 33))}
    given = {"gain": maybe(), "self_weight": maybe(), "mask": maybe(), "packed": maybe()}
    orders = random.choice((0, 0, 1, 2, 3))
    torch.set_num_threads(random.choice((1, 2, 3, 8)))
    kwargs = problem(decay, **sizes, **given, orders=orders, per_order=orders > 1 and maybe())
    return kwargs, {"norm": random.choice(("sum", "max", "none")), "direction": random.choice(DIRECTIONS)}


DIRECTIONS = ("both", "both", "forward", "reverse")


def _absurd(random: Random, most: int) -> torch.Tensor:
    """Numbers that are allowed, and that nobody has."""
    values = [0.0, -1e-30, -87.3, -88.0, -145.0, -1e4, -1e30, -torch.inf]
    values += [1e-30, 87.3, 88.0, 145.0, 1e4, 1e30] if most else []
    return torch.tensor(random.choice(values))


def _assert_refused(kwargs: dict, options: dict, random: Random) -> None:
    """What is seen by the kernel alone, as in a compiled graph: at the door no values are looked at."""
    B, T, H, D = kwargs["q"].shape
    numbers = (
        {"sum": 1, "max": 2, "none": 0}[options["norm"]],
        {"forward": 1, "reverse": 2, "both": 3}[options["direction"]],
    )
    kwargs["mask"] = None
    wrong = random.choice(("log_decay", "orders", "cu_seqlens") if B == 1 else ("log_decay", "orders"))
    if wrong == "log_decay":
        kwargs[wrong] = -torch.rand(random.choice(((H,), (H, D), (B, T, H), (B, T, H, D))))
        kwargs[wrong].view(-1)[-1] = random.choice((1.0, torch.nan, torch.inf))
        kwargs["log_gain"] = None if kwargs[wrong].dim() in (2, 4) else kwargs["log_gain"]
    elif wrong == "orders":
        kwargs[wrong] = torch.full((2, T), random.choice((-1, T, 2**40, -(2**63))))
    else:
        kwargs[wrong] = torch.tensor([0, random.choice((-1, T + 1, -(2**63), 2**63 - 1)), T])
        kwargs["orders"] = None
    if wrong != "log_decay" and kwargs["log_decay"] is not None and len(kwargs["log_decay"].flatten()):
        kwargs["log_decay"] = None
    q, k, v, log_decay, *others = kwargs.values()
    with pytest.raises(ValueError, match=r"expected"):
        torch.ops.lion.cpu_scan(
            q, k, v, log_decay, None, *others, *numbers, options["chunk_size"] or 0, *[False] * 3, [], False
        )


# Threads


def threads(program: Path, numbers: Sequence[int], seed: int) -> list[Campaign]:
    """And as many as a tenth of these where all tokens write the same row, which the sanitizer has to find."""
    sound, racing = Campaign("thread sanitizer, problems"), Campaign("thread sanitizer, races that are made")
    for number in numbers:
        line = _line(Random(f"{seed} {number}"))
        with sound.attempt(f"echo {line} | threads"):
            status, said = _checked(program, line)
            assert status == 0, said
            assert said.split() == [said.split()[0], "same"], said
    for number in numbers[::10]:
        line = _line(Random(f"{seed} {number}"), race=True)
        with racing.attempt(f"echo {line} | threads"):
            assert _checked(program, line)[0] == RACE
    return [sound, racing]


def _checked(program: Path, line: str) -> tuple[int, str]:
    options = {"TSAN_OPTIONS": f"halt_on_error=1:exitcode={RACE}"}
    done = subprocess.run([program], input=line, capture_output=True, text=True, env=options, timeout=120)
    return done.returncode, done.stdout + done.stderr[-1500:]


def _line(random: Random, *, race: bool = False) -> str:
    """The numbers that threads.cpp reads, in the order of its struct `Line`."""
    maybe = lambda: int(random.random() < 0.3)  # noqa: E731
    B, T, H = random.choice((1, 2)), random.choice((40, 150, 400)), random.choice((1, 2, 3, 8))
    D, V = random.choice((3, 8, 16)), random.choice((1, 8, 16))
    decay, features = random.choice((0, 1, 2, 3, 4)), maybe() and maybe()
    if race:
        B, T, H = 2, 20000 if features else 400, 8  # enough for all threads to have a part in it
    packed = random.choice((2, 5)) if B == 1 and maybe() else 0
    wrong = 3 if race else random.choice((1, 2)) if maybe() and maybe() else 0
    orders = random.choice((0, 0, 1, 2))
    wrong = 0 if (wrong == 1 and not decay) or (wrong == 2 and not orders) else wrong
    numbers = {
        "seed": random.getrandbits(31),
        "sizes": (B, T, H, D, V),
        "dtype, norm, direction": (random.choice((0, 1, 2)), random.choice((0, 1, 2, 3)), random.choice((1, 2, 3, 3))),
        "threads, chunk": (random.choice((2, 3, 4)), random.choice((0, 0, 7, 64))),
        "decay, weight": (decay, random.choice((0, 0, 1, 2, 3, 4))),
        "gain, mask": (maybe() if decay in (0, 1, 3) else 0, maybe()),
        "orders, sequences, wide": (orders, packed, maybe()),
        "map": random.choice((1, 2)) if features else 0,
        "wrong": wrong,
    }
    return " ".join(str(n) for x in numbers.values() for n in (x if isinstance(x, tuple) else (x,)))

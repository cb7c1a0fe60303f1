"""The operators of `torch.ops.lion`, called directly: right for what is valid, an error in words for what is not."""

from random import Random

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map_only

import lion
from lion.ops.cpu import library
from tests import SEED
from tests.ops.operators import OPERATORS, Arguments, assert_as_reference, call

pytestmark = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason=f"no compiled kernels: {library.LIBRARY}")

B, T, H, D, V = 1, 6, 2, 4, 3
HOW = {"norm": 1, "direction": 3, "chunk_size": 0, "wide": False}
NO_STATES = {"decay_between": False, "gates_absorbed": False, "states": [], "return_states": False}
NOTHING = dict.fromkeys(("log_decay", "log_decay_reverse", "log_gain", "self_weight", "mask", "cu_seqlens", "orders"))


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(SEED)).to(dtype)


def base(name: str) -> Arguments:
    """A valid call of an operator, as plain as can be."""
    q, v = rand(B, T, H, D), rand(B, T, H, V)
    y = rand(B, T, 3 * H * D + 1)
    scan = {"q": q, "k": q, "v": v} | NOTHING | {"log_decay": -rand(B, T, H)} | HOW | NO_STATES
    projected = {"y": y} | {name: x for name, x in NOTHING.items() if name != "log_gain"}
    projected |= {"heads": H, "channels": D, "map": 0} | HOW
    cost, way = -rand(B, T, H, 1), {"direction": "both", "include_self": True}
    block, c = rand(B, H, T, D), -rand(B, H, T, 1)
    carry = {"state": rand(H, D, V), "of_values": rand(3, H, 5, V), "of_state": rand(3, H, 5, D)}
    carry |= {"queries": rand(3, H, 5, D), "keys": rand(3, H, 5, D), "inside": rand(3, H, 5, 5), "keep": rand(3, H)}
    delta = {"q": q, "k": q, "v": v, "beta": rand(B, T, H), "cost": -rand(B, T, H), "cost_reverse": -rand(B, T, H)}
    delta |= {"state": None, "state_reverse": None, "direction": 3, "include_self": True}
    delta |= {"return_states": False, "chunk_size": 0}
    selective = {"q": rand(B, T, D), "k": rand(B, T, D), "v": rand(B, T, H), "step": rand(B, T, H)}
    selective |= {"step_reverse": None, "rate": rand(H, D), "rate_reverse": None}
    selective |= {"mask": None, "cu_seqlens": None, "orders": None, "direction": 3}
    out, den, den_of_all = rand(B, T, H, V), rand(B, T, H) + 1, rand(B, T, H) + 1
    torch_scan = {"q": q, "k": q, "v": v, "f": cost, "b": cost}
    torch_how = way | {"with_den": True, "chunk_size": None}
    return {
        "cpu_scan": scan,
        "cpu_scan_backward": {"dout": out, "dden": None, "out": out, "den": den, "dstates": []}
        | scan
        | {"wanted": [True, False, False, False]},
        "cpu_features": {"q": q, "k": q, "map": 0},
        "cpu_features_backward": {"dq": q, "dk": q, "q": q, "k": q, "map": 0},
        "cpu_projected": projected,
        "cpu_projected_backward": {"dout": q, "out": q, "den": den_of_all, "features": rand(B, T, 2, H, D)}
        | projected
        | {"wanted": [False, False, False]},
        "scan": torch_scan | torch_how,
        "scan_backward": torch_scan | {"dnum": out, "dden": rand(B, T, H, 1)} | torch_how,
        "decayed_scores": {"q": block, "k": block, "f": c, "b": c} | way,
        "decayed_scores_backward": {"q": block, "k": block, "f": c, "b": c, "grad": rand(B, H, T, T)} | way,
        "cpu_delta": delta,
        "cpu_delta_backward": {"dout": out, "dstates": []} | delta,
        "cpu_selective": selective,
        "cpu_selective_backward": {"dout": rand(B, T, H)} | selective,
        "delta_carry": carry,
        "delta_carry_backward": {"dout": rand(3, H, 5, V), "dlast": rand(H, D, V)} | carry,
    }[name]


HALF, WHOLE = torch.bfloat16, torch.int64

# By argument: what it is replaced with, and what is said.
OF_SCAN = [
    ({"k": rand(B, T, H, D + 1)}, r"k has shape \(1, 6, 2, 5\); expected \(1, 6, 2, 4\) = \[B, T, H, D\]"),
    ({"k": rand(B, T - 1, H, D)}, r"k has shape \(1, 5, 2, 4\); expected"),
    ({"k": rand(B, T, H, D, dtype=HALF)}, "k has dtype bfloat16; expected float32"),
    ({"k": rand(B, T, H, D).to_sparse()}, "k is a sparse tensor|Sparse"),
    ({"k": rand(B, T, H, D).to("meta")}, "k is on meta; expected cpu|q is on cpu"),
    ({"v": rand(B, T, H + 1, V)}, r"v has shape \(1, 6, 3, 3\); expected \(1, 6, 2, 3\)"),
    ({"v": rand(B, T, H)}, r"v has shape \(1, 6, 2\); expected 4 dimensions"),
    ({"q": rand(B, T, H)}, r"q has shape \(1, 6, 2\); expected 4 dimensions"),
    ({"q": rand(B, T, H, 0), "k": rand(B, T, H, 0)}, "q has shape .*; expected at least one channel"),
    ({"q": rand(B, T, H, D).half(), "k": rand(B, T, H, D).half(), "v": rand(B, T, H, V).half()}, "q has dtype float16"),
    ({"q": rand(B, T, H, D).long(), "k": rand(B, T, H, D).long(), "v": rand(B, T, H, V).long()}, "q has dtype int64"),
]
OF_TOKENS = [
    ({"log_decay": -rand(B, T, H + 1)}, r"log_decay has shape \(1, 6, 3\); expected \(1, 6, 2\) = \[B, T, H\]"),
    ({"log_decay": -rand(T, H)}, r"log_decay has shape \(6, 2\); expected \(2, 4\) = \[H, D\]"),
    ({"log_decay": -rand(B, T, H).long()}, "log_decay has dtype int64; expected floating point"),
    ({"log_decay": torch.tensor(-1.0)}, r"log_decay has shape \(\); expected one of"),
    (
        {"log_decay": -rand(H), "log_decay_reverse": -rand(H, D)},
        r"pair of shapes \(2,\) and \(2, 4\); expected both to have one number per head, or both one per channel",
    ),
    ({"log_decay": None, "log_decay_reverse": -rand(H)}, r"log_decay\[0\] is a NoneType|wanted is True for log_decay"),
    ({"self_weight": rand(H + 1)}, r"self_weight has shape \(3,\); expected \(2,\) = \[H\]"),
    ({"mask": torch.ones(B, T)}, "mask has dtype float32; expected bool"),
    ({"mask": torch.ones(B, T + 1, dtype=torch.bool)}, r"mask has shape \(1, 7\); expected \(1, 6\)"),
    ({"cu_seqlens": torch.tensor([0.0, 6.0])}, "cu_seqlens has dtype float32; expected int32 or int64"),
    ({"cu_seqlens": torch.tensor([6])}, r"cu_seqlens has shape \(1,\); expected one dimension"),
    ({"orders": torch.arange(T + 1)}, r"orders has shape \(7,\); expected \(6,\)"),
    ({"orders": torch.empty(0, T, dtype=WHOLE)}, "orders has no order in it"),
    ({"orders": torch.arange(T).float()}, "orders has dtype float32; expected int32 or int64"),
]
NUMBERS = [
    ({"norm": -1}, r"norm is -1; expected one of 0 \(none\), 1 \(sum\), 2 \(max\)"),
    ({"norm": 5}, "norm is 5; expected one of"),
    ({"direction": 0}, r"direction is 0; expected one of 1 \(forward\), 2 \(reverse\), 3 \(both\)"),
    ({"direction": 4}, "direction is 4; expected one of"),
    ({"chunk_size": -1}, "chunk_size is -1; expected 1 to 2147483647 tokens, or 0"),
    ({"chunk_size": 2**40}, "chunk_size is 1099511627776; expected"),
]
GATES = [
    ({"decay_between": True, "norm": 0}, "decay_between is True; expected log_decay of one per channel, and norm 0"),
    ({"decay_between": True, "log_decay": -rand(H, D)}, "decay_between is True; expected log_decay of one per channel"),
    ({"gates_absorbed": True}, "gates_absorbed is True; expected log_decay of one per channel"),
    ({"log_gain": rand(B, T)}, r"log_gain has shape \(1, 6\); expected \(1, 6, 2\)"),
    ({"log_gain": rand(B, T, H), "log_decay": -rand(H, D)}, r"log_decay has shape \(2, 4\), one per channel; expected"),
]
SUMS, KEYS, NO = rand(B, H, D, V), rand(B, H, D), rand(0)
STATES = [
    ({"states": [SUMS]}, "states has length 1; expected 0, or 6: forward_sums, forward_keys, forward_log_scale, rev"),
    ({"states": [SUMS, NO, *[NO] * 4]}, "forward_keys is None; expected a tensor"),
    ({"states": [SUMS, KEYS, rand(B, H, 1), *[NO] * 3]}, "forward_log_scale is given; expected None"),
    ({"states": [*[NO] * 3, SUMS, KEYS, NO], "direction": 1}, "reverse_sums is given; expected None"),
    ({"states": [SUMS, rand(B, H, D + 1), *[NO] * 4]}, r"forward_keys has shape \(1, 2, 5\); expected \(1, 2, 4\)"),
    ({"states": [SUMS.double(), KEYS, *[NO] * 4]}, "forward_sums has dtype float64; expected float32"),
    ({"return_states": True, "norm": 3}, "states are given or asked for with norm 3; expected one of the two"),
    ({"return_states": True, "orders": torch.arange(T)}, "states are given or asked for with orders"),
    ({"return_states": True, "cu_seqlens": torch.tensor([0, T])}, "states are given or asked for with cu_seqlens"),
    ({"norm": 4}, "norm is 4, for states alone; expected return_states, and no self_weight"),
]
OF_RESULTS = [
    ({"dstates": [None]}, "dstates has length 1; expected 0, as many as the forward pass returns"),
    (
        {"return_states": True, "dstates": [rand(B, H, D, 1), *[None] * 5]},
        r"dstates\[0\] has shape \(1, 2, 4, 1\); expected \(1, 2, 4, 3\)",
    ),
    ({"dout": rand(B, T, H, V + 1)}, r"dout has shape \(1, 6, 2, 4\); expected \(1, 6, 2, 3\)"),
    ({"dout": rand(B, T, H, V, dtype=HALF)}, "dout has dtype bfloat16; expected float32"),
    ({"out": rand(B, T, H)}, r"out has shape \(1, 6, 2\); expected"),
    ({"den": rand(0)}, r"den has shape \(0,\); expected \(1, 6, 2\)"),
    ({"den": rand(B, T, H).double()}, "den has dtype float64; expected float32"),
    ({"norm": 0}, r"den has shape \(1, 6, 2\); expected \(0,\)"),
    ({"norm": 3}, "dden is None with norm 3; expected a tensor"),
    ({"dden": rand(B, T, H)}, "dden is given with norm 1; expected None"),
    ({"norm": 3, "dden": rand(B, T)}, r"dden has shape \(1, 6\); expected \(1, 6, 2\)"),
    (
        {"wanted": [True]},
        "wanted has length 1; expected 4, one for each of log_decay, log_decay_reverse, log_gain",
    ),
    ({"wanted": [True, False, True, False]}, "wanted is True for log_gain, which is None; expected False"),
]
OF_FEATURES = [
    ({"map": 2}, r"map is 2; expected one of 0 \(unit_silu\), 1 \(elu_plus_one\)"),
    ({"map": -1}, "map is -1; expected one of"),
    ({"q": rand(B, T, H)}, r"q has shape \(1, 6, 2\); expected 4 dimensions \[B, T, H, D\]"),
    ({"k": rand(B, T, H, D).half()}, "k has dtype float16; expected one of float32, float64, bfloat16"),
    ({"k": rand(B, T, H, D).to("meta")}, "k is on meta; expected cpu"),
]
OF_PROJECTION = [
    ({"y": rand(B, T)}, r"y has shape \(1, 6\); expected 3 dimensions \[B, T, columns\]"),
    ({"y": rand(B, T, 25).half()}, "y has dtype float16; expected one of"),
    ({"y": rand(B, T, 23)}, r"y has shape \(1, 6, 23\); expected at least 24 columns"),
    ({"heads": -2}, "heads is -2; expected at least 1"),
    ({"channels": 0}, "channels is 0; expected at least 1"),
    ({"heads": 2**40}, "y has shape .*; expected at least"),
    ({"map": 9}, "map is 9; expected one of"),
    ({"norm": 3}, "norm is 3; expected one of"),
]
COSTS = [
    ({"direction": "sideways"}, "direction is 'sideways'; expected one of 'both', 'forward', 'reverse'"),
    ({"b": -rand(B, 1, 1, 1)}, r"b has shape \(1, 1, 1, 1\); expected .* the shape of f"),
]
OF_TORCH_SCAN = [
    *COSTS,
    ({"q": rand(B, T, H)}, r"q has shape \(1, 6, 2\); expected 4 dimensions"),
    ({"k": rand(B, T, H, 1)}, r"k has shape \(1, 6, 2, 1\); expected \(1, 6, 2, 4\)"),
    ({"k": rand(B, T, H, D).long()}, "k has dtype int64; expected one of"),
    ({"v": rand(B, T, 1, V)}, r"v has shape \(1, 6, 1, 3\); expected \(1, 6, 2, 3\)"),
    ({"v": rand(B, T, H, V).to("meta")}, "v is on meta; expected cpu"),
    ({"f": -rand(B, T, H, 3), "b": -rand(B, T, H, 3)}, r"f has shape \(1, 6, 2, 3\); expected"),
    ({"f": -rand(B, 4, H, 1), "b": -rand(B, 4, H, 1)}, r"f has shape \(1, 4, 2, 1\); expected \(1, 6, 2, 1\)"),
    ({"f": -rand(B, T, H), "b": -rand(B, T, H)}, r"f has shape \(1, 6, 2\); expected"),
    (
        {"f": -rand(B, T, H, 1, dtype=HALF), "b": -rand(B, T, H, 1, dtype=HALF)},
        "f has dtype bfloat16; expected float32",
    ),
    ({"chunk_size": 0}, "chunk_size is 0; expected a whole number of tokens from 1"),
    ({"chunk_size": -7}, "chunk_size is -7; expected a whole number of tokens from 1"),
]
OF_SCORES = [
    *COSTS,
    ({"q": rand(T, D), "k": rand(T, D)}, r"q has shape \(6, 4\); expected 3 dimensions"),
    ({"q": rand(B, H, T, D, dtype=HALF)}, "q has dtype bfloat16; expected one of float32, float64"),
    ({"k": rand(B, H, T - 1, D)}, r"k has shape \(1, 2, 5, 4\); expected \(1, 2, 6, 4\)"),
    ({"k": rand(B, H, T, D).double()}, "k has dtype float64; expected float32"),
    ({"f": -rand(B, H, 1, 1), "b": -rand(B, H, 1, 1)}, r"f has shape \(1, 2, 1, 1\); expected \(1, 2, 6, 1\)"),
    ({"f": -rand(3, H, T, 1), "b": -rand(3, H, T, 1)}, r"f has shape \(3, 2, 6, 1\); expected \(1, 2, 6, 1\)"),
    ({"f": -rand(B, H, T, 2), "b": -rand(B, H, T, 2)}, r"f has shape \(1, 2, 6, 2\); expected"),
]
OF_DELTA = [
    *OF_SCAN[:4],
    ({"q": rand(B, T, H, D, dtype=HALF)}, "q has dtype bfloat16; expected one of float32, float64"),
    ({"q": rand(B, T, H, 0), "k": rand(B, T, H, 0)}, "q has no channels; expected at least one"),
    ({"v": rand(B, T, H + 1, V)}, r"v has shape \(1, 6, 3, 3\); expected \(1, 6, 2, 3\)"),
    ({"beta": rand(B, T)}, r"beta has shape \(1, 6\); expected \(1, 6, 2\) = \[B, T, H\]"),
    ({"cost": -rand(B, T, H, D)}, r"cost has shape \(1, 6, 2, 4\); expected \(1, 6, 2\)"),
    ({"cost_reverse": None}, "one of cost and cost_reverse is None; expected both or neither"),
    ({"state": rand(B, H, D)}, r"state has shape \(1, 2, 4\); expected \(1, 2, 4, 3\) = \[B, H, D, V\]"),
    ({"direction": 4}, "direction is 4; expected one of"),
    ({"chunk_size": -1}, "chunk_size is -1; expected 1 to 2147483647 tokens, or 0"),
]
OF_SELECTIVE = [
    ({"q": rand(B, T, H, D)}, r"q has shape \(1, 6, 2, 4\); expected 3 dimensions \[B, T, D\]"),
    ({"q": rand(B, T, D, dtype=HALF)}, "q has dtype bfloat16; expected one of float32, float64"),
    ({"q": rand(B, T, 0), "k": rand(B, T, 0)}, "q has no channels; expected at least one"),
    ({"k": rand(B, T, D + 1)}, r"k has shape \(1, 6, 5\); expected \(1, 6, 4\)"),
    ({"v": rand(B, T, H).double()}, "v has dtype float64; expected one of float32"),
    ({"v": rand(B, T, H, V)}, r"v has shape \(1, 6, 2, 3\); expected 3 dimensions \[B, T, H\]"),
    ({"step": rand(B, T, H, D)}, r"step has shape \(1, 6, 2, 4\); expected \(1, 6, 2\) = \[B, T, H\]"),
    ({"rate": rand(H)}, r"rate has shape \(2,\); expected \(2, 4\) = \[H, D\]"),
    ({"step_reverse": rand(B, T, H)}, "one of step_reverse and rate_reverse is None; expected both or neither"),
    ({"step_reverse": rand(B, T, 1), "rate_reverse": rand(H, D)}, r"step_reverse has shape \(1, 6, 1\); expected"),
    *[row for row in OF_TOKENS if {"mask", "cu_seqlens", "orders"} & row[0].keys()],
    ({"direction": 0}, "direction is 0; expected one of"),
]
OF_CARRY = [
    ({"state": rand(H, D)}, r"state has shape \(2, 4\); expected 3 dimensions"),
    ({"state": rand(H, D, V).half()}, "state has dtype float16; expected one of"),
    ({"keys": rand(3, H, 5, D + 1)}, r"keys has shape \(3, 2, 5, 5\); expected \(3, 2, 5, 4\)"),
    ({"of_values": rand(3, H, 5, 1)}, r"of_values has shape \(3, 2, 5, 1\); expected \(3, 2, 5, 3\)"),
    ({"of_state": rand(2, H, 5, D)}, r"of_state has shape \(2, 2, 5, 4\); expected \(3, 2, 5, 4\)"),
    ({"queries": rand(3, H, 5, D).double()}, "queries has dtype float64; expected float32"),
    ({"inside": rand(3, H, 5, 1)}, r"inside has shape \(3, 2, 5, 1\); expected \(3, 2, 5, 5\)"),
    ({"keep": rand(3)}, r"keep has shape \(3,\); expected \(3, 2\)"),
    ({"keep": rand(3, H).to("meta")}, "keep is on meta; expected cpu"),
]
WRONG = {
    "cpu_scan": OF_SCAN + OF_TOKENS + NUMBERS + GATES + STATES,
    "cpu_scan_backward": OF_SCAN + OF_TOKENS + NUMBERS + GATES + STATES + OF_RESULTS,
    "cpu_features": OF_FEATURES,
    "cpu_features_backward": [
        *OF_FEATURES,
        ({"dq": rand(B, T, H, 1)}, r"dq has shape \(1, 6, 2, 1\); expected \(1, 6, 2, 4\)"),
        ({"dk": rand(B, T, H, D).double()}, "dk has dtype float64; expected float32"),
    ],
    "cpu_projected": OF_PROJECTION + OF_TOKENS + NUMBERS,
    "cpu_projected_backward": [
        *OF_PROJECTION,
        *OF_TOKENS,
        *NUMBERS,
        ({"dout": rand(B, T, H, 1)}, r"dout has shape \(1, 6, 2, 1\); expected \(1, 6, 2, 4\)"),
        ({"den": rand(B, T)}, r"den has shape \(1, 6\); expected \(1, 6, 2\)"),
        ({"features": rand(0)}, r"features has shape \(0,\); expected \(1, 6, 2, 2, 4\)"),
        ({"wanted": [True, False, False]}, "wanted is True for log_decay, which is None"),
        ({"wanted": []}, "wanted has length 0; expected 3"),
    ],
    "scan": OF_TORCH_SCAN,
    "scan_backward": [
        *OF_TORCH_SCAN,
        ({"dnum": rand(B, T, H, D)}, r"dnum has shape \(1, 6, 2, 4\); expected \(1, 6, 2, 3\)"),
        ({"dden": rand(B, T, H, 0)}, r"dden has shape \(1, 6, 2, 0\); expected \(1, 6, 2, 1\)"),
        ({"dnum": rand(B, T, H, V).double()}, "dnum has dtype float64; expected float32"),
    ],
    "decayed_scores": OF_SCORES,
    "decayed_scores_backward": [
        *OF_SCORES,
        ({"grad": rand(B, H, T, D)}, r"grad has shape \(1, 2, 6, 4\); expected \(1, 2, 6, 6\)"),
    ],
    "cpu_delta": OF_DELTA,
    "cpu_delta_backward": [
        *OF_DELTA,
        ({"dout": rand(B, T, H, D)}, r"dout has shape \(1, 6, 2, 4\); expected \(1, 6, 2, 3\)"),
        ({"dstates": [None]}, "dstates has length 1; expected 0, as many as the forward pass returns"),
        (
            {"return_states": True, "dstates": [rand(B, H, D, 1), None]},
            r"dstates\[0\] has shape \(1, 2, 4, 1\); expected \(1, 2, 4, 3\)",
        ),
    ],
    "cpu_selective": OF_SELECTIVE,
    "cpu_selective_backward": [
        *OF_SELECTIVE,
        ({"dout": rand(B, T, D)}, r"dout has shape \(1, 6, 4\); expected \(1, 6, 2\) = \[B, T, H\]"),
    ],
    "delta_carry": OF_CARRY,
    "delta_carry_backward": [
        *OF_CARRY,
        ({"dout": rand(3, H, 5, 1)}, r"dout has shape \(3, 2, 5, 1\); expected \(3, 2, 5, 3\)"),
        ({"dlast": rand(H, D)}, r"dlast has shape \(2, 4\); expected \(2, 4, 3\)"),
    ],
}
ROWS = [(name, changes, said) for name, rows in WRONG.items() for changes, said in rows]


def test_all_operators_are_here():
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("lion::")}
    registered = {name for name in registered if not name.startswith("lion::triton_")}  # tests/ops/triton has those
    assert registered == {f"lion::{name}" for name in WRONG} == {f"lion::{name}" for name in OPERATORS}


@pytest.mark.parametrize("name", OPERATORS)
def test_valid_calls(name):
    operator = OPERATORS[name]
    call(name, base(name))
    for seed in range(12):
        torch.manual_seed(SEED + seed)
        arguments = operator.valid(Random(SEED + seed))
        assert operator.fits(arguments), seed
        assert_as_reference(call(name, arguments), operator.reference(arguments), arguments)


@pytest.mark.parametrize(
    ("name", "changes", "said"), ROWS, ids=[f"{x}-{'-'.join(y)}-{i}" for i, (x, y, _) in enumerate(ROWS)]
)
def test_wrong_calls(name, changes, said):
    arguments = base(name) | changes
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=said):
        call(name, arguments)
    if any(isinstance(x, Tensor) and (x.is_meta or x.is_sparse) for x in changes.values()):
        return  # that torch sees itself
    with FakeTensorMode() as mode, pytest.raises((ValueError, TypeError), match=said):
        call(name, tree_map_only(Tensor, mode.from_tensor, arguments))


@pytest.mark.parametrize("name", ["cpu_scan", "cpu_delta", "cpu_features", "cpu_projected", "cpu_selective"])
def test_forward_mode_derivatives_are_refused(name):
    """Rather than lost: the operators know none."""
    arguments = base(name)
    first = next(iter(arguments))
    with forward_ad.dual_level():
        arguments[first] = forward_ad.make_dual(arguments[first], arguments[first])
        with pytest.raises(NotImplementedError, match="forward-mode derivative"):
            call(name, arguments)


def test_only_a_raw_den_has_a_gradient():
    """Of the others it would be lost."""
    arguments = base("cpu_scan")
    arguments["q"] = arguments["q"].clone().requires_grad_()
    out, den, *_ = call("cpu_scan", arguments)
    assert out.requires_grad
    assert not den.requires_grad
    out, den, *_ = call("cpu_scan", arguments | {"norm": 3})
    assert den.requires_grad


def test_memory_that_is_gone():
    arguments = base("cpu_scan")
    arguments["log_decay"].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"a tensor of shape \(1, 6, 2\) has no memory"):
        call("cpu_scan", arguments)


def test_results_are_where_the_inputs_are():
    arguments = base("cpu_features")
    with torch.device("meta"):
        results = call("cpu_features", arguments)
    assert_as_reference(results, OPERATORS["cpu_features"].reference(arguments), arguments)


@pytest.mark.parametrize("length", [0, 5])
def test_a_chunk_is_no_longer_than_the_sequence(length):
    q = rand(1, length, 1, 2)
    out = lion.attention(q, q, q, -rand(1), form="scan", backend="torch", chunk_size=2**31 - 1)
    assert torch.equal(out, lion.attention(q, q, q, -rand(1), form="scan", backend="torch", chunk_size=max(length, 1)))
